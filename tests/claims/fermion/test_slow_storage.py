"""Files over slow storage: rounds of requests that a read needs, counted on a store in memory."""

from __future__ import annotations

import io
import threading
import uuid
from typing import ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import fermion
from fermion import WriteOptions
from tests.kit.equality import assert_logically_equal


@pytest.fixture
def stored():
    """Writes a table to fsspec's memory store and gives its URL."""
    folder = f"/slow-storage-{uuid.uuid4().hex}"

    def write(table: pa.Table, **options) -> str:
        url = f"memory://{folder}/file.fermion"
        fermion.write_table(table, url, options=WriteOptions(**options))
        return url

    yield write
    fsspec.filesystem("memory").rm(folder, recursive=True)


def wide(columns: int, rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table({f"feature_{place}": random.random(rows) for place in range(columns)})


def test_a_long_index_is_fetched_in_one_request_more(stored):
    """Of 8,000 columns, found all over it; only the first column's data are wanted."""
    table = wide(8_000, 1)
    names = table.column_names[:: len(table.column_names) // 40]
    with fermion.open(stored(table), options=fermion.ReadOptions(prefetch_bytes=4_096)) as file:
        opened = file.io_stats.requests
        for name in names:
            file.index.find(name)
        assert file.io_stats.requests - opened == 1


def test_pages_and_blocks_are_fetched_side_by_side(stored, monkeypatch):
    """Requests of one read overlap: each waits until another has begun."""
    table = wide(8, 40_000)
    url = stored(table, stripe_rows=50_000, profile="fast")
    system = fsspec.filesystem("memory")
    read, both = system.cat_file, threading.Barrier(2, timeout=20)
    meet = threading.Event()

    def meeting(path, start=None, end=None, **others):
        if meet.is_set():
            both.wait()
        return read(path, start=start, end=end, **others)

    monkeypatch.setattr(system, "cat_file", meeting)
    options = fermion.ReadOptions(coalesce_gap_bytes=0, threads=2)
    with fermion.open(url, options=options) as file:
        file.index.blocks(range(8))
        meet.set()
        found = file.read(["feature_1", "feature_6"])
    assert_logically_equal(found, table.select(["feature_1", "feature_6"]))


def test_the_next_stripe_is_under_way_while_one_is_read(stored, monkeypatch):
    """The first stripe's request is held back until the second one's has come."""
    table = wide(1, 3_000)
    url = stored(table, stripe_rows=1_000)
    system = fsspec.filesystem("memory")
    read, second, asked = system.cat_file, threading.Event(), []

    def first_waits(path, start=None, end=None, **others):
        asked.append(start)
        if len(asked) > 1:
            second.set()
        assert second.wait(20)
        return read(path, start=start, end=end, **others)

    with fermion.open(url, options=fermion.ReadOptions(prefetch_bytes=1024)) as file:
        file.index.blocks([0])
        monkeypatch.setattr(system, "cat_file", first_waits)
        assert_logically_equal(file.read(), table)
    assert len(asked) == 3


class SuffixStore(MemoryFileSystem):
    """A store in memory that counts what it is asked, and answers suffix ranges as S3 does."""

    protocol = ("suffix", "s3")
    asked: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("suffix://", "memory://"))

    def info(self, path, **others):
        self.asked.append("info")
        return super().info(path, **others)

    def cat_file(self, path, start=None, end=None, **others):
        self.asked.append("read")
        data = self.store[self._strip_protocol(path)].getvalue()
        return data[start:end]


@pytest.fixture
def suffix_url():
    """Puts bytes into a store that knows suffix ranges; gives the URL and the list of requests."""
    fsspec.register_implementation("suffix", SuffixStore, clobber=True)
    system = fsspec.filesystem("suffix")
    path = f"/suffix-{uuid.uuid4().hex}.fermion"

    def put(data: bytes) -> str:
        system.pipe_file(path, data)
        SuffixStore.asked.clear()
        return f"suffix://{path}"

    yield put
    system.rm(path)


def written(table: pa.Table, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, options=WriteOptions(**options))
    return sink.getvalue()


def test_opening_asks_for_the_end_and_not_for_the_size(suffix_url):
    table = wide(3, 100_000)
    data = written(table, profile="fast")
    url = suffix_url(data)
    with fermion.open(url, options=fermion.ReadOptions(prefetch_bytes=65_536)) as file:
        assert SuffixStore.asked == ["read"]
        assert file.io_stats.bytes_requested == 65_536 < len(data)
        assert_logically_equal(file.read(), table)
    assert "info" not in SuffixStore.asked


def test_a_file_shorter_than_its_prefetched_end_takes_one_request(suffix_url):
    table = wide(3, 10)
    assert_logically_equal(fermion.read_table(suffix_url(written(table))), table)
    assert SuffixStore.asked == ["read"]


@pytest.mark.parametrize("kept", [0, 100, 271, 70_000])
def test_a_file_cut_short_is_refused_where_nobody_knows_its_size(suffix_url, kept):
    data = written(wide(3, 100_000), profile="fast")
    options = fermion.ReadOptions(prefetch_bytes=1024)
    with pytest.raises(fermion.InvalidFileError, match="suffix://"):
        fermion.open(suffix_url(data[:kept]), options=options)


def test_a_file_that_lost_its_start_is_refused(suffix_url):
    """The footer names offsets that the storage does not have any more."""
    data = written(wide(3, 100_000), profile="fast")
    options = fermion.ReadOptions(prefetch_bytes=1024)
    with (
        pytest.raises(fermion.FermionError),
        fermion.open(suffix_url(data[99:]), options=options) as file,
    ):
        file.read()
