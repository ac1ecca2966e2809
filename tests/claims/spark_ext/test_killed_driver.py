"""A driver killed without warning: the table opens in the old state or the new, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

import spark_ext
from fermion_table import Table

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.int64())])
ROWS = 40_000
COMMIT = {"commit_user": "nightly", "commit_identifier": 7}
POINTS = ("tasks", "commit", "compaction", "stream", "upsert", "trees", "sums", "merge", "changes")
KEYED = ("upsert", "trees", "sums", "merge", "changes", "upserts")

# One driver runs a job on each of these tables, in threads, and is killed when all of them are
# where it should die. Functions of the program itself travel to the workers by value.
DRIVER = """
import os, sys, threading, time, traceback
from pathlib import Path
from pyspark.sql import SparkSession, functions
import spark_ext
from fermion_table import Table
from spark_ext.datasource.source import FermionDataSource
from spark_ext.options import parse_options
from spark_ext.datasource.stream import FermionStreamWriter
from spark_ext.writing import keyed_changes

directory = Path(sys.argv[1])
commit = {"commit_user": "nightly", "commit_identifier": 7}
builder = SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "localhost").config("spark.driver.memory", "512m")
spark = spark_ext.configure(builder).getOrCreate()
ids = spark.range(0, 40_000, numPartitions=2)
frame = ids.select("id", (functions.col("id") % 4).alias("part"))

def reach(point):
    (directory / f"{point}.reached").touch()

def wait_for_death(point):
    reach(point)
    time.sleep(300)

def slow(point, files):
    @functions.udf("long")
    def wait(number):
        if number == 39_000:  # most rows of this task are written
            while len(list((directory / point).glob("data/**/*.fermion"))) < files:
                time.sleep(0.05)
            wait_for_death(point)  # the other task is done
        return number
    return wait("id")

def during_tasks():
    spark_ext.append(frame.withColumn("id", slow("tasks", 1)), directory / "tasks", **commit)

def during_upsert():
    rows = frame.withColumn("part", functions.lit(9)).withColumn("id", slow("upsert", 2 + 2))
    spark_ext.upsert(rows, directory / "upsert", cluster=False, **commit)

class WaitingChanges(keyed_changes.KeyedChangeTask):
    def __call__(self, batches):
        written = list(super().__call__(batches))
        wait_for_death("merge")
        return written

def during_merge():
    source = spark.range(20_000, 60_000).withColumn("part", functions.lit(9))
    merge = spark_ext.merge(spark, directory / "merge", source, ["id"], **commit)
    merge = merge.when_matched_delete("target.part = 1")
    merge = merge.when_matched_update({"part": "target.part + 10"}, "target.part = 2")
    merge.when_not_matched_insert().execute()

publish = Table.commit
def publish_and_wait(self, *args, **kwargs):
    published = publish(self, *args, **kwargs)
    if threading.current_thread().name == "after_the_commit":
        wait_for_death("commit")
    return published

def after_the_commit():
    spark_ext.append(frame, directory / "commit", **commit)

publish_group = Table.commit_compaction
published = set()
def publish_the_first_only(self, messages, base):
    point = Path(self.location).name
    if point in published:
        wait_for_death(point)
    published.add(point)
    return publish_group(self, messages, base)

def during_compaction():
    spark_ext.compact(spark, directory / "compaction", max_groups_per_commit=1)

def during_compaction_of_trees():
    spark_ext.compact(spark, directory / "trees", full=True, max_groups_per_commit=1)

STREAMS = {"copy": "stream", "sums": "sums", "upserts": "changes"}

class CommitAndWait(FermionStreamWriter):
    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        reach(STREAMS[Path(self._options.path).name])
        for _ in range(3_000):  # Spark does not learn that this micro-batch is done
            time.sleep(0.1)

class WaitingSource(FermionDataSource):
    def streamWriter(self, schema, overwrite):
        return CommitAndWait(parse_options(self.options), schema)

def start_a_stream(sink):
    writing = {}
    if sink == "copy":
        stream = spark.readStream.format("fermion").load(str(directory / "stream"))
    elif sink == "sums":
        stream = spark.readStream.schema("id long, part long").parquet(str(directory / "files"))
    else:
        stream = spark.readStream.format("fermion").option("readChangeFeed", "true")
        stream = stream.load(str(directory / "changes"))
        stream = stream.drop("_commit_version", "_commit_timestamp")
        writing = {"changeType": "_change_type"}
    writer = stream.writeStream.format("fermion").options(**writing)
    writer = writer.option("path", str(directory / sink))
    return writer.option("checkpointLocation", str(directory / f"{sink}.checkpoint")).start()

def run(job):
    try:
        job()
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # none of them comes to its end

Table.commit = publish_and_wait
Table.commit_compaction = publish_the_first_only
spark.dataSource.register(WaitingSource)
keyed_changes.KeyedChangeTask = WaitingChanges
for sink, point in STREAMS.items():
    query = start_a_stream(sink)
    while query.isActive and not (directory / f"{point}.reached").exists():
        time.sleep(0.05)
jobs = [during_tasks, after_the_commit, during_compaction, during_upsert, during_merge]
for job in [*jobs, during_compaction_of_trees]:
    threading.Thread(target=run, args=(job,), name=job.__name__).start()
run(query.awaitTermination)
"""


def run_and_kill(directory: Path) -> None:
    """Run the driver until all its jobs are where it should die, and kill it there."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(directory)],
        env={**os.environ, "SPARK_LOCAL_DIRS": str(directory / "spark")},
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 900
        while missing := [at for at in POINTS if not (directory / f"{at}.reached").exists()]:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, f"the driver never came to {missing}"
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


def rows(start: int, stop: int, parts: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table({"id": numbers, "part": [number % parts for number in numbers]}, SCHEMA)


def ones(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "part": [1] * (stop - start)}, SCHEMA)


def add_to_streams(directory: Path, start: int, stop: int) -> None:
    """More rows in the table, and in the Parquet files, that a stream reads."""
    added = ones(start, stop)
    Table.open(directory / "stream").append(added)
    (directory / "files").mkdir(exist_ok=True)
    pq.write_table(added, directory / "files" / f"{start}.parquet")


@pytest.fixture(scope="module")
def killed(spark, tmp_path_factory) -> Path:
    """The directory of the tables as the killed driver left them."""
    directory = tmp_path_factory.mktemp("killed")
    made = {
        name: Table.create(directory / name, SCHEMA)
        for name in ("tasks", "commit", "stream", "copy")
    }
    made["compaction"] = Table.create(directory / "compaction", SCHEMA, partition_by="part")
    for name in KEYED:
        engine = {"merge_engine": "aggregation", "fields.part.aggregate_function": "sum"}
        made[name] = Table.create(
            directory / name,
            SCHEMA,
            primary_key=["id"],
            properties={"bucket": "2", **(engine if name == "sums" else {})},
        )
    for name in ("upsert", "merge", "changes"):
        made[name].upsert(rows(0, ROWS, parts=4))
    for start in range(0, ROWS, 10_000):
        made["compaction"].append(rows(start, start + 10_000, parts=4))
        made["trees"].upsert(rows(start, ROWS, parts=4))
    assert made["compaction"].snapshot.totals.files == 16
    add_to_streams(directory, 0, ROWS // 2)
    run_and_kill(directory)
    return directory


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


def parts_of(table: Table) -> set[int]:
    table.refresh()
    return set(table.scan(columns=["part"]).to_arrow()["part"].to_pylist())


def test_killed_during_tasks_nothing_is_visible_and_the_next_run_appends(spark, killed):
    path = killed / "tasks"
    table = Table.open(path)
    assert (table.snapshot.id, table.scan().count()) == (0, 0)
    assert list(path.glob("data/*.fermion"))  # of the task that was done
    assert spark_ext.append(frame(spark), path, **COMMIT).id == 1
    assert_holds_every_row_once(path)


def test_killed_after_the_commit_the_next_run_appends_nothing_twice(spark, killed):
    path = killed / "commit"
    assert_holds_every_row_once(path)
    assert spark_ext.append(frame(spark), path, **COMMIT).id == 1
    assert Table.open(path).snapshot.id == 1


def test_killed_during_compaction_every_row_is_there_and_the_next_run_finishes(spark, killed):
    path = killed / "compaction"
    half_done = assert_holds_every_row_once(path)
    assert half_done.snapshot.totals.files == 13  # one of four groups was published
    spark_ext.compact(spark, path)
    assert assert_holds_every_row_once(path).snapshot.totals.files == 4
    assert Table.open(path).scan(snapshot_id=4).count() == ROWS


def test_killed_during_an_upsert_old_rows_are_there_and_the_next_run_replaces_them(spark, killed):
    path = killed / "upsert"
    table = assert_holds_every_row_once(path)
    assert (table.snapshot.id, parts_of(table)) == (1, {0, 1, 2, 3})
    new = frame(spark).withColumn("part", functions.lit(9))
    assert spark_ext.upsert(new, path, **COMMIT).id == 2
    assert parts_of(assert_holds_every_row_once(path)) == {9}
    removed = table.remove_orphan_files(older_than=timedelta(0))
    assert removed.files >= 2  # of the task that was done: a file for each bucket
    assert parts_of(assert_holds_every_row_once(path)) == {9}


def test_killed_during_compaction_of_trees_the_next_run_finishes(spark, killed):
    path = killed / "trees"
    half_done = assert_holds_every_row_once(path)
    assert (half_done.snapshot.id, half_done.snapshot.totals.files) == (5, 4 + 1)
    spark_ext.compact(spark, path, full=True)
    assert assert_holds_every_row_once(path).snapshot.totals.files == 2
    assert half_done.remove_orphan_files(older_than=timedelta(0)).files == 1  # of the other group
    assert_holds_every_row_once(path)


@pytest.mark.parametrize("sink", ["copy", "sums"])
def test_killed_while_a_stream_commits_the_next_run_goes_on_without_repeating(spark, killed, sink):
    """The micro-batch is in the table, but not in the checkpoint: Spark runs it again.

    In the primary-key table a micro-batch that counts twice would double its sums.
    """
    copy_path = killed / sink
    assert Table.open(copy_path).scan().count() == ROWS // 2
    if Table.open(killed / "stream").snapshot.id == 1:
        add_to_streams(killed, ROWS // 2, ROWS)
    stream = spark.readStream.format("fermion").load(str(killed / "stream"))
    if sink == "sums":
        stream = spark.readStream.schema("id long, part long").parquet(str(killed / "files"))
    writer = stream.writeStream.format("fermion").option("path", str(copy_path))
    writer = writer.option("checkpointLocation", str(killed / f"{sink}.checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    copied = assert_holds_every_row_once(copy_path)
    assert copied.snapshot.id == 2
    assert parts_of(copied) == {1}


def test_killed_during_a_merge_old_rows_are_there_and_the_next_run_merges_once(spark, killed):
    """Rows that it updates, deletes, inserts, and leaves alone; then the same run once more."""
    path = killed / "merge"
    table = assert_holds_every_row_once(path)
    assert (table.snapshot.id, parts_of(table)) == (1, {0, 1, 2, 3})
    source = spark.range(20_000, 60_000).withColumn("part", functions.lit(9))
    for run in range(2):
        merge = spark_ext.merge(spark, path, source, ["id"], **COMMIT)
        merge = merge.when_matched_delete("target.part = 1")
        merge = merge.when_matched_update({"part": "target.part + 10"}, "target.part = 2")
        result = merge.when_not_matched_insert().execute()
        expected = (0, 0, 0) if run else (20_000, 5_000, 5_000)
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == expected
    assert table.refresh().id == 2
    found = dict(zip(*table.scan().to_arrow().to_pydict().values(), strict=True))
    wanted = {i: i % 4 for i in range(20_000)} | dict.fromkeys(range(40_000, 60_000), 9)
    wanted |= {i: {2: 12}.get(i % 4, i % 4) for i in range(20_000, 40_000) if i % 4 != 1}
    assert (table.scan().count(), found) == (len(wanted), wanted)
    removed = table.remove_orphan_files(older_than=timedelta(0))
    assert removed.files >= 1  # of a task that was done
    assert table.verify(data=True).ok


def test_killed_while_a_stream_upserts_changes_the_next_run_repeats_none(spark, killed):
    """The repeated micro-batch finds its commit; the next one has what changed since."""
    table, copy = (Table.open(killed / name) for name in ("changes", "upserts"))
    assert (copy.snapshot.id, copy.scan().count()) == (1, ROWS)
    table.upsert({"id": [1, ROWS], "part": [7, 8]})
    table.delete_keys([2])
    stream = spark.readStream.format("fermion").option("readChangeFeed", "true")
    stream = stream.load(table.location).drop("_commit_version", "_commit_timestamp")
    writer = stream.writeStream.format("fermion").option("changeType", "_change_type")
    writer = writer.option("checkpointLocation", str(killed / "upserts.checkpoint"))
    query = writer.option("path", copy.location).trigger(availableNow=True).start()
    query.awaitTermination(120)
    copy.refresh()
    assert [each.commit_identifier for each in copy.snapshots()] == [None, 0, 1]
    found, wanted = (each.scan().to_arrow().sort_by("id") for each in (copy, table))
    assert found.equals(wanted)
    assert copy.verify(data=True).ok
