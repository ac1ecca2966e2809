"""Arrays of plain values, made and read without pandas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fermion.columns.arrow_buffers import PLAIN, array_of, numbers_of


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_plain_values_become_the_array_that_arrow_makes(dtype):
    """Of each type, none, some, and a view of them."""
    values = [3, 0, 100]
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        values = ["a", "", "größer"]
    elif not pa.types.is_integer(dtype) and not pa.types.is_floating(dtype):
        values = [b"a", b"", b"\0\xff"]
    for some in (values, values[:0]):
        made = array_of(some, dtype)
        made.validate(full=True)
        assert made.equals(pa.array(some, dtype))
    if isinstance(values[0], int):
        assert array_of(np.array(values), dtype).equals(pa.array(values, dtype))
        found = numbers_of(made := pa.array(values, dtype).slice(1))
        assert found.dtype == made.to_numpy().dtype
        assert found.tolist() == values[1:]
        assert len(numbers_of(made.slice(2))) == 0


def test_booleans_are_read_from_any_place():
    flags = [bool(number % 3) for number in range(30)]
    assert numbers_of(pa.array(flags).slice(5)).tolist() == flags[5:]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([2**63], pa.int64()), ([-1], pa.uint8()), ([300], pa.int8()), (["\ud800"], pa.string())],
)
def test_what_does_not_fit_is_refused(values, dtype):
    with pytest.raises((OverflowError, UnicodeEncodeError)):
        array_of(values, dtype)
