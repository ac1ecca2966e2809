"""Deltas that restart every block, compiled and in NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.kernel_cases import BOTH, INTEGERS, few, seeds

sizes = st.sampled_from([0, 1, 2, 3, 1023, 1024, 1025, 3000])


def random_integers(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Draw from the whole range of a type, or from its ends."""
    limits = np.iinfo(dtype)
    if rng.random() < 0.3:
        return rng.choice(np.array([limits.min, limits.max], dtype), count)
    return rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)


@BOTH
@pytest.mark.parametrize("dtype", INTEGERS)
@few
@given(seed=seeds, size=sizes)
def test_deltas_wrap_and_restart_every_block(k: ModuleType, dtype: str, seed: int, size: int):
    values = random_integers(np.random.default_rng(seed), dtype, size)
    deltas, back = np.empty(size, dtype), np.empty(size, dtype)
    bases = np.empty(-(-size // 1024), dtype)
    k.delta_encode(values, deltas, bases)
    assert np.array_equal(bases, values[::1024])
    expected = np.diff(values, prepend=values[:1])
    expected[::1024] = [*expected[1::1024], 0][: len(bases)]
    assert np.array_equal(deltas, expected)
    k.delta_decode(deltas, bases, back)
    assert np.array_equal(back, values)
    k.delta_decode(deltas[1024:], bases[1:], back[: max(size - 1024, 0)])
    assert np.array_equal(back[: max(size - 1024, 0)], values[1024:])
