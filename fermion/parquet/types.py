"""Arrow types that Parquet lacks → the nearest that it has, and columns converted to them.

====================================== =====================================================
Arrow                                  in Parquet
====================================== =====================================================
run-end encoded                        its values
dictionary of neither string nor bytes its values
dictionary with more values in a file  the same with indices of int32
than its indices can number
timestamp and time in seconds          the same in milliseconds
date64                                 date32; a date with a time of day is refused
decimal with a negative scale          scale 0, digits added
decimal with more scale than digits    as many digits as scale
string and binary views below a list   large strings and binary
fixed-size list, not null in a struct  the same, nullable
month_day_nano_interval                struct of months, days and nanoseconds
extension type over one of these       what stands for its storage
Variant (``arrow.parquet.variant``)    its struct, with Parquet's annotation
====================================== =====================================================

All other types are Parquet's own, or Arrow restores them from the schema that it keeps there.
Structs without fields, fixed-size lists of size 0 and binary of width 0 have nothing near.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.assemble import assemble
from fermion.columns.shred import shred
from fermion.columns.types import (
    ColumnStreams,
    Node,
    NodeKind,
    Order,
    child_fields,
    column_node,
    strip_wrappers,
    with_child_fields,
)
from fermion.columns.variants import VariantType
from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion.parquet.variants import unwrapped

DECIMAL_DIGITS_MAX = 76
INTERVAL = pa.struct(
    [
        pa.field("months", pa.int32(), nullable=False),
        pa.field("days", pa.int32(), nullable=False),
        pa.field("nanoseconds", pa.int64(), nullable=False),
    ]
)
_INTERVAL_DTYPE = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


class ConversionWarning(UserWarning):
    """A property of the source that the target of a conversion cannot store."""


def parquet_field(field: pa.Field, *, where: str) -> pa.Field:
    """The field that Parquet can hold instead of this one; itself where nothing has to change.

    where: The file, for the message.
    Raises UnsupportedTypeError: For a type that has nothing near it in Parquet.
    """
    if isinstance(field.type, VariantType):
        field = unwrapped(field)
    return _field(field, f"{where}: column {field.name!r}", in_list=False)


def with_wide_indices(field: pa.Field) -> pa.Field:
    """A field whose dictionaries, wherever they are in it, have indices of at least 32 bits.

    Parquet readers give all rows of a file one dictionary.
    """
    return field.with_type(_wide_type(field.type))


def _wide_type(dtype: pa.DataType) -> pa.DataType:
    if pat.is_dictionary(dtype):
        index = dtype.index_type if dtype.index_type.bit_width >= 32 else pa.int32()
        return pa.dictionary(index, dtype.value_type, dtype.ordered)
    if isinstance(dtype, pa.BaseExtensionType) or not dtype.num_fields:
        return dtype
    return with_child_fields(dtype, [with_wide_indices(child) for child in child_fields(dtype)])


def _field(field: pa.Field, where: str, *, in_list: bool) -> pa.Field:
    dtype = _parquet_type(field.type, where, in_list)
    return field if dtype == field.type else field.with_type(dtype)


def _parquet_type(dtype: pa.DataType, where: str, in_list: bool) -> pa.DataType:
    if isinstance(dtype, pa.BaseExtensionType):
        storage = _parquet_type(dtype.storage_type, where, in_list)
        return (
            dtype
            if storage == dtype.storage_type and not isinstance(dtype, VariantType)
            else storage
        )
    if pat.is_run_end_encoded(dtype):
        return _parquet_type(dtype.value_type, where, in_list)
    if pat.is_dictionary(dtype):
        kept = pat.is_string(dtype.value_type) or pat.is_binary(dtype.value_type)
        return dtype if kept else _parquet_type(dtype.value_type, where, in_list)
    if dtype.num_fields:
        return _nested_type(dtype, where, in_list)
    if in_list and pat.is_string_view(dtype):
        return pa.large_string()
    if in_list and pat.is_binary_view(dtype):
        return pa.large_binary()
    return _leaf_type(dtype, where)


def _nested_type(dtype: pa.DataType, where: str, in_list: bool) -> pa.DataType:
    if pat.is_fixed_size_list(dtype) and dtype.list_size == 0:
        raise _unsupported(where, dtype)
    before = child_fields(dtype)
    in_list |= not pat.is_struct(dtype)
    after = [_field(child, f"{where}.{child.name}", in_list=in_list) for child in before]
    if pat.is_struct(dtype):
        after = [_nullable_fixed_list(field) for field in after]
    if all(new.equals(old) for new, old in zip(after, before, strict=True)):
        return dtype
    return with_child_fields(dtype, after)


def _nullable_fixed_list(field: pa.Field) -> pa.Field:
    """pyarrow writes it either way, and cannot read one that is required under a null struct."""
    is_fixed = pat.is_fixed_size_list(strip_wrappers(field.type))
    return field.with_nullable(True) if is_fixed else field


def _leaf_type(dtype: pa.DataType, where: str) -> pa.DataType:
    if pat.is_timestamp(dtype) and dtype.unit == "s":
        return pa.timestamp("ms", dtype.tz)
    if pat.is_time32(dtype) and dtype.unit == "s":
        return pa.time32("ms")
    if pat.is_date64(dtype):
        return pa.date32()
    if pat.is_interval(dtype):
        return INTERVAL
    if pat.is_decimal(dtype):
        return _decimal(dtype, where)
    no_width = pat.is_fixed_size_binary(dtype) and dtype.byte_width == 0
    if pat.is_struct(dtype) or no_width:
        raise _unsupported(where, dtype)
    return dtype


def _decimal(dtype: pa.DataType, where: str) -> pa.DataType:
    if 0 <= dtype.scale <= dtype.precision:
        return dtype
    digits, scale = dtype.precision - min(dtype.scale, 0), max(dtype.scale, 0)
    digits = max(digits, scale)
    if digits > DECIMAL_DIGITS_MAX:
        raise _unsupported(where, dtype)
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def _unsupported(where: str, dtype: pa.DataType) -> UnsupportedTypeError:
    return UnsupportedTypeError(f"{where}: Parquet has nothing like {dtype}; leave the column out")


def convert_column(
    column: pa.ChunkedArray | pa.Array, before: pa.Field, after: pa.Field, *, where: str
) -> pa.Array | pa.ChunkedArray:
    """The values of one column in the type that `parquet_field` chose for it.

    column: Values of ``before.type``.
    where: The file, for the message.
    Returns: The column itself where the type stays.
    Raises InvalidArgumentError: For a value that the new type cannot hold.
    """
    if before.type == after.type:
        return column
    source, target = column_node(before), column_node(after)
    given = shred(column, source)
    result = ColumnStreams(given.length)
    try:
        _convert(source, target, given, result)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(
            f"{where}: column {before.name!r} cannot become {after.type}: {error}"
        ) from error
    return assemble(target, result)


def _convert(source: Node, target: Node, given: ColumnStreams, result: ColumnStreams) -> None:
    """Copy the streams of a subtree to the ordinals of its new tree, values converted."""
    if source.validity in given.validity:
        result.validity[target.validity] = given.validity[source.validity]
    if source.stream in given.offsets:
        result.offsets[target.stream] = given.offsets[source.stream]
    if source.kind is NodeKind.LEAF:
        _convert_leaf(source, target, given, result)
    for old, new in zip(source.children, target.children, strict=target.storage != INTERVAL):
        _convert(old, new, given, result)


def _convert_leaf(source: Node, target: Node, given: ColumnStreams, result: ColumnStreams) -> None:
    values = given.data.get(source.stream)
    if values is None:
        return
    same_bytes = source.order is Order.BYTES and source.physical == target.physical
    if same_bytes or source.storage == target.storage:
        result.data[target.stream] = values
        return
    assert isinstance(values, np.ndarray)
    if target.kind is NodeKind.STRUCT:
        parts = np.ascontiguousarray(values).view(_INTERVAL_DTYPE)
        for child in target.children:
            result.validity[child.validity] = None
            result.data[child.stream] = np.ascontiguousarray(parts[child.name])
        return
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    array = pa.Array.from_buffers(source.storage, len(values), [None, buffer])
    converted = array.cast(target.storage)
    assert target.physical is not None
    found = np.frombuffer(converted.buffers()[1], target.physical.dtype)
    result.data[target.stream] = found[converted.offset :][: len(values)]
