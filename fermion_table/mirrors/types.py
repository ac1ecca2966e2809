"""The types of a copy: what Arrow's types become in Parquet files that other engines read.

A copy keeps every value. Types of values that a target can't hold (times of day in Delta,
nanoseconds, unsigned integers of 64 bits) are refused by name before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import child_fields
from fermion.errors import UnsupportedTypeError
from fermion_table.schema.conversion import Conversion
from fermion_table.schema.schema import ELEMENT, KEY, VALUE, Field, TableSchema
from fermion_table.schema.widening import is_binary, is_text

DECIMAL_DIGITS_MAX = 38

Leaf = Callable[[pa.DataType], pa.DataType | None]
"""What a target stores for a type without children; None: it has no such type."""


def plain_leaf(dtype: pa.DataType) -> pa.DataType | None:
    """What all targets have in common."""
    if pat.is_boolean(dtype) or pat.is_float32(dtype) or pat.is_float64(dtype):
        return dtype
    if pat.is_float16(dtype):
        return pa.float32()
    if pat.is_signed_integer(dtype):
        return dtype
    if pat.is_unsigned_integer(dtype):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(dtype.bit_width)
    if is_text(dtype):
        return pa.string()
    if is_binary(dtype):
        return pa.binary()
    if pat.is_fixed_size_binary(dtype):
        return dtype
    if pat.is_date(dtype):
        return pa.date32()
    if pat.is_timestamp(dtype):
        return None if dtype.unit == "ns" else pa.timestamp("us", "UTC" if dtype.tz else None)
    if pat.is_time(dtype):
        return None if dtype.unit == "ns" else pa.time64("us")
    if pat.is_decimal(dtype):
        fits = dtype.precision <= DECIMAL_DIGITS_MAX and 0 <= dtype.scale <= dtype.precision
        return pa.decimal128(dtype.precision, dtype.scale) if fits else None
    return None


def copied_field(field: Field, leaf: Leaf, *, ids: bool) -> pa.Field:
    """A column as it is in the Parquet files of a copy; all of it may be null.

    ids: Whether fields have their ids in Parquet.
    Raises UnsupportedTypeError: Names the column and the type that the target does not have.
    """
    return _copied(field, (field.name,), leaf, ids)


def _copied(field: Field, path: tuple[str, ...], leaf: Leaf, ids: bool) -> pa.Field:
    metadata = {b"PARQUET:field_id": str(field.id).encode()} if ids else None
    names = field.child_names()
    children = [
        _copied(child, (*path, name), leaf, ids)
        for name, child in zip(names, field.children, strict=True)
    ]
    dtype: pa.DataType | None
    if field.kind == "struct":
        dtype = pa.struct(children) if children else None
    elif field.kind == "map":
        key, value = (
            each.with_name(name) for each, name in zip(children, (KEY, VALUE), strict=True)
        )
        dtype = pa.map_(key.with_nullable(False), value)
    elif children:
        dtype = pa.list_(children[0].with_name(ELEMENT))
    else:
        stored = field.type
        dtype = leaf(stored.value_type if pat.is_dictionary(stored) else stored)
    if dtype is None:
        raise UnsupportedTypeError(
            f"column {'.'.join(path)!r} is {field.type}, for which the mirror has no type"
        )
    return pa.field(field.name, dtype, metadata=metadata)


def copied_schema(schema: TableSchema, leaf: Leaf, *, ids: bool, where: str) -> pa.Schema:
    """All columns as they are in copies.

    Raises UnsupportedTypeError: Names the mirror, the column and its type.
    """
    try:
        return pa.schema([copied_field(field, leaf, ids=ids) for field in schema.fields])
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{where}: {error}") from None


def copying(schema: pa.Schema, rows: pa.Schema) -> list[Conversion]:
    """How the columns of a copy are made from rows of a scan, matched by name."""
    return [
        _copying(field, rows.field(field.name).type, rows.get_field_index(field.name))
        for field in schema
    ]


def _copying(field: pa.Field, source: pa.DataType, ordinal: int) -> Conversion:
    dtype = field.type
    if not dtype.num_fields:
        return Conversion(field, ordinal, cast=source != dtype)
    pairs = zip(child_fields(dtype), child_fields(source), strict=True)
    children = tuple(_copying(child, inner.type, at) for at, (child, inner) in enumerate(pairs))
    return Conversion(field, ordinal, children=children)
