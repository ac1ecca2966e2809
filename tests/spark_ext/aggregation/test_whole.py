"""The result of one task from partial results, of which there may be many."""

from __future__ import annotations

import math
from decimal import Context, Decimal, Inexact, localcontext

import pyarrow as pa
from pyspark.sql import types as st

from spark_ext.aggregation.expression import COLUMN, Expression
from spark_ext.aggregation.groups import COUNT, MAX, MIN, SUM, Aggregate, Grouping
from spark_ext.aggregation.whole import are_sums_held, whole_row, whole_schema
from spark_ext.types import exchange_schema


def column(dtype, bounds=None):
    return Expression(COLUMN, dtype, value=("c",), bounds=bounds)


def decimal(digits, scale):
    return column(st.DecimalType(digits, scale), (1 - 10**digits, 10**digits - 1))


def test_partial_results_are_combined_as_spark_combines_them():
    """Nulls count for nothing, NaN is the greatest float, and decimals are added exactly, whatever
    the decimal context of the program is.
    """
    double, text, money = column(st.DoubleType()), column(st.StringType()), decimal(28, 2)
    grouping = Grouping(
        (),
        (
            Aggregate(COUNT),
            Aggregate(SUM, money),
            Aggregate(MAX, double),
            Aggregate(MIN, double),
            Aggregate(MIN, text),
            Aggregate(SUM, double),
        ),
    )
    schema = exchange_schema(grouping.schema())
    most = Decimal("99999999999999999999999999.99")
    rows = [
        [2, most, math.nan, math.nan, None, 1.5],
        [0, most, None, None, None, None],
        [5, Decimal("-0.01"), 7.0, -1.0, "é", -3.0],
    ]
    partials = [
        pa.RecordBatch.from_arrays(
            [pa.array([value], each.type) for value, each in zip(row, schema, strict=True)],
            schema=schema,
        )
        for row in rows
    ]
    target = exchange_schema(whole_schema(grouping))
    assert target.field(1).type == pa.decimal128(38, 2)
    with localcontext(Context(prec=3, traps=[Inexact])):
        (found,) = whole_row(grouping, partials, target).to_pylist()
    count, total, greatest, *others = found.values()
    assert (count, total) == (7, Decimal("199999999999999999999999999.97"))
    assert math.isnan(greatest)
    assert others == [-1.0, "é", -1.5]
    (none,) = whole_row(grouping, [partials[1].slice(0, 0)], target).to_pylist()
    assert set(none.values()) == {None}


def test_sums_are_held_where_no_rows_can_make_them_too_large():
    """By the digits of decimals and the bounds of integers; floats always."""

    def is_held(of, rows, bounds=None):
        grouping = Grouping((), (Aggregate(SUM, of), Aggregate(MIN, of)))
        return are_sums_held(grouping, rows, {("c",): bounds}.get)

    assert is_held(decimal(31, 4), 10**7)
    assert not is_held(decimal(31, 4), 10**7 + 1)
    assert not is_held(decimal(38, 0), 2)
    assert is_held(column(st.IntegerType(), (-(2**31), 2**31 - 1)), 2**32 - 1)
    assert not is_held(column(st.IntegerType(), (-(2**31), 2**31 - 1)), 2**32)
    long = column(st.LongType(), (-(2**63), 2**63 - 1))
    assert not is_held(long, 1)
    assert is_held(long, 2**52, bounds=(-7, 2**11 - 1))
    assert not is_held(long, 2**52, bounds=(-7, 2**11))
    assert is_held(column(st.DoubleType()), 10**12)


def test_extremes_of_dates_may_lie_outside_the_years_of_python():
    """Years 1 to 9999: one value, several, and none."""
    kinds = (st.DateType(), st.TimestampType(), st.TimestampNTZType())
    aggregates = [Aggregate(kind, column(dtype)) for dtype in kinds for kind in (MIN, MAX)]
    grouping = Grouping((), tuple(aggregates))
    schema = exchange_schema(grouping.schema())
    results = exchange_schema(whole_schema(grouping))

    def batch(*drawn):
        arrays = [
            pa.array(drawn, "int32" if pa.types.is_date(field.type) else "int64").cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    far = 10**7  # days; as microseconds no more than ten seconds
    for drawn, low, high in (([-far, far, None], -far, far), ([far], far, far), ([], None, None)):
        row = whole_row(grouping, [batch(*drawn), batch(None)], results)
        assert row.schema == results
        assert [value.value for each in row.columns for value in each] == [low, high] * 3
