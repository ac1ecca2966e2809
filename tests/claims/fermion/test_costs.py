"""What reading costs, counted instead of timed: requests, bytes, pages, calls into the kernels."""

from __future__ import annotations

import sys
import threading
import uuid
from collections import Counter
from types import ModuleType

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import kernels
from fermion.encodings import decoding, pcodec
from fermion.encodings.for_bitpack import ForBitpack
from fermion.layout import StreamType
from fermion.reading import one_page
from fermion.reading.column import ColumnTask
from fermion.reading.many_pages import _WholeColumn

LOCAL_TAIL = 64 * 1024
REMOTE_TAIL = 512 * 1024
NAMES = ["c1", "c50", "c99"]


def wide(columns: int, rows: int = 2) -> pa.Table:
    """Columns of three types that all hold something."""
    arrays = [
        pa.array([7] * rows, pa.int64()),
        pa.array([0.5] * rows, pa.float32()),
        pa.array(["text"] * rows),
    ]
    return pa.table({f"c{index}": arrays[index % 3] for index in range(columns)})


def projection(path: str) -> fermion.IoStats:
    """What opening a file and reading three columns asks of the storage."""
    with fermion.open(path) as file:
        assert file.read(NAMES).column_names == NAMES
        return file.io_stats


@pytest.fixture(scope="module", params=[100, 10_000])
def wide_file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / f"{request.param}.fmn"
    fermion.write_table(wide(request.param), path, durable=False)
    return path


def remote(path) -> str:
    """The same file in a store that is not local."""
    url = f"memory://{uuid.uuid4().hex}.fmn"
    with fsspec.open(url, "wb") as file:
        file.write(path.read_bytes())
    return url


def test_a_projection_of_a_local_file_takes_few_small_requests_at_any_width(wide_file):
    """One tail, then what the tail lacks of names, places and blocks; then the data."""
    stats = projection(str(wide_file))
    assert stats.requests <= 4
    assert stats.bytes_requested <= LOCAL_TAIL + 128 * 1024


def test_a_projection_of_a_remote_file_takes_three_requests_at_any_width(wide_file):
    """One tail, one round for metadata, one for data, whatever the bytes in between."""
    stats = projection(remote(wide_file))
    assert stats.requests <= 3
    assert stats.bytes_requested <= 2 * REMOTE_TAIL


@pytest.mark.slow
def test_a_projection_of_a_hundred_thousand_columns_reads_a_small_part_of_the_metadata(tmp_path):
    """Slow only because the file has to be written. Its data is a few bytes a column."""
    path = tmp_path / "wide.fmn"
    info = fermion.write_table(wide(100_000), path, durable=False)
    stats = projection(str(path))
    assert stats.requests <= 12
    assert stats.bytes_requested <= min(1_000_000, info.size / 10)


def test_opening_reads_the_tail_and_nothing_else(wide_file):
    """The number of rows, columns and stripes are in the footer."""
    with fermion.open(wide_file) as file:
        assert (file.num_rows, file.num_stripes) == (2, 1)
        assert file.io_stats.requests == 1
        assert file.io_stats.bytes_requested <= LOCAL_TAIL


@pytest.mark.parametrize(("stride", "is_joined"), [(2, True), (4, True), (6, False), (9, False)])
def test_columns_of_a_local_file_are_joined_over_small_gaps_only(tmp_path, stride, is_joined):
    """Columns of 8 kB: up to 32 KiB between two are read along, more are not; remote, all are."""
    random = np.random.default_rng(1)
    table = pa.table({f"c{at}": random.standard_normal(1000) for at in range(200)})
    names = table.column_names[:28:stride]
    path = tmp_path / "file"
    fermion.write_table(table, path, durable=False)
    for place, one_request in ((str(path), is_joined), (remote(path), True)):
        with fermion.open(place) as file:
            file.read([])
            before = file.io_stats
            found = file.read(names)
            requests = file.io_stats.requests - before.requests
            requested = file.io_stats.bytes_requested - before.bytes_requested
        assert found == table.select(names)
        assert requests == (1 if one_request else len(names)), requests
        if not one_request:
            assert requested <= 1.2 * table.select(names).nbytes + LOCAL_TAIL


def data_pages(file: fermion.FermionFile, name: str) -> tuple:
    """The pages of a column's values in the first stripe."""
    (stream,) = (one for one in file.column(name).streams if one.type == StreamType.DATA)
    return stream.chunks[0].pages


def test_a_filter_reads_the_pages_that_may_match_and_of_other_columns_their_rows_alone(tmp_path):
    """By the lengths of the pages, which the file's own metadata gives.

    A hundred pages of a hundred rows; the filter meets three rows of one page. So one page of the
    sorted column and one of the other are read, and no byte of the third.
    """
    path = tmp_path / "pages.fmn"
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "sorted": np.arange(10_000),
            "other": random.integers(0, 2**40, 10_000),
            "third": random.integers(0, 2**40, 10_000),
        }
    )
    fermion.write_table(table, path, page_rows_max=100, durable=False)
    with fermion.open(path) as file:
        pages = {name: data_pages(file, name) for name in table.column_names}
    assert [page.slots for page in pages["sorted"]] == [100] * 100
    lengths = [pages[name][42].length for name in ("sorted", "other")]
    with fermion.open(path) as file:
        file.read(["other"], rows=(0, 0))  # metadata, so that what follows is data alone
        file.read(["sorted"], rows=(0, 0))
        before = file.io_stats
        found = file.read(["other"], filter="sorted BETWEEN 4210 AND 4212")
        after = file.io_stats
    assert found.column("other").equals(table.column("other").slice(4210, 3))
    assert after.bytes_used - before.bytes_used == sum(lengths)
    assert after.requests - before.requests <= 2


def test_a_filter_that_no_page_can_meet_reads_no_data(tmp_path):
    path = tmp_path / "none.fmn"
    fermion.write_table(pa.table({"a": np.arange(1000)}), path, page_rows_max=10, durable=False)
    with fermion.open(path) as file:
        file.read(["a"], rows=(0, 0))
        before = file.io_stats
        assert file.read(filter="a > 5000").num_rows == 0
        assert file.io_stats == before


def test_rows_far_apart_are_decoded_from_their_own_blocks(tmp_path, monkeypatch):
    """Three rows of one page: of pcodec three blocks of eight, of strings three pieces of many."""
    random = np.random.default_rng(4)
    words = np.array(["carefully", "final", "deposits", "sleep", "quickly", "among", "regular"])
    texts = [" ".join(each) for each in random.choice(words, (30_000, 6))]
    table = pa.table({"number": random.normal(0, 100, 30_000).astype(np.int64), "text": texts})
    encodings = {"number": "pcodec", "text": "split_lengths"}
    path = tmp_path / "far.fmn"
    fermion.write_table(table, path, page_bytes=8 * 2**20, encodings=encodings, durable=False)
    calls: Counter[str] = Counter()

    def count(module, name):
        original = getattr(module, name)

        def counted(*arguments):
            calls[name] += 1
            return original(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(pcodec, "_read_block")
    count(decoding, "decompress_padded")
    rows = [700, 14_000, 29_999]
    with fermion.open(path) as file:
        assert [len(data_pages(file, name)) for name in table.column_names] == [1, 1]
        assert file.take(rows, columns=["number"]).equals(table.select(["number"]).take(rows))
        assert calls == {"_read_block": 3}
        calls.clear()
        assert file.take(rows, columns=["text"]).equals(table.select(["text"]).take(rows))
        assert calls["decompress_padded"] == 3


def test_the_column_with_most_bytes_is_decoded_first(tmp_path, monkeypatch):
    """So that no thread is left alone with it at the end."""
    random = np.random.default_rng(6)
    table = pa.table({f"c{bits}": random.integers(0, 2**bits, 9_000) for bits in (9, 60, 2, 30)})
    path = tmp_path / "sizes.fmn"
    fermion.write_table(table, path, page_rows_max=3_000, durable=False)
    order = []
    decode = _WholeColumn.decode

    def recorded(column, first, stop):
        order.append(column.plan.stored_bytes)
        return decode(column, first, stop)

    monkeypatch.setattr(_WholeColumn, "decode", recorded)
    with fermion.open(path, options=fermion.ReadOptions(threads=1)) as file:
        assert file.read().equals(table)
    assert len(set(order)) == 4
    assert order == sorted(order, reverse=True)


def test_few_rows_are_decoded_without_waking_other_threads(tmp_path, monkeypatch):
    """A batch by its id, of a page of thousands; the whole file is decoded by several."""
    random = np.random.default_rng(7)
    table = pa.table({name: random.integers(0, 2**40, 200_000) for name in "abc"})
    path = tmp_path / "batches.fmn"
    options = fermion.WriteOptions(durable=False)
    with fermion.Writer(path, table.schema, options=options) as writer:
        for number, batch in enumerate(table.to_batches(max_chunksize=40)):
            writer.append_batch(number, batch)
    threads = set()
    feed, pick_flat = ColumnTask.feed, one_page.kernels.pick_flat

    def recorded(task, buffers, executor=None):
        threads.add(threading.current_thread())
        feed(task, buffers, executor)

    def decoded(*arguments):
        threads.add(threading.current_thread())
        return pick_flat(*arguments)

    monkeypatch.setattr(ColumnTask, "feed", recorded)
    monkeypatch.setattr(one_page.kernels, "pick_flat", decoded)
    with fermion.open(path, options=fermion.ReadOptions(threads=2)) as file:
        assert file.read_batch(77).equals(table.slice(3_080, 40))
        assert threads == {threading.main_thread()}
        threads.clear()
        assert file.read(rows=(0, 199_999)).equals(table.slice(0, 199_999))
        assert threads.isdisjoint({threading.main_thread()})


def test_pages_of_one_large_column_are_decoded_by_several_threads(tmp_path, monkeypatch):
    """What comes out is the same, and a damaged page is named as by one thread."""
    table = pa.table({"number": np.random.default_rng(8).integers(0, 2**40, 200_000)})
    path = tmp_path / "one.fmn"
    fermion.write_table(table, path, page_rows_max=4_096, durable=False, checksum="none")
    threads = set()
    read = ForBitpack.read_fixed

    def recorded(*arguments):
        threads.add(threading.current_thread())
        read(*arguments)

    monkeypatch.setattr(ForBitpack, "read_fixed", recorded)
    with fermion.open(path, options=fermion.ReadOptions(threads=2)) as file:
        assert file.read().equals(table)
        page = data_pages(file, "number")[30]
    assert threads.isdisjoint({threading.main_thread()})
    damaged = bytearray(path.read_bytes())
    damaged[page.offset + 32 : page.offset + page.length] = bytes(page.length - 32)
    with (
        fermion.open(bytes(damaged), options=fermion.ReadOptions(threads=2)) as file,
        pytest.raises(fermion.InvalidFileError, match=f"page at offset {page.offset}: for_bitpack"),
    ):
        file.read()


@pytest.fixture
def kernel_calls(monkeypatch) -> Counter[str]:
    """Calls into the compiled kernels by name, wherever a module has imported one."""
    calls: Counter[str] = Counter()

    def counted(name: str, kernel):
        def call(*arguments, **options):
            calls[name] += 1
            return kernel(*arguments, **options)

        return call

    wrappers = {}
    for name, kernel in vars(kernels).items():
        if not name.startswith("_") and callable(kernel) and not isinstance(kernel, type):
            wrappers[id(kernel)] = counted(name, kernel)
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or not module.__name__.startswith("fermion."):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in wrappers and module.__name__ != "fermion.kernels._compiled":
                monkeypatch.setattr(module, attribute, wrappers[id(value)])
    return calls


def full_read(path, kernel_calls: Counter[str]) -> int:
    """Kernel calls of reading a whole file."""
    kernel_calls.clear()
    with fermion.open(path, options=fermion.ReadOptions(threads=1)) as file:
        file.read()
    return kernel_calls.total()


def test_kernel_calls_of_a_full_read_grow_with_columns_and_not_with_rows(tmp_path, kernel_calls):
    """Ten and ten thousand rows in one page a column; then twice the columns."""
    random = np.random.default_rng(2)
    calls = {}
    for columns, rows in ((20, 10), (20, 10_000), (40, 10_000)):
        path = tmp_path / f"{columns}-{rows}.fmn"
        values = {f"c{index}": random.integers(0, 1000, rows) for index in range(columns)}
        fermion.write_table(pa.table(values), path, durable=False)
        calls[columns, rows] = full_read(path, kernel_calls)
    assert 0 < calls[20, 10_000] <= 8 * 20
    assert calls[20, 10_000] <= calls[20, 10] + 4 * 20  # other encodings pay for more rows
    assert calls[40, 10_000] <= 2 * calls[20, 10_000] + 10
