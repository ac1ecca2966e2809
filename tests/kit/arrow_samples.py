"""Arrow arrays of every kind, as samples for tests."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

# Types of which Arrow's own functions leave some out.
RUNS = pa.RunEndEncodedArray.from_arrays(
    pa.array([2, 5, 6], pa.int32()), pa.array(["a", None, "b"])
)
LISTS = pa.array([[1, 2], None, [], [3], [4, 5, 6], [None]], pa.list_view(pa.int64()))
DICTIONARY = pa.DictionaryArray.from_arrays([0, 1, None, 2, 1, 0], ["x", None, "z"])
ARRAYS = {
    "numbers": pa.array([1, None, 3, 4, 5, 6]),
    "runs": RUNS,
    "lists": LISTS,
    "text view": pa.array(["a", "b", None, "c", "", "a longer one than twelve"], pa.string_view()),
    "dictionary": DICTIONARY,
    "struct": pa.StructArray.from_arrays([RUNS, LISTS, DICTIONARY], ["r", "v", "d"]),
    "list of runs": pa.ListArray.from_arrays([0, 1, 3, 3, 4, 5, 6], RUNS),
}


# Types of values, and values of each.
NAIVE = datetime.datetime(2024, 2, 29, 12, 30, 1, 999_999)
LEAVES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.uint8(), [0, 255, None]),
    (pa.uint16(), [0, 2**16 - 1, None]),
    (pa.uint32(), [0, 2**32 - 1, None]),
    (pa.uint64(), [0, 2**64 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float16(), [np.float16(0.5), np.float16("-inf"), None]),
    (pa.float32(), [0.1, float("-inf"), None]),
    (pa.float64(), [0.1, -0.0, None]),
    (pa.decimal32(9, 2), [Decimal("-1234567.89"), None]),
    (pa.decimal64(18, 4), [Decimal("12345678901234.5678"), None]),
    (pa.decimal128(38, 10), [Decimal("1.0000000001"), None]),
    (pa.decimal256(38, 0), [Decimal(10**37), None]),
    (pa.date32(), [datetime.date(1582, 10, 15), None]),
    (pa.date64(), [datetime.date(2024, 2, 29), None]),
    (pa.timestamp("s"), [NAIVE.replace(microsecond=0), None]),
    (pa.timestamp("ms", "Europe/Paris"), [datetime.datetime(2024, 1, 1), None]),
    (pa.timestamp("us"), [NAIVE, None]),
    (pa.timestamp("ns", "UTC"), [NAIVE, None]),
    (pa.duration("ms"), [datetime.timedelta(days=-1, milliseconds=3), None]),
    (pa.time32("s"), [datetime.time(23, 59, 59), None]),
    (pa.time64("us"), [datetime.time(23, 59, 59, 999_999), None]),
    (pa.time64("ns"), [datetime.time(0, 0, 0, 1), None]),
    (pa.string(), ["", "ü", None]),
    (pa.large_string(), ["", "ü", None]),
    (pa.string_view(), ["", "a string longer than twelve bytes", None]),
    (pa.binary(), [b"", b"\xff", None]),
    (pa.large_binary(), [b"", b"\xff", None]),
    (pa.binary_view(), [b"", b"more than twelve bytes", None]),
    (pa.binary(3), [b"abc", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", "y", None, "x"]),
    (pa.dictionary(pa.uint32(), pa.int64()), [5, None, 5]),
    (pa.null(), [None, None]),
]


def wrappings(dtype: pa.DataType, values: list[Any]) -> list[tuple[pa.DataType, list[Any]]]:
    """Values of a type, and nested in every way."""
    two = [[values[0]] * 2, None, [values[-1]] * 2]
    return [
        (dtype, values),
        (pa.list_(dtype), [values, None, [], values]),
        (pa.large_list(dtype), [values, None, []]),
        (pa.list_view(dtype), [values, None, [], values]),
        (pa.large_list_view(dtype), [values, None, []]),
        (pa.list_(dtype, 2), two),
        (pa.map_(pa.string(), dtype), [[("k", v) for v in values], None, []]),
        (pa.struct({"a": dtype, "b": pa.int8()}), [{"a": v, "b": 1} for v in values] + [None]),
        (pa.struct({"l": pa.list_(dtype)}), [{"l": values}, None, {"l": None}]),
    ]


CASES = [case for dtype, values in LEAVES for case in wrappings(dtype, values)]


# A dictionary that is full with 128 values.
INT8 = pa.dictionary(pa.int8(), pa.string())


def words(first: int, count: int, dtype: pa.DataType = INT8) -> pa.DictionaryArray:
    values = pa.array([f"w{number}" for number in range(first, first + count)])
    indices = pa.array(np.arange(count), dtype.index_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered)


# For comments made of few words.
WORDS = [b"carefully", b"final", b"deposits", b"sleep", b"quickly", b"among", b"the", b"regular"]


def every_type() -> pa.Table:
    """A column of each type and nesting, of a few rows; all may be null."""
    count = max(len(values) for _, values in CASES)
    arrays = [
        pa.array([*values, *[None] * (count - len(values))], dtype) for dtype, values in CASES
    ]
    return pa.table(arrays, [f"c{number}" for number in range(len(arrays))])
