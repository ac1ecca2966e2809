"""Record batches keep their values on the way to Spark's Arrow types and back."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext import exchange
from spark_ext.errors import ConversionError
from spark_ext.exchange import convert, convert_batch, convert_batches
from spark_ext.types import exchange_schema, spark_schema

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
IDS = [str(dtype)[:60] for dtype, _ in CASES]


def there(array: pa.Array) -> pa.Array:
    """The array as Spark takes it."""
    schema = pa.schema([pa.field("c", array.type)])
    target = exchange_schema(spark_schema(schema, where="test"))
    converted = convert(array, target.field(0).type)
    converted.validate(full=True)
    assert converted.type == target.field(0).type
    return converted


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=IDS)
def test_every_type_comes_back_from_spark_as_it_went(dtype: pa.DataType, values: list[Any]) -> None:
    array = pa.array(values, dtype)
    back = convert(there(array), dtype)
    back.validate(full=True)
    assert back.type == dtype
    assert back.to_pylist() == array.to_pylist()


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=IDS)
def test_a_slice_is_converted_like_the_same_values_alone(
    dtype: pa.DataType, values: list[Any]
) -> None:
    array = pa.array(values, dtype)
    sliced = pa.array(values * 3, dtype).slice(len(values), len(values))
    assert there(sliced).to_pylist() == there(array).to_pylist()
    assert convert(there(sliced), dtype).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=IDS)
def test_no_rows_are_converted_to_no_rows(dtype: pa.DataType, values: list[Any]) -> None:
    empty = pa.array(values, dtype).slice(1, 0)
    assert len(there(empty)) == 0
    assert len(there(pa.array([], dtype))) == 0


def test_extension_and_run_end_columns_travel_as_what_they_hold() -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16)))
    runs = pc.run_end_encode(pa.array(["a", "a", None]))
    assert there(uuids).to_pylist() == [b"0" * 16, None]
    assert convert(there(uuids), pa.uuid()).equals(uuids)
    assert there(runs).to_pylist() == ["a", "a", None]
    assert convert(there(runs), runs.type).to_pylist() == ["a", "a", None]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))
def test_nanoseconds_are_rounded_towards_the_past(ticks: list[int | None]) -> None:
    array = pa.array(ticks, pa.int64()).cast(pa.timestamp("ns"))
    microseconds = there(array).cast(pa.int64()).to_pylist()
    assert microseconds == [None if tick is None else tick // 1000 for tick in ticks]


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array([300], pa.int16()), pa.uint8()),
        (pa.array([Decimal(-1)], pa.decimal128(20, 0)), pa.uint64()),
        (pa.array([0.1], pa.float32()), pa.float16()),
        (pa.array([b"ab"], pa.binary()), pa.binary(3)),
        (pa.array([[1]], pa.list_(pa.int64())), pa.list_(pa.int64(), 2)),
        (pa.array([1], pa.timestamp("us")), pa.timestamp("ms")),
        (pa.array([2**62], pa.timestamp("us")), pa.timestamp("ns")),
        (pa.array([2**62], pa.timestamp("s")), pa.timestamp("us")),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_column(array: pa.Array, target: Any) -> None:
    batch = pa.record_batch({"price": array})
    with pytest.raises(ConversionError, match="column 'price'"):
        convert_batch(batch, pa.schema([("price", target)]))


def test_a_batch_that_has_the_schema_is_not_copied() -> None:
    batch = pa.record_batch({"a": pa.array([1]), "s": pa.array(["x"])})
    assert convert_batch(batch, batch.schema) is batch


def test_a_batch_without_columns_keeps_its_rows() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2, 3])}).select([])
    assert convert_batch(batch, pa.schema([])).num_rows == 3
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}] * 4, pa.struct([])))
    assert convert_batch(nothing, pa.schema([("a", pa.int64())]).empty_table().select([]).schema)


def test_a_batch_too_long_for_32_bit_offsets_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_INT32_MAX", 10)
    text = pa.array(["aaaa", "bbbb", "cccc", "dddd"], pa.large_string())
    batch = pa.record_batch({"t": text})
    parts = list(convert_batches(batch, pa.schema([("t", pa.string())])))
    assert [part.num_rows for part in parts] == [2, 2]
    assert pa.Table.from_batches(parts)["t"].to_pylist() == text.to_pylist()
    with pytest.raises(ConversionError, match=r"column 't'.*bytes in one batch"):
        list(
            convert_batches(
                pa.record_batch({"t": pa.array(["a" * 11], pa.large_string())}),
                pa.schema([("t", pa.string())]),
            )
        )
