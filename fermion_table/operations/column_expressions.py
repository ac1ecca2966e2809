"""New columns by expressions, in place of a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.display import short_repr
from fermion.engine import SqlExpressions, pyarrow_columns
from fermion.errors import InvalidArgumentError
from fermion.predicate import Column, resolve_path
from fermion_table.operations.assignments import LiteralValue, evaluated
from fermion_table.operations.sql_expressions import SqlExpression
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.repeated import nulls
from fermion_table.schema.schema import Path
from fermion_table.schema.widening import cast_checked


class ColumnExpressions:
    """Evaluates expressions over record batches, and casts to the types of the columns. Picklable.

    expressions: By the name of the new column: SQL, `lit`, `fermion.col`, or a
        ``pyarrow.compute.Expression``.
    Raises TypeError, InvalidArgumentError: A value is no expression, SQL cannot stay (see
        `SqlExpression`), or the names are not those of the columns.
    """

    def __init__(self, expressions: Mapping[str, Any], columns: pa.Schema, where: str) -> None:
        _check_kinds(expressions, where)
        if sorted(expressions) != sorted(columns.names):
            raise InvalidArgumentError(
                f"{where}: function: expected expressions for {columns.names}, found "
                f"{sorted(expressions)}"
            )
        texts = {
            name: value if isinstance(value, str) else value.text
            for name, value in expressions.items()
            if isinstance(value, (str, SqlExpression))
        }
        self._sql = SqlExpressions(texts, where) if texts else None
        self._in_sql = tuple(texts)
        self._others = {name: expressions[name] for name in columns.names if name not in texts}
        self._columns, self._where = columns, where

    __repr__ = short_repr

    @property
    def paths(self) -> tuple[Path, ...] | None:
        """The columns that the expressions name; None where one names them by position."""
        found: dict[Path, None] = dict.fromkeys(() if self._sql is None else self._sql.paths)
        for value in self._others.values():
            if isinstance(value, LiteralValue):
                continue
            named = (value.path,) if isinstance(value, Column) else pyarrow_columns(value)
            if named is None:
                return None
            found.update(dict.fromkeys(named))
        return tuple(found)

    def check(self, given: pa.Schema) -> None:
        """Refuse SQL that does not fit the columns that are read, or those that it gives.

        Raises ColumnNotFoundError, InvalidArgumentError.
        """
        if self._sql is None:
            return
        rows = pa.RecordBatch.from_arrays([nulls(each.type, 0) for each in given], schema=given)
        found = dict(zip(self._in_sql, self._sql.compute(rows), strict=True))
        for name, array in found.items():
            expected = self._columns.field(name).type
            try:
                cast_checked(array, expected)
            except pa.ArrowException as error:
                raise InvalidArgumentError(
                    f"{self._where}: function: column {name!r}: expected type {expected}, found "
                    f"{array.type}: {error}"
                ) from error

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns of some rows."""
        found: dict[str, pa.Array] = {}
        if self._sql is not None:
            found.update(zip(self._in_sql, self._sql.compute(batch), strict=True))
        if self._others:
            fields = schema_from_arrow(self._columns).by_name
            for name, value in self._others.items():
                found[name] = evaluated(value, batch, fields[name], where=self._where)
        arrays = [cast_checked(found[each.name], each.type) for each in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)


def schema_of_expressions(
    expressions: Mapping[str, Any], given: pa.Schema, where: str
) -> pa.Schema:
    """The columns that expressions give of rows.

    expressions: As `ColumnExpressions` takes them.
    Raises TypeError, InvalidArgumentError, ColumnNotFoundError: An expression is none, or does not
        fit the columns; or it gives no type (NULL).
    """
    _check_kinds(expressions, where)
    rows = pa.RecordBatch.from_arrays([nulls(each.type, 0) for each in given], schema=given)
    fields: list[pa.Field] = []
    for name, value in expressions.items():
        shown = f"{where}: function: column {name!r}"
        if isinstance(value, LiteralValue):
            array = pa.array([value.value])
        elif isinstance(value, (str, SqlExpression)):
            text = value if isinstance(value, str) else value.text
            (array,) = SqlExpressions({name: text}, where).compute(rows)
        else:
            paths = (value.path,) if isinstance(value, Column) else pyarrow_columns(value) or ()
            for path in paths:
                resolve_path(path, given, where=shown)
            (field,) = schema_from_arrow(pa.schema({name: pa.null()})).fields
            array = evaluated(value, rows, field, where=where)
        if pa.types.is_null(array.type):
            raise InvalidArgumentError(f"{shown}: its type is not known: give it with schema=")
        fields.append(pa.field(name, array.type))
    return pa.schema(fields)


def _check_kinds(expressions: Mapping[str, Any], where: str) -> None:
    for name, value in expressions.items():
        if not isinstance(value, (str, SqlExpression, Column, pc.Expression, LiteralValue)):
            raise TypeError(
                f"{where}: function: column {name!r}: expected SQL, lit, fermion.col or a "
                f"pyarrow expression, found {type(value).__name__} {value!r:.80}"
            )
