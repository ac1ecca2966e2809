"""Spark's expressions → Python values: the one place that walks over the objects of the JVM."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import strip_wrappers
from fermion.exports import dataclass
from spark_ext.aggregation.expression import COLUMN, LITERAL, OPERATIONS
from spark_ext.catalog.callbacks import kind_of, listed

COUNT_ALL = "CountStar"
CAST, EXTRACT, VARIANT_GET = "CAST", "EXTRACT", "VARIANT_GET"
_NAMED = {"GeneralScalarExpression", "Predicate", "And", "Or", "Not"}
"""Classes of nodes whose `name` says what they compute."""
_NAMES = {*OPERATIONS, "BOOLEAN_EXPRESSION"} - {CAST, EXTRACT, "NEGATE"}
_CONSTANTS = {"AlwaysTrue": True, "AlwaysFalse": False}
"""What Spark makes of the literals TRUE and FALSE."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH = datetime(1970, 1, 1)
_MONTHS = {"year", "month"}
"""Parts of intervals that have no number of microseconds."""


class NotTheSame(Exception):
    """What Spark means has no exact counterpart."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of one of Spark's expressions.

    operation: `COLUMN`, `LITERAL`, `CAST`, `EXTRACT`, `VARIANT_GET`, or Spark's name.
    children: The operands.
    value: The path of a column, the value of a literal, the part of a date that is extracted, or
        the path of a part of a Variant.
    type: Arrow's of a column; Spark's, of the JVM, of a literal, a cast and a part of a Variant.
        None of the literals TRUE and FALSE.
    """

    operation: str
    children: tuple[Node, ...] = ()
    value: Any = None
    type: Any = None

    @property
    def column(self) -> tuple[tuple[str, ...], pa.DataType]:
        """The path of a column, and the type of its values.

        Raises NotTheSame: It is an expression, or Spark sees other values than are stored.
        """
        path, dtype = self.stored_column
        if pat.is_date64(dtype) or (pat.is_temporal(dtype) and getattr(dtype, "unit", "") == "ns"):
            raise NotTheSame(f"column {'.'.join(path)}: Spark rounds its values, of {dtype}")
        return path, dtype

    @property
    def stored_column(self) -> tuple[tuple[str, ...], pa.DataType]:
        """The same of columns of any type: Spark sees other values, but the same nulls."""
        if self.operation != COLUMN:
            raise NotTheSame(f"{self.operation} where a column is needed")
        return self.value, self.type

    @property
    def literal(self) -> Any:
        """The value of a literal.

        Raises NotTheSame: It is none.
        """
        if self.operation != LITERAL:
            raise NotTheSame(f"{self.operation} where a literal is needed")
        return self.value


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate function of Spark's class `kind`; without an operand it counts rows."""

    kind: str
    of: Node | None
    is_distinct: bool
    text: str


def read_expression(node: Any, schema: pa.Schema) -> Node:
    """Read one of Spark's ``connector.expressions.Expression`` over the columns of a table.

    Raises NotTheSame: It has a part that has no counterpart.
    """
    kind = kind_of(node)
    if kind == "FieldReference":
        path = _path(node)
        return Node(COLUMN, value=path, type=_type_of(path, schema))
    if kind == "LiteralValue":
        dtype = node.dataType()
        return Node(LITERAL, value=_value(node.value(), dtype.simpleString()), type=dtype)
    if kind in _CONSTANTS:
        return Node(LITERAL, value=_CONSTANTS[kind])
    if kind == "Cast":
        return Node(CAST, (read_expression(node.expression(), schema),), type=node.dataType())
    if kind == "Extract":
        return Node(EXTRACT, (read_expression(node.source(), schema),), node.field())
    if kind == "VariantGet":
        child = read_expression(node.child(), schema)
        return Node(VARIANT_GET, (child,), node.path(), node.targetType())
    name = node.name() if kind in _NAMED else None
    if name not in _NAMES:
        raise NotTheSame(node.toString())
    return Node(name, tuple(read_expression(child, schema) for child in listed(node.children())))


def read_function(function: Any, schema: pa.Schema) -> Function:
    """Read one of Spark's ``AggregateFunc`` of one operand, or ``count(*)``.

    Raises NotTheSame: It is another one, or its operand has no counterpart.
    """
    kind, text = kind_of(function), function.toString()
    if kind == COUNT_ALL:
        return Function(kind, None, False, text)
    if kind in ("Min", "Max"):
        return Function(kind, read_expression(function.column(), schema), False, text)
    if kind in ("Sum", "Avg", "Count"):
        of = read_expression(function.column(), schema)
        return Function(kind, of, function.isDistinct(), text)
    raise NotTheSame(text)


def _path(reference: Any) -> tuple[str, ...]:
    """The path of a column: one call, as Spark shows a plain name as it is."""
    shown = reference.toString()
    return (shown,) if _PLAIN_NAME.fullmatch(shown) else tuple(listed(reference.fieldNames()))


def _type_of(path: tuple[str, ...], schema: pa.Schema) -> pa.DataType:
    within: pa.Schema | pa.DataType = schema
    for name in path:
        has_fields = isinstance(within, pa.Schema) or pat.is_struct(within)
        index = within.get_field_index(name) if has_fields else -1
        if index < 0:
            raise NotTheSame(name)
        within = strip_wrappers(within.field(index).type)
    return within


def _value(value: Any, kind: str) -> Any:
    """A literal in Python; Spark holds dates and times as numbers."""
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
