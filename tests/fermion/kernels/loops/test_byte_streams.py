"""Bytes of values split into streams, compiled and in NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tests.kit.kernel_cases import BOTH, INTEGERS

FIXED = [*INTEGERS, "f2", "f4", "f8", "V1", "V3", "V16"]


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize("size", [0, 1, 1023, 2100])
def test_byte_streams_split_and_merge(k: ModuleType, dtype: str, size: int):
    rng = np.random.default_rng(size)
    width = np.dtype(dtype).itemsize
    values = np.frombuffer(rng.bytes(size * width), dtype)
    split = np.empty(size * width, np.uint8)
    k.byte_stream_split(values, split)
    assert split.tobytes() == b"".join(values.tobytes()[byte::width] for byte in range(width))
    for start, stop in ((0, size), (size // 3, size // 2)):
        out = np.empty(stop - start, dtype)
        k.byte_stream_merge(split, size, start, stop, out)
        assert out.tobytes() == values[start:stop].tobytes()
