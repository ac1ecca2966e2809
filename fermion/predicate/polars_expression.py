"""Expressions of Polars as filters: Polars computes them, statistics serve what they can of them.

A part of an AND that has a counterpart here is also a filter of its own, so that it prunes. It may
select more rows than the part does: Polars takes a NaN for the greatest value, equal to itself;
here comparisons with it are false.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import is_text
from fermion.errors import FermionError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate.expression import MIRRORED, Computed, Expression, Path, col

if TYPE_CHECKING:
    import polars

_OPERATORS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_NODES = {"BinaryExpr", "Cast", "Column", "Function", "Literal", "Ternary"}
_FUNCTIONS = {
    *("Abs", "Coalesce", "FillNull", "Negate", "PowExpr", "Round", "Sign", "Trigonometry"),
    *("AsStruct", "BinaryExpr", "BitwiseExpr", "ListExpr", "StringExpr", "StructExpr"),
    "TemporalExpr",
}
_BOOLEANS = {
    *("AllHorizontal", "AnyHorizontal", "IsBetween", "IsFinite", "IsIn", "IsInfinite", "IsNan"),
    *("IsNotNan", "IsNotNull", "IsNull", "Not"),
}
_OF_OTHER_ROWS = {"ConcatVertical"}
"""Functions, though among `_FUNCTIONS`, that look at other rows."""


def from_polars(expression: polars.Expr) -> Expression:
    """A condition of Polars as a filter; Polars computes it.

    Raises InvalidArgumentError: It looks at other rows, or calls what is not known to look at one
        row only.
    """
    import polars  # installed: the expression is its

    text = str(expression)
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except (polars.exceptions.PolarsError, ValueError) as error:  # what it calls may be Python
        raise _refused(text, str(error)) from error
    columns: dict[str, None] = {}
    for kind, node in _nodes(tree):
        if kind not in _NODES:
            raise _refused(text, f"it has {kind}")
        if kind == "Function":
            _check_function(node["function"], text)
        if kind == "Column":
            columns[node] = None
    paths = tuple((name,) for name in columns)
    if not paths or expression.meta.has_multiple_outputs():
        raise _refused(text, "expected one condition that names columns")
    return ComputedPolars(PolarsCondition(expression, tuple(columns)), paths, f"polars({text})")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ComputedPolars(Computed):
    """A condition that Polars computes.

    is_narrowed: Whether a filter that statistics can use stands beside it.
    """

    function: PolarsCondition
    is_narrowed: bool = False

    def bound(self, schema: pa.Schema, dtypes: Sequence[pa.DataType]) -> Expression:
        """The condition, and before it what statistics can use."""
        self.function(*(pa.nulls(0, dtype) for dtype in dtypes))
        if self.is_narrowed:
            return self
        narrowed = replace(self, is_narrowed=True)
        pushed = filter_of_predicate(self.function.expression, schema)
        return narrowed if pushed is None else pushed & narrowed


@dataclass(frozen=True, slots=True)
class PolarsCondition:
    """Computes a condition with Polars. Picklable.

    names: Of the columns that it is called with.
    """

    expression: polars.Expr
    names: tuple[str, ...]

    def __call__(self, *columns: pa.Array) -> pa.BooleanArray:
        """Whether each row matches.

        Raises InvalidArgumentError: The types do not fit, a value can't be computed, or no booleans
            come out.
        """
        import polars

        table = pa.table(dict(zip(self.names, columns, strict=True)))
        panic = polars.exceptions.PanicException
        try:
            frame = polars.DataFrame(polars.from_arrow(table))
            matches = frame.select(self.expression).to_series()
        except (polars.exceptions.PolarsError, panic, pa.ArrowException, TypeError) as error:
            raise _refused(str(self.expression), str(error)) from error
        if matches.dtype != polars.Boolean or len(matches) != len(table):
            raise _refused(
                str(self.expression),
                f"expected {len(table)} booleans, found {len(matches)} of {matches.dtype}",
            )
        return matches.to_arrow()


def _refused(text: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"filter {text[:200]} of Polars: {reason}; a filter is a condition of one row (filter the "
        "frame of to_polars(lazy=True) by others)"
    )


def _nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of an expression, each by its kind."""
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part)
    if not isinstance(tree, dict):
        return
    for kind, node in tree.items():
        if not kind[:1].isupper():  # a part of a node
            yield from _nodes(node)
            continue
        yield kind, node
        if kind == "Function":
            yield from _nodes(node["input"])
        elif kind != "Literal" and isinstance(node, dict):
            for part in ("left", "right", "expr", "predicate", "truthy", "falsy"):
                yield from _nodes(node.get(part))


def _check_function(function: Any, text: str) -> None:
    name, own = next(iter(function.items())) if isinstance(function, dict) else (function, None)
    kind = next(iter(own)) if isinstance(own, dict) else own
    known = kind in _BOOLEANS if name == "Boolean" else name in _FUNCTIONS
    if not known or kind in _OF_OTHER_ROWS:
        raise _refused(text, f"it calls {name}{'' if kind is None else f' {kind}'}")


class _NoCounterpart(Exception):
    """A part that this module has no filter for."""


def filter_of_predicate(predicate: polars.Expr, schema: pa.Schema) -> Expression | None:
    """A filter that selects every row that the predicate selects; None if nothing is known.

    Parameters
    ----------
    predicate
        As ``polars.io.plugins.register_io_source`` hands it over.
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
            left, right, operator = right, left, MIRRORED[operator]
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
