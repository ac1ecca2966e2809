"""Rows as callers give them, made rows of a table: matched by name, cast, and checked for nulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fermion.arguments import text
from fermion.engine import record_batch_reader
from fermion.errors import InvalidArgumentError
from fermion_table.errors import SchemaMismatch
from fermion_table.merging.change_types import check_change_type, row_kinds
from fermion_table.schema.conversion import (
    Conversion,
    convert_batch,
    find_null,
    plan_writing,
    required_places,
)
from fermion_table.schema.schema import TableSchema


class IncomingRows:
    """Makes a table's rows of data.

    Parameters
    ----------
    schema
        Of the table.
    fills_defaults
        Whether columns that the data lacks get their write default, not null.

    Attributes
    ----------
    arrow
        The columns of the rows made.
    """

    def __init__(self, schema: TableSchema, *, fills_defaults: bool = True) -> None:
        self.arrow = schema.to_arrow()
        self._schema = schema
        self._fills_defaults = fills_defaults
        self._required = required_places(schema.fields)
        self._plan: tuple[pa.Schema, Sequence[Conversion] | None] | None = None

    def reader(self, data: Any) -> pa.RecordBatchReader:
        """The data as record batches, of which there may be none; their schema is checked first.

        Raises
        ------
        InvalidArgumentError
            No Arrow data.
        SchemaMismatch
            It does not fit the table's schema, field by field.
        """
        reader = record_batch_reader(data, schema=self._schema_for(data, self.arrow))
        self._take_schema(reader.schema)
        return reader

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the data as rows of the table; its schema may lack the table's metadata.

        Raises
        ------
        SchemaMismatch
            A value does not fit its column, or is null and must not be.
        """
        plan = self._take_schema(batch.schema)
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

        Parameters
        ----------
        change_type
            The column of the data that names the kinds; it is not part of the rows. None: all
            rows are insertions.

        Raises
        ------
        InvalidArgumentError
            The table has a column of that name, the data has none, or several; or it holds
            something else.
        SchemaMismatch
            See `reader` and `convert`.
        """
        if change_type is None:
            for batch in self.reader(data):
                yield self.convert(batch), None
            return
        reader, place = self._reader_with(data, change_type)
        first_row = 0
        for batch in reader:
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

        None: it has the table's columns as they are, so that no column is looked at.
        """
        if self._plan is None or not self._plan[0].equals(data):
            if data.equals(self.arrow):
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
