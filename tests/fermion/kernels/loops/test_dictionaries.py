"""Dictionaries of values, and values by their codes, compiled and in NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given

from tests.kit.kernel_cases import (
    BOTH,
    FIXED,
    awkward,
    items_of,
    random_binary,
    random_fixed,
    seeds,
    sizes,
)


def model_dictionary(items: list[bytes]) -> tuple[list[int], list[int]]:
    """Codes and first appearances, by a Python dict."""
    first: dict[bytes, int] = {}
    for i, item in enumerate(items):
        first.setdefault(item, i)
    order = {item: code for code, item in enumerate(first)}
    return [order[item] for item in items], list(first.values())


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize(("count", "distinct"), [(0, 1), (1, 1), (300, 5), (3000, 2500)])
def test_a_dictionary_lists_values_as_they_first_appear(
    k: ModuleType, dtype: str, count: int, distinct: int
):
    """2,500 distinct values make the hash table grow."""
    values = random_fixed(np.random.default_rng(count), dtype, count, distinct)
    codes, first = model_dictionary([value.tobytes() for value in values])
    for array in [values, *awkward(values)]:
        found = k.build_dictionary(array, len(first))
        assert found is not None
        assert found[0].dtype == np.uint32
        assert found[0].tolist() == codes
        assert found[1].tolist() == first
    assert (k.build_dictionary(values, len(first) - 1) is None) if count else True


@BOTH
@given(seed=seeds, size=sizes)
def test_binary_dictionaries_and_their_gathering_undo_each_other(
    k: ModuleType, seed: int, size: int
):
    offsets, data = random_binary(np.random.default_rng(seed), size)
    codes, first = model_dictionary(items_of(offsets, data))
    found = k.build_dictionary_binary(offsets, data, len(first))
    assert found is not None
    assert found[0].tolist() == codes
    assert found[1].tolist() == first
    if first:
        assert k.build_dictionary_binary(offsets, data, len(first) - 1) is None
    out_offsets = np.empty(size + 1, np.int64)
    source = found[1][found[0]].astype(np.uint32)
    total = k.gather_binary(offsets, data, source, out_offsets)
    out = np.empty(total, np.uint8)
    k.gather_binary_data(offsets, data, source, out_offsets, out)
    assert np.array_equal(out_offsets, offsets)
    assert np.array_equal(out, data)


@BOTH
def test_equal_means_equal_bytes(k: ModuleType):
    """Two NaNs of different payload and the two zeros are four values."""
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0, 1 << 63], np.uint64)
    codes, first = k.build_dictionary(np.tile(bits, 2).view(np.float64), 10)
    assert codes.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert first.tolist() == [0, 1, 2, 3]
    assert k.count_runs(np.array([0.0, -0.0, -0.0])) == 2


@BOTH
def test_limits_and_objects_are_refused(k: ModuleType):
    with pytest.raises(ValueError):
        k.build_dictionary(np.arange(3), -1)
    with pytest.raises(TypeError):
        k.build_dictionary(np.array([None]), 1)


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
def test_gathering_looks_values_up_by_code(k: ModuleType, dtype: str):
    rng = np.random.default_rng(1)
    dictionary = random_fixed(rng, dtype, 50, 1000)
    codes = rng.integers(0, 50, 333).astype(np.uint32)
    for values, indices in zip(awkward(dictionary), awkward(codes), strict=True):
        out = np.empty(333, dtype)
        k.gather_fixed(values, indices, out)
        assert out.tobytes() == dictionary[codes].tobytes()
    k.gather_fixed(np.empty(0, dtype), np.empty(0, np.uint32), np.empty(0, dtype))


@BOTH
def test_codes_outside_of_a_dictionary_are_refused_before_any_write(k: ModuleType):
    codes, out = np.array([0, 3], np.uint32), np.full(2, 7, np.int32)
    with pytest.raises(ValueError):
        k.gather_fixed(np.arange(3, dtype=np.int32), codes, out)
    assert out.tolist() == [7, 7]
    offsets, data, ends = np.array([0, 1, 2, 3]), np.zeros(3, np.uint8), np.full(3, 7)
    with pytest.raises(ValueError):
        k.gather_binary(offsets, data, codes, ends)
    assert ends.tolist() == [7, 7, 7]
    with pytest.raises(ValueError):
        k.gather_binary_data(offsets, data, codes, ends, np.zeros(2, np.uint8))


@BOTH
def test_gathering_needs_room_that_fits(k: ModuleType):
    offsets, data = np.array([0, 30, 31]), np.zeros(31, np.uint8)
    codes, ends = np.array([1, 0, 1], np.uint32), np.empty(4, np.int64)
    assert k.gather_binary(offsets, data, codes, ends) == 32
    for room in (0, 15, 31, 33):
        with pytest.raises(ValueError):
            k.gather_binary_data(offsets, data, codes, ends, np.zeros(room, np.uint8))
    with pytest.raises(ValueError):
        k.gather_binary(offsets, data, codes, ends[:3])
    with pytest.raises(ValueError):
        k.gather_fixed(np.zeros(2, np.int32), codes, np.zeros(3, np.int64))
    with pytest.raises(ValueError):
        k.gather_fixed(np.zeros(2, np.int32), codes, np.zeros(2, np.int32))


@BOTH
@pytest.mark.parametrize("offsets", [[], [0, 5], [-1, 2], [0, 3, 2]])
def test_offsets_must_lie_within_the_bytes(k: ModuleType, offsets: list[int]):
    ends, data, codes = np.array(offsets, np.int64), np.zeros(4, np.uint8), np.zeros(1, np.uint32)
    with pytest.raises(ValueError):
        k.build_dictionary_binary(ends, data, 10)
    with pytest.raises(ValueError):
        k.gather_binary(ends, data, codes, np.zeros(2, np.int64))
