"""UPDATE, DELETE and MERGE on primary-key tables of a catalog."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion_table import Table
from spark_ext.catalog import row_level

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        ("text", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `keyed`."""
    directory = tmp_path_factory.mktemp("keyed")
    spark_ext.install_catalog(spark, "keyed", directory)
    return directory


def made(warehouse, name: str, **settings: str) -> Table:
    """Rows 0 to 9, each changed once since; partitioned by a column of the key."""
    properties = {"bucket": "2", **{key.replace("__", "."): settings[key] for key in settings}}
    table = Table.create(
        warehouse / name,
        SCHEMA,
        primary_key=["kind", "id"],
        partition_by=["kind"],
        properties=properties,
        mode="overwrite",
    )
    for n in (1, 2):
        columns = {
            "id": range(10),
            "kind": [f"k{i % 2}" for i in range(10)],
            "n": [n] * 10,
            "text": [None if i % 3 == 0 else f"{i}" for i in range(10)],
        }
        table.upsert(pa.table(columns, SCHEMA))
    return table


def content(table: Table) -> dict[int, tuple]:
    table.refresh()
    rows = table.scan().to_arrow().to_pylist()
    assert len({(row["kind"], row["id"]) for row in rows}) == len(rows)
    return {row["id"]: (row["kind"], row["n"], row["text"]) for row in rows}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sequence__field": "n", "deletion_vectors__enabled": "true"},
        {"merge_engine": "partial_update", "partial_update__remove_record_on_delete": "true"},
    ],
    ids=["deduplicate", "sequence", "partial_update"],
)
def test_statements_change_rows_by_key(spark, warehouse, settings):
    """Keys move too, also onto keys that other rows leave; one snapshot each."""
    table = made(warehouse, "t", **settings)
    model = content(table)
    assert len(model) == 10
    spark.sql("UPDATE keyed.t SET text = concat('u', id) WHERE id IN (SELECT 2 UNION SELECT 3)")
    model |= {i: (model[i][0], model[i][1], f"u{i}") for i in (2, 3)}
    assert content(table) == model
    spark.sql("UPDATE keyed.t SET id = id + 2 WHERE id % 2 = 1")
    model = {i + 2 * (i % 2): row for i, row in model.items()}
    assert content(table) == model
    spark.sql("DELETE FROM keyed.t WHERE length(text) = 2 OR id IN (SELECT 0)")
    model = {i: row for i, row in model.items() if i and (row[2] is None or len(row[2]) != 2)}
    assert content(table) == model
    spark.sql(
        "MERGE INTO keyed.t t USING (SELECT id, concat('k', id % 2) AS kind, 3L AS n, 'm' AS text "
        "FROM range(4, 20)) s ON t.id = s.id AND t.kind = s.kind "
        "WHEN MATCHED AND t.id = 4 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND s.id < 18 THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 4 THEN UPDATE SET text = 'left'"
    )
    for i in range(4, 18):
        model[i] = (f"k{i % 2}", 3, "m")
    model = {i: row for i, row in model.items() if i != 4}
    model |= {i: (*row[:2], "left") for i, row in model.items() if i < 4}
    assert content(table) == model
    kinds = [each.kind for each in table.snapshots() if each.kind != "compact"]
    assert kinds[-4:] == ["upsert", "upsert", "delete", "upsert"]
    assert table.verify(data=True).ok
    table.compact(full=True)
    assert content(table) == model


def test_names_of_columns_need_no_care(spark, warehouse):
    """Dots and backquotes, also in the primary key."""
    schema = pa.schema([pa.field("k.1", pa.int64(), nullable=False), ("v`2", pa.int64())])
    properties = {"bucket": "2"}
    table = Table.create(
        warehouse / "named", schema, primary_key=["k.1"], properties=properties, mode="overwrite"
    )
    table.upsert({"k.1": [1, 2, 3], "v`2": [0, 0, 0]})
    spark.sql("UPDATE keyed.named SET `v``2` = 5 WHERE `k.1` % 2 = 1")
    spark.sql("DELETE FROM keyed.named WHERE `k.1` IN (SELECT 1L)")
    table.refresh()
    assert table.scan().to_arrow().sort_by("v`2").to_pydict() == {"k.1": [2, 3], "v`2": [0, 5]}


REFUSED = [
    ("UPDATE keyed.r SET id = 5 WHERE kind = 'k1'", "two rows of this statement have one key"),
    ("UPDATE keyed.r SET id = id + 2 WHERE id = 1", "would replace it"),
    ("UPDATE keyed.r SET n = 7 WHERE id = 1", "a column of sequence.field is set"),
    (
        "MERGE INTO keyed.r t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = 100",
        "a column of the primary key is set",
    ),
    (
        "MERGE INTO keyed.r t USING (SELECT 1L AS id, 'k1' AS kind, 'x' AS text) s "
        "ON t.text = s.text WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, kind, n) VALUES (s.id, s.kind, 9)",
        "would replace it",
    ),
]


def test_what_would_lose_rows_of_a_key_is_refused(spark, warehouse):
    """And nothing of it is left."""
    table = made(warehouse, "r", sequence__field="n")
    before, files = content(table), set(warehouse.glob("r/data/**"))
    for statement, said in REFUSED:
        with pytest.raises(PySparkException, match=said):
            spark.sql(statement)
    kept = made(warehouse, "k", merge_engine="first_row")
    with pytest.raises(PySparkException, match="merge_engine=first_row can't be removed"):
        spark.sql("DELETE FROM keyed.k WHERE length(text) = 1")
    assert (content(table), set(warehouse.glob("r/data/**"))) == (before, files)
    assert len(content(kept)) == 10


def test_a_commit_that_comes_first_by_key(spark, warehouse, monkeypatch):
    """Of keys that the statement's filter leaves out it does not matter, of others it does."""
    table = made(warehouse, "raced")
    run = row_level.run_keyed_changes
    late = [("k1", True), ("k0", False)]

    def run_and_lose(*arguments):
        done = run(*arguments)
        row = {"id": [50], "kind": [late[0][0]], "n": [1], "text": ["late"]}
        Table.open(table.location).upsert(pa.table(row, SCHEMA))
        return done

    monkeypatch.setattr(row_level, "run_keyed_changes", run_and_lose)
    statement = "UPDATE keyed.raced SET text = 'now' WHERE kind = 'k0' AND length(text) = 1"
    spark.sql(statement)
    assert content(table)[2] == ("k0", 2, "now")
    late.pop(0)
    with pytest.raises(PySparkException, match="run the statement again"):
        spark.sql(statement.replace("now", "never").replace("length(text) = 1", "id % 2 = 0"))
    assert content(table)[2] == ("k0", 2, "now")
