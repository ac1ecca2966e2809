"""A scan as a lazy frame of Polars, which reads only the columns and rows that it uses.

Polars gives a lazy source its predicate and expects rows that hold at least those it selects; it
is applied to them once more. So a part that has no counterpart here may be left out of a
conjunction, and every part that is kept must mean exactly the same. Polars takes a NaN for the
greatest value, equal to itself; here comparisons with it are false.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import polars
import io
import json
import math
from typing import TYPE_CHECKING

import pyarrow.types as pat

from fermion import col
from fermion.errors import FermionError
from fermion.predicate import Expression
from fermion_table.schema.type_kinds import is_text

Path = tuple[str, ...]
_OPERATORS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _NoCounterpart(Exception):
    """A part that this module has no filter for."""


def filter_of_predicate(predicate: polars.Expr, schema: pa.Schema) -> Expression | None:
    """A filter that selects every row that the predicate selects; None if nothing is known.

    Parameters
    ----------
    predicate
        As ``polars.io.plugins.register_io_source`` hands it over.
    schema
        Of the rows.
    """
    import polars  # optional, and slow to import

    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (polars.exceptions.PolarsError, ValueError):  # what it calls may be Python
        return None
    return _Reading(schema).superset(tree)


class _Reading:
    """Reads the tree of a predicate over rows of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def superset(self, node: Any) -> Expression | None:
        """A filter of at least the rows that a node selects."""
        match node:
            case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                parts = [self.superset(left), self.superset(right)]
                known = [part for part in parts if part is not None]
                return known[0] & known[1] if len(known) == 2 else known[0] if known else None
        try:
            return self._exact(node)
        except (_NoCounterpart, FermionError, ValueError, TypeError, OverflowError):
            return None

    def _exact(self, node: Any) -> Expression:
        match node:
            case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                return self._exact(left) & self._exact(right)
            case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
                return self._exact(left) | self._exact(right)
            case {"BinaryExpr": {"left": left, "op": str(name), "right": right}}:
                return self._comparison(left, _operator(name), right)
            case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
                return ~self._exact(inner)
            case {"Function": {"input": inputs, "function": {"Boolean": function}}}:
                return self._function(inputs, function)
            case {"Function": {"input": [inner, prefix], "function": {"StringExpr": "StartsWith"}}}:
                path, dtype = self._column(inner)
                text = _literal(prefix)
                if not isinstance(text, str) or not is_text(dtype):
                    raise _NoCounterpart
                return col(*path).starts_with(text)
        raise _NoCounterpart

    def _comparison(self, left: Any, operator: str, right: Any) -> Expression:
        try:
            path, dtype = self._column(left)
        except _NoCounterpart:
            left, right, operator = right, left, _MIRRORED[operator]
            path, dtype = self._column(left)
        value = _literal(right)
        _check_comparable(value, dtype)
        column = col(*path)
        answer: Expression = {
            "==": column.__eq__,
            "!=": column.__ne__,
            "<": column.__lt__,
            "<=": column.__le__,
            ">": column.__gt__,
            ">=": column.__ge__,
        }[operator](value)
        if pat.is_floating(dtype) and operator in (">", ">="):
            return answer | column.is_nan()
        return answer

    def _function(self, inputs: Sequence[Any], function: Any) -> Expression:
        path, dtype = self._column(inputs[0])
        column = col(*path)
        match function:
            case "IsNull":
                return column.is_null()
            case "IsNotNull":
                return ~column.is_null()
            case "IsNan":
                return column.is_nan()
            case {"IsIn": {"nulls_equal": False}}:
                values = list(_literal(inputs[1]))
                for value in values:
                    _check_comparable(value, dtype)
                return column.isin(values)
            case {"IsBetween": {"closed": "Both"}}:
                low, high = _literal(inputs[1]), _literal(inputs[2])
                _check_comparable(low, dtype)
                _check_comparable(high, dtype)
                return column.between(low, high)
        raise _NoCounterpart

    def _column(self, node: Any) -> tuple[Path, pa.DataType]:
        match node:
            case {"Column": str(name)} if name in self._schema.names:
                return (name,), self._schema.field(name).type
            case {"Function": {"input": [inner], "function": {"StructExpr": dict(access)}}}:
                path, dtype = self._column(inner)
                below = access.get("FieldByName")
                if (
                    isinstance(below, str)
                    and pat.is_struct(dtype)
                    and dtype.get_field_index(below) >= 0
                ):
                    return (*path, below), dtype.field(below).type
        raise _NoCounterpart


def _operator(name: str) -> str:
    if name not in _OPERATORS:
        raise _NoCounterpart
    return _OPERATORS[name]


def _literal(node: Any) -> Any:
    """The Python value of a literal, made by Polars itself; None (a null) has no counterpart."""
    import polars  # optional, and slow to import

    if not (isinstance(node, dict) and "Literal" in node):
        raise _NoCounterpart
    text = io.StringIO(json.dumps(node))
    try:
        value = polars.select(polars.Expr.deserialize(text, format="json")).item()
    except polars.exceptions.PolarsError:  # JSON has no infinity and no NaN: null stands for both
        raise _NoCounterpart from None
    if isinstance(value, polars.Series):
        value = value.to_list()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise _NoCounterpart
    return value


def _check_comparable(value: Any, dtype: pa.DataType) -> None:
    """Only pairs of types that both sides compare alike are pushed down."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    alike = (
        (number and (pat.is_integer(dtype) or pat.is_float32(dtype) or pat.is_float64(dtype)))
        or (isinstance(value, str) and is_text(dtype))
        or (isinstance(value, bool) and pat.is_boolean(dtype))
        or (type(value).__name__ == "date" and pat.is_date32(dtype))
        or (type(value).__name__ == "datetime" and pat.is_timestamp(dtype) and dtype.tz is None)
    )
    if not alike or (isinstance(value, float) and math.isnan(value)):
        raise _NoCounterpart
    # A literal that is no value of the type is compared after a cast there: leave it to Polars.
    if number and pat.is_integer(dtype) and not isinstance(value, int):
        raise _NoCounterpart
    if number and pat.is_float32(dtype) and pa.scalar(value, pa.float32()).as_py() != value:
        raise _NoCounterpart


class Scan(Protocol):
    """What is asked of a scan (see `fermion_table.scanning.scan`)."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    @property
    def limit(self) -> int | None:
        """How many rows at most."""

    def select(self, columns: Sequence[tuple[str, ...]]) -> Scan:
        """The same with other columns."""

    def where(self, filter: Any) -> Scan:
        """The same with fewer rows."""

    def head_scan(self, n: int | None) -> Scan:
        """The same with at most ``n`` rows."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""


def lazy_frame(scan: Scan) -> polars.LazyFrame:
    """The rows of a scan, read when the frame is collected."""
    import polars  # optional, and slow to import
    from polars.io.plugins import register_io_source

    def source(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        chosen = scan
        if predicate is not None and n_rows is None and scan.limit is None:
            pushed = filter_of_predicate(predicate, scan.schema)
            chosen = chosen if pushed is None else chosen.where(pushed)
        if with_columns is not None:
            chosen = chosen.select([(name,) for name in with_columns])
        for batch in chosen.head_scan(n_rows).to_batches():
            frame = polars.DataFrame(polars.from_arrow(batch))
            yield frame if predicate is None else frame.filter(predicate)

    empty = polars.DataFrame(polars.from_arrow(scan.schema.empty_table()))
    return register_io_source(source, schema=empty.schema)
