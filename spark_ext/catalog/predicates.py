"""Spark's predicates → filters of a table that prune, where both mean the same for every value.

In Spark NaN is greater than all other values, and in a filter no comparison selects it, so ``>``
and ``>=`` also select NaN explicitly.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion import col
from fermion.engine import VariantType, VariantValue, parse_path
from fermion.errors import InvalidArgumentError
from fermion.predicate import Expression
from spark_ext.aggregation.expression import COLUMN, LITERAL
from spark_ext.catalog.nodes import CAST, VARIANT_GET, Node, NotTheSame
from spark_ext.reading.variants import SparkPart

_COMPARISONS = {"=", "<=>", "<>", "<", "<=", ">", ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


_PARTS = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), pa.int64()),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""By Spark's name of the type of a part of a Variant: what its values are compared as."""
_NARROW = {"tinyint", "smallint", "int"}
"""Types to which Spark does not cast all values that Arrow's has."""


def predicate_filter(node: Node, *, may_select_more: bool = False) -> Expression:
    """The filter that selects the rows that a predicate selects.

    may_select_more: Whether it may select other rows, too: those whose part of a Variant has
        another type than the predicate asks for.
    Raises NotTheSame: It has no counterpart.
    """
    name, children = node.operation, node.children
    if name in ("AND", "OR"):
        left, right = (
            predicate_filter(child, may_select_more=may_select_more) for child in children
        )
        return left & right if name == "AND" else left | right
    if name == "NOT":
        return ~predicate_filter(children[0])
    if name in ("IS_NULL", "IS_NOT_NULL"):
        return _null_test(name, children[0], may_select_more)
    if name in _COMPARISONS:
        return _comparison(node, may_select_more)
    if name == "IN":
        column, _ = _operand(children[0], may_select_more)
        values = [child.literal for child in children[1:]]
        if any(value is None or _is_nan(value) for value in values) or not values:
            raise NotTheSame(name)
        return column.isin(values)
    if name == "STARTS_WITH":
        column, _ = _operand(children[0], may_select_more)
        if isinstance(children[1].literal, str):
            return column.starts_with(children[1].literal)
    raise NotTheSame(name)


def _operand(node: Node, may_select_more: bool) -> tuple[Any, pa.DataType]:
    """A column, or a part of a Variant, and the type of its values.

    Raises NotTheSame: It is another expression, or Spark sees other values than are stored.
    """
    if not may_select_more or node.operation not in (CAST, VARIANT_GET):
        path, dtype = node.column
        return col(*path), dtype
    given, text = node.type.simpleString(), "$"
    if node.operation == CAST:
        (node,) = node.children
    if node.operation == VARIANT_GET:
        if node.type.simpleString() not in (given, "variant"):
            raise NotTheSame(f"a cast of a part of type {node.type.simpleString()}")
        text, (node,) = node.value, node.children
    column, storage = node.stored_column
    if given not in _PARTS or len(column) > 1 or not storage.equals(VariantType().storage_type):
        raise NotTheSame(f"a part of type {given}")
    try:
        steps = parse_path(text)
    except InvalidArgumentError as error:
        raise NotTheSame(text) from error
    return SparkPart(column[0], steps, _PARTS[given], strict=False), _PARTS[given]


def _null_test(name: str, node: Node, may_select_more: bool) -> Expression:
    if node.operation == COLUMN:
        null = col(*node.stored_column[0]).is_null()
        return null if name == "IS_NULL" else ~null
    column, _ = _operand(node, may_select_more)
    if name == "IS_NOT_NULL":  # ~ outside would select fewer rows, not more
        return column.leaf(lambda path: ~col(*path).is_null())
    if node.type.simpleString() in _NARROW:
        raise NotTheSame(name)
    return column.is_null()


def _comparison(node: Node, may_select_more: bool) -> Expression:
    name, (left, right) = node.operation, node.children
    if left.operation == LITERAL:
        left, right, name = right, left, _MIRRORED.get(name, name)
    (column, dtype), value = _operand(left, may_select_more), right.literal
    if value is None or _is_nan(value):
        raise NotTheSame(f"{name} {value}")
    if name == "=" or (name == "<=>" and isinstance(column, VariantValue)):
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
