"""Appends from Spark: tasks write files, the driver commits once, or nothing is visible."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql import types as st

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table, TableNotFound
from spark_ext.session import settings
from tests.kit.spark.counting import tasks_started
from tests.kit.tables.warehouses import ids, rows

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def named(spark, rows, parts=2):
    """A frame of ids and names."""
    name = functions.concat(functions.lit("n"), "id")
    return spark.range(0, rows, numPartitions=parts).select("id", name.alias("name"))


def data_files(path: Path) -> list[Path]:
    """Every object below data/, finished or not."""
    return sorted(file for file in (path / "data").rglob("*") if file.is_file())


def failing(spark, path, rows):
    """A frame of two tasks: the second fails at its last row, when the first has finished."""

    def check(number):
        if number == rows - 1:
            while not list(path.glob("data/*.fermion")):
                time.sleep(0.05)
            time.sleep(1)  # the news of the finished task reach the driver
            raise RuntimeError("a row that cannot be made")
        return number

    made = functions.udf(check, st.LongType())
    return spark.range(0, rows, numPartitions=2).select(
        made("id").alias("id"), functions.lit("x").alias("name")
    )


def test_an_append_is_one_snapshot_of_a_file_for_each_task(spark, table_path):
    table = Table.create(table_path, SCHEMA)
    snapshot = spark_ext.append(named(spark, 1000, parts=3), table_path, message="from Spark")
    assert (snapshot.id, snapshot.kind, snapshot.message) == (1, "append", "from Spark")
    table.refresh()
    assert (table.snapshot.totals.files, table.snapshot.totals.rows) == (3, 1000)
    assert len(data_files(table_path)) == 3
    found = table.scan().to_arrow().sort_by("id")
    assert found.to_pylist() == [{"id": i, "name": f"n{i}"} for i in range(1000)]
    assert table.verify(data=True).ok


def test_a_missing_table_is_an_error_and_stays_missing(spark, table_path):
    with pytest.raises(TableNotFound, match=str(table_path)):
        spark_ext.append(named(spark, 1), table_path)
    assert not table_path.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda df: df.withColumnRenamed("name", "nam"), r"\+ nam: string: not in the table"),
        (lambda df: df.withColumn("id", functions.lit("x")), "~ id: the table has int64"),
        (lambda df: df.drop("id"), "- id: int64 not null: not in the data"),
        (lambda df: df.select("id", "name", "name"), "more than one column of this name"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_any_task(spark, table_path, change, said):
    Table.create(table_path, SCHEMA)

    def append():
        with pytest.raises(SchemaMismatch, match=said):
            spark_ext.append(change(named(spark, 10)), table_path)

    assert tasks_started(spark, append) == 0
    assert Table.open(table_path).snapshot.id == 0
    assert data_files(table_path) == []


def test_a_failing_task_leaves_nothing_visible(spark, table_path):
    """A file of which the driver has not heard yet is an orphan, and removed as one."""
    table = Table.create(table_path, SCHEMA)
    with pytest.raises(PySparkException, match="cannot be made") as caught:
        spark_ext.append(failing(spark, table_path, 40_000), table_path)
    assert any("nothing of this job was published" in note for note in caught.value.__notes__)
    assert table.refresh().id == 0
    assert spark_ext.append(named(spark, 5), table_path).id == 1
    assert table.refresh().totals.rows == table.scan().count() == 5
    table.remove_orphan_files(older_than=timedelta(0))
    assert len(data_files(table_path)) == table.snapshot.totals.files


def test_a_null_where_the_table_forbids_it_fails_the_job(spark, table_path):
    Table.create(table_path, SCHEMA)
    with_null = named(spark, 10).withColumn("id", functions.nullif("id", functions.lit(7)))
    with pytest.raises(PySparkException, match="'id' is NOT NULL"):
        spark_ext.append(with_null, table_path)
    assert len(data_files(table_path)) <= 1  # of the other task, if the driver had not heard of it


def test_the_same_commit_identifier_is_appended_once(spark, table_path):
    table = Table.create(table_path, SCHEMA)
    first = spark_ext.append(named(spark, 10), table_path, commit_user="job", commit_identifier=5)
    spark_ext.append(named(spark, 1), table_path)

    def again():
        frame = named(spark, 10)  # 5 and "5" are one identifier
        again = spark_ext.append(frame, table_path, commit_user="job", commit_identifier="5")
        assert again.id == first.id

    assert tasks_started(spark, again) == 0
    table.refresh()
    assert (table.snapshot.id, table.snapshot.totals.rows) == (2, 11)
    assert len(data_files(table_path)) == table.snapshot.totals.files


def test_half_a_commit_name_is_refused(spark, table_path):
    Table.create(table_path, SCHEMA)
    with pytest.raises(InvalidArgumentError, match="both or neither"):
        spark_ext.append(named(spark, 1), table_path, commit_user="job")


def test_a_frame_without_rows_makes_no_snapshot(spark, table_path):
    """A message asks for one."""
    table = Table.create(table_path, SCHEMA)
    assert spark_ext.append(named(spark, 0), table_path).id == 0
    assert spark_ext.append(named(spark, 0), table_path, message="nothing").id == 1
    assert table.refresh().totals.files == 0
    assert data_files(table_path) == []


def test_merging_adds_columns_at_any_depth(spark, table_path):
    table = Table.create(table_path, pa.schema([("s", pa.struct({"a": pa.uint8()}))]))
    frame = spark.createDataFrame(
        [((1, "x"), 0.5)], "s struct<a: smallint, b: string>, extra double"
    )
    with pytest.raises(SchemaMismatch):
        spark_ext.append(frame, table_path)
    assert spark_ext.append(frame, table_path, schema_mode="merge").id == 1
    table.refresh()
    assert table.schema.to_arrow(field_ids=False) == pa.schema(
        [("s", pa.struct({"a": pa.uint8(), "b": pa.string()})), ("extra", pa.float64())]
    )
    assert table.scan().to_arrow().to_pylist() == [{"s": {"a": 1, "b": "x"}, "extra": 0.5}]


def test_names_and_types_of_the_table_are_kept(spark, table_path):
    """Dots and backquotes in names; types that Spark has only wider ones for."""
    schema = pa.schema(
        [
            ("a.b`c", pa.uint16()),
            ("kind", pa.dictionary(pa.int8(), pa.string())),
            ("at", pa.timestamp("ns", "Europe/Paris")),
            ("half", pa.float16()),
        ]
    )
    table = Table.create(table_path, schema)
    frame = spark.sql(
        "select 0.5f as half, timestamp'1969-12-31 23:59:59.999999Z' as at, 'x' as kind,"
        " 65535 as `a.b``c`"
    )
    spark_ext.append(frame, table_path)
    table.refresh()
    found = table.scan().to_arrow()
    assert found.schema.equals(schema)
    assert found["a.b`c"].to_pylist() == [65535]
    assert found["at"].cast(pa.int64()).to_pylist() == [-1000]


def test_a_value_that_does_not_fit_the_tables_type_fails_the_job(spark, table_path):
    Table.create(table_path, pa.schema([("n", pa.uint8())]))
    with pytest.raises(PySparkException, match="column 'n'"):
        spark_ext.append(
            spark.range(255, 257).select(functions.col("id").cast("short").alias("n")), table_path
        )
    assert Table.open(table_path).snapshot.id == 0


@pytest.mark.parametrize(("cluster", "files"), [(True, 3), (False, 6)])
def test_rows_of_a_partition_are_brought_together(spark, table_path, cluster, files):
    """Without clustering each of the two tasks makes a file for each of the three partitions."""
    table = Table.create(table_path, SCHEMA, partition_by="name")
    frame = spark.range(0, 90, numPartitions=2).select(
        "id", functions.format_string("p%d", functions.col("id") % 3).alias("name")
    )
    spark_ext.append(frame, table_path, cluster=cluster)
    table.refresh()
    assert table.snapshot.totals.files == files
    assert table.scan(filter="name = 'p1'").count() == 30


def test_transforms_of_columns_bring_rows_together_too(spark, table_path):
    """Four tasks; a partition is a day and one of two buckets, so there are at most four."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = Table.create(table_path, schema, partition_by=["day(at)", "bucket(2, id)"])
    frame = spark.range(0, 100, numPartitions=4).select(
        "id",
        functions.expr("timestamp'2024-02-29 12:00:00Z' + make_dt_interval(id % 2)").alias("at"),
    )
    spark_ext.append(frame, table_path)
    table.refresh()
    assert table.snapshot.totals.files == 4
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(100))


def test_files_of_a_sorted_table_span_disjoint_ranges(spark, table_path):
    table = Table.create(table_path, SCHEMA, sort_by="id")
    mixed = named(spark, 1000, parts=4).orderBy(functions.reverse("name"))
    # Spark would put partitions this small together again.
    with settings(spark, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        spark_ext.append(mixed, table_path)
    table.refresh()
    parts = [list(table.scan().reader.read(split)) for split in table.scan().plan().splits]
    found = [[number for batch in part for number in batch["id"].to_pylist()] for part in parts]
    assert len(found) == 2
    assert sorted(found) == [list(range(found_[0], found_[-1] + 1)) for found_ in sorted(found)]


def test_two_jobs_append_at_once(spark, table_path):
    """The tasks of each wait until one of the other has begun; each is one snapshot, none waits."""
    Table.create(table_path, SCHEMA)
    begun = table_path.parent

    def job(name, other, start):
        def meet(number):
            (begun / name).touch()
            while not (begun / other).exists():
                time.sleep(0.02)
            return number

        rows = spark.range(start, start + 500, numPartitions=1)
        met = functions.udf(meet, st.LongType())("id").alias("id")
        return spark_ext.append(rows.select(met, functions.lit(name).alias("name")), table_path)

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(job, "one", "two", 0), pool.submit(job, "two", "one", 500)]
        assert sorted(each.result(120).id for each in jobs) == [1, 2]
    table = Table.open(table_path)
    assert [snapshot.deltas.rows_added for snapshot in table.snapshots()] == [0, 500, 500]
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": i, "name": "one" if i < 500 else "two"} for i in range(1000)]
    assert len(data_files(table_path)) == 2


def test_changes_of_debezium_are_upserted_as_they_are(spark, table_path, tmp_path):
    """Envelopes of a JSON reader, within a payload and flat; the last of a key counts."""
    table = Table.create(table_path, SCHEMA, primary_key="id")
    changes = [
        {"op": "r", "before": None, "after": {"id": 1, "name": "a"}, "ts_ms": 5},
        {"op": "c", "before": None, "after": {"id": 2, "name": "b"}},
        {"op": None},  # a tombstone
        {"op": "u", "before": None, "after": {"id": 1, "name": "A"}},
        {"op": "d", "before": {"id": 2, "name": None}, "after": None},
        {"op": "c", "before": None, "after": {"id": 3, "name": "c"}},
    ]

    def frame(rows):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return spark.read.json(str(path))

    def shown():
        table.refresh()
        return {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}

    spark_ext.upsert(frame(changes[:2]), table_path, format="debezium")  # `before` has no value
    assert shown() == {1: "a", 2: "b"}
    snapshot = spark_ext.upsert(frame(changes), table_path, format="debezium", message="changes")
    assert (snapshot.kind, snapshot.message) == ("append", "changes")
    assert shown() == {1: "A", 3: "c"}
    wrapped = frame([{"payload": {**changes[1], "op": "u"}}, {"payload": changes[4]}])
    spark_ext.upsert(wrapped, table_path, format="debezium")
    assert shown() == {1: "A", 3: "c"}
    flat = spark.createDataFrame(
        [(3, "c", "d"), (4, "d", "c")], "ID long, name string, __op string"
    )
    spark_ext.upsert(flat.coalesce(1), table_path, change_type="__op", format="debezium")
    assert shown() == {1: "A", 4: "d"}
    more = frame([{"op": "c", "after": {"id": 5, "name": "e", "city": "Riga"}}])
    spark_ext.upsert(more, table_path, format="debezium", schema_mode="merge")
    table.refresh()
    assert table.columns == ["id", "name", "city"]


def test_what_debezium_does_not_give_is_refused_and_writes_nothing(spark, table_path):
    table = Table.create(table_path, SCHEMA, primary_key="id")
    flat = spark.createDataFrame([(1, "a", "x")], "id long, name string, op string")
    with pytest.raises(PySparkException, match="'x'"):
        spark_ext.upsert(flat, table_path, format="debezium")
    with pytest.raises(InvalidArgumentError, match="format='avro': expected None or 'debezium'"):
        spark_ext.upsert(flat, table_path, format="avro")
    with pytest.raises(InvalidArgumentError, match="expected one column of this name"):
        spark_ext.upsert(flat, table_path, change_type="kind", format="debezium")
    assert table.refresh().id == 0
    assert data_files(table_path) == []


def test_tasks_write_and_a_transaction_over_several_tables_commits(spark, two):
    """All functions that write; nothing is visible before the end, and a failure leaves nothing."""
    two.create_table("merged", rows(1).schema).append(rows(1, 2))
    two.create_table("keyed", rows(1).schema, primary_key="id", properties={"bucket": "1"})
    frame = spark.range(10, 12)

    def write(tx):
        assert spark_ext.append(frame, tx.table("a"), message="from tasks").id == 1
        spark_ext.append(
            frame.withColumn("x", functions.lit(1)), tx.table("a"), schema_mode="merge"
        )
        spark_ext.overwrite(frame, tx.table("db.b"), filter="id = 1")
        spark_ext.upsert(frame, tx.table("keyed"))
        merging = spark_ext.merge(spark, tx.table("merged"), spark.range(2, 4), on=["id"])
        merged = merging.when_matched_delete().when_not_matched_insert().execute()
        assert (merged.rows_inserted, merged.rows_deleted) == (1, 1)
        tx.table("merged").append(rows(5))

    tx = two.transaction()
    write(tx)
    second = spark_ext.merge(spark, tx.table("merged"), frame, on="id").when_not_matched_insert()
    with pytest.raises(InvalidArgumentError, match="first change of the table"):
        second.execute()
    assert all(two.table(name).snapshot.id <= 1 for name in two.tables())
    tx.abort()
    files = {name: len(data_files(Path(two.location, *name.split(".")))) for name in two.tables()}
    assert files == {"a": 1, "db.b": 1, "keyed": 0, "merged": 1}
    with two.transaction() as tx:
        write(tx)
    shown = {name: ids(two.table(name)) for name in two.tables()}
    assert shown == {
        "a": [1, 10, 10, 11, 11],
        "db.b": [10, 11],
        "keyed": [10, 11],
        "merged": [1, 3, 5],
    }
    assert two.table("a").snapshot.message == "from tasks"
    assert len({two.table(name).snapshot.transaction.id for name in shown}) == 1
    with two.transaction() as tx:
        for wrong in ({"branch": "main"}, {"commit_user": "me", "commit_identifier": 1}):
            with pytest.raises(InvalidArgumentError, match="not of one change of a transaction"):
                spark_ext.append(frame, tx.table("a"), **wrong)
