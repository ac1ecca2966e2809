"""Streams from tables and into them: each row once, whatever restarts in between."""

from __future__ import annotations

import shutil

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from fermion_table import Table
from spark_ext.datasource.stream import FermionStreamReader
from spark_ext.errors import UnsupportedBySpark
from spark_ext.options import parse_options
from spark_ext.types import spark_schema
from spark_ext.versions import READ_LIMITS
from tests.kit.spark.versions import needs
from tests.kit.tables.warehouses import give_up, lease, stop_before_decision

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


def rows(start: int, stop: int) -> pa.Table:
    return pa.table(
        {"id": range(start, stop), "name": [f"n{i}" for i in range(start, stop)]}, SCHEMA
    )


@pytest.fixture
def source(tmp_path):
    return Table.create(tmp_path / "source", SCHEMA)


@pytest.fixture
def target(tmp_path):
    return Table.create(tmp_path / "target", SCHEMA)


def copy(spark, source, target, tmp_path, **options):
    """Run a query until it has copied all there is; give its progress back."""
    stream = spark.readStream.format("fermion").options(**options).load(source.location)
    stream = stream.drop("_change_type", "_commit_version", "_commit_timestamp")
    writer = stream.writeStream.format("fermion").option("path", target.location)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    return [progress for progress in query.recentProgress if progress.numInputRows]


def ids(table: Table) -> list[int]:
    table.refresh()
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


@pytest.mark.long
def test_a_stream_copies_each_row_once_over_restarts(spark, source, target, tmp_path):
    """First the whole table, then what commits add; a compaction and a new column add nothing."""
    source.append(rows(0, 5))
    source.append(rows(5, 8))
    copy(spark, source, target, tmp_path, columns="id,name")
    assert ids(target) == list(range(8))
    assert target.snapshot.id == 1

    source.compact()
    source.append(rows(8, 10))
    source.add_columns({"later": pa.int8()})
    copy(spark, source, target, tmp_path, columns="id,name")
    assert ids(target) == list(range(10))
    assert target.snapshot.id == 2


def test_a_replayed_micro_batch_is_not_appended_again(spark, source, target, tmp_path):
    """The commit log of the query is lost after the table's commit: Spark runs the batch again."""
    source.append(rows(0, 4))
    copy(spark, source, target, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    copy(spark, source, target, tmp_path)
    assert ids(target) == [0, 1, 2, 3]
    assert target.refresh().id == 1
    assert len(list((tmp_path / "target" / "data").iterdir())) == target.snapshot.totals.files


@needs(READ_LIMITS)
def test_a_limit_of_files_cuts_the_stream_into_micro_batches(spark, source, target, tmp_path):
    for start in range(0, 10, 2):
        source.append(rows(start, start + 2))
    progress = copy(
        spark, source, target, tmp_path, startingSnapshotId=1, maxFilesPerTrigger=2, columns="id"
    )
    assert [each.numInputRows for each in progress] == [4, 4]
    assert ids(target) == list(range(2, 10))
    assert target.refresh().id == 2


@needs(READ_LIMITS)
@pytest.mark.parametrize("follows_changes", [False, True])
def test_snapshots_of_transactions_that_were_given_up_are_passed_over(
    spark, two, tmp_path, follows_changes
):
    """Also where a micro-batch ends with one of them; a pending one is waited for."""
    a = two.table("a")
    give_up(two, 2)
    a.append(rows(3, 4).select(["id"]))
    for number in (5, 6, 7):
        give_up(two, number)
    a.append(rows(8, 9).select(["id"]))
    target = Table.create(tmp_path / "target", pa.schema({"id": pa.int64()}))
    stop_before_decision(two, 10)

    def follow():
        options = {"startingSnapshotId": 1, "maxFilesPerTrigger": 1, "columns": "id"}
        copy(spark, a, target, tmp_path, readChangeFeed=follows_changes, **options)
        return ids(target)

    assert follow() == [3, 8]
    with lease(0.05):
        a.append(rows(11, 12).select(["id"]))
    assert follow() == [3, 8, 11]


@pytest.mark.parametrize("kind", ["overwrite", "delete", "restore", "upsert"])
def test_a_commit_that_takes_rows_back_ends_a_stream_unless_told_to_pass_over_it(source, kind):
    snapshot = msgspec.structs.replace(source.append(rows(0, 1)), kind=kind)

    def adds_rows(**options):
        given = parse_options({"path": source.location, **options})
        reader = FermionStreamReader(given, spark_schema(SCHEMA, where="test"))
        return reader.adds_rows(snapshot)

    with pytest.raises(UnsupportedBySpark, match=f"kind '{kind}'.*skipRewrites=true"):
        adds_rows()
    assert not adds_rows(skipRewrites="true")


def test_a_sink_takes_any_stream_and_checks_its_columns_first(spark, target, tmp_path):
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = (
        rate.selectExpr("value AS id", "timestamp AS name")
        .writeStream.format("fermion")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(target.location)
    )
    with pytest.raises(StreamingQueryException, match="~ name"):
        query.awaitTermination(60)
    assert target.refresh().id == 0
