"""Expressions over columns, evaluated on record batches exactly as Spark evaluates them on rows.

Integers and decimals are 64-bit integers while they are evaluated: a decimal is its unscaled value,
and the type of the expression has the scale. Values that do not fit are evaluated as decimals of up
to 76 digits. Whoever makes an expression proves that no result is too large for its type, and that
76 digits are enough, so evaluation never overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import types as st

from fermion.exports import dataclass

Values = Any  # an array, or a scalar that is the same for all rows

COLUMN, LITERAL = "column", "literal"
WIDE_DIGITS_MAX = 76
"""Digits of the decimals that what does not fit into 64 bits is evaluated as."""
_SIGN = 63
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression. Picklable.

    operation: `COLUMN`, `LITERAL`, or a name of `OPERATIONS`.
    type: Of the result, in Spark.
    children: The operands.
    value: The path of a column; the value of a literal, unscaled if it is a decimal; the part of a
        date that is extracted.
    bounds: The least and the greatest possible result of an integer or (unscaled) decimal,
        inclusive.
    may_fail: Whether results may be outside of the bounds, which is an error.
    """

    operation: str
    type: st.DataType
    children: tuple[Expression, ...] = ()
    value: Any = None
    bounds: tuple[int, int] | None = None
    may_fail: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the results are integers or decimals."""
        return self.bounds is not None

    @property
    def scale(self) -> int:
        """Digits after the decimal point."""
        return self.type.scale if isinstance(self.type, st.DecimalType) else 0

    def __hash__(self) -> int:
        """Of the operations of two levels: an evaluator looks each expression up for each batch."""
        return hash((self.operation, self.value, *(child.operation for child in self.children)))

    def columns(self) -> set[tuple[str, ...]]:
        """The paths of all columns in it."""
        if self.operation == COLUMN:
            return {self.value}
        return {path for child in self.children for path in child.columns()}


class Evaluator:
    """Evaluates expressions on a record batch, in the types that Spark takes, each of them once.

    `is_wide` evaluates integers and decimals as decimals of up to 76 digits.
    """

    def __init__(self, batch: pa.RecordBatch, is_wide: bool = False) -> None:
        self.is_wide = is_wide
        self._batch = batch
        self._known: dict[Expression, Values] = {}

    def array(self, expression: Expression) -> pa.Array:
        """The results, one for each row.

        Raises pyarrow.ArrowInvalid: An integer or decimal does not fit into 64 bits (unless
            `is_wide`).
        """
        values = self.values(expression)
        if isinstance(values, pa.Scalar):
            return pa.repeat(values, self._batch.num_rows)
        return values

    def values(self, expression: Expression) -> Values:
        """As `array`, but one scalar if all rows have the same result."""
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._evaluated(expression)
        return known

    @cached_property
    def ones(self) -> pa.Array:
        """One for each row."""
        return pa.repeat(pa.scalar(1, pa.int64()), self._batch.num_rows)

    def exact(self, expression: Expression, scale: int) -> Values:
        """Integers or decimals, with another number of digits after the decimal point."""
        values = self.values(expression)
        if scale == expression.scale:
            return values
        return self.multiplied(values, self._exact_scalar(10 ** (scale - expression.scale)))

    def multiplied(self, left: Values, right: Values) -> Values:
        """The products of integers or decimals."""
        return pc.multiply(left, right) if self.is_wide else pc.multiply_checked(left, right)

    def _evaluated(self, expression: Expression) -> Values:
        if expression.operation == COLUMN:
            values = column_of(self._batch, expression.value)
            return self._exact_column(values, expression) if expression.is_exact else values
        if expression.operation == LITERAL:
            if expression.is_exact:
                return self._exact_scalar(expression.value)
            return pa.scalar(expression.value, arrow_type(expression.type))
        return self.fitted(OPERATIONS[expression.operation](self, expression), expression)

    def fitted(self, values: Values, expression: Expression) -> Values:
        """Decimals with the digits that bounds need: Arrow adds digits to every result."""
        if not self.is_wide or expression.bounds is None:
            return values
        return values.cast(_wide_type(expression.bounds))

    def _exact_scalar(self, value: int | None) -> pa.Scalar:
        if not self.is_wide:
            if value is not None and not -(2**63) <= value < 2**63:
                raise pa.ArrowInvalid("a literal does not fit into 64 bits")
            return pa.scalar(value, pa.int64())
        number = 0 if value is None else value
        wide = _wide_type((number, number))
        return pa.scalar(None if value is None else str(value), pa.string()).cast(wide)

    def _exact_column(self, values: pa.Array, expression: Expression) -> pa.Array:
        if self.is_wide:
            return self.fitted(_unscaled_wide(values), expression)
        return unscaled(values) if pat.is_decimal(values.type) else values.cast(pa.int64())


def arrow_type(dtype: st.DataType) -> pa.DataType:
    """The Arrow type of a column of a Spark type, of those that can be evaluated."""
    if isinstance(dtype, st.DecimalType):
        return pa.decimal128(dtype.precision, dtype.scale)
    return ARROW_TYPES[type(dtype)]


ARROW_TYPES: dict[type[st.DataType], pa.DataType] = {
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
}
"""Types of columns that expressions can have, beside decimals."""


def unscaled(values: pa.Array) -> pa.Array:
    """Decimals (128 bits) as 64-bit integers, without their decimal point.

    Raises pyarrow.ArrowInvalid: One does not fit.
    """
    words = _words(values, 2)
    low, high = words[0::2], words[1::2]
    if values.type.precision > 18:
        fits = high == (low >> _SIGN)
        if values.null_count:
            fits |= ~np.unpackbits(
                np.frombuffer(_validity(values), np.uint8), count=len(values), bitorder="little"
            ).view(bool)
        if not fits.all():
            raise pa.ArrowInvalid("a decimal does not fit into 64 bits")
    return _with_nulls_of(values, np.ascontiguousarray(low), pa.int64())


def decimals(values: pa.Array, dtype: pa.Decimal128Type) -> pa.Array:
    """Unscaled integers, or decimals without a scale, as decimals of a type."""
    if pat.is_decimal(values.type):
        whole = values.cast(pa.decimal128(38, 0))
        words = _words(whole, 2)
        return _with_nulls_of(whole, words, dtype)
    low = _words(values, 1)
    return _with_nulls_of(values, np.stack([low, low >> _SIGN], axis=1), dtype)


def ordered(values: pa.Array) -> pa.Array:
    """Floats as integers in Spark's order: NaN is equal to NaN and greater than all others."""
    wide = values.cast(pa.float64())
    floats = _words(wide, 1).view(np.float64)
    bits = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    return _with_nulls_of(wide, _turned(bits), pa.int64())


def floats_of(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """The inverse of `ordered`."""
    return _with_nulls_of(values, _turned(_words(values, 1)), pa.float64()).cast(dtype)


def _turned(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of floats ⇄ integers in the same order: of negative floats the order is reversed."""
    return bits ^ ((bits >> _SIGN) & _MAGNITUDE)


def _words(values: pa.Array, words_per_value: int) -> np.ndarray[Any, Any]:
    """The 64-bit words of fixed-width values, a view; those of nulls have no meaning."""
    data = values.buffers()[1]
    start = values.offset * words_per_value
    stop = start + len(values) * words_per_value
    return np.frombuffer(data, np.int64, stop)[start:] if len(values) else np.empty(0, np.int64)


def _validity(values: pa.Array) -> pa.Buffer:
    bits = values.is_valid()
    assert bits.offset == 0
    return bits.buffers()[1]


def _with_nulls_of(values: pa.Array, words: np.ndarray[Any, Any], dtype: pa.DataType) -> pa.Array:
    validity = _validity(values) if values.null_count else None
    data = pa.py_buffer(np.ascontiguousarray(words))
    return pa.Array.from_buffers(dtype, len(values), [validity, data])


def _wide_type(bounds: tuple[int, int]) -> pa.DataType:
    return pa.decimal256(len(str(max(map(abs, bounds)))), 0)


def _unscaled_wide(values: pa.Array) -> pa.Array:
    if pat.is_decimal(values.type):
        values = _with_nulls_of(values, _words(values, 2), pa.decimal128(38, 0))
        return values.cast(pa.decimal256(38, 0))
    return values.cast(pa.int64()).cast(pa.decimal256(19, 0))


def column_of(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """A column of a batch, or a field within structs: null where a struct is."""
    values = batch.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, name)
    return values


def _sum(evaluator: Evaluator, expression: Expression) -> Values:
    left, right = _operands(evaluator, expression)
    return (pc.add if evaluator.is_wide else pc.add_checked)(left, right)


def _difference(evaluator: Evaluator, expression: Expression) -> Values:
    left, right = _operands(evaluator, expression)
    return (pc.subtract if evaluator.is_wide else pc.subtract_checked)(left, right)


def _operands(evaluator: Evaluator, expression: Expression) -> list[Values]:
    if not expression.is_exact:
        return [evaluator.values(child) for child in expression.children]
    return [evaluator.exact(child, expression.scale) for child in expression.children]


def _product(evaluator: Evaluator, expression: Expression) -> Values:
    left, right = map(evaluator.values, expression.children)
    return evaluator.multiplied(left, right) if expression.is_exact else pc.multiply(left, right)


def _quotient(evaluator: Evaluator, expression: Expression) -> Values:
    return pc.divide(*map(evaluator.values, expression.children))


def _remainder(evaluator: Evaluator, expression: Expression) -> Values:
    """Of integers: `divide` rounds towards zero, as Java does; only a divisor of -1 overflows."""
    left, right = expression.children
    values, divisor = evaluator.values(left), pa.scalar(abs(right.value), pa.int64())
    if evaluator.is_wide:
        values = values.cast(pa.decimal128(38, 0)).cast(pa.int64())
    rest = pc.subtract(values, pc.multiply(pc.divide(values, divisor), divisor))
    return rest.cast(pa.decimal256(19, 0)) if evaluator.is_wide else rest


def _negative(evaluator: Evaluator, expression: Expression) -> Values:
    values = evaluator.values(expression.children[0])
    is_checked = expression.is_exact and not evaluator.is_wide
    return (pc.negate_checked if is_checked else pc.negate)(values)


def _absolute(evaluator: Evaluator, expression: Expression) -> Values:
    values = evaluator.values(expression.children[0])
    is_checked = expression.is_exact and not evaluator.is_wide
    return (pc.abs_checked if is_checked else pc.abs)(values)


def _cast(evaluator: Evaluator, expression: Expression) -> Values:
    (child,) = expression.children
    if expression.is_exact:
        return evaluator.exact(child, expression.scale)
    values = evaluator.values(child)
    if evaluator.is_wide and child.is_exact:
        # Only integers of 64 bits and short decimals become floats.
        values = values.cast(pa.decimal128(38, 0)).cast(pa.int64())
    values = values.cast(pa.float64(), safe=False)  # rounds as Spark does
    if child.scale:
        values = pc.divide(values, pa.scalar(10.0**child.scale))
    return values.cast(arrow_type(expression.type), safe=False)


def _case(evaluator: Evaluator, expression: Expression) -> Values:
    children = list(expression.children)
    if len(children) % 2:
        chosen = evaluator.fitted(evaluator.values(children.pop()), expression)
    elif expression.is_exact:
        chosen = evaluator.fitted(evaluator._exact_scalar(None), expression)
    else:
        chosen = pa.scalar(None, arrow_type(expression.type))
    pairs = list(zip(children[::2], children[1::2], strict=True))
    for condition, value in reversed(pairs):
        holds = pc.fill_null(evaluator.values(condition), False)
        chosen = pc.if_else(holds, evaluator.fitted(evaluator.values(value), expression), chosen)
    return chosen


def _coalesce(evaluator: Evaluator, expression: Expression) -> Values:
    each = (evaluator.values(child) for child in expression.children)
    return pc.coalesce(*(evaluator.fitted(values, expression) for values in each))


def _comparison(name: str) -> Callable[[Evaluator, Expression], Values]:
    compare = getattr(pc, name)

    def compared(evaluator: Evaluator, expression: Expression) -> Values:
        return compare(*_comparable(evaluator, expression.children))

    return compared


def _comparable(evaluator: Evaluator, children: tuple[Expression, ...]) -> list[Values]:
    """Two operands that Arrow compares as Spark does."""
    if all(child.is_exact for child in children):
        scale = max(child.scale for child in children)
        return [evaluator.exact(child, scale) for child in children]
    if isinstance(children[0].type, st.FloatType | st.DoubleType):
        # Added to zero, -0.0 becomes 0.0: the two are equal.
        return [ordered(pc.add(evaluator.array(child), 0.0)) for child in children]
    return [evaluator.values(child) for child in children]


def _equal_null_safe(evaluator: Evaluator, expression: Expression) -> Values:
    left, right = _comparable(evaluator, expression.children)
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both, pc.fill_null(pc.equal(left, right), False))


def _of_arrow(name: str) -> Callable[[Evaluator, Expression], Values]:
    function = getattr(pc, name)

    def called(evaluator: Evaluator, expression: Expression) -> Values:
        return function(*map(evaluator.values, expression.children))

    return called


def _any_equal(evaluator: Evaluator, expression: Expression) -> Values:
    subject, *wanted = expression.children
    result: Values | None = None
    for candidate in wanted:
        equal = pc.equal(*_comparable(evaluator, (subject, candidate)))
        result = equal if result is None else pc.or_kleene(result, equal)
    assert result is not None
    return result


def _pattern(name: str) -> Callable[[Evaluator, Expression], Values]:
    function = getattr(pc, name)

    def matched(evaluator: Evaluator, expression: Expression) -> Values:
        subject, pattern = expression.children
        return function(evaluator.values(subject), pattern=pattern.value)

    return matched


def _extracted(evaluator: Evaluator, expression: Expression) -> Values:
    part = getattr(pc, expression.value.lower())(evaluator.values(expression.children[0]))
    return part.cast(pa.decimal256(19, 0)) if evaluator.is_wide else part


OPERATIONS: dict[str, Callable[[Evaluator, Expression], Values]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "%": _remainder,
    "NEGATE": _negative,
    "ABS": _absolute,
    "CAST": _cast,
    "CASE_WHEN": _case,
    "COALESCE": _coalesce,
    "EXTRACT": _extracted,
    "=": _comparison("equal"),
    "<>": _comparison("not_equal"),
    "<": _comparison("less"),
    "<=": _comparison("less_equal"),
    ">": _comparison("greater"),
    ">=": _comparison("greater_equal"),
    "<=>": _equal_null_safe,
    "AND": _of_arrow("and_kleene"),
    "OR": _of_arrow("or_kleene"),
    "NOT": _of_arrow("invert"),
    "IS_NULL": _of_arrow("is_null"),
    "IS_NOT_NULL": _of_arrow("is_valid"),
    "IN": _any_equal,
    "STARTS_WITH": _pattern("starts_with"),
    "ENDS_WITH": _pattern("ends_with"),
    "CONTAINS": _pattern("match_substring"),
}
"""Evaluates each operation, by Spark's name; `NEGATE` is Spark's ``-`` of one operand."""
