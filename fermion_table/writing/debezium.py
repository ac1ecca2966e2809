"""Changes as Debezium gives them, made rows of a table with change types: `Table.upsert`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion.arguments import text
from fermion.engine import record_batch_reader, take_table_rows
from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.key_groups import DELETE, INSERT, UPDATE_AFTER
from fermion_table.merging.change_types import CHANGE_NAMES, check_change_type, row_kinds
from fermion_table.schema.repeated import nulls, zeros
from fermion_table.schema.schema import KIND_COLUMN, TableSchema

_OPERATION = "op"
"""The column that says what each change is, where the caller names none."""
_KINDS = {"c": INSERT, "r": INSERT, "u": UPDATE_AFTER, "d": DELETE}
"""Row kinds by operation: create, read (of a snapshot), update, delete."""
_BEFORE, _AFTER, _PAYLOAD = "before", "after", "payload"


def changes_in(
    data: Any, change_type: str | None, format: str | None, schema: TableSchema
) -> tuple[Any, str | None]:
    """Data whose change types are those of tables, and the column that holds them.

    Parameters
    ----------
    data, change_type, format
        See `Table.upsert`.
    schema
        Of the table.

    Raises
    ------
    TypeError, InvalidArgumentError
        See `debezium_changes`; or an unknown format.
    """
    if format is None:
        return data, change_type
    if format != "debezium":
        raise InvalidArgumentError(f"format={format!r}: expected None or 'debezium'")
    operation = text(change_type or _OPERATION, "change_type")
    return debezium_changes(data, operation, schema), KIND_COLUMN


def debezium_changes(data: Any, operation: str, schema: TableSchema) -> pa.RecordBatchReader:
    """Changes of Debezium as rows with a column `KIND_COLUMN` of change types, in their order.

    A change is an envelope: structs ``before`` and ``after`` beside the operation, or all of them
    in a struct ``payload``. Or it is flat: the columns of the row beside the operation. Rows
    without any value are tombstones, and left out.

    data: What `record_batch_reader` takes.
    operation: The column of operations: ``c``, ``r``, ``u`` or ``d``.
    schema: Of the table: columns of an envelope that it has (``ts_ms``) become columns of the rows.
        What a deletion lacks of its other columns that must not be null is 0, empty or false.
    Raises InvalidArgumentError: No such column, another operation, or a change without the row that
        it needs: names the first. Those of rows are raised when they are read.
    """
    reader = record_batch_reader(data)
    schema_read = _rows(reader.schema.empty_table(), operation, schema, 0).schema

    def batches() -> Iterator[pa.RecordBatch]:
        first_row = 0
        for batch in reader:
            rows = pa.Table.from_batches([batch])
            yield from _rows(rows, operation, schema, first_row).to_batches()
            first_row += batch.num_rows

    return pa.RecordBatchReader.from_batches(schema_read, batches())


def _rows(changes: pa.Table, operation: str, schema: TableSchema, first_row: int) -> pa.Table:
    """The rows of some changes, with a column of change types."""
    if operation not in changes.column_names:
        payload = _fields_of(changes, _PAYLOAD)
        changes = changes if payload is None else payload
    if changes.column_names.count(operation) != 1:
        raise InvalidArgumentError(
            f"change_type={operation!r}: expected one column of this name in changes of Debezium, "
            f"found {changes.column_names}"
        )
    operations = changes[operation].combine_chunks()
    check_change_type(operation, operations.type)
    is_envelope = not {_BEFORE, _AFTER}.isdisjoint(changes.column_names) and not (
        {_BEFORE, _AFTER} & schema.by_name.keys()
    )
    names = {_BEFORE, _AFTER} & set(changes.column_names) if is_envelope else changes.column_names
    is_tombstone = reduce(pc.and_, (pc.is_null(changes[name]) for name in {operation, *names}))
    is_tombstone = is_tombstone.to_numpy().astype(bool)
    known = pc.if_else(pa.array(is_tombstone), "c", operations.cast(pa.string()))
    kinds = row_kinds(operation, known, first_row=first_row, types=_KINDS)
    if is_envelope:
        rows = _images(changes, kinds, is_tombstone, first_row)
        for name in changes.column_names:
            if name in schema.by_name and name not in {*rows.column_names, operation}:
                rows = rows.append_column(name, changes[name])
    else:
        rows = changes.drop_columns([operation])
    rows = _without_nulls(rows, kinds, schema)
    types = pa.array(np.array(CHANGE_NAMES, object)[kinds], pa.string())
    return rows.append_column(KIND_COLUMN, types).filter(pa.array(~is_tombstone))


def _images(
    changes: pa.Table, kinds: np.ndarray, is_tombstone: np.ndarray, first_row: int
) -> pa.Table:
    """What each change says of its row: of a deletion before it, of the others after it."""
    deleted = kinds == DELETE
    for name, needed in ((_BEFORE, deleted), (_AFTER, ~deleted & ~is_tombstone)):
        lacks = needed
        if name in changes.column_names:
            lacks = needed & changes[name].is_null().to_numpy()
        if lacks.any():
            kind = "a deletion" if name == _BEFORE else "a change that is no deletion"
            raise InvalidArgumentError(
                f"row {first_row + int(lacks.argmax()):,} of the changes of Debezium: expected a "
                f"value of {name!r} in {kind}, found null"
            )
    count = len(kinds)
    images = [_fields_of(changes, name) for name in (_AFTER, _BEFORE)]
    parts = [image for image in images if image is not None]
    if not parts:
        raise InvalidArgumentError(
            f"data: expected structs 'before' or 'after', found {changes.schema.names}"
        )
    if len(parts) == 1:
        return parts[0]
    try:
        both = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise InvalidArgumentError(f"data: columns 'after' and 'before': {error}") from error
    return take_table_rows(both, np.arange(count) + np.where(deleted, count, 0))


def _fields_of(changes: pa.Table, name: str) -> pa.Table | None:
    """The fields of a column of structs as columns; None if there are none."""
    if name not in changes.column_names:
        return None
    column = changes[name].combine_chunks()
    if not pat.is_struct(column.type):
        is_bare = pat.is_null(column.type) or pat.is_string(column.type)
        if is_bare and column.null_count == len(column):  # as readers of JSON infer it
            return None
        raise InvalidArgumentError(
            f"column {name!r} of the changes of Debezium: expected structs, found {column.type}"
        )
    return pa.Table.from_arrays(column.flatten(), names=[field.name for field in column.type])


def _without_nulls(rows: pa.Table, kinds: np.ndarray, schema: TableSchema) -> pa.Table:
    """Rows whose deletions have no nulls in columns that must not be null, but the key's."""
    deleted, count = kinds == DELETE, rows.num_rows
    for field in schema.fields:
        place = rows.schema.get_field_index(field.name)
        is_lacking = place < 0 or pat.is_null(rows.schema.field(place).type)
        has_default = is_lacking and field.stored_write_default is not None
        if field.nullable or has_default or field.id in schema.primary_key:
            continue
        column = pa.chunked_array([nulls(field.type, count)]) if is_lacking else rows.column(place)
        lacks = deleted & column.is_null().to_numpy()
        if not lacks.any() and not is_lacking:
            continue
        both = pa.table([pa.chunked_array([*column.chunks, zeros(column.type, 1)])], [field.name])
        filled = take_table_rows(both, np.where(lacks, count, np.arange(count))).column(0)
        if place < 0:
            rows = rows.append_column(field.name, filled)
        else:
            rows = rows.set_column(place, field.name, filled)
    return rows
