"""Values that stand for nothing in columns that must not be null."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion_table.schema.repeated import zeros

TYPES = [
    *(pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time64("ns"), pa.timestamp("us", "UTC"), pa.duration("ms")),
    *(pa.decimal32(5, 2), pa.decimal128(20, 2), pa.decimal256(50, 1)),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.list_(pa.string()), pa.large_list(pa.int8()), pa.list_view(pa.int8())),
    *(pa.list_(pa.int8(), 2), pa.list_(pa.field("item", pa.int8(), nullable=False), 2)),
    pa.large_list_view(pa.struct([("x", pa.int8())])),
    pa.map_(pa.string(), pa.int32()),
    pa.struct([]),
    pa.struct([pa.field("x", pa.string(), nullable=False), pa.field("y", pa.int8())]),
    pa.dictionary(pa.int8(), pa.string()),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.bool8(),
    pa.month_day_nano_interval(),
    pa.null(),
]


@pytest.mark.parametrize("length", [0, 1, 9])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_zeros_are_valid_arrays_without_nulls(dtype, length):
    array = zeros(dtype, length)
    array.validate(full=True)
    assert (array.type, len(array)) == (dtype, length)
    assert len(set(map(str, array.to_pylist()))) <= 1
    if not pa.types.is_null(dtype):
        assert not any(value is None for value in array.to_pylist())


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.int16(), 0),
        (pa.bool_(), False),
        (pa.string_view(), ""),
        (pa.binary(2), b"\0\0"),
        (pa.list_(pa.int8()), []),
        (pa.map_(pa.string(), pa.int8()), []),
        (pa.list_(pa.int8(), 2), [None, None]),
        (pa.list_(pa.field("item", pa.int8(), nullable=False), 2), [0, 0]),
        (
            pa.struct([pa.field("x", pa.string(), nullable=False), pa.field("y", pa.int8())]),
            {"x": "", "y": None},
        ),
        (pa.dictionary(pa.int8(), pa.string()), ""),
    ],
    ids=str,
)
def test_zeros_are_nothing_or_empty(dtype, value):
    assert zeros(dtype, 3).to_pylist() == [value] * 3
