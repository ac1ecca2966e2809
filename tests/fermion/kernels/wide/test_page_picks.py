"""Rows that lie apart: the short way through their pages gives what the general way gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import kernels
from fermion.encodings import decoding
from fermion.errors import InvalidFileError
from fermion.reading import chunk_pages
from fermion.reading import stream as stream_decoder
from fermion.writing.metadata import FileContents
from tests.kit.equality import assert_logically_equal
from tests.kit.files.damage import flipped_bits, outcome
from tests.kit.files.forced_encodings import forced_encodings
from tests.kit.paged_columns import COLUMNS, ROWS, comments, written
from tests.kit.read_strategies import only_general
from tests.kit.strategies import random_array, scalar_types


def taken(data: bytes, rows: np.ndarray) -> pa.Table:
    with fermion.open(data) as file:
        return file.take(rows)


def around(data: bytes, rows: np.ndarray) -> pa.Table:
    """The rows without the short way."""
    with only_general():
        return taken(data, rows)


def some_rows(random: np.random.Generator, rows: int, count: int = 40) -> np.ndarray:
    return np.sort(random.choice(rows, min(count, rows), replace=False))


@given(st.data(), st.lists(scalar_types(), min_size=1, max_size=4), st.integers(0, 2**32))
def test_both_ways_give_the_same_rows(data, types, seed):
    """Types of scalars, random nulls and values, every encoding; Arrow checks the buffers too."""
    random = np.random.default_rng(seed)
    rows = data.draw(st.integers(1, 3_000))
    arrays = [random_array(random, dtype, rows) for dtype in types]
    table = pa.table(arrays, names=[f"c{place}" for place in range(len(types))])
    forced = data.draw(st.one_of(st.just({}), forced_encodings(table.schema)))
    profile = data.draw(st.sampled_from(["balanced", "compact", "fast", "random"]))
    page_rows = data.draw(st.sampled_from([100, 1_500, 131_072]))
    options = {"encodings": forced, "profile": profile, "page_rows_max": page_rows}
    file = written(table, stripe_rows=1_700, **options)
    wanted = some_rows(random, rows, data.draw(st.integers(1, 60)))
    found = taken(file, wanted)
    found.validate(full=True)
    assert_logically_equal(found, around(file, wanted))
    # Arrow cannot take out of every type.
    assert_logically_equal(found, pa.concat_tables([table.slice(row, 1) for row in wanted]))


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("level", [0, 6])
def test_pages_of_these_encodings_are_read_by_one_call(name, level, monkeypatch):
    """One call of the kernels for all pages of a stripe, and none of the general way."""
    random = np.random.default_rng(3)
    make, encoding = COLUMNS[name]
    table = pa.table({name: make(random)})
    data = written(table, encodings={name: encoding}, page_rows_max=500, compression_level=level)
    calls, pick_pages = [], kernels.pick_pages

    def counted(pages, *arguments):
        calls.append(len(pages))
        return pick_pages(pages, *arguments)

    monkeypatch.setattr(chunk_pages.kernels, "pick_pages", counted)
    monkeypatch.setattr(stream_decoder, "decode_pages", None)
    rows = np.arange(3, ROWS, 250)
    assert_logically_equal(taken(data, rows), table.take(pa.array(rows)))
    assert calls == [12]


@pytest.mark.parametrize("checksum", ["crc32c", "xxh3", "none"])
@pytest.mark.parametrize("name", COLUMNS)
def test_damage_is_told_in_the_same_words_both_ways(name, checksum):
    """Bits of the pages flipped; without checksums, what is damaged may lie beside the rows."""
    make, encoding = COLUMNS[name]
    table = pa.table({name: make(np.random.default_rng(3))})
    data = written(table, encodings={name: encoding}, page_rows_max=2_000, checksum=checksum)
    with fermion.open(data) as file:
        (chunk,) = file.column(name).streams[1].chunks
    copies = flipped_bits(data, chunk.offset, chunk.length, 30)
    for number, (random, damaged) in enumerate(copies):
        rows = np.append(some_rows(random, ROWS, 3), 1_998 + number % 2)
        found, expected = outcome(taken, damaged, rows), outcome(around, damaged, rows)
        if isinstance(found, pa.Table) and isinstance(expected, tuple) and checksum == "none":
            expected = table.take(pa.array(rows))  # what is wrong was of no use for these rows
        if isinstance(found, pa.Table):
            assert_logically_equal(found, expected)
        else:
            assert found == expected


def test_more_slots_than_a_page_can_hold_are_told_in_the_same_words(monkeypatch):
    """A stripe that says it has 2**22 times its rows, of 60 numbers each."""
    build = FileContents.build

    def inflated(self, offset):
        stripes = self.log._stripes
        stripes[:] = [each._replace(rows=each.rows << 22) for each in stripes]
        object.__setattr__(self, "stripe_rows", [each.rows for each in stripes])
        return build(self, offset)

    numbers = pa.array(np.arange(60_000) * 7919 % 100_001)
    monkeypatch.setattr(FileContents, "build", inflated)
    table = pa.table({"f": pa.FixedSizeListArray.from_arrays(numbers, 60)})
    data = written(table, page_rows_max=1 << 20)
    rows = np.array([0, (1_000 << 22) - 1])
    found = outcome(taken, data, rows)
    assert found == outcome(around, data, rows)
    assert found[0] is InvalidFileError
    assert found[1].endswith(
        "page at offset 16: expected 251658240000 slots, found 60000 (column 'f', stripe 0)"
    )


def test_an_interrupt_while_decompressing_goes_through(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    table = pa.table({"pieces": comments(np.random.default_rng(0))})
    options = {"encodings": {"pieces": "split_lengths"}, "compression_level": 3}
    data = written(table, page_rows_max=ROWS // 2, **options)
    with fermion.open(data) as file:
        (chunk,) = file.column("pieces").streams[1].chunks
    assert chunk.length < table.nbytes / 2  # there is something to decompress
    monkeypatch.setattr(decoding, "decompress_padded", interrupted)
    with pytest.raises(KeyboardInterrupt):
        taken(data, np.array([5, 900]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"slots": [3, 3]}, "slot 3 after 3: expected to ascend"),
        ({"slots": [3, 10]}, "slot 10 after 3: expected to ascend below 10"),
        ({"cuts": [0, 3]}, "cuts"),
        ({"counts": [10, 10]}, "counts"),
        ({"counts": [-1]}, "page 0 of -1 slots"),
        ({"width": 0}, "values of 0 bytes"),
        ({"width": 3, "out": np.zeros(6, np.uint8)}, "whole numbers of 3 bytes"),
        ({"out": np.zeros(24, np.uint8)[1:17]}, "out is not aligned"),
        ({"out": np.zeros(8, np.uint8)}, "bytes of out"),
        ({"offsets": [0, 9]}, "offset"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(changed, said):
    given_ = {"counts": [10], "slots": [3, 4], "cuts": [0, 2], "width": 8, "offsets": []}
    given_ |= {"out": np.zeros(16, np.uint8)} | changed
    numbers = {
        key: np.array(given_[key], np.int64) for key in ("counts", "slots", "cuts", "offsets")
    }
    with pytest.raises(ValueError, match=said):
        kernels.pick_pages(
            [bytes(40)],
            numbers["counts"],
            np.zeros(1, np.int64),
            numbers["slots"],
            numbers["cuts"],
            kernels.PageForm(ord("i"), given_["width"], b"1234", numbers["offsets"]),
            kernels.PageReader(None, None, True, 0),
            given_["out"],
        )
