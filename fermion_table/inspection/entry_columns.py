"""What manifest entries say of partitions and bounds, as Arrow struct columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fermion import ChunkFlag
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.manifest import Entry, FieldStatistics, schema_holding
from fermion_table.schema import value_codec
from fermion_table.schema.schema import Field, TableSchema
from fermion_table.schema.transforms import transformed

_MIN_EXACT, _MAX_EXACT = int(ChunkFlag.MIN_EXACT), int(ChunkFlag.MAX_EXACT)


def partition_column(
    name: str, values: Sequence[tuple[Any, ...]], schema: TableSchema
) -> dict[str, pa.Array]:
    """Partition values as a struct column; none for a table without partitions."""
    if not schema.partition_by:
        return {}
    children: list[pa.Array] = []
    for place, partition_field in enumerate(schema.partition_by):
        column = schema.by_id[partition_field.source_id]
        dtype = transformed(
            partition_field.transform, partition_field.parameter, pa.array([], column.type)
        ).type
        scalars = [
            value_codec.decode_value(row[place] if place < len(row) else None, dtype)
            for row in values
        ]
        children.append(_array(scalars, dtype))
    names = [partition_field.name for partition_field in schema.partition_by]
    return {name: pa.StructArray.from_arrays(children, names=names)}


def statistics_column(entries: Sequence[Entry], schemas: SchemaVersions) -> dict[str, pa.Array]:
    """A struct of the columns of the current schema whose bounds any entry holds."""
    known = {field_id for entry in entries for field_id in entry.stats}
    fields: dict[str, pa.Array] = {}
    for column in schemas.current.fields:
        for path, field in column.walk():
            if field.id in known:
                fields[".".join(path)] = field_bounds(entries, field, schemas)
    if not fields:
        return {}
    return {"statistics": pa.StructArray.from_arrays(list(fields.values()), names=list(fields))}


def field_bounds(entries: Sequence[Entry], field: Field, schemas: SchemaVersions) -> pa.Array:
    """Bounds and null counts of one field: what each file says under its own schema."""
    nothing = FieldStatistics()
    stored = [entry.stats.get(field.id, nothing) for entry in entries]
    column = schemas.current.by_name[schemas.current.paths[field.id][0]].id
    versions = [schema_holding(entry.schema_id, entry.layout, column) for entry in entries]
    written = {schema_id: schemas[schema_id] for schema_id in set(versions)}
    types = {
        schema_id: schema.find(schema.paths[field.id]).type
        for schema_id, schema in written.items()
        if field.id in schema.paths
    }
    rows = [
        _values(statistics, types[schema_id]) if statistics is not nothing else (None, None)
        for schema_id, statistics in zip(versions, stored, strict=True)
    ]
    columns = {
        "min": _array([low for low, _ in rows], field.type),
        "max": _array([high for _, high in rows], field.type),
        "min_is_exact": pa.array([bool(item.flags & _MIN_EXACT) for item in stored], pa.bool_()),
        "max_is_exact": pa.array([bool(item.flags & _MAX_EXACT) for item in stored], pa.bool_()),
        "null_count": pa.array([statistics.null_count for statistics in stored], pa.int64()),
    }
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _values(
    statistics: FieldStatistics, dtype: pa.DataType
) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    known = statistics.bounds()
    return (None, None) if known is None else (known.min_value(dtype), known.max_value(dtype))


def _array(scalars: Sequence[pa.Scalar | None], dtype: pa.DataType) -> pa.Array:
    """Scalars, perhaps of a narrower type, as an array."""
    cast = [
        scalar if scalar is None or scalar.type.equals(dtype) else scalar.cast(dtype)
        for scalar in scalars
    ]
    return pa.array(cast, dtype)
