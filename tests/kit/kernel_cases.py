"""What the compiled kernels and their NumPy twins are tried on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from fermion import kernels as compiled
from tests.kit.numpy_kernels import functions as reference

BOTH = pytest.mark.parametrize("k", [compiled, reference], ids=["compiled", "reference"])
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
NUMBERS = [*INTEGERS, "f2", "f4", "f8"]
FIXED = [*NUMBERS, "V1", "V3", "V4", "V8", "V12", "V16", "V32"]
# A quarter of the profile's examples for tests that already run once a type.
few = settings(max_examples=settings.default.max_examples // 4)
seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 130, 300])


def random_fixed(rng: np.random.Generator, dtype: str, count: int, distinct: int) -> np.ndarray:
    """Draw values from a small pool of random bytes, so that some repeat."""
    pool = np.frombuffer(rng.bytes(distinct * np.dtype(dtype).itemsize), dtype)
    return pool[rng.integers(0, distinct, count)]


def random_bits(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw bits that are mostly set, all set, or mostly clear; a spare byte of garbage follows."""
    share = rng.choice([0.05, 0.5, 0.97, 1.0])
    flags = rng.random((count + 7) // 8 * 8) < share
    return np.append(np.packbits(flags, bitorder="little"), np.uint8(0xA5))


def random_binary(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw byte strings of few letters and of lengths around 8 and 16."""
    lengths = rng.choice([0, 1, 3, 7, 8, 9, 15, 16, 17, 40], count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, rng.choice(np.array([0, 1, 255], np.uint8), int(offsets[-1]))


def items_of(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


def awkward(array: np.ndarray) -> list[np.ndarray]:
    """Give the same values read-only, strided, and at an odd address."""
    frozen = array.copy()
    frozen.flags.writeable = False
    strided = np.repeat(array, 2)[::2]
    shifted = np.frombuffer(b"\0" + array.tobytes(), array.dtype, len(array), 1)
    return [frozen, strided, shifted]
