"""The strategies make valid Arrow data, and logical equality tells apart what differs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tests.kit.equality import assert_logically_equal, is_logically_equal
from tests.kit.strategies import arrow_arrays, tables


@given(arrow_arrays())
def test_arrays_are_valid_and_equal_themselves(array: pa.Array) -> None:
    array.validate(full=True)
    assert_logically_equal(array, array)


@given(tables())
def test_tables_are_valid_and_heed_their_schema(table: pa.Table) -> None:
    table.validate(full=True)
    for field, column in zip(table.schema, table.columns, strict=True):
        assert field.nullable or column.null_count == 0


NAN = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0, 1 << 63], np.uint64).view(np.float64)
DIFFERENT = {
    "type": (pa.array([1], pa.int8()), pa.array([1], pa.int16())),
    "length": (pa.array([1]), pa.array([1, 1])),
    "value": (pa.array([1, 2]), pa.array([1, 3])),
    "null": (pa.array([1, None]), pa.array([1, 0])),
    "text": (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
    "NaN": (pa.array(NAN[:1]), pa.array(NAN[1:2])),
    "sign of zero": (pa.array(NAN[2:3]), pa.array(NAN[3:])),
    "boolean": (pa.array([True, False]), pa.array([True, True])),
    "empty and null list": (
        pa.array([[], None], pa.list_(pa.int8())),
        pa.array([None, []], pa.list_(pa.int8())),
    ),
    "lengths of lists": (pa.array([[1, 2], [3]]), pa.array([[1], [2, 3]])),
    "field": (pa.array([{"a": 1, "b": 2}]), pa.array([{"a": 1, "b": 3}])),
    "null field": (
        pa.array([{"a": None}], pa.struct([("a", pa.int8())])),
        pa.array([None], pa.struct([("a", pa.int8())])),
    ),
    "dictionary": (pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_arrays_that_differ_are_told_apart(case: str) -> None:
    left, right = DIFFERENT[case]
    assert not is_logically_equal(left, right)
    assert is_logically_equal(left, left)
    assert is_logically_equal(right, right)


def test_layout_makes_no_difference() -> None:
    hidden = pa.py_buffer(np.packbits([True, False], bitorder="little"))
    left = pa.Array.from_buffers(pa.int64(), 2, [hidden, pa.py_buffer(np.array([1, 7]))])
    right = pa.array([0, 1, None]).slice(1)
    assert_logically_equal(left, right)
    assert_logically_equal(
        pa.chunked_array([left, left]), pa.chunked_array([pa.concat_arrays([right, right])])
    )
    other = pa.DictionaryArray.from_arrays(pa.array([1, 2, 0]), pa.array(["a", "b", None]))
    plain = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array(["b", "a"]))
    assert_logically_equal(other, plain)
