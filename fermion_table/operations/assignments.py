"""What an update sets: columns to values, to other columns, or to what is computed from a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fermion.engine import copied_array, one_batch, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.predicate import Column, pyarrow_columns
from fermion_table.operations.whole_tables import whole_table
from fermion_table.schema.conversion import convert_batch, plan_writing
from fermion_table.schema.repeated import nulls, repeat
from fermion_table.schema.schema import Field, Path, TableSchema

Assignment = Any
"""A value (None is null), `fermion.col`, a ``pyarrow.compute.Expression``, or a function from a
record batch to an array."""


def check_assignments(assignments: Mapping[str, Assignment], schema: TableSchema) -> None:
    """Refuse columns that a table lacks, and no assignment at all.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
    """
    if not assignments:
        raise InvalidArgumentError("update: expected a column to set")
    for name, value in assignments.items():
        schema.find((name,), where="update")
        if isinstance(value, Column):
            schema.find(value.path, where="update")


def assigned(
    batch: pa.RecordBatch, assignments: Mapping[str, Assignment], schema: TableSchema
) -> pa.RecordBatch:
    """Rows with some columns set; every expression sees the rows as they were.

    Parameters
    ----------
    batch
        All columns of the table in their order, perhaps others after them.

    Raises
    ------
    SchemaMismatch
        A value does not fit its column.
    """
    places = {name: place for place, name in enumerate(schema.names)}
    rows, others = batch.select(range(len(places))), range(len(places), batch.num_columns)
    arrays, fields = list(rows.columns), list(rows.schema)
    for name, value in assignments.items():
        array = evaluated(value, batch, schema.by_name[name])
        place = places[name]
        arrays[place], fields[place] = array, pa.field(name, array.type)
    changed = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    conversions = plan_writing(schema, changed.schema)
    fitting = convert_batch(conversions, changed, schema.to_arrow(field_ids=False))
    return pa.RecordBatch.from_arrays(
        [*fitting.columns, *(batch.column(place) for place in others)], schema=batch.schema
    )


def overlaid(batch: pa.RecordBatch, changed: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    """A batch with rows replaced.

    Parameters
    ----------
    changed
        The new rows, of the same schema.
    mask
        ``bool``, shape (num_rows,): the places of the new rows, in their order.
    """
    order = np.arange(batch.num_rows, dtype=np.int64)
    order[mask] = batch.num_rows + np.arange(changed.num_rows)
    changed = pa.RecordBatch.from_arrays(changed.columns, schema=batch.schema)
    return take_batch_rows(one_batch([batch, changed]), order)


def evaluated(
    value: Assignment, batch: pa.RecordBatch, field: Field, *, where: str = "update"
) -> pa.Array:
    """What a column is set to, row by row; not yet of the column's type.

    Parameters
    ----------
    batch
        The rows that expressions and functions see.
    field
        The column.
    where
        What sets it, for messages.

    Raises
    ------
    InvalidArgumentError
        An expression fails, a value is none of the column's, or a function gives too few or too
        many values.
    """
    shown = f"{where}: column {field.name!r}"
    if isinstance(value, Column):
        return _at(value.path, batch)
    if isinstance(value, pc.Expression):
        return _computed(value, batch, field.name, shown)
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return _called(value, batch, shown)
    return _repeated(value, batch.num_rows, field, shown)


def _at(path: Path, batch: pa.RecordBatch) -> pa.Array:
    """The values at a path; null where a struct above is."""
    found = batch.column(path[0])
    for name in path[1:]:
        if found.null_count or not isinstance(found, pa.StructArray):
            found = pc.struct_field(found, [name])  # takes a look at all fields of the struct
        else:
            found = found.field(name)
    return found


def _called(function: Callable[..., Any], batch: pa.RecordBatch, shown: str) -> pa.Array:
    found = function(batch)
    is_chunked = isinstance(found, pa.ChunkedArray)
    array = whole_table(pa.table([found], [""]), shown)[0] if is_chunked else pa.array(found)
    if len(array) != batch.num_rows:
        raise InvalidArgumentError(f"{shown}: found {len(array)} values for {batch.num_rows} rows")
    return copied_array(array)  # the next call may fill the same memory


def _computed(value: pc.Expression, batch: pa.RecordBatch, name: str, shown: str) -> pa.Array:
    from pyarrow import acero  # slow to import, and only expressions need it

    paths = pyarrow_columns(value)
    if paths is not None:  # every column of the source costs time, used or not
        used = {path[0] for path in paths}
        places = [at for at, each in enumerate(batch.schema.names) if each in used]
        batch = batch.select(places or range(min(1, batch.num_columns)))
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table(batch)))
    try:
        project = acero.Declaration("project", acero.ProjectNodeOptions([value], [name]), [source])
        column = project.to_table(use_threads=False).column(0)
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"{shown}: {value}: {error}") from error
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _repeated(value: Any, count: int, field: Field, shown: str) -> pa.Array:
    dtype = field.type
    if value is None:
        return nulls(dtype, count)
    try:
        if isinstance(value, pa.Scalar):
            return repeat(value, count)
        return repeat(pa.array([value], dtype)[0], count)
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise InvalidArgumentError(f"{shown}: {value!r} is no {dtype}: {error}") from None
