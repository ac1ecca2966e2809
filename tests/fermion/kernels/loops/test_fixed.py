"""Nulls that are filled, and integers of other widths, compiled and in NumPy."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from fermion.layout import INT64_MAX, INT64_MIN
from tests.kit.kernel_cases import BOTH, FIXED, random_bits, random_fixed


@BOTH
@pytest.mark.parametrize("dtype", FIXED)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 500])
def test_nulls_are_filled_with_the_value_before_them(k: ModuleType, dtype: str, size: int):
    rng = np.random.default_rng(size)
    values, bits = random_fixed(rng, dtype, size, 1000).copy(), random_bits(rng, size)
    expected, last = [], bytes(values.itemsize)
    for i, value in enumerate(values):
        last = value.tobytes() if bits[i // 8] >> i % 8 & 1 else last
        expected.append(last)
    k.fill_nulls(values, bits)
    assert values.tobytes() == b"".join(expected)


@BOTH
@pytest.mark.parametrize("width", [16, 32])
def test_wide_integers_narrow_if_they_fit(k: ModuleType, width: int):
    numbers = [0, 1, -1, INT64_MAX, INT64_MIN]
    wide = np.frombuffer(b"".join(n.to_bytes(width, "little", signed=True) for n in numbers), "V8")
    wide, out = wide.view(f"V{width}"), np.empty(5, np.int64)
    assert k.narrow_fixed(wide, out)
    assert out.tolist() == numbers
    back = np.empty(5, f"V{width}")
    k.widen_fixed(out, back)
    assert back.tobytes() == wide.tobytes()
    for number in (INT64_MAX + 1, INT64_MIN - 1, 1 << (8 * width - 2)):
        big = np.frombuffer(number.to_bytes(width, "little", signed=True), f"V{width}")
        assert not k.narrow_fixed(big, np.empty(1, np.int64))
    with pytest.raises(ValueError):
        k.narrow_fixed(np.zeros(1, "V8"), np.empty(1, np.int64))
    with pytest.raises(ValueError):
        k.widen_fixed(np.zeros(1, np.int64), np.empty(2, f"V{width}"))
