"""The difference of two lots of rows: right against a counter, over every kind of type."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.change_feed.row_difference import row_codes, rows_apart

CELLS = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=12)


def batch_of(rows: list[tuple[Any, Any]]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], pa.int8()) for at in range(2)]
    return pa.record_batch({"a": columns[0], "b": columns[1]})


@given(ROWS, ROWS)
def test_what_is_left_is_the_difference_of_counters(
    one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]
) -> None:
    left, right = rows_apart(
        [batch_of(one[:5]), batch_of(one[5:])], [batch_of(other)] if other else []
    )
    assert Counter(one[at] for at in left) == Counter(one) - Counter(other)
    assert Counter(other[at] for at in right) == Counter(other) - Counter(one)
    assert sorted(left) == list(left)
    assert sorted(right) == list(right)


def test_of_equal_rows_the_last_are_left() -> None:
    left, right = rows_apart([batch_of([(1, 1)] * 4)], [batch_of([(1, 1)])])
    assert left.tolist() == [1, 2, 3]
    assert right.tolist() == []


def test_rows_without_columns_are_equal() -> None:
    one, other = (pa.record_batch({"a": range(rows)}).select([]) for rows in (3, 1))
    left, right = rows_apart([one], [other])
    assert (left.tolist(), right.tolist()) == ([1, 2], [])


LISTS = pa.list_(pa.list_(pa.int8()))
MAP = pa.map_(pa.string(), pa.int64())
STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.0, -0.0, math.nan, 1.5, None], pa.float64()),
        pa.array([np.float16(0), np.float16(1), None], pa.float16()),
        pa.array(["", "a", "ab", None], pa.string()),
        pa.array(["", "a", None], pa.string_view()),
        pa.array([b"", b"a", None], pa.large_binary()),
        pa.array([True, False, None]),
        pa.array([Decimal("1.5"), Decimal("-1.5"), None], pa.decimal128(5, 2)),
        pa.array([Decimal("1.5"), Decimal("-1.5"), None], pa.decimal32(5, 2)),
        pa.array([Decimal("1.5"), Decimal("-1.5"), None], pa.decimal256(50, 2)),
        pa.array([1, 2, None], pa.timestamp("ns", "UTC")),
        pa.array([(1, 2, 3), (1, 2, 4), None], pa.month_day_nano_interval()),
        pa.array([None], pa.null()),
        pa.array([[], [1], [1, None], [None, 1], [1, 1], None], pa.list_(pa.int64())),
        pa.array([[], [1], [1, None], None], pa.large_list(pa.int64())),
        pa.array([[], [1], [1, None], None], pa.list_view(pa.int64())),
        pa.array([[1, 2], [1, None], [2, 1], None], pa.list_(pa.int64(), 2)),
        pa.array([[[]], [[1]], [[], [1]], [[1], []], [None], [], None], LISTS),
        pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "a"}, {"x": None, "y": None}, None], STRUCT),
        pa.array([[{"x": 1, "y": "a"}], [{"x": 1, "y": None}], [None], []], pa.list_(STRUCT)),
        pa.array([{}, {"a": 1}, {"a": None}, {"a": 1, "b": 2}, None], MAP),
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array([[1, 2], [2, 1], None], pa.list_(pa.int64(), 2)).slice(1),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array([1, 2, None])),
        pa.UnionArray.from_sparse(
            pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["1", "1", "3"])]
        ),
        pa.array([b"0" * 16, b"1" * 16, None], pa.uuid()),
    ],
    ids=lambda values: str(values.type),
)
def test_every_type_tells_its_values_apart(values: pa.Array) -> None:
    """Each value of the array is another one, and equals itself in another chunk."""
    batch = pa.record_batch({"a": values})
    codes = row_codes([batch, batch])
    assert codes.tolist() == [*range(len(values))] * 2
    left, right = rows_apart([batch], [batch.slice(1)])
    assert (left.tolist(), right.tolist()) == ([0], [])


def test_dictionaries_are_compared_by_value() -> None:
    one = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b", "a"]))
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["b", "c"]))
    left, right = rows_apart([pa.record_batch({"a": one})], [pa.record_batch({"a": other})])
    assert (left.tolist(), right.tolist()) == ([0, 2], [1])
