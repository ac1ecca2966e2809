"""Every form of filter that an API takes, in one function; tuples as pyarrow has them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.errors import InvalidArgumentError
from fermion.predicate.arrow_expression import from_pyarrow
from fermion.predicate.binding import bind, transform
from fermion.predicate.expression import (
    OPERATORS,
    Comparison,
    Expression,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Path,
    as_predicate,
    conjunction,
    disjunction,
    literal_set,
)
from fermion.predicate.literals import normalize
from fermion.predicate.sql import from_sql

_DNF_OPERATORS = "=, ==, !=, <, >, <=, >=, in, not in"
_ADVICE = (
    "expected a list of (column, operator, value) tuples, which are ANDed, or a list of such "
    "lists, which are ORed"
)


def parse_filter(
    given: Any,
    schema: pa.Schema | None = None,
    *,
    where: str = "filter",
    known: Iterable[str] | None = None,
) -> Expression | None:
    """A filter in any form as a tree, bound to the schema if there is one.

    Parameters
    ----------
    given
        An `Expression`, a SQL string, DNF tuples, a ``pyarrow.compute.Expression``, a
        ``polars.Expr``, a bool, or None for no filter.
    schema
        What to bind to; None leaves columns and literals unchecked.
    where, known
        As for `bind`.

    Raises
    ------
    InvalidArgumentError
        For a filter that cannot be understood, or does not fit the columns' types.
    ColumnNotFoundError
        For a missing column.
    """
    if given is None:
        return None
    if isinstance(given, (Expression, bool)):
        expression = as_predicate(given)
    elif isinstance(given, str):
        expression = from_sql(given)
    elif isinstance(given, pc.Expression):
        expression = from_pyarrow(given)
    elif isinstance(given, (list, tuple)):
        expression = from_dnf(given)
    elif "polars" in sys.modules and isinstance(given, sys.modules["polars"].Expr):
        from fermion.predicate.polars_expression import from_polars

        expression = from_polars(given)
    else:
        raise InvalidArgumentError(
            f"filter of type {type(given).__name__}: expected fermion.col(...), a SQL string, "
            "DNF tuples as pyarrow has them, or an expression of pyarrow.compute or Polars"
        )
    return expression if schema is None else bind(expression, schema, where=where, known=known)


def from_engine(expression: pc.Expression) -> Expression:
    """A filter that a query engine pushes down into a dataset of pyarrow.

    Its ``isin`` finds NaN where a NaN is among the values, as pyarrow's does and engines expect.
    """

    def leaf(node: Expression) -> Expression:
        if isinstance(node, IsIn) and any(value != value for value in node.values):
            return node | IsNan(node.path)
        return node

    return transform(from_pyarrow(expression), leaf)


def from_dnf(filters: Sequence[Any]) -> Expression:
    """``[("a", ">", 1), ("b", "in", [1, 2])]``, or a list of such lists, as a filter.

    As in pyarrow, ``in`` is FALSE, not NULL, for NULL, so that ``not in`` selects NULLs, and None
    among the values matches NULL. Values compare as ``==`` does, which in pyarrow they do not: a
    NaN among them matches nothing, and ``0.0`` and ``-0.0`` match each other.

    Raises
    ------
    InvalidArgumentError
        For any other shape or operator.
    """
    if isinstance(filters, tuple) and len(filters) == 3 and isinstance(filters[1], str):
        filters = [filters]
    if not filters:
        raise InvalidArgumentError(
            f"an empty list is not a filter: {_ADVICE}, or None for no filter"
        )
    if all(isinstance(member, tuple) and _is_predicate(member) for member in filters):
        return conjunction(_predicate(member) for member in filters)
    groups = []
    for group in filters:
        if not isinstance(group, (list, tuple)) or not group or isinstance(group[0], str):
            raise InvalidArgumentError(f"filter {filters!r}: {_ADVICE}")
        groups.append(conjunction(_predicate(member) for member in group))
    return disjunction(groups)


def _is_predicate(member: tuple[Any, ...]) -> bool:
    return len(member) == 3 and isinstance(member[1], str)


def _predicate(member: Any) -> Expression:
    if not isinstance(member, (tuple, list)) or not _is_predicate(tuple(member)):
        raise InvalidArgumentError(f"filter {member!r}: {_ADVICE}")
    column, operator, value = member
    path = _path(column)
    word = " ".join(operator.lower().split())
    if word == "=":
        word = "=="
    if word in OPERATORS:
        return Comparison(path, word, normalize(value))
    if word in ("in", "not in"):
        values = literal_set(value)
        known = tuple(item for item in values if item is not None)
        if len(known) < len(values):
            matches = IsNull(path) | IsIn(path, known)
        else:
            matches = Not(IsNull(path)) & IsIn(path, known)
        return matches if word == "in" else ~matches
    raise InvalidArgumentError(
        f"filter {member!r}: unknown operator {operator!r}; expected one of {_DNF_OPERATORS}"
    )


def _path(column: Any) -> Path:
    if isinstance(column, str):
        return (column,)
    if isinstance(column, tuple) and column and all(isinstance(name, str) for name in column):
        return column
    raise InvalidArgumentError(
        f"filter column {column!r}: expected a name, or a tuple of names for a field of a struct"
    )
