"""Columns of blobs as a query wants them: handles, or references, in place of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fermion.blobs import (
    REFERENCE,
    as_handles,
    as_references,
    handle_type,
    is_blob,
    stored_field,
)
from fermion.engine import strip_wrappers
from fermion.errors import InvalidArgumentError
from fermion.options import BlobForm
from fermion.predicate import Expression, bind, transform
from fermion_table.schema.conversion import Conversion, convert_batch, plan_writing
from fermion_table.schema.schema import TableSchema


def wanted_field(field: pa.Field, form: BlobForm, storage_options: dict[str, Any] | None) -> Any:
    """What is given back of a field: a `pyarrow.Field`."""
    if not is_blob(field):
        return field
    if form == "references":
        return stored_field(field, "a table")
    return field.with_type(handle_type(storage_options))


def wanted_conversions(
    conversions: Sequence[Conversion], fields: Iterable[pa.Field]
) -> list[Conversion]:
    """The same to wanted fields, which files give for any binary type.

    Raises InvalidArgumentError: A file lacks a column that has a default.
    """
    made = []
    for each, field in zip(conversions, fields, strict=True):
        if is_blob(each.field):
            if each.constant is not None:
                raise InvalidArgumentError(f"column {field.name!r} of blobs: expected no default")
            each = replace(each, field=field, cast=False)
        made.append(each)
    return made


def wanted_rows(
    conversions: Sequence[Conversion],
    schema: pa.Schema,
    form: BlobForm,
    storage_options: dict[str, Any] | None,
) -> tuple[list[Conversion], pa.Schema]:
    """Conversions of rows whose blobs have a form already, and the schema that they lead to.

    Raises InvalidArgumentError: See `wanted_conversions`.
    """
    fields = [wanted_field(each, form, storage_options) for each in schema]
    return wanted_conversions(conversions, fields), pa.schema(fields, schema.metadata)


def schema_of_references(schema: pa.Schema) -> pa.Schema:
    """A table's columns with references in place of blobs."""
    fields = [stored_field(each, "a table") if is_blob(each) else each for each in schema]
    return pa.schema(fields, metadata=schema.metadata)


def carrying(schema: TableSchema, rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Rows in the columns of a table, their blobs as references where that is wanted.

    rows: Some columns of the table; their blobs may be values or references.
    Raises SchemaMismatch: See `plan_writing`.
    """
    if rows.schema.equals(wanted):
        return referring(rows, wanted)
    plain = schema.to_arrow(field_ids=False)
    carried = {
        field.name: rows.column(field.name)
        for field in rows.schema
        if field.name in schema.blob_columns and field.type.equals(REFERENCE)
    }
    arrays, fields = rows.columns, list(rows.schema)
    for place, field in enumerate(fields):
        if field.name in carried:  # nulls stand for them
            fields[place] = plain.field(field.name)
            arrays[place] = pa.nulls(rows.num_rows, fields[place].type)
    given = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    fitting = convert_batch(plan_writing(schema, given.schema), given, plain)
    columns = [
        carried.get(name, column) for name, column in zip(plain.names, fitting.columns, strict=True)
    ]
    return referring(pa.RecordBatch.from_arrays(columns, names=plain.names), wanted)


def referring(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Rows of a table with references that hold their blobs.

    rows: All columns of the table, perhaps others after them.
    wanted: The table's columns, with references.
    """
    arrays = [
        as_references(column) if field.type.equals(REFERENCE) else column
        for field, column in zip(wanted, rows.columns[: len(wanted)], strict=True)
    ]
    others = rows.columns[len(wanted) :]
    fields = [*wanted, *list(rows.schema)[len(wanted) :]]
    return pa.RecordBatch.from_arrays([*arrays, *others], schema=pa.schema(fields, wanted.metadata))


def with_handles(conversions: Sequence[Conversion], batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a file with handles also where the file has plain values."""
    arrays = batch.columns
    for each in conversions:
        if each.source is not None and is_blob(each.field):
            arrays[each.source] = as_handles(arrays[each.source])
    return pa.RecordBatch.from_arrays(arrays, names=[""] * len(arrays))


def by_sizes(expression: Expression, schema: pa.Schema) -> Expression:
    """A filter of rows, which takes sizes for lengths of blobs where these have handles.

    schema: Of the rows.
    Raises InvalidArgumentError: It compares blobs.
    """
    from fermion.engine import with_sizes  # few filters look at blobs

    def is_blob(name: str) -> bool:
        return bool(strip_wrappers(schema.field(name).type).equals(REFERENCE))

    def leaf(node: Expression) -> Expression:
        sized = with_sizes(node, is_blob, "a scan with blobs='handles'")
        return node if sized is node else bind(sized, schema)

    return transform(expression, leaf)
