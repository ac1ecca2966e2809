"""Changes of rows by the names of a catalog's tables: read at once, followed, and upserted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion_table import Table
from spark_ext.versions import OPTIONS_OF_TABLES
from tests.kit.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(OPTIONS_OF_TABLES)]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
TIMES = ("_commit_version", "_commit_timestamp")


@pytest.fixture(scope="module")
def source(spark, tmp_path_factory) -> Table:
    """`feed.db.t`: keys 0 to 3, then key 1 is updated and key 2 deleted; branch ``dev``."""
    directory = tmp_path_factory.mktemp("feed")
    spark_ext.install_catalog(spark, "feed", directory)
    table = Table.create(directory / "db" / "t", SCHEMA, primary_key="k")
    table.upsert({"k": range(4), "v": [0] * 4})
    table.branches.create("dev")
    table.upsert({"k": [1], "v": [5]})
    table.delete_keys([2])
    Table.open(table.location, branch="dev").upsert({"k": [9], "v": [9]})
    return table


def state(table: Table) -> list:
    table.refresh()
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def read(spark: Any, **options: Any) -> Any:
    return spark.read.options(readChangeFeed=True, **options).table("feed.db.t")


def test_changes_are_read_by_the_name_of_a_table(spark, source):
    """By options and in SQL, within two snapshots, of a branch; only whole rows are compared."""
    changes = read(spark, startingSnapshotId=1)
    assert changes.columns[-3:] == ["_change_type", *TIMES]
    wanted = [(1, "update_preimage", 0), (1, "update_postimage", 5), (2, "delete", 0)]
    found = [(row.k, row["_change_type"], row.v) for row in changes.collect()]
    assert found == wanted
    assert changes.select("k", "_change_type").count() == 3  # v, which has changed, is not asked
    assert changes.where("k = 2").select("_commit_version").collect() == [(3,)]
    assert read(spark, startingSnapshotId=1, endingSnapshotId=2).count() == 2
    assert read(spark, startingSnapshotId=1, filter="k = 2").count() == 1
    assert [row.k for row in read(spark, startingSnapshotId=1, branch="dev").collect()] == [9]
    statement = "SELECT count(*) FROM feed.db.t WITH ('READCHANGEFEED' = 'true', "
    assert spark.sql(f"{statement} 'startingSnapshotId' = '2')").collect() == [(1,)]
    assert spark.read.option("readChangeFeed", False).table("feed.db.t").count() == 3
    path = spark.read.format("fermion").options(readChangeFeed=True, startingSnapshotId=1)
    assert path.load(source.location).schema == changes.schema


@pytest.mark.long
def test_the_option_is_never_ignored(spark, source):
    """In reads and writes of all kinds where it has no meaning, or where another is missing."""

    def write() -> Any:
        return spark.createDataFrame([(5, 5)], "k long, v long").writeTo("feed.db.t")

    for query, said in (
        (lambda: read(spark).count(), "needs startingSnapshotId"),
        (lambda: read(spark, startingSnapshotId=1, tag="x").count(), "readChangeFeed and tag"),
        (lambda: read(spark, startingSnapshotId=1, batchId=1).count(), "readChangeFeed and batch"),
        (lambda: read(spark, startingSnapshotId=1, columns="k").count(), "columns has no meaning"),
        (lambda: read(spark, startingSnapshotId=77).count(), "snapshot 77"),
        (
            lambda: spark.read.option("readChangeFeed", "yes").table("feed.db.t"),
            "readChangeFeed='yes': expected true or false",
        ),
        (
            lambda: spark.read.option("startingSnapshotId", 1).table("feed.db.t").count(),
            "startingSnapshotId of a batch read needs readChangeFeed=true",
        ),
        (
            lambda: spark.read.option("readChangeFeed", True).table("feed.db.t.files").count(),
            "files have no changes",
        ),
        (
            lambda: spark.sql(
                "SELECT * FROM feed.db.t VERSION AS OF 1 WITH ('readChangeFeed' = 'true')"
            ).count(),
            "AS OF with options",
        ),
        (
            lambda: write().option("readChangeFeed", True).append(),
            "readChangeFeed has no meaning in a batch write to a catalog's table",
        ),
        (
            lambda: write().option("changeType", "v").append(),
            "change_type='v'.*beside those of",
        ),
        (
            lambda: write().option("changeType", "op").append(),
            "change_type: column 'op', row 0",
        ),
        (
            lambda: spark.read.option("changeType", "op").table("feed.db.t").count(),
            "changeType has no meaning in a batch read of a catalog's table",
        ),
        (
            lambda: spark.sql("UPDATE feed.db.t WITH ('changeType' = 'op') SET v = 1"),
            "changeType has no meaning in UPDATE, DELETE or MERGE of a catalog's table",
        ),
        (
            lambda: spark.sql("DELETE FROM feed.db.t WITH ('readChangeFeed' = 'true') WHERE k = 1"),
            "readChangeFeed has no meaning in UPDATE, DELETE or MERGE",
        ),
    ):
        with pytest.raises(PySparkException, match=said):
            query()
    assert source.refresh().id == 3


def test_rows_with_change_types_are_written_by_the_name_of_a_table(spark, source):
    """By a frame's columns, by their places, and in SQL; of a row that is deleted the key alone."""
    table = Table.create(source.location[:-1] + "typed", SCHEMA, primary_key="k")
    table.upsert({"k": range(4), "v": [0] * 4})
    rows = spark.createDataFrame([("+U", 7, 1), ("delete", None, 2)], "op string, v long, k long")
    rows.writeTo("feed.db.typed").option("changeType", "op").append()
    assert state(table) == [(0, 0), (1, 7), (3, 0)]
    placed = rows.where("v IS NULL").selectExpr("k + 1", "v", "op")
    placed.write.option("changeType", "op").insertInto("feed.db.typed")
    assert state(table) == [(0, 0), (1, 7)]
    into = "INSERT INTO feed.db.typed WITH ('changeType' = 'op')"
    spark.sql(f"{into} VALUES (0, NULL, '-D'), (9, 9, '+I')")
    assert state(table) == [(1, 7), (9, 9)]
    with pytest.raises(PySparkException, match="changeType needs mode append"):
        rows.writeTo("feed.db.typed").option("changeType", "op").overwritePartitions()
    assert table.refresh().id == 4


@pytest.mark.long
def test_a_stream_of_changes_by_names_keeps_a_copy_equal(spark, source, tmp_path):
    """`readStream.table` and `toTable` with the options that the paths take, and their errors."""
    location = source.location.removesuffix("t") + "copy"
    copy = Table.create(location, SCHEMA, primary_key="k", properties={"bucket": "2"})

    def run(changes: Any, **options: Any) -> None:
        writer = changes.drop(*TIMES).writeStream.options(
            **{"changeType": "_change_type"} | options
        )
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).toTable("feed.db.copy")
        assert query.awaitTermination(120)

    def stream(**options: Any) -> Any:
        options = {"readChangeFeed": True, "maxFilesPerTrigger": 5} | options
        return spark.readStream.options(**options).table("feed.db.t")

    assert stream().columns[-3:] == ["_change_type", *TIMES]
    run(stream())
    assert state(copy) == state(source)
    source.upsert({"k": [0, 7], "v": [8, 8]})
    source.delete_keys([3])
    run(stream())
    assert state(copy) == state(source)
    before = copy.snapshot.id
    source.upsert({"k": [0], "v": [1]})
    rows_alone = stream(readChangeFeed=False).withColumn("_change_type", functions.lit("x"))
    for changes, options, said in (
        (stream(skipRewrites=True), {}, "readChangeFeed and skipRewrites"),
        (stream(endingSnapshotId=4), {}, "a stream reads what is committed later"),
        (rows_alone, {}, "is a primary-key table"),
        (stream(), {"changeType": "kind"}, "change_type='kind'.*one column of this name"),
    ):
        with pytest.raises(PySparkException, match=said):
            run(changes, **options)
    assert copy.refresh().id == before
