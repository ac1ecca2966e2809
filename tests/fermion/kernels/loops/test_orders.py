"""The order of whole numbers, compiled and in Python."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.kernel_cases import BOTH

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.sampled_from([-(2**63), 2**63 - 1, 2**11 - 1, 2**11, 2**55, -(2**55)]),
)


@BOTH
@given(numbers=st.lists(NUMBERS, max_size=60))
def test_equal_numbers_keep_their_order(k: ModuleType, numbers: list[int]):
    values = np.array(numbers, np.int64)
    values.flags.writeable = False
    out = np.full(len(numbers), -1, np.int64)
    k.stable_order(values, out)
    assert out.tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


@BOTH
@pytest.mark.parametrize("bits", [1, 11, 12, 22, 40, 63])
def test_numbers_of_any_number_of_digits(k: ModuleType, bits: int):
    values = np.random.default_rng(bits).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 5_000)
    shifted = np.frombuffer(b"\0" + values.tobytes(), np.int64, len(values), 1)  # not aligned
    for each in (values, shifted, values.max() // 2 + values // 2):
        out = np.empty(len(each), np.int64)
        k.stable_order(each, out)
        assert np.array_equal(out, np.argsort(each, kind="stable"))


@BOTH
def test_places_of_another_length_are_refused(k: ModuleType):
    for count in (0, 2, 4):
        with pytest.raises(ValueError):
            k.stable_order(np.zeros(3, np.int64), np.zeros(count, np.int64))
