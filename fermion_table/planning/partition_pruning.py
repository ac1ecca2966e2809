"""Which partitions and manifests may hold rows that a filter selects, by partition values alone.

A partition value is a function of a column (`transforms`), so it bounds the column: a day bounds
its timestamps, a bucket says which literals can't be there. A filter on the column is all that a
query needs; nobody names the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import ChunkFlag
from fermion.predicate import Bounds, Expression, bound_key, evaluate
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.manifest import ManifestReference
from fermion_table.planning.filters import (
    TableFilter,
    Unit,
    all_null,
    bounds_of,
    units_that_may_match,
    units_that_must_match,
)
from fermion_table.schema import value_codec
from fermion_table.schema.schema import Field, PartitionField, Path, TableSchema
from fermion_table.schema.transforms import bucket_of, source_range
from fermion_table.schema.widening import is_binary

_INEXACT_FLAGS = int(ChunkFlag.HAS_MINMAX | ChunkFlag.NAN_KNOWN)

Partition = tuple[Any, ...]


def partitions_that_may_match(
    partitions: Sequence[Partition], schema: TableSchema, chosen: TableFilter
) -> np.ndarray:
    """Which partitions may hold rows of a filter: ``bool``, shape (p,).

    partitions: Partition values, as entries have them.
    schema: The table's, which the filter is bound to.
    """
    kept = np.ones(len(partitions), bool)
    for part in chosen.parts:
        selected = partitions_selected(part, partitions, schema)
        if selected is not None:
            kept &= selected
    known: dict[Path, list[Unit]] = {}
    for place, partition_field in enumerate(schema.partition_by):
        column = schema.by_id[partition_field.source_id]
        if (column.name,) not in chosen.paths:
            continue
        values = [partition[place] for partition in partitions]
        if partition_field.transform == "bucket":
            kept &= _by_bucket(values, partition_field, column, chosen)
        elif partition_field.transform != "identity":
            units = [_unit(partition_field, column, value, value) for value in values]
            known[column.name,] = _narrowed(known.get((column.name,)), units)
    if known:
        units = [Unit(1)] * len(partitions)
        kept &= units_that_may_match(chosen.expression, _bounds(known, schema), units)
    return kept


def partitions_replaced(
    partitions: Sequence[Partition], schema: TableSchema, chosen: TableFilter
) -> frozenset[Partition] | None:
    """The partitions all of whose rows a filter selects; it selects no rows of others.

    Of a partition only the values count that its rows may have, whatever rows there are: a filter
    from the begin of a month to the end of another one selects whole partitions of months.

    None for a filter that may select some rows of a partition, or that reads anything but columns
    that the table is partitioned by.
    """
    names = {(schema.by_id[each.source_id].name,) for each in schema.partition_by}
    if not all(part.columns() and part.columns() <= names for part in chosen.parts):
        return None
    whole, some = np.ones(len(partitions), bool), np.ones(len(partitions), bool)
    units, known = [Unit(1)] * len(partitions), _bounds(_units(partitions, schema), schema)
    for part in chosen.parts:
        selected = partitions_selected(part, partitions, schema)
        if selected is not None:
            whole, some = whole & selected, some & selected
            continue
        whole &= units_that_must_match(part, known, units)
        some &= units_that_may_match(part, known, units)
    if (some & ~whole).any():
        return None
    return frozenset(each for each, is_whole in zip(partitions, whole, strict=True) if is_whole)


def _units(partitions: Sequence[Partition], schema: TableSchema) -> dict[Path, list[Unit]]:
    """What partition values say of a row of each partition, by column."""
    known: dict[Path, list[Unit]] = {}
    for place, partition_field in enumerate(schema.partition_by):
        column = schema.by_id[partition_field.source_id]
        units = [_unit(partition_field, column, each[place], each[place]) for each in partitions]
        known[column.name,] = _narrowed(known.get((column.name,)), units)
    return known


def manifest_bounds(
    references: Sequence[ManifestReference], schema: TableSchema, chosen: TableFilter
) -> dict[Path, Bounds]:
    """Bounds of the partitioned columns that a filter reads; a manifest with n rows is n rows."""
    known: dict[Path, list[Unit]] = {}
    for place, partition_field in enumerate(schema.partition_by):
        column = schema.by_id[partition_field.source_id]
        if (column.name,) in chosen.paths:
            units = [
                _manifest_unit(reference, place, partition_field, column)
                for reference in references
            ]
            known[column.name,] = _narrowed(known.get((column.name,)), units)
    return _bounds(known, schema)


def partitions_selected(
    part: Expression, partitions: Sequence[Partition], schema: TableSchema
) -> np.ndarray | None:
    """Where a filter is true for every row of a partition: ``bool``, shape (p,).

    Returns: None for a filter that reads anything but columns whose values partitions are made of.
    """
    columns = [
        (place, schema.by_id[partition_field.source_id])
        for place, partition_field in enumerate(schema.partition_by)
        if partition_field.transform == "identity"
    ]
    if not part.columns() or not part.columns() <= {(column.name,) for _, column in columns}:
        return None
    short = next(
        (partition for partition in partitions if len(partition) != len(schema.partition_by)), None
    )
    if short is not None:
        expected = f"{len(schema.partition_by)} partition values of a file"
        raise CorruptMetadata("an entry", expected, f"{len(short)}")
    arrays = [
        pa.array(
            [value_codec.decode_value(values[place], column.type) for values in partitions],
            column.type,
        )
        for place, column in columns
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for _, column in columns])
    return np.asarray(evaluate(part, batch).fill_null(False).to_pylist(), bool)


def _by_bucket(
    values: Sequence[Any], partition_field: PartitionField, column: Field, chosen: TableFilter
) -> np.ndarray:
    """By asking, for each bucket there is, whether the filter's literals fall into it."""
    path, dtype = (column.name,), column.type
    may_match: dict[Any, bool] = {}
    for value in set(values):
        unit = all_null(1) if value is None else Unit(1, nulls=0)

        def may_contain(raws: Sequence[Any], wanted: Any = value) -> np.ndarray:
            count = partition_field.parameter
            return np.array([bucket_of(raw, dtype, count) == wanted for raw in raws], bool)

        bounds = replace(bounds_of([unit], dtype), may_contain=may_contain)
        may_match[value] = bool(units_that_may_match(chosen.expression, {path: bounds}, [unit])[0])
    return np.array([may_match[value] for value in values], bool)


def _bounds(known: dict[Path, list[Unit]], schema: TableSchema) -> dict[Path, Bounds]:
    return {path: bounds_of(units, schema.by_name[path[0]].type) for path, units in known.items()}


def _manifest_unit(
    reference: ManifestReference, place: int, partition_field: PartitionField, column: Field
) -> Unit:
    span = reference.partition
    if place >= len(span.nulls) or reference.rows == 0:
        return Unit(reference.rows)
    low, high = span.min[place], span.max[place]
    if low is None or high is None:
        return Unit(reference.rows)
    unit = _unit(partition_field, column, low, high)
    return replace(unit, rows=reference.rows, nulls=-1 if span.nulls[place] else 0)


def _unit(partition_field: PartitionField, column: Field, low: Any, high: Any) -> Unit:
    """What partition values from one to another say of a row of the column."""
    if low is None or high is None:
        return all_null(1)
    dtype = column.type
    span = source_range(partition_field.transform, partition_field.parameter, dtype, low, high)
    if span is None or pat.is_floating(dtype):  # NaN is in no bounds
        return Unit(1, nulls=0)
    first, last = _key(span[0], dtype, is_max=False), _key(span[1], dtype, is_max=True)
    if first is None or last is None:
        return Unit(1, nulls=0)
    return Unit(1, first, last, 0, _INEXACT_FLAGS)


def _key(value: Any, dtype: pa.DataType, *, is_max: bool) -> int | None:
    """The key of a JSON value, or of the longest strings that begin with it."""
    if isinstance(value, str):
        binary = is_binary(dtype) or pat.is_fixed_size_binary(dtype)
        value = bytes.fromhex(value) if binary else value.encode()
    return bound_key(value, dtype, is_max=is_max)


def _narrowed(have: list[Unit] | None, more: list[Unit]) -> list[Unit]:
    """What two partition fields of one column say together."""
    if have is None:
        return more
    return [
        one
        if not other.flags
        else other
        if not one.flags
        else replace(one, min=max(one.min, other.min), max=min(one.max, other.max))
        for one, other in zip(have, more, strict=True)
    ]
