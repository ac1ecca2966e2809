"""Columns of whole files set by an update, in column files: the other columns stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fermion_table.errors import ColumnFunctionError, SchemaMismatch
from fermion_table.metadata.manifest import COLUMN_FILES_LIMIT, Entry
from fermion_table.operations.assignments import Assignment, evaluated, fields_read
from fermion_table.operations.column_task import ColumnTask
from fermion_table.operations.draft import Draft, Matched
from fermion_table.schema.conversion import convert_batch, find_null, plan_writing
from fermion_table.writing.column_files import placed, schema_of_columns

COLUMNS_PER_CHANGED = 4
"""A column file is written where the table has at least so many columns for each one that is set:
otherwise rows that are written again are the smaller cost, as reading opens no second file."""


def is_set_beside(draft: Draft, matched: Matched, assignments: Mapping[str, Assignment]) -> bool:
    """Whether the columns of a file are set in a column file."""
    schema, entry = draft.schema, matched.entry
    if not matched.is_whole or len(assignments) * COLUMNS_PER_CHANGED > len(schema.fields):
        return False
    if draft.key is not None or draft.new_schema is not None or entry.file in draft.deleted:
        return False
    if entry.added_snapshot is None or len(entry.column_files) >= COLUMN_FILES_LIMIT:
        return False
    fields = [schema.by_name[name] for name in assignments]
    places = {each.source_id for each in schema.partition_by}.union(schema.sort_by)
    if any(each.id in places for field in fields for _, each in field.walk()):
        return False
    return entry.deletion_vector is None or all(field.nullable for field in fields)


def set_beside(draft: Draft, entry: Entry, assignments: Mapping[str, Assignment]) -> None:
    """Set columns of all rows of a file, in a column file beside it.

    Raises InvalidArgumentError, SchemaMismatch: What the values are wrong with; also what a
        function raises.
    """
    schema = draft.schema
    columns = schema_of_columns(schema, list(assignments))
    arrow = columns.to_arrow(field_ids=False)

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            evaluated(value, batch, schema.by_name[name]) for name, value in assignments.items()
        ]
        given = pa.RecordBatch.from_arrays(arrays, names=list(assignments))
        fitting = convert_batch(plan_writing(columns, given.schema), given, arrow)
        for field, array in zip(arrow, fitting.columns, strict=True):
            where = find_null(field, array)
            if where is not None:
                raise SchemaMismatch(
                    f"{draft.store.location}: update: column {where!r} is NOT NULL, and a value "
                    "is null"
                )
        return fitting

    task = ColumnTask(
        store=draft.store,
        function=changed,
        request=draft.column_reader([entry], fields_read(schema, assignments)).request,
        columns=arrow,
        written=columns,
        action="update",
    )
    try:
        made = task.compute(entry, owned=draft.written).made
    except ColumnFunctionError as error:
        raise error.__cause__ or error from None
    draft.set_columns(entry, placed(entry, made, columns, schema, draft.schemas))
