"""Memory that writers share: it is bounded, and the largest buffer goes first."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table, WriteSettings
from fermion_table.engine import BufferPool
from fermion_table.writing.buffer_pool import Buffer, Tree
from fermion_table.writing.incoming_rows import UNPARTITIONED
from tests.kit.tables.trees import data_files, entries_of, keyed_table, rows_of

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.string())])
PARTITIONED: dict[str, Any] = {"primary_key": ["p", "k"], "partition_by": ["p"]}


class Flushes:
    """Remembers what a pool flushes, and fails where it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.trees: list[int] = []
        self.error = error
        self.failure: BaseException | None = None

    def flush(self, tree: Tree, batches: list[pa.RecordBatch]) -> None:
        if self.error is not None:
            raise self.error
        self.trees.append(tree.bucket)

    def fail(self, error: BaseException) -> None:
        self.failure = error


def buffer_of(owner: Flushes, bucket: int = 0) -> Buffer:
    return Buffer(weakref.ref(owner), Tree(UNPARTITIONED, bucket))


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.zeros(count, np.int64)})


def test_the_largest_buffer_is_flushed_whoever_has_it():
    pool, one, other = BufferPool(100_000), Flushes(), Flushes()
    buffers = [buffer_of(one, 0), buffer_of(one, 1), buffer_of(other, 2)]
    for buffer, count in zip(buffers, (3000, 6000, 1000), strict=True):
        pool.add(buffer, rows(count))
    assert (one.trees, other.trees) == ([], [])
    pool.add(buffers[2], rows(4000))  # 112,000 bytes and more: bucket 1 has the most of them
    assert (one.trees, other.trees) == ([1], [])
    pool.add(buffers[0], rows(5500))
    assert (one.trees, other.trees) == ([1, 0], [])
    pool.add(buffers[0], rows(100))
    pool.add(buffers[2], rows(9000))
    assert (one.trees, other.trees) == ([1, 0], [2])
    pool.flush(buffers)
    assert (one.trees, other.trees) == ([1, 0, 0], [2])
    assert pool.bytes == 0


def test_bytes_never_pass_the_bound_after_an_addition():
    pool, owner = BufferPool("64KB"), Flushes()
    buffers = [buffer_of(owner, bucket) for bucket in range(20)]
    rng = np.random.default_rng(3)
    for _ in range(500):
        pool.add(buffers[rng.integers(20)], rows(int(rng.integers(1, 1000))))
        assert pool.bytes <= pool.bytes_max
        assert pool.bytes == sum(buffer.bytes for buffer in buffers)
    assert len(owner.trees) > 10


def test_a_failure_is_the_owners_and_goes_up_to_nobody_else():
    broken, sound = Flushes(OSError("full")), Flushes()
    pool = BufferPool(10_000)
    pool.add(buffer_of(broken), rows(1200))
    pool.add(buffer_of(sound), rows(600))
    assert isinstance(broken.failure, OSError)
    assert sound.failure is None
    assert pool.bytes < 10_000
    with pytest.raises(OSError, match="full"):
        pool.add(buffer_of(broken), rows(2000))
    assert pool.bytes == 600 * 8 + 256


def test_rows_of_a_forgotten_owner_are_dropped():
    pool, owner, gone = BufferPool(10_000), Flushes(), Flushes()
    pool.add(buffer_of(gone), rows(1000))
    del gone
    gc.collect()
    pool.add(buffer_of(owner), rows(500))
    assert owner.trees == []
    assert 4000 <= pool.bytes < 5000


def test_discarded_rows_are_not_flushed():
    pool, owner = BufferPool(10_000), Flushes()
    buffer = buffer_of(owner)
    pool.add(buffer, rows(1000))
    pool.discard([buffer])
    assert pool.bytes == 0
    pool.flush([buffer])
    assert owner.trees == []


def test_a_pool_is_pickled_as_an_empty_one_of_its_size():
    pool, owner = BufferPool("1MB"), Flushes()
    pool.add(buffer_of(owner), rows(10))
    found = pickle.loads(pickle.dumps(WriteSettings(buffer_pool=pool))).buffer_pool
    assert (found.bytes_max, found.bytes) == (1024 * 1024, 0)
    assert repr(found) == "BufferPool(1048576)"


@pytest.mark.parametrize(
    ("size", "error"),
    [("5XB", InvalidArgumentError), (0, InvalidArgumentError), (None, TypeError), (1.5, TypeError)],
)
def test_a_size_that_is_none_is_refused(size, error):
    with pytest.raises(error, match="bytes_max"):
        BufferPool(size)
    with pytest.raises(TypeError, match="buffer_pool"):
        WriteSettings(buffer_pool=512)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_leaves_the_rows_of_its_parent():
    pool, owner = BufferPool(10_000), Flushes()
    pool.add(buffer_of(owner), rows(1000))
    child = os.fork()
    if not child:
        mine = Flushes()
        pool.add(buffer_of(mine), rows(1000))
        os._exit(0 if owner.trees == mine.trees == [] and pool.bytes < 9000 else 1)
    assert os.waitpid(child, 0)[1] == 0
    pool.add(buffer_of(owner), rows(1000))
    assert owner.trees == [0]


def partitioned(path: Path) -> Table:
    return keyed_table(path, SCHEMA, **PARTITIONED)


def test_writers_of_two_partitions_share_a_pool(tmp_path):
    """The writer with many rows is flushed, as the other one needs room; both lose no row."""
    table = partitioned(tmp_path / "t")
    settings = WriteSettings(buffer_pool=BufferPool("64KB"))
    with table.writer(settings=settings) as one, table.writer(settings=settings) as other:
        one.write({"p": ["x"] * 2500, "k": list(range(2500)), "v": ["v"] * 2500})
        before = data_files(table)
        other.write({"p": ["y"] * 1500, "k": list(range(1500)), "v": ["v"] * 1500})
        assert len(data_files(table) - before) == 1
        assert all("p=x" in path for path in data_files(table))
        mine, theirs = entries_of(one.prepare_commit()), entries_of(other.prepare_commit())
    assert {entry.partition for entry in mine} == {("x",)}
    assert {entry.partition for entry in theirs} == {("y",)}
    assert sum(entry.rows for entry in mine) == 2500
    assert sum(entry.rows for entry in theirs) == 1500
    assert settings.buffer_pool is not None
    assert settings.buffer_pool.bytes == 0


def test_writers_in_threads_share_a_pool(tmp_path):
    """Each thread writes a key again and again: the last row of each is in its newest run."""
    table = partitioned(tmp_path / "t")
    settings = WriteSettings(buffer_pool=BufferPool("4KB"), threads=1)
    messages: dict[str, list[Any]] = {}

    def write(name: str) -> None:
        with table.writer(settings=settings) as writer:
            for n in range(60):
                writer.write({"p": [name] * 5, "k": list(range(5)), "v": [f"{n}"] * 5})
            messages[name] = writer.prepare_commit()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "abc":
        entries = entries_of(messages[name])
        numbers = [entry.sequence_offset for entry in entries]
        assert sorted(numbers) == list(range(len(numbers)))
        assert len(numbers) > 1
        newest = [int(rows_of(table, entry)[0][2]) for entry in entries]
        assert [value for _, value in sorted(zip(numbers, newest, strict=True))] == sorted(newest)
        assert max(newest) == 59
    for each in messages.values():
        table.commit(each)
    assert set(table.scan().to_arrow().column("v").to_pylist()) == {"59"}


def test_an_aborted_writer_leaves_the_rows_of_the_others(tmp_path):
    table = partitioned(tmp_path / "t")
    settings = WriteSettings(buffer_pool=BufferPool("1MB"))
    with table.writer(settings=settings) as kept:
        kept.write({"p": ["x"], "k": [1], "v": ["v"]})
        with table.writer(settings=settings) as aborted:
            aborted.write({"p": ["y"], "k": [1], "v": ["v"]})
        (entry,) = entries_of(kept.prepare_commit())
    assert rows_of(table, entry) == [("x", 1, "v", 0)]
    assert data_files(table) == {entry.path}


def test_one_batch_above_the_size_of_the_pool_is_written_in_parts(tmp_path):
    table = keyed_table(tmp_path / "t", properties={"write_buffer_size": "64KB"})
    with table.writer() as writer:
        writer.write({"k": list(range(40_000)), "v": ["v"] * 40_000})
        found = len(data_files(table))
        entries = entries_of(writer.prepare_commit())
    assert found > 4
    assert sum(entry.rows for entry in entries) == 40_000
    assert max(entry.rows for entry in entries) < 10_000


@pytest.mark.parametrize("dtype", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_rows_of_many_buckets_that_share_memory_count_once(tmp_path, dtype):
    """Each bucket's rows refer to all texts of the batch."""
    texts = pa.array([f"{n:0100}" for n in range(1000)])
    values = texts.dictionary_encode() if pa.types.is_dictionary(dtype) else texts.cast(dtype)
    schema = pa.schema([("k", pa.int64()), ("v", dtype)])
    table = keyed_table(tmp_path / "t", schema, properties={"bucket": "50"})
    settings = WriteSettings(buffer_pool=BufferPool("1MB"))
    with table.writer(settings=settings) as writer:
        writer.write(pa.table({"k": list(range(1000)), "v": values}, schema))
        assert data_files(table) == set()
        entries = entries_of(writer.prepare_commit())
    assert len(entries) == 50
    assert sum(entry.rows for entry in entries) == 1000
