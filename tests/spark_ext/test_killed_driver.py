"""A driver killed without warning: the table opens in the old state or the new, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions

import spark_ext
from fermion_table import Table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.int64())])
ROWS = 40_000
COMMIT = {"commit_user": "nightly", "commit_identifier": 7}

PROLOGUE = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession, functions
import spark_ext
from fermion_table import Table

path, marker = sys.argv[1], Path(sys.argv[2])

def wait_for_death():
    marker.touch()
    time.sleep(300)

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "localhost").config("spark.driver.memory", "512m")
spark = spark_ext.configure(builder).getOrCreate()
ids = spark.range(0, 40_000, numPartitions=2)
frame = ids.select("id", (functions.col("id") % 4).alias("part"))
commit = {"commit_user": "nightly", "commit_identifier": 7}
"""

DURING_TASKS = """
@functions.udf("long")
def slow(number):
    if number == 39_000:  # most rows of this task are written
        while not list(Path(path).glob("data/*.fermion")):
            time.sleep(0.05)
        wait_for_death()  # the other task is done
    return number

spark_ext.append(frame.withColumn("id", slow("id")), path, **commit)
"""

AFTER_THE_COMMIT = """
publish = Table.commit
def publish_and_wait(self, *args, **kwargs):
    publish(self, *args, **kwargs)
    wait_for_death()

Table.commit = publish_and_wait
spark_ext.append(frame, path, **commit)
"""

DURING_COMPACTION = """
publish = Table.commit_compaction
published = []
def publish_the_first_only(self, messages, base):
    if published:
        wait_for_death()
    published.append(publish(self, messages, base))
    return published[-1]

Table.commit_compaction = publish_the_first_only
spark_ext.compact(spark, path, max_groups_per_commit=1)
"""

DURING_A_STREAM = """
from spark_ext.datasource import FermionDataSource
from spark_ext.source_options import parse_options
from spark_ext.streaming import FermionStreamWriter

class CommitAndWait(FermionStreamWriter):
    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        marker.touch()
        for _ in range(600):  # Spark does not learn that this micro-batch is done
            time.sleep(0.1)

class WaitingSource(FermionDataSource):
    def streamWriter(self, schema, overwrite):
        return CommitAndWait(parse_options(self.options), schema)

spark.dataSource.register(WaitingSource)
stream = spark.readStream.format("fermion").load(path)
writer = stream.writeStream.format("fermion").option("path", path + ".copy")
writer.option("checkpointLocation", path + ".checkpoint").start().awaitTermination()
"""


def run_and_kill(program: str, path: Path, scratch: Path) -> None:
    """Run a driver until it says that it is where it should die, and kill it there."""
    marker = scratch / "marker"
    process = subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + program, str(path), str(marker)],
        env={**os.environ, "SPARK_LOCAL_DIRS": str(scratch / "spark")},
        cwd=scratch,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 240
        while not marker.exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, "the driver never came to the point"
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


def frame(spark):
    ids = spark.range(0, ROWS, numPartitions=2)
    return ids.select("id", (functions.col("id") % 4).alias("part"))


def assert_holds_every_row_once(path: Path) -> Table:
    table = Table.open(path)
    found = table.scan(columns=["id"]).to_arrow()["id"].to_numpy()
    found.sort()
    assert found.tolist() == list(range(ROWS))
    assert table.verify(data=True).ok
    return table


def test_killed_during_tasks_nothing_is_visible_and_the_next_run_appends(
    spark, table_path, tmp_path
):
    Table.create(table_path, SCHEMA)
    run_and_kill(DURING_TASKS, table_path, tmp_path)
    table = Table.open(table_path)
    assert (table.snapshot.id, table.scan().count()) == (0, 0)
    assert spark_ext.append(frame(spark), table_path, **COMMIT).id == 1
    assert_holds_every_row_once(table_path)


def test_killed_after_the_commit_the_next_run_appends_nothing_twice(spark, table_path, tmp_path):
    Table.create(table_path, SCHEMA)
    run_and_kill(AFTER_THE_COMMIT, table_path, tmp_path)
    assert_holds_every_row_once(table_path)
    assert spark_ext.append(frame(spark), table_path, **COMMIT).id == 1
    assert Table.open(table_path).snapshot.id == 1


def test_killed_during_compaction_every_row_is_there_and_the_next_run_finishes(
    spark, table_path, tmp_path
):
    table = Table.create(table_path, SCHEMA, partition_by="part")
    for start in range(0, ROWS, 10_000):
        ids = pa.array(range(start, start + 10_000), pa.int64())
        parts = pa.array([number % 4 for number in range(start, start + 10_000)], pa.int64())
        table.append(pa.table({"id": ids, "part": parts}, SCHEMA))
    assert table.snapshot.totals.files == 16
    run_and_kill(DURING_COMPACTION, table_path, tmp_path)
    half_done = assert_holds_every_row_once(table_path)
    assert half_done.snapshot.totals.files == 13  # one of four groups was published
    spark_ext.compact(spark, table_path)
    assert assert_holds_every_row_once(table_path).snapshot.totals.files == 4
    assert Table.open(table_path).scan(snapshot_id=4).count() == ROWS


def test_killed_while_a_stream_commits_the_next_run_goes_on_without_repeating(
    spark, table_path, tmp_path
):
    """The micro-batch is in the table, but not in the checkpoint: Spark runs it again."""
    table = Table.create(table_path, SCHEMA)
    copy_path = f"{table_path}.copy"
    Table.create(copy_path, SCHEMA)

    def ids(start, stop):
        return pa.table({"id": range(start, stop), "part": [0] * (stop - start)}, SCHEMA)

    table.append(ids(0, ROWS // 2))
    run_and_kill(DURING_A_STREAM, table_path, tmp_path)
    assert Table.open(copy_path).snapshot.totals.rows == ROWS // 2
    table.append(ids(ROWS // 2, ROWS))
    stream = spark.readStream.format("fermion").load(str(table_path))
    writer = stream.writeStream.format("fermion").option("path", copy_path)
    writer = writer.option("checkpointLocation", f"{table_path}.checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert assert_holds_every_row_once(Path(copy_path)).snapshot.id == 2
