"""Files over slow storage: rounds of requests that a read needs, counted on a store in memory."""

from __future__ import annotations

import threading
import uuid

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import WriteOptions
from tests.equality import assert_logically_equal


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
    """Of 60,000 columns, found all over it; only the first column's data are wanted."""
    table = wide(60_000, 1)
    names = table.column_names[:: len(table.column_names) // 40]
    with fermion.open(stored(table)) as file:
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
