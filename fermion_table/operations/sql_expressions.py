"""SQL expressions as values that an update sets."""

from __future__ import annotations

import pyarrow as pa

from fermion.engine import SqlExpressions
from fermion_table.argument_checks import check_text


class SqlExpression:
    """A SQL expression, as text is one in `update`, `merge` and `add_columns_with`.

    It is checked, and its columns are found, when it is made. Picklable; needs DuckDB.

    Parameters
    ----------
    text
        Of one row, in the SQL of DuckDB: no aggregates, window functions or subqueries, and no
        functions such as ``random()`` or ``now()`` whose values differ from call to call. Names of
        columns are case-sensitive. Times with a zone are in UTC.

    Attributes
    ----------
    text
        As given.
    paths
        The columns that it names; fields of structs as paths.

    Raises
    ------
    TypeError, InvalidArgumentError
        No text, no such expression, or DuckDB is not installed.
    """

    def __init__(self, text: str) -> None:
        self.text = check_text(text, "text")
        self._expressions = SqlExpressions({"value": self.text}, "SqlExpression")
        self.paths = self._expressions.paths

    def __repr__(self) -> str:
        return f"SqlExpression({self.text!r})"

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """The value of each row of a batch, of the type that DuckDB gives."""
        return self._expressions.compute(batch)[0]
