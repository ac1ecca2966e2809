"""Arrow schema → table schema: every field gets an id.

Siblings get consecutive ids before their children, so that the columns of a new table have the
ids 1 to n.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError, UnsupportedTypeError, column_not_found
from fermion.layout import BLOB_KEY
from fermion_table.argument_checks import check_text, check_text_map, check_texts, described
from fermion_table.schema.key_statistics import with_key_statistics
from fermion_table.schema.properties import BLOB_PROPERTY, check_properties
from fermion_table.schema.schema import (
    COMMENT_KEY,
    DEPTH_MAX,
    FIELD_ID_KEY,
    SCHEMA_FORMAT,
    SCHEMA_FORMAT_VERSION,
    Field,
    PartitionField,
    StoredType,
    TableSchema,
    check_names,
    encode_metadata,
    message_of,
    type_text,
)
from fermion_table.schema.sorting import RowOrder
from fermion_table.schema.transforms import PartitionTransform, check_column, parse_transform

PartitionBy = Sequence[str | PartitionTransform] | str | PartitionTransform

_LIST_CHECKS = (
    (pat.is_list, "list"),
    (pat.is_large_list, "large_list"),
    (pat.is_list_view, "list_view"),
    (pat.is_large_list_view, "large_list_view"),
    (pat.is_fixed_size_list, "fixed_size_list"),
)


def fields_from_arrow(
    fields: Iterable[pa.Field], last_field_id: int
) -> tuple[tuple[Field, ...], int]:
    """Arrow fields with ids: siblings get consecutive ones, before their children.

    last_field_id: The greatest id in use; new ones follow it.
    Returns: The fields, and the greatest id in use now.
    Raises UnsupportedTypeError, InvalidArgumentError: A type that no file can hold; equal names
        among siblings.
    """
    listed = list(fields)
    check_names([field.name for field in listed], "schema")
    numbering = _Numbering(last_field_id)
    made = numbering.level(listed, "schema", 0)
    return made, numbering.last


class _Numbering:
    def __init__(self, last: int) -> None:
        self.last = last

    def level(self, fields: list[pa.Field], where: str, depth: int) -> tuple[Field, ...]:
        if depth > DEPTH_MAX:
            raise UnsupportedTypeError(f"{where}: nested deeper than {DEPTH_MAX} levels")
        first = self.last + 1
        self.last += len(fields)
        return tuple(
            self._field(field, number, f"{where}: {field.name}", depth)
            for number, field in enumerate(fields, first)
        )

    def _field(self, field: pa.Field, number: int, where: str, depth: int) -> Field:
        metadata = dict(field.metadata or {})
        metadata.pop(FIELD_ID_KEY, None)
        comment = metadata.pop(COMMENT_KEY, None)
        return Field(
            id=number,
            name=field.name,
            stored_type=self._type(field.type, where, depth),
            nullable=field.nullable,
            comment=comment.decode(errors="replace") if comment is not None else None,
            stored_metadata=encode_metadata(metadata),
        )

    def _type(self, dtype: pa.DataType, where: str, depth: int) -> str | StoredType:
        text = type_text(dtype)
        if text is not None:
            return text
        if not isinstance(dtype, pa.BaseExtensionType):
            if pat.is_union(dtype):
                raise UnsupportedTypeError(f"{where}: {dtype}: unions are not supported")
            if pat.is_struct(dtype):
                check_names(dtype.names, where)
                return StoredType(kind="struct", fields=self.level(list(dtype), where, depth + 1))
            if pat.is_map(dtype):
                children = self.level([dtype.key_field, dtype.item_field], where, depth + 1)
                return StoredType(kind="map", fields=children, keys_sorted=dtype.keys_sorted)
            for check, kind in _LIST_CHECKS:
                if check(dtype):
                    children = self.level([dtype.value_field], where, depth + 1)
                    length = dtype.list_size if kind == "fixed_size_list" else 0
                    return StoredType(kind=kind, fields=children, length=length)  # type: ignore[arg-type]
        return StoredType(kind="arrow", arrow=message_of(dtype), text=str(dtype))


def with_blobs(schema: pa.Schema, names: str) -> pa.Schema:
    """Columns marked as blobs.

    names: Columns, with commas between.
    Raises ColumnNotFoundError: There is none of a name.
    """
    for name in map(str.strip, names.split(",")):
        place = schema.get_field_index(name)
        if place < 0:
            raise column_not_found(name, schema.names, where=f"property {BLOB_PROPERTY!r}")
        field = schema.field(place)
        marked = {**(field.metadata or {}), BLOB_KEY: b"true"}
        schema = schema.set(place, field.with_metadata(marked))
    return schema


def check_blobs(schema: TableSchema) -> None:
    """Refuse columns of blobs of other types, and rows that are placed or found by them.

    Raises InvalidArgumentError.
    """
    placing = {
        *schema.sort_by,
        *(each.source_id for each in schema.partition_by),
        *(each.field for each in schema.indexes),
    }
    for name in schema.blob_columns:
        field = schema.by_name[name]
        if field.stored_type not in ("binary", "large_binary"):
            raise InvalidArgumentError(
                f"column {name!r} of blobs: expected the type binary or large_binary, found "
                f"{field.type}"
            )
        if schema.primary_key and (field.id in schema.primary_key or not field.nullable):
            raise InvalidArgumentError(
                f"column {name!r} of blobs: expected a nullable column that is no part of the "
                "primary key"
            )
        if field.initial_default is not None:
            raise InvalidArgumentError(f"column {name!r} of blobs: expected no default")
        if field.id in placing:
            raise InvalidArgumentError(
                f"column {name!r} of blobs: rows can't be partitioned, sorted or indexed by it"
            )


def schema_from_arrow(
    schema: pa.Schema,
    *,
    partition_by: PartitionBy | None = None,
    primary_key: Sequence[str] | str | None = None,
    sort_by: Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    last_field_id: int = 0,
    time_ms: int = 0,
) -> TableSchema:
    """The first schema of a table, to which a primary key adds more: see `keys.key_changes`.

    schema: Columns; comments are taken from the metadata key ``comment``.
    properties: Among them `BLOB_PROPERTY`, which is not kept.
    partition_by: Top-level columns, or functions of them: ``"city"``, ``"day(ts)"``, ``"bucket(16,
        id)"``, or `transforms.PartitionTransform`.
    primary_key, sort_by: Names of top-level columns.
    Raises InvalidArgumentError, UnsupportedTypeError, ColumnNotFoundError: A schema that no table
        can have.
    Raises TypeError: Names of columns that are no list.
    """
    properties = check_text_map(properties, "properties")
    if BLOB_PROPERTY in properties:
        schema = with_blobs(schema, properties.pop(BLOB_PROPERTY))
    fields, last = fields_from_arrow(schema, last_field_id)
    made = TableSchema(
        format=SCHEMA_FORMAT,
        format_version=SCHEMA_FORMAT_VERSION,
        id=0,
        fields=fields,
        last_field_id=last,
        properties=properties,
        stored_metadata=encode_metadata(schema.metadata),
        time_ms=time_ms,
    )
    check_properties(made.properties, made)
    made = with_key_statistics(made)
    partitions = [_partition_field(made, each) for each in _transforms(partition_by)]
    check_names([field.name for field in partitions], "partition_by")
    keys = [made.find((name,), where="primary_key").id for name in _key_names(primary_key)]
    order = [made.find((name,), where="sort_by") for name in _names(sort_by, "sort_by")]
    RowOrder(tuple(each.name for each in order)).check(schema)
    placed = msgspec.structs.replace(
        made,
        partition_by=tuple(partitions),
        primary_key=tuple(keys),
        sort_by=tuple(each.id for each in order),
    )
    check_blobs(placed)
    return placed


def _key_names(given: Sequence[str] | str | None) -> Sequence[str]:
    names = _names(given, "primary_key")
    if given is not None and not names:
        raise InvalidArgumentError(
            "primary_key: expected at least one column, found none; leave it out (None) for a "
            "table without a primary key"
        )
    return names


def _check_order(given: Any, parameter: str) -> None:
    """Refuse columns without an order, and those that can be listed only once."""
    if isinstance(given, AbstractSet | Mapping | Iterator):
        raise TypeError(f"{parameter}: expected a list of columns, found {described(given)}")


def _transforms(given: PartitionBy | None) -> list[PartitionTransform | str]:
    if given is None:
        return []
    _check_order(given, "partition_by")
    listed = [given] if isinstance(given, str | PartitionTransform) else given
    if not isinstance(listed, Iterable):
        raise TypeError(f"partition_by: expected columns or transforms, found {described(given)}")
    for each in (listed := list(listed)):
        if not isinstance(each, PartitionTransform):
            check_text(each, "an item of partition_by")
    return listed


def _partition_field(schema: TableSchema, given: PartitionTransform | str) -> PartitionField:
    transform = given
    if isinstance(transform, str):
        known = transform in schema.by_name
        transform = PartitionTransform(transform) if known else parse_transform(transform)
    field = schema.find((transform.column,), where="partition_by")
    check_column(transform, field.type)
    return PartitionField(
        source_id=field.id,
        name=transform.field_name,
        transform=transform.kind,
        parameter=transform.parameter,
    )


def _names(names: Sequence[str] | str | None, parameter: str) -> Sequence[str]:
    if names is None:
        return ()
    _check_order(names, parameter)
    return check_texts([names] if isinstance(names, str) else names, parameter)
