"""Spark's predicates → filters of a table, where both mean the same for every value.

A predicate without an exact counterpart is left to Spark, which applies every predicate again. A
comparison has no counterpart if Spark sees other values than are stored (nanoseconds). In Spark NaN
is greater than all other values, and in a filter no comparison selects it, so ``>`` and ``>=`` also
select NaN explicitly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import col
from fermion.predicate import Expression
from spark_ext.catalog.callbacks import kind_of, listed
from spark_ext.types import held_type

_PREDICATES = {"Predicate", "And", "Or", "Not"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH = datetime(1970, 1, 1)
_COMPARISONS = {"=", "<=>", "<>", "<", "<=", ">", ">="}
_CONSTANTS = {"AlwaysTrue": True, "AlwaysFalse": False}
"""What Spark makes of the literals TRUE and FALSE."""
_MONTHS = {"year", "month"}
"""Parts of intervals that have no number of microseconds."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class NotTheSame(Exception):
    """A predicate that has no exact counterpart."""


def filter_of(predicates: Sequence[Any], schema: pa.Schema) -> Expression | None:
    """The filter that selects the rows that all predicates select; None selects all rows.

    Raises
    ------
    NotTheSame
        A predicate has no counterpart.
    """
    given = (node for node in predicates if node.name() != "ALWAYS_TRUE")
    filters = [predicate_filter(node, schema) for node in given]
    return reduce(and_, filters) if filters else None


def has_filter(predicates: Sequence[Any], schema: pa.Schema) -> bool:
    """Whether `filter_of` has a counterpart of all predicates."""
    try:
        filter_of(predicates, schema)
    except NotTheSame:
        return False
    return True


def predicate_filter(node: Any, schema: pa.Schema) -> Expression:
    """The filter that selects the rows that a predicate selects.

    Parameters
    ----------
    node
        ``org.apache.spark.sql.connector.expressions.filter.Predicate``.
    schema
        Of the table.

    Raises
    ------
    NotTheSame
        It has no counterpart.
    """
    name = _name(node)
    children = listed(node.children())
    if name in ("AND", "OR"):
        left, right = (predicate_filter(child, schema) for child in children)
        return left & right if name == "AND" else left | right
    if name == "NOT":
        return ~predicate_filter(children[0], schema)
    if name in ("IS_NULL", "IS_NOT_NULL"):
        null = col(*_held(children[0], schema)[0]).is_null()
        return null if name == "IS_NULL" else ~null
    if name in _COMPARISONS:
        return _comparison(name, children, schema)
    if name == "IN":
        path, _ = column_of(children[0], schema)
        values = [literal_value(child) for child in children[1:]]
        if any(value is None or _is_nan(value) for value in values) or not values:
            raise NotTheSame(name)
        return col(*path).isin(values)
    if name == "STARTS_WITH":
        path, _ = column_of(children[0], schema)
        value = literal_value(children[1])
        if isinstance(value, str):
            return col(*path).starts_with(value)
    raise NotTheSame(name)


def _comparison(name: str, children: Sequence[Any], schema: pa.Schema) -> Expression:
    left, right = children
    if is_literal(left):
        left, right, name = right, left, _MIRRORED.get(name, name)
    path, dtype = column_of(left, schema)
    value = literal_value(right)
    column = col(*path)
    if value is None or _is_nan(value):
        raise NotTheSame(name)
    if name == "=":
        return column == value
    if name == "<>":
        return column != value
    if name == "<=>":
        return (column == value) & ~column.is_null()
    if name in ("<", "<="):
        return column < value if name == "<" else column <= value
    above = column > value if name == ">" else column >= value
    return above | column.is_nan() if pat.is_floating(dtype) else above


def column_of(node: Any, schema: pa.Schema) -> tuple[tuple[str, ...], pa.DataType]:
    """The path of a column, and the type of its values.

    Raises
    ------
    NotTheSame
        It is an expression, or Spark sees other values than are stored.
    """
    path, dtype = _held(node, schema)
    if pat.is_date64(dtype) or (pat.is_temporal(dtype) and getattr(dtype, "unit", "") == "ns"):
        raise NotTheSame(f"column {'.'.join(path)}: Spark rounds its values, of {dtype}")
    return path, dtype


def _held(node: Any, schema: pa.Schema) -> tuple[tuple[str, ...], pa.DataType]:
    """The same of columns of any type: Spark sees other values, but the same nulls."""
    if not is_a(node, "FieldReference"):
        raise NotTheSame(node.toString())
    path = _names(node)
    within: pa.Schema | pa.DataType = schema
    for name in path:
        has_fields = isinstance(within, pa.Schema) or pat.is_struct(within)
        index = within.get_field_index(name) if has_fields else -1
        if index < 0:
            raise NotTheSame(name)
        within = held_type(within.field(index).type)
    return path, within


def literal_value(node: Any) -> Any:
    """A literal in Python; Spark holds dates and times as numbers.

    Raises
    ------
    NotTheSame
        It is not a literal, or of a type that has no exact counterpart.
    """
    if not is_literal(node):
        raise NotTheSame(node.toString())
    constant = _CONSTANTS.get(kind_of(node))
    if constant is not None:
        return constant
    value, kind = node.value(), node.dataType().simpleString()
    if value is None:
        return None
    try:
        if kind == "date":
            return date(1970, 1, 1) + timedelta(days=int(value))
        if kind in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + timedelta(microseconds=int(value))
            return moment.replace(tzinfo=UTC) if kind == "timestamp" else moment
    except OverflowError as error:
        raise NotTheSame(f"a {kind} outside of the years 1 to 9999") from error
    if kind.startswith("time(") and int(value) % 1000 == 0:
        return (_EPOCH + timedelta(microseconds=int(value) // 1000)).time()
    if kind.startswith("interval ") and not _MONTHS.intersection(kind.split()):
        return timedelta(microseconds=int(value))
    if kind == "float":  # the JVM gives the shortest digits, which are those of another float
        return float(np.float32(value))
    if kind.startswith("decimal"):
        return Decimal(value.toString())
    if kind == "string":
        return value if isinstance(value, str) else value.toString()
    if kind == "binary":
        return bytes(value)
    if isinstance(value, bool | int | float):
        return value
    raise NotTheSame(kind)


def _name(node: Any) -> str:
    if kind_of(node) not in _PREDICATES:
        raise NotTheSame(node.toString())
    return node.name()


def _names(reference: Any) -> tuple[str, ...]:
    """The path of a column: one call, as Spark shows a plain name as it is."""
    shown = reference.toString()
    return (shown,) if _PLAIN_NAME.fullmatch(shown) else tuple(listed(reference.fieldNames()))


def is_literal(node: Any) -> bool:
    """Whether a node is a literal."""
    return kind_of(node) in ("LiteralValue", *_CONSTANTS)


def is_a(node: Any, kind: str) -> bool:
    """Whether a node is of a class, by its simple name."""
    return kind_of(node) == kind


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
