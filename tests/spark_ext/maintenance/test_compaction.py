"""Compaction on Spark: the same rows in fewer files, and races lost without harm."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.string())])


def small_files(path, count, *, partitions=1) -> Table:
    """A table of `count` appends of ten rows; ids say the order."""
    table = Table.create(path, SCHEMA, partition_by="part")
    for number in range(count):
        ids = range(number * 10, number * 10 + 10)
        table.append(pa.table({"id": ids, "part": [f"p{number % partitions}"] * 10}, SCHEMA))
    return table


def data_files(path) -> int:
    return sum(file.is_file() for file in (path / "data").rglob("*"))


def test_many_files_become_one_for_each_partition(spark, table_path):
    table = small_files(table_path, 9, partitions=3)
    before = table.scan().to_arrow().sort_by("id")
    steps = []
    result = spark_ext.compact(
        spark, table_path, progress=lambda done, total: steps.append((done, total))
    )
    assert (result.groups, result.groups_dropped, result.rows) == (3, 0, 90)
    assert (result.files_before, result.files_after) == (9, 3)
    assert result.snapshots == [10]
    assert steps == [(3, 3)]
    table.refresh()
    assert table.snapshot.kind == "compact"
    assert table.snapshot.totals.files == 3
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert table.scan(snapshot_id=9).count() == 90
    assert table.verify(data=True).ok


def test_rows_keep_their_positions_in_batches(spark, table_path):
    table = Table.create(table_path, SCHEMA)
    for batch_id in (7, 8):
        ids = range(100 * batch_id, 100 * batch_id + 5)
        table.append_batch(batch_id, pa.table({"id": ids, "part": ["p"] * 5}, SCHEMA))
    table.delete("id IN (700, 702, 803)")
    before = table.refresh().id
    assert spark_ext.compact(spark, table_path).files_after == 1
    left = [(7, 1), (7, 3), (7, 4), (8, 0), (8, 1), (8, 2), (8, 4)]
    frame = spark_ext.read_table(spark, table_path, columns=["batch_id", "index_in_batch", "id"])
    assert sorted(tuple(row) for row in frame.collect()) == [
        (batch_id, place, 100 * batch_id + place) for batch_id, place in left
    ]
    table.refresh()
    assert list(table.scan_changes(before).to_batches()) == []


def test_a_dry_run_says_what_would_be_done_and_does_nothing(spark, table_path):
    table = small_files(table_path, 4)
    result = spark_ext.compact(spark, table_path, dry_run=True)
    assert (result.dry_run, result.groups, result.files_before) == (True, 1, 4)
    assert table.refresh().id == 4
    assert data_files(table_path) == 4


def test_progress_is_published_in_parts(spark, table_path):
    table = small_files(table_path, 10, partitions=5)
    result = spark_ext.compact(spark, table_path, max_groups_per_commit=2)
    assert (result.groups, len(result.snapshots)) == (5, 3)
    assert table.refresh().totals.files == 5
    assert table.scan().count() == 100


def test_a_filter_and_too_few_files_leave_partitions_alone(spark, table_path):
    table = small_files(table_path, 6, partitions=3)
    result = spark_ext.compact(spark, table_path, filter="part = 'p1'")
    assert (result.groups, result.files_before) == (1, 2)
    assert spark_ext.compact(spark, table_path, min_input_files=3).groups == 0
    assert table.refresh().totals.files == 5


def test_batches_stay_whole_under_their_ids(spark, table_path):
    table = Table.create(table_path, pa.schema([("n", pa.int64())]))
    for number in range(6):
        table.append_batch(number * 7, pa.table({"n": range(number, number + 3)}))
    spark_ext.compact(spark, table_path)
    table.refresh()
    assert table.snapshot.totals.files == 1
    assert table.lookup_batch(14)["n"].to_pylist() == [2, 3, 4]


def test_rows_of_new_files_can_be_sorted(spark, table_path):
    table = Table.create(table_path, pa.schema([("n", pa.int64())]))
    for number in (5, 3, 9):
        table.append(pa.table({"n": [number, number - 1]}))
    spark_ext.compact(spark, table_path, sort_by=["n"])
    table.refresh()
    assert table.scan().to_arrow()["n"].to_pylist() == [2, 3, 4, 5, 8, 9]


@pytest.mark.parametrize(
    ("order", "narrowed"), [(["x"], ["x < 4"]), (["zorder(x, y)"], ["x < 4", "y < 4"])]
)
def test_sorting_moves_rows_between_files(spark, table_path, order, narrowed):
    """Cells of a grid in random order: before, each file may hold rows of every filter."""
    side = 32
    cells = np.random.default_rng(3).permutation(side * side)
    table = Table.create(table_path, pa.schema([("x", pa.int64()), ("y", pa.int64())]))
    for part in np.array_split(cells, 8):
        table.append({"x": part // side, "y": part % side})
    target = table.snapshot.totals.bytes // 12
    before = table.scan().to_arrow()
    assert all(len(table.scan(filter=text).plan().splits) == 8 for text in narrowed)
    result = spark_ext.compact(spark, table_path, sort_by=order, target_size=target)
    assert (result.files_before, result.rows) == (8, side * side)
    table.refresh()
    for text in narrowed:
        scan = table.scan(filter=text)
        assert len(scan.plan().splits) <= result.files_after * 2 // 3, text
        assert scan.count() == 4 * side
    by = [("x", "ascending"), ("y", "ascending")]
    assert table.scan().to_arrow().sort_by(by).equals(before.sort_by(by))
    assert table.verify(data=True).ok


def test_neither_writers_nor_compaction_fail_while_both_go_on(spark, table_path):
    """After each group that is published, the next waits until a writer has appended again.

    One writer is a thread beside Spark, the other a Spark job in the same session.
    """
    table = small_files(table_path, 12, partitions=3)
    appended = threading.Semaphore(0)
    stopped = threading.Event()

    def ids(writer, number):
        start = 1_000 * writer + 10 * number
        return range(start, start + 10)

    def alone():
        writer = Table.open(table_path)
        for number in range(95):
            if stopped.is_set():
                return number
            writer.append(pa.table({"id": ids(1, number), "part": ["p0"] * 10}, SCHEMA))
            appended.release()
            stopped.wait(0.1)
        return 95

    def by_spark():
        for number in range(2):
            rows = spark.range(ids(2, number)[0], ids(2, number)[-1] + 1, numPartitions=1)
            spark_ext.append(rows.selectExpr("id", "'p1' part"), table_path)
        return 2

    def progress(done, groups):
        while appended.acquire(blocking=False):
            pass
        assert appended.acquire(timeout=60), "no writer came through"

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(alone), pool.submit(by_spark)]
        try:
            result = spark_ext.compact(
                spark, table_path, max_groups_per_commit=1, progress=progress
            )
        finally:
            stopped.set()
        counts = [writer.result(120) for writer in writers]
    assert (result.groups, result.groups_dropped) == (len(result.snapshots), 0)
    assert result.groups >= 3
    between = range(result.snapshots[0], result.snapshots[-1])
    assert {"append", "compact"} == {table.scan(snapshot_id=n).snapshot.kind for n in between}
    expected = {*range(120)}.union(*(ids(w, n) for w in (1, 2) for n in range(counts[w - 1])))
    table.refresh()
    found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(found) == sorted(expected)
    assert table.verify(data=True).ok


def test_a_group_whose_files_were_replaced_meanwhile_is_dropped(spark, table_path):
    """Another compaction wins, between planning here and committing: nothing is lost or doubled."""
    table = small_files(table_path, 8, partitions=2)

    def interfere(messages, base, *, commit=Table.commit_compaction):
        rival = Table.open(table_path)
        rival.compact(filter="part = 'p0'")
        return commit(table_here[0], messages, base)

    table_here = []
    original = Table.open

    def opened(path, **options):
        found = original(path, **options)
        if not table_here:
            table_here.append(found)
            found.commit_compaction = interfere
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "open", staticmethod(opened))
        result = spark_ext.compact(spark, table_path)
    assert (result.groups, result.groups_dropped, result.files_after) == (2, 1, 1)
    table.refresh()
    assert table.snapshot.totals.files == 2
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == list(range(80))


def test_a_failing_task_publishes_nothing_and_the_next_run_succeeds(spark, table_path):
    """One group's input file is cut short, so its task fails."""
    table = small_files(table_path, 4, partitions=2)
    victim = next(iter(table.scan(filter="part = 'p1'").plan().splits)).location
    with open(victim, "rb") as file:
        content = file.read()
    with open(victim, "wb") as file:
        file.write(content[: len(content) // 2])
    with pytest.raises((PySparkException, Py4JJavaError)):  # of Spark 4.0 the latter
        spark_ext.compact(spark, table_path)
    assert table.refresh().id == 4
    with open(victim, "wb") as file:
        file.write(content)
    assert spark_ext.compact(spark, table_path).files_after == 2


def test_an_impossible_argument_is_refused(spark, table_path):
    small_files(table_path, 1)
    with pytest.raises(InvalidArgumentError, match="max_groups_per_commit=0"):
        spark_ext.compact(spark, table_path, max_groups_per_commit=0)
