"""Some rows of flat columns: the short way gives what the general way gives, and in few calls."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import ReadOptions, WriteOptions, kernels
from fermion.columns.ranges import RowRanges
from fermion.encodings import decoding
from fermion.reading import column as columns_read
from fermion.reading import one_page
from fermion.reading.many_pages import PickedRead
from fermion.reading.one_page import OnePageRead
from tests.kit.equality import assert_logically_equal
from tests.kit.files.damage import outcome
from tests.kit.files.forced_encodings import forced_encodings
from tests.kit.read_strategies import without
from tests.kit.strategies import random_array, scalar_types

ROWS = 600
ENCODINGS = ["plain", "dictionary", "for_bitpack", "byte_stream_split", "alp", "split_lengths"]


def written(table: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    fermion.write_table(table, sink, options=WriteOptions(**options))
    return sink.getvalue().to_pybytes()


def some(data: bytes, rows: RowRanges) -> pa.Table:
    with fermion.open(data, options=ReadOptions(threads=1)) as file:
        return file.read(rows=rows)


def around(data: bytes, rows: RowRanges) -> pa.Table:
    """The rows column by column, without the short way."""
    with without(OnePageRead, PickedRead):
        return some(data, rows)


def picked(table: pa.Table, rows: RowRanges) -> pa.Table:
    """The rows without a kernel; Arrow cannot take out of every type."""
    return pa.concat_tables([table.slice(start, stop - start) for start, stop in rows])


def mixed(columns: int, rows: int = ROWS) -> pa.Table:
    """Floats, integers, strings and booleans by turns, every third column with nulls."""
    random = np.random.default_rng(7)

    def column(place: int) -> pa.Array:
        mask = random.random(rows) < (place % 3) / 3
        values = [
            np.round(random.normal(9, 5, rows), 2),
            random.integers(0, 50, rows) * 10**9,
            random.choice(["red", "green", "blue", ""], rows),
            random.random(rows) < 0.3,
        ]
        return pa.array(values[place % 4], mask=mask)

    return pa.table({f"c{place}": column(place) for place in range(columns)})


@given(st.data(), st.lists(scalar_types(), min_size=1, max_size=6), st.integers(0, 2**32))
def test_both_ways_give_the_same_rows(data, types, seed):
    """Types of scalars, random nulls, encodings and profiles; a range of rows, and rows apart."""
    random = np.random.default_rng(seed)
    rows = data.draw(st.integers(2, 2_000))
    arrays = [random_array(random, dtype, rows) for dtype in types]
    table = pa.table(arrays, names=[f"c{place}" for place in range(len(types))])
    forced = data.draw(st.one_of(st.just({}), forced_encodings(table.schema)))
    profile = data.draw(st.sampled_from(["balanced", "compact", "fast", "random"]))
    file = written(table, profile=profile, stripe_rows=1_300, encodings=forced)
    start = data.draw(st.integers(0, rows - 1))
    ranges = RowRanges.from_bounds([start], [data.draw(st.integers(start + 1, rows))])
    apart = RowRanges.from_indices(random.choice(rows, min(rows, 50), replace=False))
    for wanted in (ranges, apart):
        found = some(file, wanted)
        found.validate(full=True)
        assert_logically_equal(found, around(file, wanted))
        assert_logically_equal(found, picked(table, wanted))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("nulls", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("level", [0, 6])
def test_these_encodings_are_read_by_the_kernels_alone(encoding, nulls, level, monkeypatch):
    """Without nulls, with fillers, and with null slots left out."""
    random = np.random.default_rng(3)
    exact = np.round(random.normal(20, 9, ROWS), 2)
    exact[::40] = np.tile([np.nan, -0.0, np.inf, -np.inf, 1 / 3], 3)
    values = {
        "alp": exact,
        "split_lengths": [f"text {n % 7} {n}" * (n % 3) for n in range(ROWS)],
    }.get(encoding, random.integers(-9, 9, ROWS))
    table = pa.table({"x": pa.array(values, mask=random.random(ROWS) < nulls)})
    if encoding in ("plain", "dictionary"):
        table = table.append_column("text", table["x"].cast(pa.string()))
    encodings = dict.fromkeys(table.column_names, encoding)
    data = written(table, encodings=encodings, compression_level=level)
    rows = RowRanges.from_bounds([1, 70, 599], [5, 71, 600])
    monkeypatch.setattr("fermion.reading.column.read_columns", None)
    if encoding != "byte_stream_split":  # whose bytes are compressed
        monkeypatch.setattr(decoding, "decode_numbers", None)
    found = some(data, rows)
    found.validate(full=True)
    expected = picked(table, rows)
    assert_logically_equal(found, expected)
    if encoding == "alp":
        bits = [each["x"].drop_null().to_numpy().view(np.uint64) for each in (found, expected)]
        assert (bits[0] == bits[1]).all()


@pytest.mark.parametrize("checksum", ["crc32c", "xxh3", "none"])
@pytest.mark.parametrize("seed", range(60))
def test_damage_is_told_in_the_same_words_both_ways(seed, checksum):
    """A bit anywhere; without checksums, what is damaged may lie beside the rows."""
    random = np.random.default_rng(seed)
    table = mixed(12, 80)
    data = bytearray(written(table, checksum=checksum))
    data[random.integers(0, len(data))] ^= 1 << int(random.integers(0, 8))
    rows = RowRanges.from_indices(random.choice(80, 9, replace=False))
    found, expected = outcome(some, bytes(data), rows), outcome(around, bytes(data), rows)
    if isinstance(found, pa.Table) and isinstance(expected, tuple) and checksum == "none":
        expected = picked(table, rows)  # what is wrong was of no use for these rows
    if isinstance(found, pa.Table):
        assert_logically_equal(found, expected)
    else:
        assert found == expected


def test_some_rows_of_a_wide_file_take_one_decoding_call_for_many_columns(monkeypatch):
    """Kernel calls, tasks and metadata blocks parsed in Python for 1,000 columns of one stripe."""
    table, calls = mixed(1_000), Counter()
    data = written(table)

    def count(home, name):
        original = getattr(home, name)

        def counted(*arguments, **named):
            calls[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(home, name, counted)

    for name in ("decode_flat", "pick_flat", "arrow_batch", "flat_chunks"):
        count(kernels, name)
    count(columns_read.ColumnTask, "__init__")
    expected = dict.fromkeys(("flat_chunks", "pick_flat", "arrow_batch"), 1)
    for rows in (
        RowRanges.from_bounds([200], [456]),
        RowRanges.from_indices(np.arange(0, ROWS, 7)),
    ):
        calls.clear()
        assert_logically_equal(some(data, rows), picked(table, rows))
        assert calls == expected
    calls.clear()
    with fermion.open(data) as file:
        assert_logically_equal(file.take([599, 3]), table.take(pa.array([599, 3])))
    assert calls == expected


def test_rows_of_a_few_large_columns_are_decoded_side_by_side(monkeypatch):
    """Many rows of three columns of one page each are left to the general way, with its threads."""
    table = pa.table({name: np.random.default_rng(1).integers(0, 2**40, 9_000) for name in "abc"})
    data = written(table)
    monkeypatch.setattr(one_page.kernels, "pick_flat", None)
    with fermion.open(data) as file:
        assert file.read(rows=(1, 8_999)).equals(table.slice(1, 8_998))


@pytest.mark.parametrize(
    ("picks", "said"),
    [([], "no slots"), ([3, 3], "ascend"), ([-1], "ascend"), ([3, 10], "ascend below 10")],
)
def test_slots_that_cannot_be_are_refused(picks, said):
    with pytest.raises(ValueError, match=said):
        pick_of_one_page(np.array(picks, np.int64))


def pick_of_one_page(picks: np.ndarray) -> object:
    """Slots of a column of ten, whose page is none."""
    return kernels.pick_flat(
        [bytes(40)],
        np.array([[0, 0, 40]] * 2),
        np.zeros(2, np.int64),
        np.array([[ord("i"), 8, 1]]),
        10,
        picks,
        kernels.PageReader(None, None, True, 0),
    )


def test_a_batch_of_columns_that_were_not_decoded_is_empty_and_may_be_left_alone():
    """And parts of different rows are refused."""
    two, three = pick_of_one_page(np.arange(2)), pick_of_one_page(np.arange(3))
    assert two.fine.tolist() == [False]
    assert kernels.arrow_batch([two, two]).columns == 0
    assert kernels.arrow_batch([]).columns == 0
    with pytest.raises(ValueError, match="rows of a part"):
        kernels.arrow_batch([two, three])


@pytest.mark.parametrize(
    "dtype", [pa.int8(), pa.uint16(), pa.float32(), pa.int64(), pa.bool_(), pa.string()], ids=str
)
@pytest.mark.parametrize("rows", [61, 128])
def test_columns_of_numbers_are_joined(dtype, rows, monkeypatch):
    """As those of keys of maps are: with nulls, without, and all null; others are not joined."""
    random, joined = np.random.default_rng(3), []
    has = random.random((rows, 200)) < np.linspace(0, 1.2, 200)
    keys = [f"k{at:03}" for at in range(200)]
    values = iter(pa.array(random.integers(0, 2, int(has.sum()))).cast(dtype).to_pylist())
    maps = [
        [(key, next(values)) for key, own in zip(keys, row, strict=True) if own]
        for row in has.tolist()
    ]
    table = pa.table({"m": pa.array(maps, pa.map_(pa.string(), dtype))})
    sink = pa.BufferOutputStream()
    fermion.write_table(table, sink, shred={"m": fermion.Shred(keys)})
    original = kernels.join_flat

    def counted(*arguments):
        joined.append(original(*arguments))
        return joined[-1]

    monkeypatch.setattr(kernels, "join_flat", counted)
    with fermion.open(sink.getvalue()) as file:
        assert file.read().equals(table)
        assert file.read(rows=(7, 50)).equals(table.slice(7, 43))
        assert joined == [True] * 2 * pa.types.is_primitive(dtype) * (dtype != pa.bool_())
        monkeypatch.setattr(kernels, "join_flat", lambda *arguments: False)
        assert file.read(rows=(7, 50)).equals(table.slice(7, 43))


def test_columns_that_were_not_decoded_are_not_joined():
    two, nothing = pick_of_one_page(np.arange(2)), np.empty(0, np.uint8)
    assert not kernels.join_flat([two], np.empty(16, np.uint8), np.zeros(1, np.uint8))
    assert kernels.join_flat([], nothing, nothing)
    with pytest.raises(ValueError, match="values"):
        kernels.join_flat([], np.empty(1, np.uint8), nothing)
    with pytest.raises(ValueError, match="bits"):
        kernels.join_flat([], nothing, np.empty(1, np.uint8))


def test_rows_outlive_their_file_and_their_neighbours():
    """Each column holds the memory of the batch that it came in."""
    table = mixed(200)
    with fermion.open(written(table)) as file:
        column = file.read(rows=(100, 300))["c102"]
    gc.collect()
    assert column.equals(table["c102"].slice(100, 200))


def test_a_column_without_values_and_one_of_structs_lie_beside_the_others():
    """They come another way, and the others still in one call."""
    numbers = np.arange(ROWS)
    structs = pa.StructArray.from_arrays([pa.array(numbers), pa.array(numbers)], ["a", "b"])
    columns = {f"c{each}": numbers * each for each in range(70)}
    table = pa.table({"none": pa.nulls(ROWS, pa.int8()), "pairs": structs, **columns})
    rows = RowRanges.from_bounds([3, 500], [200, 501])
    assert_logically_equal(some(written(table), rows), picked(table, rows))
