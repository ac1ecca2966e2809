"""Filters from tuples in disjunctive normal form, as pyarrow has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion.predicate.expression import (
    OPERATORS,
    Comparison,
    Expression,
    IsIn,
    IsNull,
    Not,
    Path,
    conjunction,
    disjunction,
    literal_set,
)
from fermion.predicate.literals import normalize

_SUPPORTED = "=, ==, !=, <, >, <=, >=, in, not in"
_ADVICE = (
    "expected a list of (column, operator, value) tuples, which are ANDed, or a list of such "
    "lists, which are ORed"
)


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
        f"filter {member!r}: unknown operator {operator!r}; expected one of {_SUPPORTED}"
    )


def _path(column: Any) -> Path:
    if isinstance(column, str):
        return (column,)
    if isinstance(column, tuple) and column and all(isinstance(name, str) for name in column):
        return column
    raise InvalidArgumentError(
        f"filter column {column!r}: expected a name, or a tuple of names for a field of a struct"
    )
