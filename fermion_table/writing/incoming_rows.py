"""Rows as callers give them, made rows of a table: matched, cast, checked, cut into partitions.

A partition's values are kept in the manifest entries, as JSON (`value_codec`); directory names
only make them readable and are never parsed back. The partition columns stay in the data files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.arguments import text
from fermion.engine import InputFiles, record_batch_reader, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.progress import watched
from fermion_table.errors import SchemaMismatch
from fermion_table.merging.change_types import check_change_type, row_kinds
from fermion_table.schema import value_codec
from fermion_table.schema.conversion import (
    Conversion,
    convert_batch,
    find_null,
    plan_writing,
    required_places,
)
from fermion_table.schema.matching import matching
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.transforms import TransformKind, plain, text_of, transformed

if TYPE_CHECKING:
    from fermion_table.schema import blob_columns
else:  # few tables have blobs
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition.

    values: One a partition field, as JSON values: what `Entry.partition` holds.
    segments: Name and text of each, None for null: what `paths.data_path` takes.
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
    """The partition that all of some rows belong to."""
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
    # -0.0 and 0.0 are one partition
    encoded = plain(matching(column)).dictionary_encode(null_encoding="encode")
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


def with_options(data: Any, location: Any, storage_options: dict[str, Any] | None) -> Any:
    """Files on the storage of a table as their rows, read with its options; or the data.

    location: The table's. Files of other protocols are read without its options.
    Raises InvalidArgumentError, StorageError: As `fermion.engine.InputFiles`.
    """
    if not storage_options or not isinstance(data, str) or "://" not in data:
        return data
    is_same = data.partition("://")[0] == os.fspath(location).partition("://")[0]
    return InputFiles(data, storage_options).reader() if is_same else data


class IncomingRows:
    """Makes a table's rows of data.

    fills_defaults: Whether columns that the data lacks get their write default, not null.
    arrow: What the data becomes: the table's columns, blobs perhaps as references.
    """

    def __init__(
        self,
        schema: TableSchema,
        *,
        fills_defaults: bool = True,
        arrow: pa.Schema,
    ) -> None:
        self.arrow = arrow
        self._carries = any(pat.is_struct(arrow.field(name).type) for name in schema.blob_columns)
        self._schema = schema
        self._fills_defaults = fills_defaults
        self._required = required_places(schema.fields)
        self._plan: tuple[pa.Schema, Sequence[Conversion] | None] | None = None

    def reader(self, data: Any) -> pa.RecordBatchReader:
        """The data as record batches, of which there may be none; their schema is checked first.

        Raises InvalidArgumentError: No Arrow data.
        Raises SchemaMismatch: It does not fit the table's schema, field by field.
        """
        reader = record_batch_reader(data, schema=self._schema_for(data, self.arrow))
        self._take_schema(reader.schema)
        return reader

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the data as rows of the table; its schema may lack the table's metadata.

        Raises SchemaMismatch: A value does not fit its column, or is null and must not be.
        """
        plan = self._take_schema(batch.schema)
        if self._carries:
            batch = blob_columns.carrying(self._schema, batch, self.arrow)
        converted = batch if plan is None else convert_batch(plan, batch, self.arrow)
        for place in self._required:
            found = find_null(self.arrow.field(place), converted.column(place))
            if found is not None:
                raise SchemaMismatch(f"column {found!r} is NOT NULL, but the data holds nulls")
        return converted

    def changes(
        self, data: Any, change_type: str | None
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray | None]]:
        """The data as rows of the table with their kinds: ``int8``, shape (n,), or None.

        change_type: The column of the data that names the kinds; it is not part of the rows. None:
            all rows are insertions.
        Raises InvalidArgumentError: The table has a column of that name, the data has none, or
            several; or it holds something else.
        Raises SchemaMismatch: See `reader` and `convert`.
        """
        if change_type is None:
            for batch in watched(self.reader(data), "writing rows", data):
                yield self.convert(batch), None
            return
        reader, place = self._reader_with(data, change_type)
        first_row = 0
        for batch in watched(reader, "writing rows", data):
            kinds = row_kinds(change_type, batch.column(place), first_row=first_row)
            first_row += batch.num_rows
            yield self.convert(batch.remove_column(place)), kinds

    def _reader_with(self, data: Any, change_type: str) -> tuple[pa.RecordBatchReader, int]:
        """Data with a column of change types, and where that is."""
        text(change_type, "change_type")
        if change_type in self._schema.by_name:
            raise InvalidArgumentError(
                f"change_type={change_type!r}: expected a column beside those of the table, which "
                "has one of this name"
            )
        arrow = self.arrow.append(pa.field(change_type, pa.string()))
        reader = record_batch_reader(data, schema=self._schema_for(data, arrow))
        return reader, self._check_changes(reader.schema, change_type)

    def _check_changes(self, data: pa.Schema, change_type: str) -> int:
        """Check the columns of data with change types; where those are comes back."""
        places = data.get_all_field_indices(change_type)
        if len(places) != 1:
            raise InvalidArgumentError(
                f"change_type={change_type!r}: expected one column of this name in the data, found "
                f"{len(places)} among {data.names}"
            )
        check_change_type(change_type, data.field(places[0]).type)
        self._take_schema(data.remove(places[0]))
        return int(places[0])

    def _schema_for(self, data: Any, arrow: pa.Schema) -> pa.Schema | None:
        """What a data set without types of its own (a dict, an empty iterable) is read as."""
        untyped = isinstance(data, dict) or not hasattr(data, "__arrow_c_stream__")
        known = isinstance(data, pa.RecordBatch | pa.RecordBatchReader)
        if isinstance(data, dict):
            fields = [item for item in arrow if item.name in data]
            return pa.schema(fields) if len(fields) == len(data) else None  # refused by name later
        return arrow if untyped and not known else None

    def _take_schema(self, data: pa.Schema) -> Sequence[Conversion] | None:
        """How data of a schema is converted; refuse what does not fit the table's.

        None: it has the table's columns as they are, so that no column is looked at; or some of
        them with references to blobs.
        """
        if self._plan is None or not self._plan[0].equals(data):
            if self._carries or data.equals(self.arrow):
                self._plan = data, None
                return None
            plan = plan_writing(self._schema, data)
            if not self._fills_defaults:
                plan = [_without_default(each) for each in plan]
            self._plan = data, plan
        return self._plan[1]


def _without_default(conversion: Conversion) -> Conversion:
    """The same, null instead of a default where the field can be null."""
    if conversion.source is not None or not conversion.field.nullable:
        return conversion
    return replace(conversion, constant=None)
