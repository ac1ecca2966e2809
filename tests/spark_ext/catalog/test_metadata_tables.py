"""Metadata tables in SQL: what they hold, at which version, and what has the same name."""

from __future__ import annotations

import shutil
from datetime import date

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion_table import Table
from spark_ext.catalog.metadata_tables import METADATA_TABLES, UNVERSIONED
from spark_ext.versions import OPTIONS_OF_TABLES, SPARK

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """`meta.db.t`: three commits, the last of which deletes a row; tag v1, branch dev."""
    directory = tmp_path_factory.mktemp("meta")
    spark_ext.install_catalog(spark, "meta", directory)
    columns = [("a", pa.int64()), ("d", pa.date32()), ("at", pa.time32("s")), ("u", pa.uint64())]
    table = Table.create(directory / "db" / "t", pa.schema(columns), partition_by=["d"])
    for day in (1, 2):
        table.append(
            {"a": [1, 2], "d": [date(2026, 1, day)] * 2, "at": [day] * 2, "u": [2**64 - 1] * 2}
        )
    table.tags.create("v1")
    table.delete("a = 1 AND d = '2026-01-02'")
    table.branches.create("dev")
    return table


def query(spark, statement: str) -> list[tuple]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def test_every_metadata_table_has_the_rows_and_columns_of_the_table_s_own_inspection(spark, table):
    """Under Iceberg's and Paimon's names where these exist."""
    named = "meta.db.t"
    for kind in METADATA_TABLES:
        frame = spark.table(f"{named}.{kind}")
        expected = getattr(table.inspect, kind, None)
        if expected is not None:
            assert frame.count() == len(expected()), kind
            assert len(frame.columns) == expected().num_columns, kind
    assert query(spark, f"SELECT snapshot_id, parent_id, operation FROM {named}.snapshots") == [
        (0, None, "create"),
        (1, 0, "append"),
        (2, 1, "append"),
        (3, 2, "delete"),
    ]
    assert query(spark, f"SELECT snapshot_id, made_current_at FROM {named}.history LIMIT 1") == [
        (3, spark.table(f"{named}.snapshots").collect()[-1].committed_at)
    ]
    files = f"""SELECT partition.d, record_count, rows_deleted, file_size_in_bytes > 0,
        statistics.a.max, statistics.u.max FROM {named}.files WHERE file_path LIKE 'data/%'"""
    largest = 2**64 - 1
    assert sorted(query(spark, files)) == [
        (date(2026, 1, 1), 2, 0, True, 2, largest),
        (date(2026, 1, 2), 2, 1, True, 2, largest),
    ]
    assert "at" not in spark.table(f"{named}.files").schema["statistics"].dataType.names
    assert query(spark, f"SELECT partition.d, file_count FROM {named}.partitions") == [
        (date(2026, 1, 1), 1),
        (date(2026, 1, 2), 1),
    ]
    assert query(spark, f"SELECT kind, length FROM {named}.manifests") == [("tail", None)]
    assert query(spark, f"SELECT name, type, snapshot_id FROM {named}.refs") == [
        ("main", "branch", 3),
        ("dev", "branch", 3),
        ("v1", "tag", 2),
    ]
    assert query(spark, f"SELECT tag_name, snapshot_id FROM {named}.tags") == [("v1", 2)]
    assert query(spark, f"SELECT branch_name, parent FROM {named}.branches") == [
        ("main", None),
        ("dev", "main"),
    ]
    joined = f"""SELECT s.operation, count(*) FROM {named}.SNAPSHOTS s JOIN {named}.files f
        ON f.added_snapshot = s.snapshot_id GROUP BY ALL"""
    assert query(spark, joined) == [("append", 2)]


def test_metadata_tables_are_read_as_of_a_version(spark, table):
    """An id, a tag, a branch, a time, an option; those of no snapshot refuse it."""
    for clause, snapshot in (
        ("VERSION AS OF 1", 1),
        ("VERSION AS OF 'v1'", 2),
        ("VERSION AS OF 'dev'", 3),
        ("TIMESTAMP AS OF '2999-01-01'", 3),
        *([("WITH ('tag' = 'v1')", 2)] if SPARK.has(OPTIONS_OF_TABLES) else []),
    ):
        newest = f"SELECT max(snapshot_id), count(*) FROM meta.db.t.snapshots {clause}"
        assert query(spark, newest) == [(snapshot, snapshot + 1)]
        files = f"SELECT count(*), sum(rows_deleted) FROM meta.db.t.files {clause}"
        assert query(spark, files) == [(min(snapshot, 2), snapshot // 3)]
    for kind in UNVERSIONED:
        with pytest.raises(PySparkException, match="belong to no snapshot"):
            spark.sql(f"SELECT * FROM meta.db.t.{kind} VERSION AS OF 1")
    with pytest.raises(PySparkException, match="no version 'nothing'"):
        spark.sql("SELECT * FROM meta.db.t.files VERSION AS OF 'nothing'")


def test_what_has_the_name_of_a_metadata_table(spark, table):
    """A table of this name wins; names relative to the current namespace; no writes."""
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM meta.db.t.filez")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM meta.db.other.files")
    with pytest.raises(PySparkException, match=r"(?i)append"):
        spark.sql("INSERT INTO meta.db.t.properties VALUES ('a', 'b')")
    assert [row.tableName for row in spark.sql("SHOW TABLES IN meta.db").collect()] == ["t"]
    spark.sql("CREATE TABLE meta.db.files AS SELECT 7 AS a")
    spark.sql("CREATE TABLE meta.db.`t$tags` AS SELECT 8 AS a")
    assert query(spark, "SELECT * FROM meta.db.files") == [(7,)]
    assert query(spark, "SELECT * FROM meta.db.`t$tags`") == [(8,)]
    assert query(spark, "SELECT count(*) FROM meta.db.files.files") == [(1,)]
    catalog = spark.catalog.currentCatalog()
    try:
        spark.sql("USE meta.db")
        assert query(spark, "SELECT count(*) FROM db.t.snapshots") == [(4,)]
        assert query(spark, "SELECT count(*) FROM `t$snapshots` VERSION AS OF 1") == [(2,)]
        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql("SELECT * FROM t.snapshots")
    finally:
        spark.catalog.setCurrentCatalog(catalog)


def test_metadata_tables_of_a_wide_empty_table_and_of_a_keyed_one(spark, table):
    """Without partitions, rows, or settings there are no columns or rows of them."""
    root = table.location.rsplit("/", 2)[0]
    Table.create(f"{root}/db/wide", pa.schema([(f"c{i}", pa.int64()) for i in range(2_000)]))
    assert query(spark, "SELECT * FROM meta.db.wide.files") == []
    assert query(spark, "SELECT count(*), max(columns) FROM meta.db.wide.schemas") == [(1, 2_000)]
    assert query(spark, "SELECT * FROM meta.db.wide.properties") == []
    keyed = Table.create(
        f"{root}/db/keyed",
        pa.schema([("k", pa.int64())]),
        primary_key=["k"],
        properties={"bucket": "2"},
    )
    keyed.upsert({"k": [1, 2, 3, 4]})
    shutil.rmtree(f"{root}/db/keyed/data")  # no data file is read
    files = query(spark, "SELECT DISTINCT bucket, total_buckets, level FROM meta.db.keyed.files")
    assert sorted(files) == [(0, 2, 0), (1, 2, 0)]
    assert query(spark, "SELECT * FROM meta.db.keyed.properties") == [("bucket", "2")]
