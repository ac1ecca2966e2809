"""Spark's expressions and aggregates → those that tasks evaluate, where both mean the same.

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
from spark_ext.aggregation.groups import COUNT, MAX, MIN, SUM, Aggregate, Grouping
from spark_ext.catalog.callbacks import kind_of, listed
from spark_ext.catalog.predicates import NotTheSame, column_of, is_a, literal_value
from spark_ext.types import spark_schema

Bounds = tuple[int, int]
BoundsOf = Callable[[tuple[str, ...]], Bounds | None]

DIGITS_MAX = 38
SCALE_KEPT = 6
"""Up to this scale Spark does not round the result of decimals, whatever its settings are."""
FLOAT_DIGITS = 15
"""Decimals of so many digits become the nearest float by one division."""
NEGATED_DIGITS = 34
"""Spark rounds decimals to so many digits when it negates them (Java's MathContext DECIMAL128)."""
_INTEGERS: dict[type[st.DataType], int] = {
    st.ByteType: 8,
    st.ShortType: 16,
    st.IntegerType: 32,
    st.LongType: 64,
}
_FLOATS = (st.FloatType, st.DoubleType)
_KINDS = {"Sum": SUM, "Min": MIN, "Max": MAX, "Count": COUNT}
_EXTRACTED = {"YEAR", "QUARTER", "MONTH", "DAY"}


class MayOverflow(NotTheSame):
    """A result may be too large for its type."""


def grouping_of(
    keys: Sequence[Any], functions: Sequence[Any], schema: pa.Schema, bounds_of: BoundsOf
) -> Grouping:
    """The counterpart of an aggregation.

    Parameters
    ----------
    keys
        ``org.apache.spark.sql.connector.expressions.Expression``.
    functions
        ``org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc``.
    schema
        Of the table.
    bounds_of
        The least and greatest value of a column of integers or (unscaled) decimals, where they are
        known. Called only if without them a result may be too large for its type.

    Raises
    ------
    NotTheSame
        A part has no exact counterpart.
    """
    translator = _Translator(schema, bounds_of)
    return Grouping(
        tuple(translator.expression(key) for key in keys),
        tuple(translator.aggregate(function) for function in functions),
    )


def condition_of(node: Any, schema: pa.Schema, bounds_of: BoundsOf) -> Expression:
    """The counterpart of a predicate.

    Parameters
    ----------
    node
        ``org.apache.spark.sql.connector.expressions.filter.Predicate``.
    schema, bounds_of
        See `grouping_of`.

    Raises
    ------
    NotTheSame
        It has no exact counterpart, may fail, or is about no column.
    """
    found = _Translator(schema, bounds_of).expression(node)
    if not isinstance(found.type, st.BooleanType) or found.may_fail or not found.columns():
        raise NotTheSame(node.toString())
    return found


def averaged(functions: Sequence[Any], schema: pa.Schema, bounds_of: BoundsOf) -> list[Expression]:
    """What the averages among some aggregates are of, where it is integers.

    Spark averages integers as floats, but asks for their sum as an integer, which may overflow.

    Raises
    ------
    NotTheSame
        It has no exact counterpart.
    """
    translator = _Translator(schema, bounds_of)
    averages = [function for function in functions if is_a(function, "Avg")]
    found = [
        translator.expression(listed(function.children())[0], bounded=True) for function in averages
    ]
    return [each for each in found if type(each.type) in _INTEGERS]


def fits_sum(expression: Expression, rows: int) -> bool:
    """Whether the sum of an integer expression over so many rows fits a LONG."""
    assert expression.bounds is not None
    most = max(map(abs, expression.bounds))
    return most * rows < 2**63


class _Translator:
    def __init__(self, schema: pa.Schema, bounds_of: BoundsOf) -> None:
        self._schema = schema
        self._bounds_of = bounds_of
        self._is_bounded = False

    def aggregate(self, function: Any) -> Aggregate:
        kind = kind_of(function)
        if kind == "CountStar":
            return Aggregate(COUNT)
        if kind not in _KINDS:
            raise NotTheSame(kind)
        if kind in ("Sum", "Count") and function.isDistinct():
            raise NotTheSame("DISTINCT")
        (child,) = listed(function.children())
        of = self.expression(child)
        if kind == "Sum" and not (of.is_exact or isinstance(of.type, _FLOATS)):
            raise NotTheSame(f"sum of {of.type.simpleString()}")
        return Aggregate(_KINDS[kind], of)

    def expression(self, node: Any, bounded: bool = False) -> Expression:
        """Translate; only if a result may overflow, with the bounds of the columns."""
        self._is_bounded = bounded
        try:
            return self._node(node)
        except MayOverflow:
            if bounded:
                raise
            return self.expression(node, bounded=True)

    def _node(self, node: Any) -> Expression:
        kind = kind_of(node)
        if kind == "LiteralValue":
            return _literal(node)
        if kind == "FieldReference":
            return self._column(node)
        if kind == "Cast":
            return _cast(self._node(node.expression()), _spark_type(node.dataType()))
        if kind == "Extract":
            return _extract(node.field(), self._node(node.source()))
        if kind in _CONSTANTS:
            return Expression(LITERAL, st.BooleanType(), value=_CONSTANTS[kind])
        if kind not in ("GeneralScalarExpression", "Predicate", "And", "Or", "Not"):
            raise NotTheSame(node.toString())
        name = node.name()
        make = _MAKERS.get(name)
        if make is None:
            raise NotTheSame(name)
        return make(name, tuple(self._node(child) for child in listed(node.children())))

    def _column(self, node: Any) -> Expression:
        path, dtype = column_of(node, self._schema)
        held = spark_schema(pa.schema([("value", dtype)]), where="column")
        spark_type = held[0].dataType
        if not isinstance(spark_type, st.DecimalType) and type(spark_type) not in ARROW_TYPES:
            raise NotTheSame(f"{path} of type {dtype}")
        bounds = _range(spark_type)
        if bounds is not None and self._is_bounded:
            bounds = self._bounds_of(path) or bounds
        return Expression(COLUMN, spark_type, value=path, bounds=bounds)


_CONSTANTS = {"AlwaysTrue": True, "AlwaysFalse": False}


def _spark_type(java_type: Any) -> st.DataType:
    return _parse_datatype_json_string(java_type.json())


def _range(dtype: st.DataType) -> Bounds | None:
    """The least and the greatest integer or unscaled decimal of a type."""
    if isinstance(dtype, st.DecimalType):
        most = int(10**dtype.precision) - 1
        return -most, most
    bits = _INTEGERS.get(type(dtype))
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
        least, greatest = (max(allowed[0], min(allowed[1], each)) for each in (least, greatest))
        fails = True
    return Expression(name, dtype, children, bounds=(least, greatest), may_fail=fails)


def _literal(node: Any) -> Expression:
    dtype, value = _spark_type(node.dataType()), literal_value(node)
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
        raise NotTheSame(f"different types {sorted(each.simpleString() for each in types)}")
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
    if not isinstance(dtype, _FLOATS):
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
    if type(dtype) not in _INTEGERS:
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
    if isinstance(dtype, st.DoubleType) and (type(given) in _INTEGERS or is_short):
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
        if any(not isinstance(each.type, st.BooleanType) for each in conditions):
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
    if any(not isinstance(each.type, st.BooleanType) for each in children):
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
