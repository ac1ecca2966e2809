"""UPDATE, DELETE and MERGE on append tables of a catalog, compared with a model in Python."""

from __future__ import annotations

import datetime
import os

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, SparkRuntimeException
from pyspark.sql.functions import expr

import spark_ext
from fermion_table import Table
from spark_ext.catalog import row_level
from spark_ext.catalog.writes import python_write
from spark_ext.versions import SCHEMA_EVOLUTION
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark

Row = dict


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `rows`."""
    directory = tmp_path_factory.mktemp("rows")
    spark_ext.install_catalog(spark, "rows", directory)
    return directory


def made(warehouse, name: str, *parts: Row, schema: pa.Schema | None = None, **options) -> Table:
    table = Table.create(warehouse / name, schema or PLAIN, mode="overwrite", **options)
    for part in parts:
        table.append(part)
    return table


PLAIN = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.string())])


def content(table: Table) -> list[tuple]:
    table.refresh()
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def data_files(table: Table) -> set[str]:
    folders = [os.path.join(table.location, name) for name in ("data", "deletion")]
    return {file for folder in folders if os.path.isdir(folder) for file in os.listdir(folder)}


def history(table: Table) -> list[tuple[str, str | None]]:
    return [(each.kind, each.message) for each in table.snapshots()]


DAY = datetime.date(2024, 2, 29)


@pytest.fixture
def sales(warehouse):
    """Partitioned and sorted; files of two schemas, deletion vectors, nulls, a struct."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("shop", pa.string()),
            ("day", pa.date32()),
            ("place", pa.struct({"city": pa.string(), "zip": pa.int32()})),
        ]
    )
    table = Table.create(
        warehouse / "sales",
        schema,
        partition_by=["shop"],
        sort_by=["day", "id"],
        mode="overwrite",
    )

    def rows(start: int, stop: int) -> pa.Table:
        listed = [
            {
                "id": i,
                "shop": None if i % 5 == 0 else f"s{i % 3}",
                "day": None if i % 7 == 0 else DAY + datetime.timedelta(days=i),
                "place": None if i % 4 == 0 else {"city": f"c{i % 2}", "zip": i},
            }
            for i in range(start, stop)
        ]
        return pa.Table.from_pylist(listed, schema=schema)

    table.append(rows(0, 20))
    table.add_columns({"price": pa.decimal128(10, 2)})
    table.append(rows(20, 30).append_column("price", pa.array(range(10), pa.decimal128(10, 2))))
    table.delete("id IN (3, 23)")
    return table


STATEMENTS = [
    (
        "UPDATE rows.sales SET price = coalesce(price, 0) + id, shop = 's9' WHERE id % 6 = 1",
        lambda row: (
            {**row, "price": (row["price"] or 0) + row["id"], "shop": "s9"}
            if row["id"] % 6 == 1
            else row
        ),
    ),
    (
        "UPDATE rows.sales SET place.zip = NULL WHERE place.city = 'c1' AND id > 10",
        lambda row: (
            {**row, "place": {**row["place"], "zip": None}}
            if row["place"] and row["place"]["city"] == "c1" and row["id"] > 10
            else row
        ),
    ),
    (
        "UPDATE rows.sales SET shop = (SELECT max(shop) FROM rows.sales) "
        "WHERE id IN (SELECT id + 1 FROM rows.sales WHERE shop IS NULL)",
        lambda row: {**row, "shop": "s9"} if row["id"] in (1, 6, 11, 16, 21) else row,
    ),
    (
        "DELETE FROM rows.sales WHERE id NOT IN (SELECT id FROM range(0, 27))",
        lambda row: None if row["id"] >= 27 else row,
    ),
    (
        "DELETE FROM rows.sales AS t WHERE EXISTS "
        "(SELECT 1 FROM range(0, 9) r WHERE r.id * 2 = t.id)",
        lambda row: None if row["id"] in range(0, 18, 2) else row,
    ),
    ("UPDATE rows.sales SET day = NULL WHERE id % 2 = 5", lambda row: row),
    ("DELETE FROM rows.sales WHERE shop = 's9'", lambda row: None if row["shop"] == "s9" else row),
]


def test_updates_and_deletes_agree_with_a_model(spark, sales):
    """Statement after statement: rows as a function makes them, one snapshot each or none."""
    model = {row["id"]: row for row in sales.scan().to_arrow().to_pylist()}
    for statement, change in STATEMENTS:
        before = sales.snapshot.id
        spark.sql(statement)
        changed = {row["id"]: change(row) for row in model.values()}
        rows = sales.refresh() and sales.scan().to_arrow().to_pylist()
        assert {row["id"]: row for row in rows} == {i: r for i, r in changed.items() if r}, (
            statement
        )
        assert len(rows) == len({row["id"] for row in rows})
        assert sales.snapshot.id - before == (changed != model), statement
        model = {i: row for i, row in changed.items() if row}
    assert [kind for kind, _ in history(sales)[-6:]] == ["upsert"] * 3 + ["delete"] * 3
    assert sales.verify(data=True).ok
    plan = sales.scan(filter="shop = 's0'").plan()
    assert len(plan.splits) < sales.snapshot.totals.files  # what was written is partitioned


SOURCE = """(SELECT * FROM VALUES (1L, 'one'), (2L, 'gone'), (7L, 'same'), (20L, 'new'),
  (21L, 'not this'), (CAST(NULL AS BIGINT), 'null') AS v(id, n)) s"""
CLAUSES = """
WHEN MATCHED AND s.n = 'gone' THEN DELETE
WHEN MATCHED AND t.n = 'keep' THEN UPDATE SET n = 'never'
WHEN MATCHED AND s.n <> 'same' THEN UPDATE SET *
WHEN NOT MATCHED AND s.n = 'not this' THEN INSERT (id, n) VALUES (s.id + 100, upper(s.n))
WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE
WHEN NOT MATCHED BY SOURCE AND t.id > 5 THEN UPDATE SET n = concat(t.n, '!')"""
MERGED = [(1, "one"), (121, "NOT THIS"), (20, "new"), (3, "c"), (4, None), (6, "f!"), (7, "g")]


def test_merge_carries_out_the_first_clause_that_holds(spark, warehouse):
    """All clauses; a null key matches nothing, conditions go in order, a row stays untouched."""
    parts = {"id": [1, 2, 3, 4], "n": ["a", "b", "c", None]}, {"id": [5, 6, 7], "n": [*"efg"]}
    table = made(warehouse, "merged", *parts)
    spark.sql(f"MERGE INTO rows.merged t USING {SOURCE} ON t.id = s.id {CLAUSES}")
    assert content(table) == MERGED
    by_id = table.scan(columns=["id", "_row_id"]).to_arrow().to_pylist()
    assert {row["id"] for row in by_id if row["_row_id"] < 7} == {3, 4, 7}
    source = spark.createDataFrame([(3, "x"), (4, "y"), (300, "z")], "id long, n string")
    merge = source.alias("s").mergeInto("rows.merged", expr("s.id = merged.id"))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
    spark.sql(
        "MERGE INTO rows.merged t USING rows.merged s ON t.id = s.id + 1 "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE"
    )
    assert content(table) == [
        (121, "NOT THIS"), (20, "new"), (3, "x"), (300, "z"), (4, "x"), (6, "f!"), (7, "f!"),
    ]  # fmt: skip
    assert history(table)[3:] == [("upsert", "merge")] * 3


FAILING = [
    (
        "MERGE INTO rows.failing t USING (SELECT id % 2 AS id FROM range(4)) s ON t.id = s.id "
        "WHEN MATCHED AND t.n <> 'z' THEN DELETE",
        "MERGE_CARDINALITY_VIOLATION",
    ),
    ("UPDATE rows.failing SET n = if(id = 5, raise_error('boom'), 'x')", "boom"),
    ("UPDATE rows.failing SET id = if(n = 'f', NULL, id)", "NOT_NULL_ASSERT_VIOLATION"),
    ("UPDATE rows.failing SET id = id + 9223372036854775807", "ARITHMETIC_OVERFLOW"),
    ("UPDATE rows.failing SET n = udf_that_fails(n)", "ZeroDivisionError"),
    ("UPDATE rows.failing SET n = (SELECT n FROM rows.failing)", "SCALAR_SUBQUERY_TOO_MANY_ROWS"),
    (
        "DELETE FROM rows.failing WHERE n = (SELECT n FROM rows.failing)",
        "SCALAR_SUBQUERY_TOO_MANY_ROWS",
    ),
]


def test_a_statement_that_fails_changes_nothing(spark, warehouse):
    """Spark's own errors arrive as they are; no snapshot, and no file is left."""
    table = made(warehouse, "failing", {"id": [*range(6)], "n": [*"abcdef"]})
    spark.udf.register("udf_that_fails", lambda text: str(1 / (ord(text) - ord("f"))))
    files = data_files(table)
    for statement, said in FAILING:
        with pytest.raises(PySparkException, match=said) as error:
            spark.sql(statement)
        assert "raised by the Python Proxy" not in str(error.value), statement
        assert data_files(table) == files, statement
    assert table.refresh().id == 1
    with pytest.raises(SparkRuntimeException):
        spark.sql(FAILING[0][0])


def test_an_error_of_spark_that_java_would_hide_keeps_its_class_and_words(spark, warehouse):
    """It is a checked exception, which a proxy wraps into one that says nothing."""
    made(warehouse, "failing", {"id": [1, 2], "n": ["a", "b"]})
    with pytest.raises(SparkRuntimeException) as error:
        spark.sql("UPDATE rows.failing SET n = (SELECT n FROM rows.failing)")
    assert error.value.getCondition() == "SCALAR_SUBQUERY_TOO_MANY_ROWS"
    assert error.value.getSqlState() == "21000"
    assert "SET n = (SELECT n FROM rows.failing)" in str(error.value)


REFUSED = [
    ("UPDATE rows.fine SET n = 'x'", "column 'at' has nanoseconds"),
    (
        "MERGE INTO rows.fine t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = 'x'",
        "column 'at' has nanoseconds",
    ),
    ("UPDATE rows.batched SET n = 'x' WHERE id = 1", "was written in batches"),
]


@pytest.mark.long
def test_what_spark_can_not_keep_is_refused(spark, warehouse):
    """Nanoseconds and batches would be lost from updated rows; deleting such rows works."""
    fine = pa.schema([*PLAIN, ("at", pa.timestamp("ns"))])
    tables = [
        made(warehouse, "fine", {"id": [1, 2], "n": ["a", "b"], "at": [1, 2]}, schema=fine),
        made(warehouse, "batched"),
    ]
    tables[1].append_batch(7, {"id": [1, 2], "n": ["a", "b"]})
    files = list(map(data_files, tables))
    for statement, said in REFUSED:
        with pytest.raises(PySparkException, match=said):
            spark.sql(statement)
    assert list(map(data_files, tables)) == files
    for table in tables:
        name = os.path.basename(table.location)
        spark.sql(f"DELETE FROM rows.{name} WHERE id IN (SELECT 2)")
        assert [row[0] for row in content(table)] == [1]


CONCURRENT = {
    "rows that it reads": (lambda table: table.append({"id": [40], "n": ["z"]}), False),
    "rows that it does not read": (lambda table: table.append({"id": [400], "n": ["z"]}), True),
    "a row that it changes": (lambda table: table.delete("id = 2"), False),
    "its file": (lambda table: table.compact(), False),
    "another file": (lambda table: table.delete("id = 100"), True),
    "the schema": (lambda table: table.add_columns({"more": pa.int32()}), False),
}


@pytest.mark.parametrize("what", CONCURRENT)
def test_a_commit_that_comes_first(spark, warehouse, monkeypatch, what):
    """Between the tasks and the commit: the statement follows it, or fails and leaves nothing."""
    commit, follows = CONCURRENT[what]
    table = made(
        warehouse, "raced", {"id": [1, 2, 3], "n": [*"abc"]}, {"id": [100, 101], "n": ["y", "w"]}
    )
    run = row_level.run_changes
    written: list[str] = []

    def run_and_lose(*arguments):
        done = run(*arguments)
        commit(table)
        written.extend(entry.path for each in done.messages for entry in each.entries)
        return done

    monkeypatch.setattr(row_level, "run_changes", run_and_lose)
    statement = "UPDATE rows.raced SET n = upper(n) WHERE id < 50 AND id % 2 = 0"
    if follows:
        spark.sql(statement)
        assert (2, "B") in content(table)
        return
    before = table.snapshot.id
    with pytest.raises(PySparkException, match="run the statement again"):
        spark.sql(statement)
    assert not [row for row in content(table) if row[1] == "B"]
    assert table.snapshot.id == before + 1
    assert written
    assert not any(table.store.exists(path) for path in written)


def test_a_writer_that_gets_single_rows_loses_none_silently(spark, warehouse, monkeypatch):
    """Spark's own Python writer loses them, so it must not get into a plan.

    A statement whose query Spark runs once more, as if the plan had kept it, fails too.
    """
    table = made(warehouse, "lossy", {"id": [1, 2, 3], "n": [*"abc"]})
    files = data_files(table)
    statement = "UPDATE rows.lossy SET n = 'x' WHERE id % 2 = 1"

    def python_writer(self, info):
        self._info = info
        return Lossy(self._jvm, self, {})

    class Lossy(row_level.RowLevelWriteBuilder):
        def build(self):
            options = {"path": table.location}
            return python_write(self._jvm, self._operation._info, options, overwrites=False)

    for name, replaced in (
        ("RowLevelOperation.newWriteBuilder", python_writer),
        ("empty_query", lambda jvm, node: None),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"spark_ext.catalog.row_level.{name}", replaced)
            with pytest.raises((PySparkException, Py4JJavaError), match="DeltaWrite"):
                spark.sql(statement)
        assert content(table) == [(1, "a"), (2, "b"), (3, "c")]
        assert data_files(table) == files


def test_statements_are_refused_where_the_takeover_does_not_work(spark, warehouse, monkeypatch):
    """As if Spark's plan had changed: filters still delete, and everything else works."""
    table = made(warehouse, "refused", {"id": [1, 2, 3], "n": [*"abc"]})
    monkeypatch.setattr("spark_ext.catalog.takeover.NODE", "org.apache.spark.sql.NoSuchNode")
    spark_ext.install_catalog(spark, "limited", warehouse)
    for statement in (
        "UPDATE limited.refused SET n = 'x'",
        "DELETE FROM limited.refused WHERE id IN (SELECT 1)",
        "MERGE INTO limited.refused t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(PySparkException, match=r"does not work with this Spark \(.*NoSuchNode"):
            spark.sql(statement)
    spark.sql("DELETE FROM limited.refused WHERE id = 3")
    spark.sql("INSERT INTO limited.refused VALUES (4, 'd')")
    assert content(table) == [(1, "a"), (2, "b"), (4, "d")]


def test_the_places_of_rows_can_be_selected(spark, warehouse):
    """Also of a file with deleted rows, with a filter, and where a column has the name."""
    table = made(warehouse, "placed", {"id": [1, 2, 3], "n": [*"abc"]}, {"id": [4], "n": ["d"]})
    table.delete("id = 1")
    files = [entry.file for entry in table.scan().entries[0]]
    query = "SELECT _pos, id, _file, _row_id FROM rows.placed WHERE {} ORDER BY id"
    expected = [(1, 2, files[0], 1), (2, 3, files[0], 2), (0, 4, files[1], 3)]
    assert [tuple(row) for row in spark.sql(query.format("true")).collect()] == expected
    assert [tuple(row) for row in spark.sql(query.format("id > 2")).collect()] == expected[1:]
    assert spark.sql("SELECT count(DISTINCT _file) FROM rows.placed").collect()[0][0] == 2
    named = pa.schema([("_file", pa.string()), ("id", pa.int64())])
    made(warehouse, "named", {"_file": ["mine"], "id": [5]}, schema=named)
    assert tuple(spark.sql("SELECT _pos, _file FROM rows.named").collect()[0]) == (0, "mine")


def test_virtual_columns_say_which_rows_are_changed(spark, warehouse):
    """Spark gave them to the rows that are written, which was an error: also keys of maps."""
    schema = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
    named = {"fermion.shred.m": "a"}
    table = Table.create(warehouse / "virtual", schema, properties=named)
    table.append({"id": [1, 2, 3], "m": [[("a", 1)], [("a", 5)], None]})
    spark.sql("UPDATE rows.virtual SET id = id + 10 WHERE `m['a']` % 2 = 1 AND _pos > 0")
    spark.sql("DELETE FROM rows.virtual WHERE `m['a']` < 5")
    assert content(table) == [(12, [("a", 5)]), (3, None)]


@needs(SCHEMA_EVOLUTION)
def test_schema_evolution_adds_columns_first(spark, warehouse):
    """By a snapshot of their own; without the words a new column of the source is not taken."""
    table = made(warehouse, "evolving", {"id": [1], "n": ["a"]})
    source = "(SELECT * FROM VALUES (1L, 'x', 2), (2L, 'y', 3) AS v(id, n, more)) s ON t.id = s.id"
    clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    spark.sql(f"MERGE INTO rows.evolving t USING {source} {clauses}")
    assert content(table) == [(1, "x"), (2, "y")]
    merge = "MERGE WITH SCHEMA EVOLUTION INTO rows.evolving t USING"
    spark.sql(f"EXPLAIN {merge} {source} {clauses}")
    spark.sql(f"{merge} {source} {clauses}")
    assert content(table) == [(1, "x", 2), (2, "y", 3)]
    assert [kind for kind, _ in history(table)[2:]] == ["upsert", "schema", "upsert"]
