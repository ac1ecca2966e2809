"""Overwriting from Spark: rows in the place of others, as one snapshot, or none at all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import SchemaMismatch, Table, TableExists, TableNotFound

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def frame(spark, start, stop, *, days=3):
    """Ids and days; day `d0` has the multiples of three."""
    day = functions.format_string("d%d", functions.col("id") % days)
    return spark.range(start, stop, numPartitions=2).select("id", day.alias("day"))


@pytest.fixture
def table(spark, table_path):
    """Thirty rows in partitions d0, d1 and d2."""
    made = Table.create(table_path, SCHEMA, partition_by="day")
    spark_ext.append(frame(spark, 0, 30), table_path)
    return made


def rows(table: Table) -> list[tuple]:
    table.refresh()
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def days(table: Table) -> dict[str, int]:
    table.refresh()
    counts = table.scan().to_arrow().group_by("day").aggregate([("id", "count")]).to_pylist()
    return {row["day"]: row["id_count"] for row in counts}


def test_all_rows_are_replaced_as_one_snapshot(spark, table, table_path):
    snapshot = spark_ext.overwrite(frame(spark, 100, 104), table_path, message="anew")
    assert (snapshot.id, snapshot.kind, snapshot.message) == (2, "overwrite", "anew")
    assert [number for number, _ in rows(table)] == [100, 101, 102, 103]
    assert table.scan(snapshot_id=1).count() == 30
    assert table.verify(data=True).ok


def test_a_filter_says_which_rows_go(spark, table, table_path):
    spark_ext.overwrite(frame(spark, 100, 102), table_path, filter="id < 20")
    assert [number for number, _ in rows(table)] == [*range(20, 30), 100, 101]


def test_dynamic_replaces_only_the_partitions_that_are_written(spark, table, table_path):
    spark_ext.overwrite(frame(spark, 100, 103, days=1), table_path, dynamic=True)
    assert days(table) == {"d0": 3, "d1": 10, "d2": 10}


def test_a_table_may_be_overwritten_with_what_is_read_from_it(spark, table, table_path):
    read = spark_ext.read_table(spark, table_path).where("id % 2 = 0")
    spark_ext.overwrite(read, table_path)
    assert [number for number, _ in rows(table)] == list(range(0, 30, 2))


def test_the_same_commit_identifier_overwrites_once(spark, table, table_path):
    name = {"commit_user": "job", "commit_identifier": 1}
    first = spark_ext.overwrite(frame(spark, 0, 5), table_path, **name)
    spark_ext.append(frame(spark, 5, 6), table_path)
    assert spark_ext.overwrite(frame(spark, 0, 5), table_path, **name).id == first.id
    assert len(rows(table)) == 6


def test_a_failing_task_leaves_the_old_rows(spark, table, table_path):
    broken = frame(spark, 0, 10).withColumn("id", functions.raise_error("no").cast("bigint"))
    with pytest.raises(PySparkException):
        spark_ext.overwrite(broken, table_path)
    assert len(rows(table)) == 30
    assert table.snapshot.id == 1


def test_what_cannot_be_meant_is_refused_before_any_task(spark, table, table_path, tmp_path):
    new = frame(spark, 0, 1)
    with pytest.raises(InvalidArgumentError, match="not both"):
        spark_ext.overwrite(new, table_path, filter="id = 1", dynamic=True)
    with pytest.raises(ColumnNotFoundError, match="'idd'"):
        spark_ext.overwrite(new, table_path, filter="idd = 1")
    with pytest.raises(SchemaMismatch):
        spark_ext.overwrite(new.withColumn("more", functions.lit(1)), table_path)
    Table.create(tmp_path / "whole", SCHEMA)
    with pytest.raises(InvalidArgumentError, match="has none"):
        spark_ext.overwrite(new, tmp_path / "whole", dynamic=True)
    assert len(rows(table)) == 30


def test_columns_are_merged_when_overwriting(spark, table, table_path):
    wider = frame(spark, 0, 2).withColumn("more", functions.lit(7))
    snapshot = spark_ext.overwrite(wider, table_path, schema_mode="merge")
    assert (snapshot.id, snapshot.kind) == (2, "overwrite")
    assert [row[2] for row in rows(table)] == [7, 7]


def test_the_format_overwrites_all_by_filter_or_partitions(spark, table, table_path):
    def save(new, **options):
        writer = new.write.format("fermion").options(**options)
        writer.mode("overwrite").save(str(table_path))

    save(frame(spark, 100, 103, days=1), partitionOverwriteMode="dynamic")
    assert days(table) == {"d0": 3, "d1": 10, "d2": 10}
    save(frame(spark, 200, 201), replaceWhere="day IN ('d0', 'd1')")
    assert days(table) == {"d2": 11}
    save(frame(spark, 0, 6).withColumn("more", functions.lit(1)), mergeSchema="true")
    assert [row[2] for row in rows(table)] == [1] * 6
    assert table.refresh().id == 4
    save(frame(spark, 0, 2))
    assert days(table) == {"d0": 1, "d1": 1}
    with pytest.raises(PySparkException, match="need mode overwrite"):
        frame(spark, 0, 1).write.format("fermion").mode("append").option(
            "replaceWhere", "id = 1"
        ).save(str(table_path))
    spark.sql(f"create or replace temporary view days using fermion options (path '{table_path}')")
    spark.sql("insert overwrite days select 5L, 'x', 1")
    assert rows(table) == [(5, "x", 1)]


def test_the_format_merges_columns_in_the_same_snapshot(spark, table, table_path):
    wider = frame(spark, 30, 31).withColumn("more", functions.lit("m"))
    writer = wider.write.format("fermion").mode("append").option("mergeSchema", "true")
    writer.save(str(table_path))
    assert table.refresh().id == 2
    assert (30, "d0", "m") in rows(table)


def test_save_modes_decide_what_happens_where_a_table_is(spark, table_path):
    new = frame(spark, 0, 4)
    assert spark_ext.write(new, table_path, partition_by="day").id == 1
    table = Table.open(table_path)
    assert [each.name for each in table.schema.partition_by] == ["day"]
    with pytest.raises(TableExists):
        spark_ext.write(new, table_path)
    assert spark_ext.write(new, table_path, mode="ignore").id == 1
    assert spark_ext.write(new, table_path, mode="append").id == 2
    assert len(rows(table)) == 8
    spark_ext.write(new, table_path, mode="overwrite", filter="id = 0", message="again")
    assert (len(rows(table)), table.snapshot.message) == (10, "again")
    with pytest.raises(InvalidArgumentError, match="expected 'error'"):
        spark_ext.write(new, table_path, mode="upsert")
    with pytest.raises(TableNotFound):
        spark_ext.overwrite(new, table_path.with_name("missing"))
