"""Record batches keep their values on the way to Spark's Arrow types and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.columns import exchange
from fermion.columns.exchange import convert
from spark_ext.errors import ConversionError
from spark_ext.exchange import convert_batch, convert_batches
from spark_ext.types import exchange_schema, spark_schema
from tests.kit.arrow_samples import CASES

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
