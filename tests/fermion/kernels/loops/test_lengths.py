"""Offsets of lengths, and ranges that are joined, compiled and in NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given

from fermion.layout import INT64_MAX, INT64_MIN
from tests.kit.kernel_cases import BOTH, INTEGERS, awkward, random_bits, random_fixed, seeds, sizes


@BOTH
@pytest.mark.parametrize("dtype", INTEGERS)
def test_offsets_are_running_totals_of_lengths(k: ModuleType, dtype: str):
    lengths = np.random.default_rng(3).integers(0, 127, 1000).astype(dtype)
    for array in [lengths, *awkward(lengths), lengths[:0]]:
        out = np.empty(len(array) + 1, np.int64)
        assert k.lengths_to_offsets(array, out) == array.sum(dtype=np.int64)
        assert np.array_equal(out, np.append(0, np.cumsum(array, dtype=np.int64)))


@BOTH
def test_lengths_that_have_no_offsets_are_refused(k: ModuleType):
    out = np.empty(3, np.int64)
    for lengths in ([1, -1], [INT64_MAX, 1], [INT64_MIN, INT64_MIN]):
        with pytest.raises(ValueError):
            k.lengths_to_offsets(np.array(lengths), out)
    with pytest.raises(ValueError):
        k.lengths_to_offsets(np.array([2**63, 0], np.uint64), out)
    with pytest.raises(ValueError):
        k.lengths_to_offsets(np.array([1]), out)
    with pytest.raises(TypeError):
        k.lengths_to_offsets(np.array([1.0, 2.0]), out)


@BOTH
@given(seed=seeds, size=sizes)
def test_ranges_are_joined(k: ModuleType, seed: int, size: int):
    rng = np.random.default_rng(seed)
    values, bits = random_fixed(rng, "V3", size, 20), random_bits(rng, size)
    pairs = np.sort(rng.integers(0, size + 1, (4, 2)), axis=1)
    starts, stops = pairs[:, 0].copy(), pairs[:, 1].copy()
    slots = np.concatenate([np.arange(a, b) for a, b in pairs]).astype(int)
    out, packed = np.empty(len(slots), "V3"), random_bits(rng, len(slots))
    k.gather_ranges(values, starts, stops, out)
    k.gather_ranges_bits(bits, starts, stops, packed)
    assert out.tobytes() == values[slots].tobytes()
    flags = np.unpackbits(bits, bitorder="little")
    assert np.array_equal(np.unpackbits(packed, count=len(slots), bitorder="little"), flags[slots])


@BOTH
@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 9), (9, 9)])
def test_ranges_outside_of_the_slots_are_refused(k: ModuleType, start: int, stop: int):
    starts, stops = np.array([start]), np.array([stop])
    with pytest.raises(ValueError):
        k.gather_ranges(np.arange(8), starts, stops, np.zeros(max(stop - start, 0), np.int64))
    with pytest.raises(ValueError):
        k.gather_ranges_bits(np.zeros(1, np.uint8), starts, stops, np.zeros(9, np.uint8))
