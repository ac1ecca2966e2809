"""All rows of columns of many pages: the short way gives what the general way gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import ReadOptions, kernels
from fermion.reading import many_pages
from fermion.reading.many_pages import WholeRead
from tests.kit.equality import assert_logically_equal
from tests.kit.files.damage import flipped_bits, outcome
from tests.kit.files.forced_encodings import forced_encodings
from tests.kit.paged_columns import (
    COLUMNS,
    ROWS,
    written,
)
from tests.kit.read_strategies import without
from tests.kit.strategies import random_array, scalar_types

ENCODINGS = {
    **COLUMNS,
    "sorted": (lambda random: np.sort(random.integers(0, 10**9, ROWS)), "delta"),
    "runs": (lambda random: np.sort(random.integers(0, 40, ROWS)).astype(np.int16), "rle"),
    "halves": (lambda random: random.integers(-99, 10**6, ROWS) / 4, "alp"),
}


def read(data: bytes) -> pa.Table:
    with fermion.open(data, options=ReadOptions(threads=2)) as file:
        return file.read()


def around(data: bytes) -> pa.Table:
    with without(WholeRead):
        return read(data)


@pytest.mark.parametrize("rows", [(0, 700), (500, 1_500), (433, 4_999), (1_234, ROWS)])
@pytest.mark.parametrize("page_rows", [500, 100])
def test_rows_without_gaps_are_read_by_the_pages_around_them(rows, page_rows, monkeypatch):
    """All encodings, without the general way; numbers of which few are wanted are a copy."""
    random = np.random.default_rng(3)
    table = pa.table({name: make(random) for name, (make, _) in ENCODINGS.items()})
    encodings = {name: encoding for name, (_, encoding) in ENCODINGS.items()}
    data = written(table, encodings=encodings, page_rows_max=page_rows)
    monkeypatch.setattr(many_pages, "RUN_ROWS_MIN", 1)
    monkeypatch.setattr("fermion.reading.column.read_columns", None)
    with fermion.open(data, options=ReadOptions(threads=2)) as file:
        found = file.read(rows=rows)
    found.validate(full=True)
    assert_logically_equal(found, table.slice(rows[0], rows[1] - rows[0]))
    held = sum(buffer.size for buffer in found["sorted"].chunk(0).buffers() if buffer)
    assert held <= 8 * max(rows[1] - rows[0], 1) / many_pages.VIEW_FRACTION


def filled(array: pa.Array) -> pa.Array:
    """The same without nulls: what lay in their slots are values."""
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]])


@given(st.data(), st.lists(scalar_types(), min_size=1, max_size=4), st.integers(0, 2**32))
def test_both_ways_give_the_same_columns(data, types, seed):
    """Types of scalars, with nulls and without, every encoding; Arrow checks the buffers too."""
    random = np.random.default_rng(seed)
    rows = data.draw(st.integers(1, 3_000))
    arrays = [random_array(random, dtype, rows) for dtype in types]
    if data.draw(st.booleans()):
        arrays = [filled(array) for array in arrays]
    table = pa.table(arrays, names=[f"c{place}" for place in range(len(arrays))])
    forced = data.draw(st.one_of(st.just({}), forced_encodings(table.schema)))
    profile = data.draw(st.sampled_from(["balanced", "compact", "fast", "random"]))
    page_rows = data.draw(st.sampled_from([100, 1_500]))
    file = written(
        table, stripe_rows=1_700, encodings=forced, profile=profile, page_rows_max=page_rows
    )
    found = read(file)
    found.validate(full=True)
    assert_logically_equal(found, table)
    assert_logically_equal(around(file), table)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("level", [0, 6])
def test_a_column_of_these_encodings_is_read_by_one_call(name, level, monkeypatch):
    """One call of the kernels for all pages of a stripe, and none of the general way."""
    make, encoding = ENCODINGS[name]
    table = pa.table({name: make(np.random.default_rng(3))})
    data = written(table, encodings={name: encoding}, page_rows_max=500, compression_level=level)
    calls, decode_pages = [], kernels.decode_pages

    def counted(pages, *arguments):
        calls.append(len(pages))
        return decode_pages(pages, *arguments)

    monkeypatch.setattr(kernels, "decode_pages", counted)
    monkeypatch.setattr("fermion.reading.column.read_columns", None)
    assert_logically_equal(read(data), table)
    assert calls == [12]


def test_parts_of_a_long_column_are_decoded_side_by_side(monkeypatch):
    """Of numbers; strings are put together by one thread, and are as long as the file says."""
    random = np.random.default_rng(3)
    texts = [f"text {n}" for n in random.integers(0, 99, ROWS)]
    table = pa.table({"number": random.integers(0, 9_999, ROWS), "text": texts})
    data = written(table, page_rows_max=500)
    pages, decode_pages = [], kernels.decode_pages

    def counted(given_, *arguments):
        pages.append(len(given_))
        return decode_pages(given_, *arguments)

    monkeypatch.setattr(many_pages, "PART_BYTES", 4 * 500 * 8)
    monkeypatch.setattr(kernels, "decode_pages", counted)
    assert_logically_equal(read(data), table)
    assert sorted(pages) == [4, 4, 4, 12]


@pytest.mark.parametrize("said", [None, 0, 10, 10**9])
def test_the_number_of_bytes_that_metadata_say_is_not_trusted(said, monkeypatch):
    """Too few: the general way reads the column; far too many: memory for them is not asked for."""
    table = pa.table({"text": [f"text {n % 7}" for n in range(ROWS)]})
    data = written(table, page_rows_max=500)
    monkeypatch.setattr(many_pages, "decoded_bytes", lambda _: said)
    assert_logically_equal(read(data), table)


@pytest.mark.parametrize("checksum", ["crc32c", "xxh3", "none"])
@pytest.mark.parametrize("name", ENCODINGS)
def test_damage_is_told_in_the_same_words_both_ways(name, checksum):
    """Bits of the pages flipped, also where no checksum tells."""
    make, encoding = ENCODINGS[name]
    table = pa.table({name: make(np.random.default_rng(3))})
    data = written(table, encodings={name: encoding}, page_rows_max=2_000, checksum=checksum)
    with fermion.open(data) as file:
        (chunk,) = file.column(name).streams[1].chunks
    for _, damaged in flipped_bits(data, chunk.offset, chunk.length, 20):
        found, expected = outcome(read, damaged), outcome(around, damaged)
        if isinstance(found, pa.Table):
            assert isinstance(expected, pa.Table), expected
            assert_logically_equal(found, expected)
        else:
            assert found == expected


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"counts": [10, 10]}, "counts"),
        ({"counts": [-1]}, "page 0 of -1 slots"),
        ({"width": 0}, "values of 0 bytes"),
        ({"width": 3, "out": np.zeros(30, np.uint8)}, "whole numbers of 3 bytes"),
        ({"letter": "s", "width": 5, "out": np.zeros(55, np.uint8)}, "offsets of 5 bytes"),
        ({"out": np.zeros(88, np.uint8)[1:81]}, "out is not aligned"),
        ({"out": np.zeros(8, np.uint8)}, "bytes of out"),
        ({"offsets": [0, 9]}, "offset"),
        ({"page_offsets": []}, "page_offsets"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(changed, said):
    given_ = {"counts": [10], "letter": "i", "width": 8, "offsets": [], "page_offsets": [0]}
    given_ |= {"out": np.zeros(80, np.uint8)} | changed
    numbers = {
        key: np.array(given_[key], np.int64) for key in ("counts", "offsets", "page_offsets")
    }
    with pytest.raises(ValueError, match=said):
        kernels.decode_pages(
            [bytes(40)],
            numbers["counts"],
            numbers["page_offsets"],
            kernels.PageForm(ord(given_["letter"]), given_["width"], b"1234", numbers["offsets"]),
            kernels.PageReader(None, None, True, 0),
            given_["out"],
        )
