"""Rows → partitions: which rows belong together, and what their partition is called.

A partition's values are kept in the manifest entries, as JSON (`value_codec`); directory names
only make them readable and are never parsed back. The partition columns stay in the data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import take_batch_rows
from fermion_table.schema import value_codec
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.transforms import TransformKind, plain, text_of, transformed


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition.

    Attributes
    ----------
    values
        One a partition field, as JSON values: what `Entry.partition` holds.
    segments
        Name and text of each, None for null: what `paths.data_path` takes.
    """

    values: tuple[Any, ...] = ()
    segments: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One partition field: its name, which column of a batch it is made of, and how."""

    name: str
    ordinal: int
    transform: TransformKind = "identity"
    parameter: int = 0

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The partition value of each row."""
        return transformed(self.transform, self.parameter, batch.column(self.ordinal))

    def text(self, value: pa.Scalar) -> str | None:
        """A partition value for people; None for null."""
        if self.transform in ("identity", "truncate") or not value.is_valid:
            return partition_text(value)
        return text_of(self.transform, value.as_py())


UNPARTITIONED = Partition()


def partition_columns(schema: TableSchema) -> list[PartitionColumn]:
    """The partition fields of a table, over batches of all its columns."""
    ordinals = {field.id: ordinal for ordinal, field in enumerate(schema.fields)}
    return [
        PartitionColumn(each.name, ordinals[each.source_id], each.transform, each.parameter)
        for each in schema.partition_by
    ]


def split_batch(
    batch: pa.RecordBatch, columns: Sequence[PartitionColumn]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition in their order; partitions in order of first appearance.

    A batch that lies in one partition comes back as it is, others as copies.
    """
    if not batch.num_rows:
        return
    if not columns:
        yield UNPARTITIONED, batch
        return
    values = [column.values(batch) for column in columns]
    groups = _groups(values)
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    runs = sorted(np.split(order, cuts), key=lambda rows: rows[0])
    for rows in runs:
        part = batch if len(runs) == 1 else take_batch_rows(batch, rows)
        yield _partition([each[int(rows[0])] for each in values], columns), part


def partition_of(rows: pa.RecordBatch, schema: TableSchema, values: tuple[Any, ...]) -> Partition:
    """The partition that all of some rows belong to.

    Parameters
    ----------
    values
        Those of its entries.
    """
    ((partition, _),) = split_batch(rows.slice(0, 1), partition_columns(schema))
    return replace(partition, values=values)


def _groups(columns: Sequence[pa.Array]) -> np.ndarray:
    """A number for each row, equal where all columns are, shape (n,)."""
    groups = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = _codes(column)
        _, groups = np.unique(groups * (int(codes.max()) + 1) + codes, return_inverse=True)
        groups = groups.astype(np.int64)
    return groups


def _codes(column: pa.Array) -> np.ndarray:
    if pat.is_floating(column.type):  # -0.0 and 0.0 are one partition
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        column = pa.array(numbers, mask=nulls)
    encoded = plain(column).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64)


def _partition(scalars: Sequence[pa.Scalar], columns: Sequence[PartitionColumn]) -> Partition:
    segments = tuple(
        (column.name, column.text(scalar)) for column, scalar in zip(columns, scalars, strict=True)
    )
    return Partition(tuple(map(_value, scalars)), segments)


def _value(scalar: pa.Scalar) -> Any:
    value = value_codec.encode_value(scalar)
    return 0.0 if value == 0 and isinstance(value, float) else value


def partition_text(scalar: pa.Scalar) -> str | None:
    """A partition value for people; None for null."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.BooleanScalar):
        return str(scalar.as_py()).lower()
    if pat.is_floating(scalar.type):
        return repr(float(scalar.as_py()) + 0.0)
    if pat.is_decimal(scalar.type):
        return str(scalar.as_py())
    if pat.is_temporal(scalar.type) and not pat.is_duration(scalar.type):
        return str(scalar.cast(pa.string()))
    return str(value_codec.encode_value(scalar))
