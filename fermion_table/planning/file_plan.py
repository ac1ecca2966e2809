"""How files are read for a query: planned from their schemas, before any is opened.

A file is read under its own names and types; what it lacks costs no request. The plan for it
depends on the schema it was written with and on which of its columns hold data, so files alike
share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fermion.predicate import Expression
from fermion.remote import TIMEOUT_S
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.column_file import fields_by_file
from fermion_table.planning.filters import TableFilter, conjunction, push_down
from fermion_table.planning.split import FileSplit
from fermion_table.schema.conversion import Conversion, filled_bytes_of, plan_reading
from fermion_table.schema.schema import Field, Path, field_to_arrow
from fermion_table.schema.selection import (
    BATCH_COLUMNS,
    ROW_ID,
    ROW_KIND,
    file_columns,
    select_paths,
)

BATCH_ROWS = 65_536
FILLED_BATCH_BYTES = 1024**3
"""Bytes of the columns of a batch that a file lacks: if they are wide, batches have fewer rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a query wants of every split. Picklable.

    Attributes
    ----------
    fields
        Fields to give back, pruned below structs.
    table_fields
        Top-level fields, whole, that `fields` and the filter come from.
    file_fields
        Of each schema that files were written with, by its id: the top-level fields with ids of
        `table_fields`.
    filter
        Rows to give back; None: all.
    metadata
        Of the schema given back.
    storage_options
        For `fermion.open`; a pickle holds them, credentials too, and no ``repr`` shows them.
    batch_rows
        Rows a batch, at most.
    timeout_s
        See `StorageAccess`.
    key
        Of a primary-key table: what sections are merged by.
    """

    fields: tuple[Field, ...]
    table_fields: tuple[Field, ...]
    file_fields: Mapping[int, tuple[Field, ...]]
    filter: TableFilter | None = None
    metadata: Mapping[bytes, bytes] | None = None
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    batch_rows: int = BATCH_ROWS
    timeout_s: float = TIMEOUT_S
    key: PrimaryKey | None = None

    def arrow_schema(self) -> pa.Schema:
        """The schema given back."""
        fields = [field_to_arrow(field, field_ids=False) for field in self.fields]
        return pa.schema(fields, metadata=dict(self.metadata) if self.metadata else None)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How column files of one kind are read.

    Attributes
    ----------
    place
        Among the column files of the split.
    columns, pushed
        As of a `FilePlan`.
    """

    place: int
    columns: list[str | Path]
    pushed: Expression | None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How files of one kind are read.

    Attributes
    ----------
    columns
        What their reader is asked for.
    pushed
        The filter that their reader applies.
    schema, conversions
        What its batches become.
    residual
        The filter that is applied then.
    final
        What becomes of that; None: it is what the query wants.
    row_id_place
        Where the ids of rows stand among the columns; None: they are not wanted.
    beside
        What the readers of column files are asked for. Their columns come after the others.
    filled_bytes
        Bytes of each row in columns that the file lacks.
    """

    columns: list[str | Path]
    pushed: Expression | None
    schema: pa.Schema
    conversions: list[Conversion]
    residual: Expression | None
    final: list[Conversion] | None
    row_id_place: int | None = None
    beside: tuple[ColumnPlan, ...] = ()
    filled_bytes: int = 0

    def batch_rows(self, wanted: int) -> int:
        """Rows of a batch, so that what the file lacks takes bounded memory."""
        return min(wanted, max(FILLED_BATCH_BYTES // max(self.filled_bytes, 1), 1))

    @property
    def needs_data_file(self) -> bool:
        """Whether the data file has to be opened."""
        return bool(self.columns) or self.pushed is not None

    @property
    def needs_file(self) -> bool:
        """Whether a file has to be opened at all."""
        return self.needs_data_file or bool(self.beside)

    @property
    def searches(self) -> bool:
        """Whether a reader applies a filter."""
        return self.pushed is not None or any(each.pushed is not None for each in self.beside)

    @property
    def unpushed(self) -> FilePlan:
        """The same for rows that readers' filters have selected already."""
        beside = tuple(replace(each, pushed=None) for each in self.beside if each.columns)
        return replace(self, pushed=None, beside=beside)


def plan_file(request: ReadRequest, schema: pa.Schema, split: FileSplit) -> FilePlan:
    """How a file, and what lies beside it, are read.

    Parameters
    ----------
    schema
        Of what comes back.
    split
        The file, or one like it.
    """
    written = _fields_written(request, split)
    sources = [split.with_data(fields) for fields in written]
    all_null = {field.id for fields in written for field in fields}
    all_null.difference_update(field.id for fields in sources for field in fields)
    if split.in_batches:
        sources[0] += BATCH_COLUMNS
    if split.retractions:
        sources[0].append(ROW_KIND)
    pushed: list[list[Expression]] = [[] for _ in sources]
    residual: list[Expression] = []
    for part in request.filter.parts if request.filter is not None else ():
        inside = (push_down(part, request.table_fields, fields) for fields in sources)
        found = next(((place, each) for place, each in enumerate(inside) if each is not None), None)
        if found is None:
            residual.append(part)
        else:
            pushed[found[0]].append(found[1])
    fields = request.fields
    for part in residual:
        fields = _with_paths(fields, part, request.table_fields)
    sources[0].append(ROW_ID)
    asked = [file_columns(fields, each) for each in sources]
    columns = [column for _, found_columns in asked for column in found_columns]
    if ROW_ID in columns:
        asked[0][0].remove(ROW_ID.name)
    paths = [each for each, _ in asked]
    filters = [conjunction(each) for each in pushed]
    beside = tuple(
        ColumnPlan(place - 1, paths[place], filters[place])
        for place in range(1, len(sources))
        if paths[place] or filters[place] is not None
    )
    arrow = [field_to_arrow(field, field_ids=False) for field in fields]
    same = fields == request.fields
    conversions = plan_reading(fields, columns, all_null=all_null)
    return FilePlan(
        columns=paths[0],
        pushed=filters[0],
        schema=schema if same else pa.schema(arrow),
        conversions=conversions,
        residual=conjunction(residual),
        final=None if same else plan_reading(request.fields, fields),
        row_id_place=columns.index(ROW_ID) if ROW_ID in columns else None,
        beside=beside,
        filled_bytes=filled_bytes_of(conversions),
    )


def _fields_written(request: ReadRequest, split: FileSplit) -> list[list[Field]]:
    """The fields that count of the data file, and of each column file."""
    layout = tuple((each.schema_id, each.fields or ()) for each in split.column_files)
    if not layout:
        return [list(request.file_fields[split.schema_id])]
    return fields_by_file(request.file_fields, split.schema_id, layout)


def _with_paths(
    fields: tuple[Field, ...], part: Expression, table_fields: tuple[Field, ...]
) -> tuple[Field, ...]:
    """Fields and what a part of a filter reads besides; a struct it reads from becomes whole."""
    fields_by_id = {field.id: field for field in fields}
    for path in sorted(part.columns()):
        (wanted,) = select_paths(table_fields, [path[:1]], where="filter")
        fields_by_id[wanted.id] = wanted
    return tuple(fields_by_id.values())
