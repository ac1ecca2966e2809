"""Smallest and greatest values of pages, compiled and in NumPy."""

from __future__ import annotations

import struct
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given

from fermion.layout import INT64_MAX, INT64_MIN
from tests.kit.kernel_cases import (
    BOTH,
    NUMBERS,
    few,
    items_of,
    random_binary,
    random_bits,
    random_fixed,
    seeds,
    sizes,
)


def bounds_of(k: ModuleType, values: np.ndarray, bits: np.ndarray | None, cuts: list[int]) -> list:
    """Call `page_bounds` and give (min, max, nulls, nans) of each page."""
    found = [np.full(len(cuts) - 1, 77, np.int64) for _ in range(4)]
    k.page_bounds(values, bits, np.array(cuts, np.int64), *found)
    return list(zip(*(column.tolist() for column in found), strict=True))


def place(value: float) -> int:
    """The place of a float64 in the total order, from its bytes."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else bits ^ INT64_MAX


@BOTH
@pytest.mark.parametrize("dtype", NUMBERS)
@few
@given(seed=seeds, size=sizes)
def test_bounds_are_those_of_the_valid_numbers(k: ModuleType, dtype: str, seed: int, size: int):
    """The model takes each page's values one by one in Python."""
    rng = np.random.default_rng(seed)
    values = random_fixed(rng, dtype, size, 40)
    if rng.random() < 0.5:
        values = (values.view(f"u{values.itemsize}") % 50).astype(dtype)
    cuts = [0, *np.sort(rng.integers(0, size + 1, 3)).tolist(), size]
    bits = random_bits(rng, size) if rng.random() < 0.7 else None
    valid = np.unpackbits(bits, bitorder="little") if bits is not None else np.ones(size, np.uint8)
    expected = []
    for start, stop in pairwise(cuts):
        page = [values[i].item() for i in range(start, stop) if valid[i]]
        nulls = stop - start - len(page)
        numbers = [value for value in page if value == value]
        low, high = INT64_MAX, INT64_MIN
        if numbers and dtype[0] == "f":
            low, high = place(min(numbers) or -0.0), place(max(numbers) or 0.0)
        elif numbers:
            shift = 2**63 if dtype == "u8" else 0
            low, high = min(numbers) - shift, max(numbers) - shift
        expected.append((low, high, nulls, len(page) - len(numbers)))
    assert bounds_of(k, values, bits, cuts) == expected


@BOTH
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nan_has_no_place_and_zero_has_two(k: ModuleType, dtype: str):
    nan, inf = float("nan"), float("inf")
    values = np.array([nan, nan, 0.0, 0.0, -0.0, nan, inf, -inf, nan, 1.5] + [nan] * 40, dtype)
    zero = (place(-0.0), place(0.0), 0)
    assert bounds_of(k, values, None, [0, 2, 2, 3, 5, 6, 10, 50]) == [
        (INT64_MAX, INT64_MIN, 0, 2),
        (INT64_MAX, INT64_MIN, 0, 0),
        (*zero, 0),
        (*zero, 0),
        (INT64_MAX, INT64_MIN, 0, 1),
        (place(-inf), place(inf), 0, 1),
        (INT64_MAX, INT64_MIN, 0, 40),
    ]


@BOTH
def test_half_floats_keep_their_subnormals(k: ModuleType):
    values = np.array([6e-8, 3e-5, -6e-5, 65504, 1], np.float16)
    expected = [(place(float(value)), place(float(value)), 0, 0) for value in values]
    assert bounds_of(k, values, None, [0, 1, 2, 3, 4, 5]) == expected


@BOTH
def test_extreme_integers_are_told_from_a_page_without_any(k: ModuleType):
    values = np.array([INT64_MIN, INT64_MAX], np.int64)
    assert bounds_of(k, values, None, [0, 1, 2]) == [
        (INT64_MIN, INT64_MIN, 0, 0),
        (INT64_MAX, INT64_MAX, 0, 0),
    ]
    assert bounds_of(k, values.view("M8[us]"), None, [0, 2]) == [(INT64_MIN, INT64_MAX, 0, 0)]


@BOTH
@given(seed=seeds, size=sizes)
def test_binary_bounds_name_the_first_smallest_and_greatest(k: ModuleType, seed: int, size: int):
    rng = np.random.default_rng(seed)
    offsets, data = random_binary(rng, size)
    items = items_of(offsets, data)
    cuts = np.array([0, *np.sort(rng.integers(0, size + 1, 3)).tolist(), size], np.int64)
    bits = random_bits(rng, size) if rng.random() < 0.7 else None
    low, high, nulls = (np.full(4, 77, np.int64) for _ in range(3))
    k.page_bounds_binary(offsets, data, bits, cuts, low, high, nulls)
    for page, (start, stop) in enumerate(pairwise(cuts.tolist())):
        slots = [i for i in range(start, stop) if bits is None or bits[i // 8] >> i % 8 & 1]
        assert low[page] == min(slots, key=lambda i: items[i], default=-1)
        assert high[page] == max(slots, key=lambda i: items[i], default=-1)
        assert nulls[page] == stop - start - len(slots)


@BOTH
@pytest.mark.parametrize("cuts", [[], [0, 5], [-1, 3], [0, 3, 2], [5]])
def test_cuts_must_divide_the_values(k: ModuleType, cuts: list[int]):
    cut_array = np.array(cuts, np.int64)
    found = [np.zeros(max(len(cuts) - 1, 0), np.int64) for _ in range(4)]
    with pytest.raises(ValueError):
        k.page_bounds(np.zeros(4, np.int32), None, cut_array, *found)
    offsets = np.zeros(5, np.int64)
    with pytest.raises(ValueError):
        k.page_bounds_binary(offsets, np.empty(0, np.uint8), None, cut_array, *found[:3])


@BOTH
def test_bounds_need_enough_bits_room_and_a_number(k: ModuleType):
    cuts, one, two = np.array([0, 9]), np.zeros(1, np.int64), np.zeros(2, np.int64)
    values = np.zeros(9, np.int32)
    with pytest.raises(ValueError):
        k.page_bounds(values, np.zeros(1, np.uint8), cuts, one, one, one, one)
    with pytest.raises(ValueError):
        k.page_bounds(values, None, cuts, one, two, one, one)
    with pytest.raises(TypeError):
        k.page_bounds(np.zeros(9, "V16"), None, cuts, one, one, one, one)
