"""Spark's predicates → filters of a table that prune, where both mean the same for every value.

In Spark NaN is greater than all other values, and in a filter no comparison selects it, so ``>``
and ``>=`` also select NaN explicitly.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow.types as pat

from fermion import col
from fermion.predicate import Expression
from spark_ext.aggregation.expression import LITERAL
from spark_ext.catalog.nodes import Node, NotTheSame

_COMPARISONS = {"=", "<=>", "<>", "<", "<=", ">", ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def predicate_filter(node: Node) -> Expression:
    """The filter that selects the rows that a predicate selects.

    Raises NotTheSame: It has no counterpart.
    """
    name, children = node.operation, node.children
    if name in ("AND", "OR"):
        left, right = map(predicate_filter, children)
        return left & right if name == "AND" else left | right
    if name == "NOT":
        return ~predicate_filter(children[0])
    if name in ("IS_NULL", "IS_NOT_NULL"):
        null = col(*children[0].stored_column[0]).is_null()
        return null if name == "IS_NULL" else ~null
    if name in _COMPARISONS:
        return _comparison(node)
    if name == "IN":
        path, _ = children[0].column
        values = [child.literal for child in children[1:]]
        if any(value is None or _is_nan(value) for value in values) or not values:
            raise NotTheSame(name)
        return col(*path).isin(values)
    if name == "STARTS_WITH":
        path, _ = children[0].column
        if isinstance(children[1].literal, str):
            return col(*path).starts_with(children[1].literal)
    raise NotTheSame(name)


def _comparison(node: Node) -> Expression:
    name, (left, right) = node.operation, node.children
    if left.operation == LITERAL:
        left, right, name = right, left, _MIRRORED.get(name, name)
    (path, dtype), value = left.column, right.literal
    column = col(*path)
    if value is None or _is_nan(value):
        raise NotTheSame(f"{name} {value}")
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


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
