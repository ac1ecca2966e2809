"""The kernels that take null slots out of values and put values back: both against plain NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion import kernels as compiled
from tests.kit.numpy_kernels import nulls as reference_nulls

BOTH = pytest.mark.parametrize("k", [compiled, reference_nulls], ids=["compiled", "reference"])
FIXED = ["i1", "u2", "i4", "f8", "V3", "V16"]

few = settings(max_examples=settings.default.max_examples // 4)
seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([0, 1, 7, 8, 9, 63, 64, 65, 200, 1025])
shares = st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0])


def random_flags(rng: np.random.Generator, count: int, share: float) -> np.ndarray:
    return rng.random(count) >= share


def packed(flags: np.ndarray, before: int = 0) -> np.ndarray:
    """The flags as bits from bit ``before`` on, with set bits around them."""
    around = np.concatenate([np.ones(before, bool), flags, np.ones(3, bool)])
    return np.packbits(around, bitorder="little")


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@few
@given(seed=seeds, size=sizes, share=shares, before=st.integers(0, 9))
def test_values_leave_their_null_slots_and_come_back(
    k: ModuleType, dtype: str, seed: int, size: int, share: float, before: int
) -> None:
    """A null slot comes back as the value before it, or as zero."""
    rng = np.random.default_rng(seed)
    values = np.frombuffer(rng.bytes(size * np.dtype(dtype).itemsize), dtype)
    flags = random_flags(rng, size, share)
    kept = np.empty(int(flags.sum()), dtype)
    k.remove_nulls(values, packed(flags), kept)
    assert kept.tobytes() == values[flags].tobytes()
    back = np.full(size, np.zeros((), dtype))
    back[size - len(kept) :] = kept
    k.restore_nulls(back, packed(flags, before), before)
    last, expected = np.zeros((), dtype), []
    for value, valid in zip(values, flags, strict=True):
        last = value if valid else last
        expected.append(last.tobytes())
    assert back.tobytes() == b"".join(expected)


@BOTH
@given(seed=seeds, size=sizes, share=shares, before=st.integers(0, 9), at=st.integers(0, 9))
def test_booleans_leave_their_null_slots_and_come_back(
    k: ModuleType, seed: int, size: int, share: float, before: int, at: int
) -> None:
    """Null slots come back as 0; bits beside the slots stay."""
    rng = np.random.default_rng(seed)
    values, flags = random_flags(rng, size, 0.5), random_flags(rng, size, share)
    kept = np.full((int(flags.sum()) + 7) // 8 + 1, 0xFF, np.uint8)
    k.remove_nulls_bits(packed(values), packed(flags), size, kept)
    found = np.unpackbits(kept, bitorder="little")[: int(flags.sum())].astype(bool)
    assert np.array_equal(found, values[flags])
    out = np.full((at + size) // 8 + 1, 0xFF, np.uint8)
    k.restore_nulls_bits(kept, packed(flags, before), before, size, out, at)
    bits = np.unpackbits(out, bitorder="little").astype(bool)
    assert np.array_equal(bits[at : at + size], values & flags)
    assert bits[:at].all()
    assert bits[at + size :].all()


@BOTH
def test_lengths_that_disagree_are_refused(k: ModuleType) -> None:
    values, bits, byte = np.arange(9), np.array([0b0111, 1], np.uint8), np.zeros(1, np.uint8)
    calls = [
        lambda: k.remove_nulls(values, bits[:1], np.empty(3, np.int64)),
        lambda: k.remove_nulls(values, bits, np.empty(3, np.int64)),
        lambda: k.remove_nulls(values, bits, np.empty(4, np.int32)),
        lambda: k.restore_nulls(values, bits, 8),
        lambda: k.restore_nulls(values, bits, -1),
        lambda: k.remove_nulls_bits(byte, bits, 9, byte),
        lambda: k.remove_nulls_bits(bits, byte, 9, byte),
        lambda: k.remove_nulls_bits(bits, bits, 9, byte[:0]),
        lambda: k.restore_nulls_bits(byte[:0], bits, 0, 9, np.zeros(2, np.uint8), 0),
        lambda: k.restore_nulls_bits(byte, bits, 8, 9, np.zeros(2, np.uint8), 0),
        lambda: k.restore_nulls_bits(byte, bits, 0, 9, byte, 0),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()
