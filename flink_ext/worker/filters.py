"""Flink's predicates → filters of a table, where both mean the same for every value.

In Flink a comparison with NaN is false, but ``<>``, which is true; a filter selects NaN by no
comparison. What has no exact counterpart stays with Flink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pat

from fermion.predicate import Column, Expression


class NotTheSame(Exception):
    """A predicate without an exact counterpart."""


class Node(msgspec.Struct, forbid_unknown_fields=True):
    """A call, a column or a literal of Flink.

    op: ``and``, ``or``, ``not``, a comparison, ``is_null``, ``is_not_null``, ``in``,
        ``starts_with``, ``column``, ``literal``, or any other name, which is not known.
    args: Of a call.
    column: Name of a column.
    value, kind: Text of a literal, and what it is: ``integer``, ``decimal``, ``double``,
        ``boolean``, ``text``, ``date``, ``timestamp`` or ``instant``; null has no text.
    """

    op: str
    args: list[Node] = msgspec.field(default_factory=list)
    column: str = ""
    value: str | None = None
    kind: str = ""


_COMPARISONS: dict[str, Callable[[Column, Any], Expression]] = {
    "=": Column.__eq__,
    "<>": Column.__ne__,
    "<": Column.__lt__,
    "<=": Column.__le__,
    ">": Column.__gt__,
    ">=": Column.__ge__,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def flink_filter(node: Node, schema: pa.Schema) -> Expression:
    """The filter that selects the rows that a predicate selects.

    schema: Of the table.
    Raises NotTheSame: It has no counterpart.
    """
    if node.op in ("and", "or"):
        first, *others = (flink_filter(each, schema) for each in node.args)
        for other in others:
            first = first & other if node.op == "and" else first | other
        return first
    if node.op == "not":
        if any(_is_floating(each, schema) for each in node.args):
            raise NotTheSame("NaN is on either side")
        return ~flink_filter(node.args[0], schema)
    if node.op in ("is_null", "is_not_null"):
        null = _column(node.args[0], schema).is_null()
        return null if node.op == "is_null" else ~null
    if node.op == "column" and pat.is_boolean(_type(node, schema)):
        return _column(node, schema) == True  # noqa: E712 - a filter
    if node.op in _COMPARISONS:
        return _comparison(node, schema)
    if node.op == "in":
        column, *literals = node.args
        values = [_value(each, _type(column, schema)) for each in literals]
        return _column(column, schema).isin(values)
    if node.op == "starts_with":
        column, prefix = node.args
        return _column(column, schema).starts_with(_value(prefix, _type(column, schema)))
    raise NotTheSame(node.op)


def _comparison(node: Node, schema: pa.Schema) -> Expression:
    op, (left, right) = node.op, node.args
    if left.op == "literal":
        left, right, op = right, left, _MIRRORED.get(op, op)
    dtype, column = _type(left, schema), _column(left, schema)
    compared = _COMPARISONS[op](column, _value(right, dtype))
    return compared | column.is_nan() if op == "<>" and pat.is_floating(dtype) else compared


def _column(node: Node, schema: pa.Schema) -> Column:
    _type(node, schema)
    return Column((node.column,))


def _type(node: Node, schema: pa.Schema) -> pa.DataType:
    if node.op != "column" or node.column not in schema.names:
        raise NotTheSame(f"{node.op} {node.column}")
    return schema.field(node.column).type


def _is_floating(node: Node, schema: pa.Schema) -> bool:
    """Whether a floating-point column is compared anywhere."""
    if node.op == "column":
        return pat.is_floating(_type(node, schema))
    return any(_is_floating(each, schema) for each in node.args)


def _value(node: Node, dtype: pa.DataType) -> Any:
    """A literal as a value of a column; both are of one kind, as Flink compares no others."""
    if node.op != "literal" or node.value is None:
        raise NotTheSame(f"{node.op} of {dtype}")
    for is_of, kind, value_of in _LITERALS:
        if is_of(dtype) and node.kind == kind:
            try:
                return value_of(node.value)
            except (ValueError, InvalidOperation, OverflowError) as error:
                raise NotTheSame(f"{node.value!r} of {dtype}") from error
    raise NotTheSame(f"{node.kind} of {dtype}")


def _float(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError("no comparison with NaN")
    return value


def _moment(text: str) -> datetime:
    if text.partition(".")[2].rstrip("Z")[6:].strip("0"):
        raise ValueError("finer than microseconds")
    return datetime.fromisoformat(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _is_text(dtype: pa.DataType) -> bool:
    return pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype)


def _is_zoned(dtype: pa.DataType) -> bool:
    return pat.is_timestamp(dtype) and dtype.tz is not None


def _is_naive(dtype: pa.DataType) -> bool:
    return pat.is_timestamp(dtype) and dtype.tz is None


_LITERALS: tuple[tuple[Callable[[pa.DataType], bool], str, Callable[[str], Any]], ...] = (
    (pat.is_integer, "integer", int),
    (pat.is_decimal, "decimal", Decimal),
    (pat.is_floating, "double", _float),
    (pat.is_boolean, "boolean", _boolean),
    (_is_text, "text", str),
    (pat.is_date32, "date", date.fromisoformat),
    (_is_naive, "timestamp", _moment),
    (_is_zoned, "instant", lambda text: _moment(text).astimezone(UTC)),
)
