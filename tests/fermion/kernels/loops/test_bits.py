"""Bits that are counted, copied and joined, compiled and in NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given

from tests.kit.kernel_cases import BOTH, random_bits, seeds, sizes


@BOTH
@given(seed=seeds, size=sizes)
def test_bits_are_counted_and_copied_at_any_position(k: ModuleType, seed: int, size: int):
    rng = np.random.default_rng(seed)
    data, out = random_bits(rng, size), random_bits(rng, size + 20)
    start = int(rng.integers(0, size + 1))
    count = int(rng.integers(0, size - start + 1))
    to = int(rng.integers(0, 20))
    flags = np.unpackbits(data, bitorder="little")
    expected = np.unpackbits(out, bitorder="little")
    expected[to : to + count] = flags[start : start + count]
    assert k.count_bits(data, start, count) == flags[start : start + count].sum()
    k.copy_bits(data, start, out, to, count)
    assert np.array_equal(np.unpackbits(out, bitorder="little"), expected)


@BOTH
@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, 17), (17, 0), (16, 1), (3, -1)])
def test_bits_outside_of_the_bytes_are_refused(k: ModuleType, start: int, count: int):
    two = np.zeros(2, np.uint8)
    with pytest.raises(ValueError):
        k.count_bits(two, start, count)
    with pytest.raises(ValueError):
        k.copy_bits(np.zeros(9, np.uint8), 0, two, start, count)
    with pytest.raises(ValueError):
        k.copy_bits(two, start, np.zeros(9, np.uint8), 0, count)
