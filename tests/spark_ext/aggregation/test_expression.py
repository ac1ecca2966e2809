"""Expressions of integers and decimals give the exact results, whatever their size."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql import types as st

from spark_ext.aggregation.condition import Condition
from spark_ext.aggregation.expression import (
    COLUMN,
    LITERAL,
    Evaluator,
    Expression,
    arrow_type,
    decimals,
)
from spark_ext.catalog import expressions
from spark_ext.catalog.nodes import NotTheSame

TYPES: dict[str, st.DataType] = {
    "a": st.DecimalType(18, 2),
    "b": st.DecimalType(19, 0),
    "c": st.DecimalType(20, 6),
    "d": st.DecimalType(38, 0),
    "e": st.DecimalType(38, 6),
    "f": st.DecimalType(38, 38),
    "g": st.DecimalType(34, 1),
    "k": st.LongType(),
    "i": st.IntegerType(),
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def limits(dtype: st.DataType) -> tuple[int, int]:
    found = expressions._range(dtype)
    assert found is not None
    return found


def column(name: str) -> Expression:
    return Expression(COLUMN, TYPES[name], value=(name,), bounds=limits(TYPES[name]))


def literal(unscaled: int, digits: int, scale: int) -> Expression:
    dtype = st.DecimalType(digits, scale)
    return Expression(LITERAL, dtype, value=unscaled, bounds=(unscaled, unscaled))


def near_limits(dtype: st.DataType) -> some.SearchStrategy[int]:
    """Unscaled values of a type: its limits, those of 64 bits, and around."""
    low, high = limits(dtype)
    edges = [low, high, 0, 1, -1, 2**63 - 1, 2**63, -(2**63), 10**18]
    return some.sampled_from([max(low, min(high, each)) for each in edges]) | some.integers(
        low, high
    )


def batch_of(rows: list[dict[str, int | None]]) -> pa.RecordBatch:
    arrays = []
    for name, dtype in TYPES.items():
        target = arrow_type(dtype)
        values = [row[name] for row in rows]
        if isinstance(dtype, st.DecimalType):
            scaled = [
                None if each is None else Decimal(f"{each}e{-dtype.scale}") for each in values
            ]
            arrays.append(pa.array(scaled, target))
        else:
            arrays.append(pa.array(values, target))
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


class TooLarge(Exception):
    """A decimal of more than 38 digits, which is an error in Spark."""


def expected(expression: Expression, row: dict[str, int | None]) -> Any:
    """The value in exact numbers; None for null. Operands are evaluated in Spark's order."""
    found = _expected(expression, row)
    if isinstance(found, Fraction) and abs(found) * 10**expression.scale >= 10**38:
        raise TooLarge
    return found


def _expected(expression: Expression, row: dict[str, int | None]) -> Any:

    def of(child: Expression) -> Any:
        return expected(child, row)

    name, children = expression.operation, expression.children
    if name in (COLUMN, LITERAL):
        raw = row[expression.value[0]] if name == COLUMN else expression.value
        return None if raw is None else Fraction(raw, 10**expression.scale)
    if name == "CASE_WHEN":
        chosen = children[1] if of(children[0]) else children[2]
        return of(chosen)
    if name == "COALESCE":
        return next((each for each in map(of, children) if each is not None), None)
    values = []
    for child in children:
        values.append(of(child))
        if values[-1] is None:
            return None
    if name in COMPARISONS:
        return COMPARISONS[name](*values)
    if name == "NEGATE":
        return -values[0]
    if name == "ABS":
        return abs(values[0])
    if name == "CAST":
        return values[0]
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[name](*values)


@some.composite
def numbers(draw: Any, depth: int = 3) -> Expression:
    """An expression of a number that Spark's translator would make."""
    if depth == 0 or draw(some.integers(0, 3)) == 0:
        if draw(some.booleans()):
            return column(draw(some.sampled_from(sorted(TYPES))))
        digits = draw(some.sampled_from([1, 18, 19, 20, 38]))
        scale = draw(some.integers(0, min(digits, 6)))
        return literal(draw(near_limits(st.DecimalType(digits, scale))), digits, scale)
    name = draw(some.sampled_from(["+", "-", "*", "*", "NEGATE", "ABS", "CASE_WHEN", "COALESCE"]))
    one = draw(numbers(depth - 1))
    try:
        if name in ("NEGATE", "ABS"):
            make = expressions._negated if name == "NEGATE" else expressions._absolute
            return make((one,)) if name == "NEGATE" else make(name, (one,))
        other = draw(numbers(depth - 1))
        if name in ("CASE_WHEN", "COALESCE"):
            other = expressions._cast(other, one.type)
            condition = draw(conditions(0))
            children = (condition, one, other) if name == "CASE_WHEN" else (one, other)
            return expressions._chosen(name, children)
        return expressions._MAKERS[name](name, (one, other))
    except NotTheSame:
        return one


@some.composite
def conditions(draw: Any, depth: int = 2) -> Expression:
    """A comparison that never fails."""
    name = draw(some.sampled_from(sorted(COMPARISONS)))
    while True:
        one, other = draw(numbers(depth)), draw(numbers(depth))
        try:
            return expressions._MAKERS[name](name, (one, other))
        except NotTheSame:
            depth = 0
            continue


ROWS = some.lists(
    some.fixed_dictionaries(
        {name: some.none() | near_limits(dtype) for name, dtype in TYPES.items()}
    ),
    min_size=1,
    max_size=4,
)


@given(conditions(), ROWS)
def test_conditions_on_numbers_near_the_limits_are_exact(
    expression: Expression, rows: list[dict[str, int | None]]
):
    batch = batch_of(rows)
    condition = pickle.loads(pickle.dumps(Condition(expression, batch.schema)))
    found = condition(*batch.columns).to_pylist()
    assert found == [expected(expression, row) for row in rows]


@given(numbers(), ROWS)
def test_numbers_near_the_limits_are_exact(
    expression: Expression, rows: list[dict[str, int | None]]
):
    """With 64 bits, where they are enough, and with as many digits as are needed."""
    batch = batch_of(rows)
    try:
        wanted = [expected(expression, row) for row in rows]
    except TooLarge:
        assert expression.may_fail
        for is_wide in (False, True):
            with pytest.raises(pa.ArrowInvalid):
                Evaluator(batch, is_wide=is_wide).array(expression)
        return
    for is_wide in (False, True):
        try:
            values = Evaluator(batch, is_wide=is_wide).array(expression)
        except pa.ArrowInvalid:
            assert not is_wide
            continue
        if isinstance(expression.type, st.DecimalType):
            values = decimals(values, arrow_type(expression.type))
        shown = [None if each is None else Fraction(each) for each in values.to_pylist()]
        assert shown == wanted


def test_a_product_of_two_decimals_beyond_64_bits_is_compared():
    """Arrow's product of two decimals of 38 digits would have 77."""
    a = column("a")
    product = expressions._multiplied("*", (a, a))
    condition = expressions._compared(">", (product, a))
    batch = batch_of([dict.fromkeys(TYPES) | {"a": value} for value in (10**18 - 1, -5, 0, None)])
    assert Condition(condition, batch.schema)(*batch.columns).to_pylist() == [
        True,
        True,
        False,
        None,
    ]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**38 - 1])
def test_a_literal_beyond_64_bits_is_evaluated(value: int):
    """Python's error about a number that is too large for 64 bits is not Arrow's."""
    b = column("d")
    chosen = expressions._chosen(
        "CASE_WHEN", (expressions._compared("<", (b, literal(0, 1, 0))), literal(value, 38, 0), b)
    )
    condition = expressions._compared("=", (chosen, literal(value, 38, 0)))
    batch = batch_of([dict.fromkeys(TYPES, value) for value in (-1, 1, None)])
    assert Condition(condition, batch.schema)(*batch.columns).to_pylist() == [True, False, None]


def test_decimals_whose_common_scale_needs_too_many_digits_are_left_to_spark():
    with pytest.raises(NotTheSame, match="too different scales"):
        expressions._compared("<", (column("d"), column("f")))


def test_negation_that_spark_rounds_is_left_to_spark():
    """It negates decimals of more than 34 digits with 34."""
    for make in (expressions._negated, lambda each: expressions._absolute("ABS", each)):
        assert make((column("g"),)).type == TYPES["g"]
        with pytest.raises(NotTheSame, match="rounds"):
            make((column("d"),))
    assert Context(prec=34).minus(Decimal(10**38 - 1)) != -(10**38 - 1)
