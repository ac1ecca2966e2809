"""Spark's expressions → those that tasks evaluate, where both mean the same.

Whatever may fail in Spark, such as an addition that overflows, has a counterpart only if it is
proven that it cannot fail for the table's values: then it does not matter which rows Spark would
have evaluated it for, nor in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.types import _parse_datatype_json_string

from fermion.engine import unscaled_integer
from spark_ext.aggregation.expression import (
    ARROW_TYPES,
    COLUMN,
    LITERAL,
    WIDE_DIGITS_MAX,
    Expression,
)
from spark_ext.catalog.nodes import CAST, EXTRACT, Node, NotTheSame
from spark_ext.types import spark_schema

Bounds = tuple[int, int]
BoundsOf = Callable[[tuple[str, ...]], Bounds | None]
"""The least and greatest value of a column of integers or (unscaled) decimals, where known."""

DIGITS_MAX = 38
SCALE_KEPT = 6
"""Up to this scale Spark does not round the result of decimals, whatever its settings are."""
FLOAT_DIGITS = 15
"""Decimals of so many digits become the nearest float by one division."""
NEGATED_DIGITS = 34
"""Spark rounds decimals to so many digits when it negates them (Java's MathContext DECIMAL128)."""
INTEGERS: dict[type[st.DataType], int] = {
    st.ByteType: 8,
    st.ShortType: 16,
    st.IntegerType: 32,
    st.LongType: 64,
}
FLOATS = (st.FloatType, st.DoubleType)
_EXTRACTED = {"YEAR", "QUARTER", "MONTH", "DAY"}


class MayOverflow(NotTheSame):
    """A result may be too large for its type."""


def evaluated(node: Node, bounds_of: BoundsOf) -> Expression:
    """The counterpart of an expression.

    bounds_of: Called only if without the bounds of columns a result may be too large for its type.
    Raises NotTheSame: A part has no exact counterpart.
    """
    try:
        return typed(node, None)
    except MayOverflow:
        return typed(node, bounds_of)


def condition_of(node: Node, bounds_of: BoundsOf) -> Expression:
    """The counterpart of a predicate that is about columns, and never fails; see `evaluated`."""
    condition = evaluated(node, bounds_of)
    is_boolean = isinstance(condition.type, st.BooleanType)
    if not is_boolean or condition.may_fail or not condition.columns():
        raise NotTheSame(node.operation)
    return condition


def typed(node: Node, bounds_of: BoundsOf | None) -> Expression:
    """The counterpart, with the types and the bounds of all results; see `evaluated`."""
    name = node.operation
    if name == COLUMN:
        return _column(node, bounds_of)
    if name == LITERAL:
        return _literal(node)
    children = tuple(typed(child, bounds_of) for child in node.children)
    if name == CAST:
        return _cast(children[0], _spark_type(node.type))
    if name == EXTRACT:
        return _extract(node.value, children[0])
    return _MAKERS[name](name, children)


def _column(node: Node, bounds_of: BoundsOf | None) -> Expression:
    path, dtype = node.column
    spark_type = spark_schema(pa.schema([("value", dtype)]), where="column")[0].dataType
    if not isinstance(spark_type, st.DecimalType) and type(spark_type) not in ARROW_TYPES:
        raise NotTheSame(f"{path} of type {dtype}")
    bounds = _range(spark_type)
    if bounds is not None and bounds_of is not None:
        bounds = bounds_of(path) or bounds
    return Expression(COLUMN, spark_type, value=path, bounds=bounds)


def _spark_type(java_type: Any) -> st.DataType:
    if java_type is None:
        return st.BooleanType()
    return _parse_datatype_json_string(java_type.json())


def _range(dtype: st.DataType) -> Bounds | None:
    """The least and the greatest integer or unscaled decimal of a type."""
    if isinstance(dtype, st.DecimalType):
        most = int(10**dtype.precision) - 1
        return -most, most
    bits = INTEGERS.get(type(dtype))
    return None if bits is None else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _exact(
    name: str, dtype: st.DataType, children: tuple[Expression, ...], least: int, greatest: int
) -> Expression:
    """An expression of integers or decimals whose results fit its type.

    Only decimals of all digits may be too large: then evaluation fails, as it does in Spark.
    """
    allowed = _range(dtype)
    assert allowed is not None
    first, *others = children
    if any(child.may_fail for child in others):  # Spark does not evaluate them if the first is null
        raise MayOverflow(f"{name} of what may be too large")
    fails = first.may_fail
    if least < allowed[0] or greatest > allowed[1]:
        if not isinstance(dtype, st.DecimalType) or dtype.precision < DIGITS_MAX:
            raise MayOverflow(f"{name} may be too large for {dtype.simpleString()}")
        least, greatest = (max(allowed[0], min(allowed[1], bound)) for bound in (least, greatest))
        fails = True
    return Expression(name, dtype, children, bounds=(least, greatest), may_fail=fails)


def _literal(node: Node) -> Expression:
    dtype, value = _spark_type(node.type), node.value
    allowed = _range(dtype)
    if allowed is not None:
        if isinstance(dtype, st.DecimalType) and value is not None:
            value = unscaled_integer(value, dtype.scale)
        bounds = (0, 0) if value is None else (int(value), int(value))
        return Expression(LITERAL, dtype, value=value, bounds=bounds)
    if type(dtype) not in ARROW_TYPES or dtype.simpleString() != ARROW_NAMES[type(dtype)]:
        raise NotTheSame(dtype.simpleString())
    if isinstance(value, float) and str(value) == "-0.0":
        raise NotTheSame("-0.0")
    return Expression(LITERAL, dtype, value=value)


ARROW_NAMES = {dtype: dtype().simpleString() for dtype in ARROW_TYPES}
"""Types without a collation or other attributes."""


def _same_type(children: Sequence[Expression]) -> st.DataType:
    types = {child.type for child in children}
    if len(types) != 1:
        raise NotTheSame(f"different types {sorted(dtype.simpleString() for dtype in types)}")
    return children[0].type


def _are_decimals(children: Sequence[Expression]) -> bool:
    return all(isinstance(child.type, st.DecimalType) for child in children)


def _added(name: str, children: tuple[Expression, ...]) -> Expression:
    if len(children) == 1 and name == "-":
        return _negated(children)
    left, right = children
    if not left.is_exact or not right.is_exact:
        return _of_floats(name, children)
    dtype = _decimal_sum(left.type, right.type) if _are_decimals(children) else _same_type(children)
    scale = max(left.scale, right.scale)
    (low, high), (less, more) = (_scaled(child, scale) for child in children)
    if name == "-":
        less, more = -more, -less
    return _exact(name, dtype, children, low + less, high + more)


def _negated(children: tuple[Expression, ...]) -> Expression:
    (child,) = children
    if child.bounds is None:
        return _of_floats("NEGATE", children)
    _check_negation(child)
    return _exact("NEGATE", child.type, children, -child.bounds[1], -child.bounds[0])


def _check_negation(child: Expression) -> None:
    assert child.bounds is not None
    if isinstance(child.type, st.DecimalType) and _digits(child.bounds) > NEGATED_DIGITS:
        raise MayOverflow("a decimal that Spark rounds when it negates it")


def _multiplied(name: str, children: tuple[Expression, ...]) -> Expression:
    left, right = children
    if left.bounds is None or right.bounds is None:
        return _of_floats(name, children)
    if _digits(left.bounds) + _digits(right.bounds) >= WIDE_DIGITS_MAX:
        raise NotTheSame("factors of too many digits")
    decimal = _are_decimals(children)
    dtype = _decimal_product(left.type, right.type) if decimal else _same_type(children)
    corners = [one * other for one in left.bounds for other in right.bounds]
    return _exact(name, dtype, children, min(corners), max(corners))


def _digits(bounds: Bounds) -> int:
    return len(str(max(map(abs, bounds))))


def _of_floats(name: str, children: tuple[Expression, ...]) -> Expression:
    dtype = _same_type(children)
    if not isinstance(dtype, FLOATS):
        raise NotTheSame(f"{name} of {dtype.simpleString()}")
    return Expression(name, dtype, children, may_fail=any(child.may_fail for child in children))


def _divided(name: str, children: tuple[Expression, ...]) -> Expression:
    if children[1].operation != LITERAL or not children[1].value:
        raise NotTheSame("a division that may be by zero")
    return _of_floats(name, children)


def _remainder(name: str, children: tuple[Expression, ...]) -> Expression:
    """Of integers, by a number that is not 0: it has the sign of the dividend."""
    left, right = children
    dtype = _same_type(children)
    if type(dtype) not in INTEGERS:
        raise NotTheSame(f"{name} of {dtype.simpleString()}")
    if right.operation != LITERAL or not right.value:
        raise NotTheSame("a remainder that may be by zero")
    assert left.bounds is not None
    most = abs(right.value) - 1
    low, high = max(left.bounds[0], -most), min(left.bounds[1], most)
    return _exact(name, dtype, children, min(low, 0), max(high, 0))


def _scaled(child: Expression, scale: int) -> Bounds:
    """The bounds of a child with more digits after the decimal point."""
    assert child.bounds is not None
    more = scale - child.scale
    # Arrow gives a product a digit more than its factors have, and a sum one more than that.
    if more and _digits(child.bounds) + (more + 1) + 2 > WIDE_DIGITS_MAX:
        raise NotTheSame("decimals of too different scales")
    factor = 10**more
    return child.bounds[0] * factor, child.bounds[1] * factor


def _decimal(digits: int, scale: int) -> st.DecimalType:
    if digits > DIGITS_MAX and scale > SCALE_KEPT:
        raise NotTheSame("a decimal that may be rounded")
    return st.DecimalType(min(digits, DIGITS_MAX), scale)


def _decimal_sum(left: Any, right: Any) -> st.DataType:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return _decimal(whole + scale + 1, scale)


def _decimal_product(left: Any, right: Any) -> st.DataType:
    return _decimal(left.precision + right.precision + 1, left.scale + right.scale)


def _absolute(name: str, children: tuple[Expression, ...]) -> Expression:
    (child,) = children
    if child.bounds is None:
        return _of_floats(name, children)
    _check_negation(child)
    low, high = child.bounds
    return _exact(name, child.type, children, 0, max(abs(low), abs(high)))


def _cast(child: Expression, dtype: st.DataType) -> Expression:
    if child.type == dtype:
        return child
    given = child.type
    if child.is_exact and _range(dtype) is not None:
        scale = dtype.scale if isinstance(dtype, st.DecimalType) else 0
        if scale < child.scale:
            raise NotTheSame("a cast that rounds")
        return _exact("CAST", dtype, (child,), *_scaled(child, scale))
    is_short = isinstance(given, st.DecimalType) and given.precision <= FLOAT_DIGITS
    if isinstance(dtype, st.DoubleType) and (type(given) in INTEGERS or is_short):
        return Expression("CAST", dtype, (child,), may_fail=child.may_fail)
    if isinstance(dtype, st.DoubleType) and isinstance(given, st.FloatType):
        return Expression("CAST", dtype, (child,), may_fail=child.may_fail)
    raise NotTheSame(f"a cast from {given.simpleString()} to {dtype.simpleString()}")


def _extract(part: str, child: Expression) -> Expression:
    if part not in _EXTRACTED or not isinstance(child.type, st.DateType | st.TimestampNTZType):
        raise NotTheSame(f"{part} of {child.type.simpleString()}")
    dtype = st.IntegerType()
    return Expression("EXTRACT", dtype, (child,), part, _range(dtype))


def _chosen(name: str, children: tuple[Expression, ...]) -> Expression:
    """CASE WHEN and COALESCE: one of some values."""
    _never_fail(name, children)
    values = children
    if name == "CASE_WHEN":
        conditions = children[: len(children) // 2 * 2 : 2]
        if any(not isinstance(condition.type, st.BooleanType) for condition in conditions):
            raise NotTheSame("a condition that is not boolean")
        values = children[1::2] + children[len(children) // 2 * 2 :]
    dtype = _same_type(values)
    bounds = [value.bounds for value in values if value.bounds is not None]
    if not bounds:
        return Expression(name, dtype, children)
    return _exact(name, dtype, children, min(b[0] for b in bounds), max(b[1] for b in bounds))


def _never_fail(name: str, children: tuple[Expression, ...]) -> None:
    """Spark evaluates some operands only where it needs them."""
    if any(child.may_fail for child in children):
        raise NotTheSame(f"{name} of what may be too large")


def _compared(name: str, children: tuple[Expression, ...]) -> Expression:
    _never_fail(name, children)
    if not _are_decimals(children):
        _same_type(children)
    scale = max(child.scale for child in children)
    for child in children:
        if child.is_exact:
            _scaled(child, scale)
    if name in _OF_STRINGS:
        pattern = children[1]
        if pattern.operation != LITERAL or not isinstance(pattern.value, str):
            raise NotTheSame(f"{name} without a pattern")
    return Expression(name, st.BooleanType(), children)


def _logical(name: str, children: tuple[Expression, ...]) -> Expression:
    if any(not isinstance(child.type, st.BooleanType) for child in children):
        raise NotTheSame(f"{name} of values that are not boolean")
    return Expression(name, st.BooleanType(), children)


def _tested(name: str, children: tuple[Expression, ...]) -> Expression:
    _never_fail(name, children)
    return Expression(name, st.BooleanType(), children)


def _boolean(name: str, children: tuple[Expression, ...]) -> Expression:
    return _logical(name, children).children[0]


_OF_STRINGS = ("STARTS_WITH", "ENDS_WITH", "CONTAINS")
_MAKERS: dict[str, Callable[[str, tuple[Expression, ...]], Expression]] = {
    "+": _added,
    "-": _added,
    "*": _multiplied,
    "/": _divided,
    "%": _remainder,
    "ABS": _absolute,
    "CASE_WHEN": _chosen,
    "COALESCE": _chosen,
    **dict.fromkeys(["=", "<>", "<", "<=", ">", ">=", "<=>", "IN", *_OF_STRINGS], _compared),
    **dict.fromkeys(["AND", "OR", "NOT"], _logical),
    **dict.fromkeys(["IS_NULL", "IS_NOT_NULL"], _tested),
    "BOOLEAN_EXPRESSION": _boolean,
}
"""Makes each operation, by Spark's name."""
