"""`fermion.arguments`: what counts as an integer."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fermion.arguments import integer, integers
from fermion.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "value", [9, np.int64(9), np.uint8(9), np.array(9), pa.scalar(9), pa.scalar(9, pa.uint8())]
)
def test_integers_of_python_numpy_and_arrow_are_integers(value):
    """Each becomes Python's int."""
    found = integer(value, "n")
    assert (type(found), found) == (int, 9)


@pytest.mark.parametrize(
    "value",
    [
        *(True, np.bool_(True), 1.0, np.float64(1), "1", b"1", None, [1], np.array([1])),
        *(pa.scalar(True), pa.scalar(1.0), pa.scalar(None, pa.int64()), np.datetime64(1, "s")),
    ],
)
def test_nothing_is_coerced_to_an_integer(value):
    """A type error that names the parameter and the type found."""
    with pytest.raises(TypeError, match=r"n=.*expected an integer, found "):
        integer(value, "n")


def test_bounds_of_integers_are_named():
    """One, the other, and both."""
    assert integer(3, "n", minimum=3, maximum=3) == 3
    with pytest.raises(InvalidArgumentError, match="n=0: expected at least 1"):
        integer(0, "n", minimum=1)
    with pytest.raises(InvalidArgumentError, match="n=2: expected at most 1"):
        integer(2, "n", maximum=1)
    with pytest.raises(InvalidArgumentError, match="n=2: expected 0 to 1"):
        integer(2, "n", minimum=0, maximum=1)


@pytest.mark.parametrize(
    "values",
    [
        [3, 1],
        (3, 1),
        range(3, 0, -2),
        iter([3, 1]),
        [np.int64(3), 1],
        [pa.scalar(3), 1],
        np.array([3, 1], np.uint64),
        np.array([3, 1], object),
        pd.Series([3, 1]),
        pd.Index([3, 1], dtype="int8"),
        pa.array([3, 1], pa.uint16()),
        pa.chunked_array([[3], [1]]),
    ],
)
def test_sequences_of_integers_are_taken(values):
    """Whatever holds them: int64 in the same order."""
    found = integers(values, "n")
    assert (found.dtype, found.tolist()) == (np.int64, [3, 1])


@pytest.mark.parametrize("values", [[], (), pa.array([]), np.zeros(0, np.int8)])
def test_no_integers_are_integers_too(values):
    """An empty list has no type of its own."""
    assert integers(values, "n").dtype == np.int64


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        [1, True],
        [1.7],
        ["1"],
        [None],
        "1",
        b"1",
        1,
        None,
        np.array([True]),
        np.array([1.0]),
        np.array(["1"]),
        np.array([1, True], object),
        pd.Series([1.0]),
        pa.array([1.0]),
        pa.array([True]),
        pa.array(["1"]),
    ],
)
def test_no_sequence_is_coerced_to_integers(values):
    """A type error that names the parameter."""
    with pytest.raises(TypeError, match=r"^n.*expected (an )?integers?, found "):
        integers(values, "n")


@pytest.mark.parametrize(
    "values",
    [
        *([2**63], [-(2**63) - 1], np.array([2**63], np.uint64), pa.array([2**63], pa.uint64())),
        *(np.zeros((2, 2), np.int64), [[1], [2]], pa.array([1, None])),
    ],
)
def test_integers_that_do_not_fit_are_refused(values):
    """Numbers beyond 64 bits, several dimensions, nulls."""
    with pytest.raises(InvalidArgumentError, match=r"^n"):
        integers(values, "n")


def test_bug_a_number_of_things_beyond_an_int64_went_on_to_other_libraries() -> None:
    assert integer(2**63 - 1, "n", minimum=0) == 2**63 - 1
    with pytest.raises(InvalidArgumentError, match=rf"n={2**63}: expected 0 to {2**63 - 1}"):
        integer(2**63, "n", minimum=0)
    assert integer(2**64, "n") == 2**64
