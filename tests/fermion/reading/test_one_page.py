"""The short way through flat columns gives what the general way gives, and does so in few calls."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import ReadOptions, WriteOptions, kernels
from fermion.encodings import decoding
from fermion.errors import FermionError
from fermion.io.source import CountingSource
from fermion.reading import one_page
from fermion.reading.one_page import OnePageRead
from tests.kit.equality import assert_logically_equal
from tests.kit.read_strategies import without
from tests.kit.strategies import random_array, scalar_types

ROWS = 600


def written(table: pa.Table, options: WriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    fermion.write_table(table, sink, options=options)
    return sink.getvalue().to_pybytes()


def around(data: bytes) -> pa.Table:
    """The file read column by column, without the short way."""
    with without(OnePageRead), fermion.open(data) as file:
        return file.read()


def assert_told_alike(data: bytes) -> None:
    """Both ways give the same values of a damaged file, or the same error."""

    def outcome(read) -> object:
        try:
            return read()
        except FermionError as error:
            return type(error), str(error)

    def direct() -> pa.Table:
        with fermion.open(data, options=ReadOptions(threads=1)) as file:
            return file.read()

    second = outcome(lambda: around(data))
    for few in (0, ROWS):
        with small_rows(few):
            first = outcome(direct)
        if isinstance(first, pa.Table):
            assert_logically_equal(first, second)
        else:
            assert first == second


@contextlib.contextmanager
def small_rows(few: int) -> Iterator[None]:
    """Stripes of so many rows are handed to Arrow as batches, longer ones column by column."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_page, "SMALL_ROWS_MAX", few)
        yield


def wide(columns: int, rows: int = ROWS) -> pa.Table:
    """Floats, integers, strings and booleans by turns, every third column with nulls."""
    random = np.random.default_rng(7)

    def column(place: int) -> pa.Array:
        mask = random.random(rows) < (place % 3) / 3
        if place % 4 == 0:
            return pa.array(random.standard_normal(rows), mask=mask)
        if place % 4 == 1:
            return pa.array(random.integers(0, 50, rows), mask=mask)
        if place % 4 == 2:
            return pa.array(random.choice(["red", "green", "blue", ""], rows), mask=mask)
        return pa.array(random.random(rows) < 0.3, mask=mask)

    return pa.table({f"c{place}": column(place) for place in range(columns)})


@given(
    st.lists(scalar_types(), min_size=1, max_size=6),
    st.integers(0, 2**32),
    st.sampled_from(["balanced", "compact", "fast", "random"]),
    st.integers(1, 2_000),
    st.sampled_from([0, ROWS]),
)
def test_both_ways_give_the_same_arrays(types, seed, profile, rows, few):
    """Types of scalars, random nulls and values, every profile; Arrow checks the buffers too."""
    random = np.random.default_rng(seed)
    arrays = [random_array(random, dtype, rows) for dtype in types]
    table = pa.table(arrays, names=[f"c{place}" for place in range(len(types))])
    data = written(table, WriteOptions(profile=profile, stripe_rows=700))
    with fermion.open(data) as file, small_rows(few):
        found = file.read()
    found.validate(full=True)
    assert_logically_equal(found, around(data))


@pytest.mark.parametrize("encoding", ["plain", "dictionary", "for_bitpack", "byte_stream_split"])
@pytest.mark.parametrize("nulls", [0.0, 0.1, 0.6, 1.0])
def test_forced_encodings_of_numbers_are_read_both_ways(encoding: str, nulls: float):
    """With no nulls, with fillers, with null slots left out, and with nothing but nulls."""
    random = np.random.default_rng(3)
    mask = random.random(ROWS) < nulls
    table = pa.table({"n": pa.array(random.integers(-9, 9, ROWS), mask=mask)})
    data = written(table, WriteOptions(encodings={"n": encoding}))
    with fermion.open(data) as file:
        assert_logically_equal(file.read(), table)
    assert_logically_equal(around(data), table)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_decimals_are_read_by_the_kernels_alone(
    dtype: type, nulls: float, monkeypatch: pytest.MonkeyPatch
):
    """Bit by bit, with exceptions (-0.0, NaN, infinities) and without; Python is not asked."""
    random = np.random.default_rng(5)
    exact = np.round(random.normal(20, 9, ROWS), 2).astype(dtype)
    other = exact.copy()
    other[::40] = np.tile([np.nan, -0.0, np.inf, -np.inf, 1 / 3], 3).astype(dtype)
    mask = random.random(ROWS) < nulls
    table = pa.table({"exact": pa.array(exact, mask=mask), "other": pa.array(other, mask=mask)})
    data = written(table, WriteOptions(encodings=dict.fromkeys(table.column_names, "alp")))
    expected = around(data)
    assert_logically_equal(expected, table)
    monkeypatch.setattr(decoding, "decode_numbers", None)
    monkeypatch.setattr("fermion.reading.column.read_columns", None)
    with fermion.open(data) as file:
        found = file.read()
    for name in table.column_names:
        bits = [
            np.asarray(each[name].drop_null()).view(f"u{exact.itemsize}") for each in (found, table)
        ]
        assert (bits[0] == bits[1]).all()
    assert_logically_equal(found, expected)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_decimals_are_told_in_the_same_words_both_ways(seed: int):
    """Nothing but the tree's own checks, as the file has no checksums."""
    random = np.random.default_rng(seed)
    values = np.round(random.normal(90, 9, 64), 1)
    values[1::20] = np.nan
    options = WriteOptions(checksum="none", encodings={"x": "alp"})
    data = bytearray(written(pa.table({"x": values}), options))
    with fermion.open(bytes(data)) as file:
        (chunk,) = file.column("x").streams[1].chunks
    at = chunk.offset + int(random.integers(16, chunk.length))  # after the page's header
    data[at] ^= 1 << int(random.integers(0, 8))

    assert_told_alike(bytes(data))


@pytest.mark.parametrize(("few", "kernel"), [(ROWS, "pick_flat"), (0, "decode_flat")])
def test_a_wide_file_takes_one_decoding_call_for_many_columns(
    few: int, kernel: str, monkeypatch: pytest.MonkeyPatch
):
    """Counts calls of the kernels for a full read of 1,000 columns in one stripe."""
    table, calls = wide(1_000), []

    def counted(name: str):
        kernel = getattr(kernels, name)

        def call(*arguments):
            calls.append(name)
            return kernel(*arguments)

        return call

    monkeypatch.setattr(one_page, "SMALL_ROWS_MAX", few)
    for name in ("decode_flat", "pick_flat", "flat_chunks"):
        monkeypatch.setattr(one_page.kernels, name, counted(name))
    monkeypatch.setattr("fermion.reading.column.read_columns", None)  # nothing is left for it
    with fermion.open(written(table)) as file:
        assert_logically_equal(file.read(), table)
    assert sorted(calls) == sorted(["flat_chunks", kernel])


def test_what_the_short_way_leaves_out_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch):
    """Requests are the same with and without it, for pages that only the general way can read."""
    table = pa.table({"text": [f"https://example.org/{i % 97}/{i}" for i in range(ROWS)]})
    data = written(table, WriteOptions(encodings={"text": "fsst"}))
    asked: list[int] = []
    read = CountingSource.read_places

    def counted(self, ranges, *, again=False):
        asked.append(int((ranges[:, 1] > 0).sum()))
        return read(self, ranges, again=again)

    monkeypatch.setattr(CountingSource, "read_places", counted)
    with fermion.open(data) as file:
        assert_logically_equal(file.read(), table)
    assert sum(asked) == 2  # the CMB, which came with the end of the file, and the page


@pytest.mark.parametrize("kind", ["crc32", "xxh3"])
def test_checksums_of_other_kinds_are_verified_before_the_kernels_see_a_page(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    """One page of six is damaged, and only its column left to the general way."""
    table = pa.table({f"c{each}": np.arange(50) * each for each in range(1, 7)})
    data = bytearray(
        written(
            table, WriteOptions(checksum=kind, encodings=dict.fromkeys(table.column_names, "plain"))
        )
    )
    at = bytes(data).index(np.arange(50)[1:9].tobytes())
    found, read = [], OnePageRead.read

    def seen(self, *arguments):
        result = read(self, *arguments)
        arrays = result.arrays if result.batch is None else result.batch.columns
        found.extend(array is not None for array in arrays)
        return result

    monkeypatch.setattr(OnePageRead, "read", seen)
    with fermion.open(bytes(data)) as file:
        assert_logically_equal(file.read(), table)
    assert found == [True] * 6
    found.clear()
    data[at] ^= 1
    with fermion.open(bytes(data)) as file, pytest.raises(fermion.ChecksumError):
        file.read()
    assert found == [False, *[True] * 5]
    unchecked = ReadOptions(verify_checksums=False)
    with fermion.open(bytes(data), options=unchecked) as file:
        assert file.read(["c1"])["c1"][1].as_py() == 0


@pytest.mark.parametrize("kind", ["crc32c", "xxh3"])
@pytest.mark.parametrize("seed", range(40))
def test_damage_is_told_in_the_same_words_both_ways(seed: int, kind: str):
    """A flipped byte anywhere: the same error, or the same values."""
    random = np.random.default_rng(seed)
    data = bytearray(written(wide(8, 50), WriteOptions(checksum=kind)))
    data[random.integers(0, len(data))] ^= 1 << int(random.integers(0, 8))

    assert_told_alike(bytes(data))


def test_an_interrupt_while_decoding_goes_through(monkeypatch: pytest.MonkeyPatch):
    """Only errors send a column the general way."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(decoding, "decode_numbers", interrupted)
    table = pa.table({"x": np.random.default_rng(0).standard_normal(5_000)})
    data = written(table, WriteOptions(encodings={"x": "pcodec"}))
    with fermion.open(data) as file, pytest.raises(KeyboardInterrupt):
        file.read()


def test_a_page_of_strings_without_any_value_has_memory_for_none(project_environment):
    """A mutation that once ended the process: null slots left out, and every slot null."""
    command = [sys.executable, "-m", "tests.kit.files.mutations", "5000295", "1"]
    done = subprocess.run(command, env=project_environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
