"""Statistics against the values themselves, compared as Python compares them."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, Inexact, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.columns.shred import shred
from fermion.columns.types import Order, column_node
from fermion.layout import INT64_MAX, INT64_MIN, ChunkFlag
from fermion.statistics.bounds import (
    PageStatistics,
    merge,
    merge_columns,
    page_flags,
    page_statistics,
    unknown_statistics,
)
from fermion.statistics.keys import bytes_key, float_key, key_value, unscaled_integer, value_key

BOTH_EXACT = ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT
WIDE = st.integers(-(10**60), 10**60).map(lambda raw: Decimal(raw).scaleb(-2))
SMALL = st.integers(-(10**17), 10**17).map(lambda raw: Decimal(raw).scaleb(-2))
TEXT = st.text(alphabet="aé\x00~🙂", max_size=12)
BYTES = st.binary(max_size=10) | st.lists(
    st.sampled_from([0x00, 0x01, 0xFE, 0xFF]), max_size=9
).map(bytes)

CASES = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(INT64_MIN, INT64_MAX)),
    "uint8": (pa.uint8(), st.integers(0, 255)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float16": (pa.float16(), st.floats(width=16)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.nan])),
    "decimal32": (pa.decimal32(9, 2), st.integers(-(10**9) + 1, 10**9 - 1)),
    "decimal128": (pa.decimal128(38, 2), SMALL),
    "decimal256": (pa.decimal256(70, 2), WIDE | SMALL),
    "string": (pa.string(), TEXT),
    "large_string": (pa.large_string(), TEXT),
    "binary": (pa.binary(), BYTES),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "timestamp": (pa.timestamp("ns", "UTC"), st.integers(INT64_MIN, INT64_MAX)),
    "date32": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "time64": (pa.time64("us"), st.integers(0, 86_400 * 10**6 - 1)),
    "duration": (pa.duration("s"), st.integers(INT64_MIN, INT64_MAX)),
}


def statistics_of(values: list, dtype: pa.DataType, cuts: list[int], **options) -> PageStatistics:
    if pa.types.is_decimal32(dtype):
        values = [None if value is None else Decimal(value).scaleb(-2) for value in values]
    node = column_node(pa.field("a", dtype))
    streams = shred(pa.array(values, dtype), node)
    return page_statistics(
        streams.data[node.stream],
        streams.validity[node.validity],
        np.array(cuts, np.int64),
        node,
        **options,
    )


def cut(length: int, points: list[int]) -> list[int]:
    return sorted({0, length, *(point for point in points if point < length)})


def comparable(values: list) -> list:
    present = [value for value in values if value is not None]
    return [value for value in present if not (isinstance(value, float) and math.isnan(value))]


def raw(value: object) -> object:
    """A value in the domain that keys are made from."""
    if isinstance(value, str):
        return value.encode()
    return int(value.scaleb(2)) if isinstance(value, Decimal) else value


def is_exact(value: bytes) -> bool:
    return len(value) <= 7 and not value.endswith((b"\x00", b"\xff"))


def order_of(dtype: pa.DataType) -> Order:
    return column_node(pa.field("a", dtype)).order


def expected_bounds(values: list, dtype: pa.DataType) -> tuple[int, int, bool, bool]:
    """Keys and exactness as FORMAT D54 and D55 say it."""
    raws = sorted(map(raw, comparable(values)))
    order = order_of(dtype)
    if not raws:
        return INT64_MAX, INT64_MIN, False, False
    low, high = raws[0], raws[-1]
    if order is Order.BYTES:
        return bytes_key(low, 0), bytes_key(high, 0xFF), is_exact(low), is_exact(high)
    if order is Order.FLOAT:
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        return float_key(low), float_key(high), True, True
    shift = 2**63 if pa.types.is_uint64(dtype) else 0
    keys = [min(max(int(bound) - shift, INT64_MIN), INT64_MAX) for bound in (low, high)]
    return *keys, low - shift >= INT64_MIN, high - shift <= INT64_MAX


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_page_statistics_agree_with_the_values(name, data):
    dtype, element = CASES[name]
    values = data.draw(st.lists(st.none() | element, min_size=1, max_size=20))
    cuts = cut(len(values), data.draw(st.lists(st.integers(0, 20), max_size=3)))
    pages = statistics_of(values, dtype, cuts)
    for page, (start, stop) in enumerate(itertools.pairwise(cuts)):
        inside = values[start:stop]
        low, high, low_exact, high_exact = expected_bounds(inside, dtype)
        flags = ChunkFlag(int(pages.flags[page]))
        assert (int(pages.min[page]), int(pages.max[page])) == (low, high)
        assert pages.null_count[page] == inside.count(None)
        nans = sum(isinstance(value, float) and math.isnan(value) for value in inside)
        assert pages.nan_count[page] == nans
        assert flags & ChunkFlag.HAS_MINMAX
        assert flags & ChunkFlag.NAN_KNOWN
        assert bool(flags & ChunkFlag.HAS_NAN) == (nans > 0)
        if order_of(dtype) is not Order.DECIMAL:
            assert bool(flags & ChunkFlag.MIN_EXACT) == low_exact
            assert bool(flags & ChunkFlag.MAX_EXACT) == high_exact
        else:
            # A decimal at the very end of int64 may count as saturated.
            assert low_exact or not flags & ChunkFlag.MIN_EXACT
            assert high_exact or not flags & ChunkFlag.MAX_EXACT


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_merged_statistics_hold_for_all_pages_and_exact_bounds_are_true(name, data):
    """Merging pages, then chunks: bounds enclose every value, an exact bound is attained."""
    dtype, element = CASES[name]
    values = data.draw(st.lists(st.none() | element, min_size=1, max_size=16))
    cuts = cut(len(values), data.draw(st.lists(st.integers(0, 16), max_size=4)))
    half = len(values) // 2
    whole = merge(statistics_of(values, dtype, cuts), len(values))
    parts = merge_columns(
        [
            merge(statistics_of(part, dtype, cut(len(part), cuts)), len(part))
            for part in (values[:half], values[half:])
            if part
        ]
    )
    raws = sorted(map(raw, comparable(values)))
    order, is_uint64 = order_of(dtype), pa.types.is_uint64(dtype)
    for merged in (whole, parts):
        assert merged.rows == len(values)
        assert merged.null_count == values.count(None)
        assert merged.has_values == bool(raws)
        for value in raws:
            assert merged.min <= value_key(value, order, is_uint64=is_uint64) <= merged.max
        for exact, expected in (
            (merged.min_value(dtype, exact=True), raws[:1]),
            (merged.max_value(dtype, exact=True), raws[-1:]),
        ):
            if exact is not None:
                assert raw_of_scalar(exact) == raw(expected[0])
    if order in (Order.SIGNED, Order.UNSIGNED, Order.FLOAT) and raws:
        assert whole.flags & BOTH_EXACT == BOTH_EXACT
        assert (parts.min, parts.max) == (whole.min, whole.max)


def raw_of_scalar(scalar: pa.Scalar) -> object:
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    if pa.types.is_decimal32(scalar.type):
        return int(scalar.as_py().scaleb(2))
    return raw(scalar.as_py())


@given(st.lists(st.floats(allow_nan=False), min_size=2))
def test_float_keys_keep_the_order_of_floats(values):
    ordered = sorted(values, key=lambda value: (value, math.copysign(1, value)))
    keys = [float_key(value) for value in ordered]
    assert keys == sorted(keys)
    assert float_key(-0.0) == -1
    assert float_key(0.0) == 0


@given(BYTES, BYTES)
def test_byte_keys_never_turn_the_order_of_strings_around(a, b):
    low, high = sorted((a, b))
    assert bytes_key(low, 0x00) <= bytes_key(high, 0x00) <= bytes_key(high, 0xFF)


def test_a_longer_maximum_wins_over_a_shorter_one_that_pads_higher():
    """Padded with 0xFF, "a" has a greater key than "ab"; merged, the true maximum is "ab"."""
    merged = merge(statistics_of(["a", "ab"], pa.string(), [0, 1, 2]), 2)
    assert merged.max_value(pa.string(), exact=True).as_py() == "ab"
    assert merged.min_value(pa.string(), exact=True).as_py() == "a"


def test_a_truncated_maximum_is_never_called_exact():
    merged = merge(statistics_of(["ab", "abcdefghi"], pa.string(), [0, 1, 2]), 2)
    assert merged.max_value(pa.string(), exact=True) is None
    assert merged.max_value(pa.string()).as_py() == "abcdefgh"
    assert merged.min_value(pa.string(), exact=True).as_py() == "ab"


def test_a_cut_character_is_left_out_of_a_displayed_bound():
    merged = merge(statistics_of(["abcdefg€"], pa.string(), [0, 1]), 1)
    assert merged.max_value(pa.string()).as_py() == "abcdefg"


def test_pages_keep_the_chunk_s_exactness_only_where_they_attain_its_bounds():
    pages = statistics_of(["b", "abcdefghij"], pa.string(), [0, 1, 2])
    chunk = merge(pages, 2)
    assert chunk.flags & ChunkFlag.MAX_EXACT
    derived = page_flags(int(chunk.flags), chunk.min, chunk.max, pages.min, pages.max)
    assert [bool(flag & ChunkFlag.MAX_EXACT) for flag in derived] == [True, False]


@pytest.mark.parametrize(
    ("values", "cuts", "ascending", "descending"),
    [
        ([1, 2, 2, 3], [0, 2, 4], True, False),
        ([3, 1, 1], [0, 3], False, True),
        ([2, 2], [0, 1, 2], True, True),
        ([1, 2, 1, 2], [0, 2, 4], False, False),
        ([1, None, 3], [0, 3], False, False),
        ([1.0, math.nan], [0, 2], False, False),
    ],
)
def test_sorted_flags_say_how_numbers_run(values, cuts, ascending, descending):
    dtype = pa.float64() if isinstance(values[0], float) else pa.int64()
    merged = merge(statistics_of(values, dtype, cuts, sortedness=True), len(values))
    assert bool(merged.flags & ChunkFlag.SORTED_ASC) == ascending
    assert bool(merged.flags & ChunkFlag.SORTED_DESC) == descending


def test_a_column_of_nulls_only_has_no_comparable_value():
    node = column_node(pa.field("a", pa.int32()))
    pages = page_statistics(np.zeros(3, np.int32), False, np.array([0, 2, 3]), node)
    merged = merge(pages, 3)
    assert (merged.min, merged.max, merged.null_count) == (INT64_MAX, INT64_MIN, 3)
    assert merged.flags & ChunkFlag.HAS_MINMAX
    assert merged.min_value(pa.int32()) is None


@given(st.integers(-(10**76) + 1, 10**76 - 1), st.integers(-76, 76))
def test_a_decimal_is_taken_apart_exactly_whatever_the_decimal_context_is(number, scale):
    value = Decimal(f"{number}e{-scale}")
    for context in (Context(prec=3, traps=[Inexact]), Context(prec=1, Emax=1, Emin=-1)):
        with localcontext(context):
            assert unscaled_integer(value, scale) == number


def test_types_without_an_order_have_unknown_bounds_but_count_nulls():
    value = pa.scalar((1, 2, 3), pa.month_day_nano_interval())
    pages = statistics_of([value, None, value], pa.month_day_nano_interval(), [0, 2, 3])
    assert not np.any(pages.flags & ChunkFlag.HAS_MINMAX)
    assert pages.null_count.tolist() == [1, 0]
    assert merge(pages, 3).min_value(pa.month_day_nano_interval()) is None


def test_one_part_without_bounds_makes_the_whole_unknown():
    known = merge(statistics_of([1, 2], pa.int64(), [0, 2]), 2)
    merged = merge_columns([known, unknown_statistics(5, Order.SIGNED)])
    assert not merged.has_values
    assert (merged.rows, merged.null_count, merged.nan_count) == (7, -1, None)
    assert merge_columns([]).rows == 0


def test_bounds_of_wrapped_types_come_back_as_the_values_inside():
    assert key_value(5, pa.dictionary(pa.int8(), pa.int64()), pad=0).as_py() == 5
    assert key_value(0, pa.list_(pa.int64()), pad=0) is None
