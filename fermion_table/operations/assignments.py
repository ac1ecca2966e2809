"""What an update sets: columns to values, to other columns, or to what is computed from a row."""

from __future__ import annotations

import contextlib
import copy
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion.engine import (
    array_of,
    check_kept,
    copied_array,
    field_within,
    is_of_pandas,
    is_variant,
    one_batch,
    pyarrow_columns,
    take_batch_rows,
)
from fermion.errors import ColumnNotFoundError, InvalidArgumentError, column_not_found
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.predicate import Column
from fermion_table.operations.sql_expressions import SqlExpression
from fermion_table.schema.conversion import convert_batch, plan_writing
from fermion_table.schema.repeated import nulls, repeat
from fermion_table.schema.schema import Field, Path, TableSchema
from fermion_table.schema.widening import cast_checked

if TYPE_CHECKING:
    from fermion_table.schema import blob_columns
else:  # few tables have blobs
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")

Assignment = Any
"""SQL text, a value (None is null; text as `lit`), `fermion.col`, a ``pyarrow.compute.Expression``,
or a function from a record batch to an array."""
SHOWN_LENGTH = 60
_EXACT = {
    str: (pa.string(), pa.large_string()),
    int: (pa.int64(),),
    float: (pa.float64(),),
}
"""Types that hold such a value as it is, without ``pyarrow.array``, which imports pandas."""


@dataclass(frozen=True, slots=True, repr=False)
class LiteralValue:
    """A value that is no expression, even if it is text; `lit` makes it."""

    value: Any

    def __repr__(self) -> str:
        return f"lit({_shortened(self.value)})"


class NamedColumn(Column):
    """A column that SQL names alone: its values are cast as those of other SQL are."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[Column], tuple[Path]]:
        return NamedColumn, (self.path,)


def lit(value: Any) -> LiteralValue:
    """A value where text is SQL: ``table.update("id = 1", {"city": lit("Rome")})``.

    Parameters
    ----------
    value
        Of the type of the column that is set.
    """
    return LiteralValue(value)


def settled(value: Any) -> Any:
    """A value, or a filter, that stays as it is: what the caller may change in it is copied.

    A commit that is tried again reads it again.
    """
    if isinstance(value, LiteralValue):
        return LiteralValue(settled(value.value))
    if isinstance(value, (list, tuple)):
        copied = [settled(each) for each in value]
        return copied if isinstance(value, list) else tuple(copied)
    if isinstance(value, pa.Scalar):  # those of structs are mappings, too
        stays = pat.is_primitive(value.type) or not value.is_valid
        return value if stays else copied_array(repeat(value, 1))[0]
    if isinstance(value, Mapping):
        return {settled(name): settled(each) for name, each in value.items()}
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, pa.Array):
        return copied_array(value)
    if isinstance(value, np.ndarray) or is_of_pandas(value):
        return copy.deepcopy(value)
    if isinstance(value, pc.Expression):
        with contextlib.suppress(pa.ArrowNotImplementedError):  # columns by their positions
            return pickle.loads(pickle.dumps(value))  # its literals may lie in memory of the caller
    return value


def read_assignments(
    assignments: Mapping[str, Assignment], schema: TableSchema
) -> dict[str, Assignment]:
    """What an update sets, with expressions in place of text.

    Raises ColumnNotFoundError, InvalidArgumentError: The table lacks a column, text is no SQL, or
        nothing is set.
    """
    if not assignments:
        raise InvalidArgumentError("update: expected a column to set")
    read: dict[str, Assignment] = {}
    for name, value in assignments.items():
        field = schema.find((name,), where="update")
        if isinstance(value, Column):
            schema.find(value.path, where="update")
        if isinstance(value, str):
            value = read_text(value, field, schema.names, where=f"update: column {name!r}")
            if isinstance(value, Column):
                value = NamedColumn(value.path)
        read[name] = value
    return read


def read_text(
    text: str, field: Field, names: Collection[str], *, where: str, words: Collection[str] = ()
) -> Assignment:
    """The SQL expression of a text.

    For now, text that was a value before text was SQL, and that no column is named in, is one with
    a warning.

    names: The columns that the expression sees.
    words: Other words of which none can be in a text that is a value.
    Raises ColumnNotFoundError, InvalidArgumentError.
    """
    if text.isidentifier() and text in names:
        return Column((text,))
    hint = f"; text is SQL here: for the value write lit({_shortened(text)})"
    is_value = _is_value(text, field)
    named = {*names, *words}.intersection(re.findall(r"\w+", text))
    may_be_value = is_value and not named and re.search(r"\w\(", text) is None
    error: ColumnNotFoundError | InvalidArgumentError | None = None
    if not (may_be_value and text.isidentifier()):  # or the engine of SQL is not asked for it
        try:
            expression = SqlExpression(text)
            missing = [path[0] for path in expression.paths if path[0] not in names]
            if not missing and (expression.paths or "'" in text or not is_value):
                return expression
            error = column_not_found(missing[0], names, where=where) if missing else None
        except InvalidArgumentError as refused:
            error = InvalidArgumentError(f"{where}: {refused}")
    if may_be_value:
        _warn_of_text(text, where)
        return LiteralValue(text)
    if error is None:
        return expression
    raise type(error)(f"{error.args[0]}{hint}") from error.__cause__


def _is_value(text: str, field: Field) -> bool:
    """Whether a column can hold a text as it is."""
    try:
        pa.array([text], field.type)
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return True


def _warn_of_text(text: str, where: str) -> None:
    shown = _shortened(text)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("fermion_table."):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{where}: text is SQL from the next version on, and {shown} is taken as a value for the "
        f"last time: write fermion_table.lit({shown})",
        FutureWarning,
        stacklevel=level,
    )


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_LENGTH else f"{shown[:SHOWN_LENGTH]}..."


def fields_read(schema: TableSchema, assignments: Mapping[str, Assignment]) -> tuple[Field, ...]:
    """The columns that assignments look at; functions look at any."""
    names: set[str] = set()
    for value in assignments.values():
        paths: Collection[Path] | None = ()
        if isinstance(value, (SqlExpression, Column)):
            paths = value.paths if isinstance(value, SqlExpression) else (value.path,)
        elif isinstance(value, pc.Expression):
            paths = pyarrow_columns(value)
        if paths is None or (callable(value) and not paths):
            return schema.fields
        names.update(path[0] for path in paths)
    return tuple(field for field in schema.fields if field.name in names)


def carries_blobs(schema: TableSchema, assignments: Mapping[str, Assignment]) -> bool:
    """Whether assignments look at no blobs of a table that has some."""
    blobs = schema.blob_columns
    return bool(blobs) and all(each.name not in blobs for each in fields_read(schema, assignments))


def assigned(
    batch: pa.RecordBatch, assignments: Mapping[str, Assignment], schema: TableSchema
) -> pa.RecordBatch:
    """Rows with some columns set; every expression sees the rows as they were.

    batch: All columns of the table in their order, perhaps others after them. Of blobs that are
        not looked at it may have references.
    Raises SchemaMismatch: A value does not fit its column.
    """
    places = {name: place for place, name in enumerate(schema.names)}
    rows, others = batch.select(range(len(places))), range(len(places), batch.num_columns)
    arrays, fields = list(rows.columns), list(rows.schema)
    for name, value in assignments.items():
        array = evaluated(value, batch, schema.by_name[name])
        place = places[name]
        arrays[place], fields[place] = array, pa.field(name, array.type)
    changed = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    fitting = fitted(schema, changed, rows.schema)
    return pa.RecordBatch.from_arrays(
        [*fitting.columns, *(batch.column(place) for place in others)], schema=batch.schema
    )


def fitted(schema: TableSchema, rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Rows in all columns of a table, of whose blobs there may be references.

    wanted: The table's columns; says whether blobs are values or references.
    Raises SchemaMismatch: A value does not fit its column.
    """
    if schema.blob_columns:
        return blob_columns.carrying(schema, rows, wanted)
    plain = schema.to_arrow(field_ids=False)
    return convert_batch(plan_writing(schema, rows.schema), rows, plain)


def overlaid(batch: pa.RecordBatch, changed: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    """A batch with rows replaced.

    changed: The new rows, of the same schema.
    mask: ``bool``, shape (num_rows,): the places of the new rows, in their order.
    """
    order = np.arange(batch.num_rows, dtype=np.int64)
    order[mask] = batch.num_rows + np.arange(changed.num_rows)
    changed = pa.RecordBatch.from_arrays(changed.columns, schema=batch.schema)
    return take_batch_rows(one_batch([batch, changed]), order)


def evaluated(
    value: Assignment, batch: pa.RecordBatch, field: Field, *, where: str = "update"
) -> pa.Array:
    """What a column is set to, row by row; not yet of the column's type.

    batch: The rows that expressions and functions see.
    Raises InvalidArgumentError: An expression fails, a value is none of the column's, or a function
        gives too few or too many values.
    """
    shown = f"{where}: column {field.name!r}"
    if isinstance(value, LiteralValue):
        return _repeated(value.value, batch.num_rows, field, shown)
    if isinstance(value, SqlExpression):
        return _cast(value(batch), field.type, f"{shown}: SQL {_shortened(value.text)}")
    if isinstance(value, Column):
        found = field_within(batch.column(value.path[0]), value.path[1:])
        if not isinstance(value, NamedColumn):
            return found
        return _cast(found, field.type, f"{shown}: SQL {value.path[0]!r}")
    if isinstance(value, pc.Expression):
        return _computed(value, batch, field.name, shown)
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return _called(value, batch, shown)
    return _repeated(value, batch.num_rows, field, shown)


def _cast(array: pa.Array, dtype: pa.DataType, shown: str) -> pa.Array:
    """What SQL gives, in the type of the column that it is for, as an UPDATE of SQL does."""
    if array.type == dtype or all(is_variant(pa.field("", each)) for each in (array.type, dtype)):
        return array
    try:
        return cast_checked(array, dtype)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"{shown}: expected type {dtype}, found {array.type}: {error}"
        ) from error


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
        check_kept([value], dtype)
        make = array_of if dtype in _EXACT.get(type(value), ()) else pa.array
        return repeat(make([value], dtype)[0], count)
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise InvalidArgumentError(f"{shown}: {value!r} is no {dtype}: {error}") from None


def whole_table(rows: pa.Table, where: str) -> pa.RecordBatch:
    """All rows of a table in one batch; a copy where there are several.

    Raises InvalidArgumentError: They do not fit; names ``where``.
    """
    batches = [batch for batch in rows.to_batches() if batch.num_rows]
    if not batches:
        empty = [nulls(field.type, 0) for field in rows.schema]
        return pa.RecordBatch.from_arrays(empty, schema=rows.schema)
    try:
        return one_batch(batches)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(
            f"{where}: {error}; give fewer rows at a time, or use large_string, large_binary, "
            "large_list or dictionaries with wider indices"
        ) from error
