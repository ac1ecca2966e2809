"""New columns by expressions, in place of a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.predicate import Column
from fermion_table.changes.assignments import evaluated
from fermion_table.schema.from_arrow import schema_from_arrow


class ColumnExpressions:
    """Evaluates expressions over record batches, and casts to the types of the columns. Picklable.

    Parameters
    ----------
    expressions
        By the name of the new column: `fermion.col`, or a ``pyarrow.compute.Expression``.
    columns
        The new columns.
    where
        Who asks, for messages.

    Raises
    ------
    TypeError, InvalidArgumentError
        A value is no expression, or the names are not those of the columns.
    """

    def __init__(self, expressions: Mapping[str, Any], columns: pa.Schema, where: str) -> None:
        for name, value in expressions.items():
            if not isinstance(value, (Column, pc.Expression)):
                raise TypeError(
                    f"{where}: function: column {name!r}: expected fermion.col or a pyarrow "
                    f"expression, found {type(value).__name__} {value!r:.80}"
                )
        if sorted(expressions) != sorted(columns.names):
            raise InvalidArgumentError(
                f"{where}: function: expected expressions for {columns.names}, found "
                f"{sorted(expressions)}"
            )
        self._expressions = {name: expressions[name] for name in columns.names}
        self._columns, self._where = columns, where

    __repr__ = short_repr

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns of some rows."""
        fields = schema_from_arrow(self._columns).by_name
        arrays = [
            evaluated(value, batch, fields[name], where=self._where)
            for name, value in self._expressions.items()
        ]
        types = self._columns.types
        cast = [array.cast(dtype) for array, dtype in zip(arrays, types, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self._columns)
