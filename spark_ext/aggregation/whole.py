"""Aggregates of all rows, without keys: what one task returns as the result of the query.

Spark has nothing left to aggregate then: no second stage, which for few rows takes longer than to
read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import types as st

from spark_ext.aggregation.expression import COLUMN, WIDE_DIGITS_MAX
from spark_ext.aggregation.groups import COUNT, MAX, MIN, SUM, Aggregate, Grouping

BoundsOf = Callable[[tuple[str, ...]], tuple[int, int] | None]
DIGITS_MAX, SUM_DIGITS = 38, 10
"""Digits of a decimal in Spark, and how many more the sum of decimals has."""
_LONG_MAX = 2**63 - 1
_WIDE = Context(prec=WIDE_DIGITS_MAX)


def are_sums_held(grouping: Grouping, rows: int, bounds_of: BoundsOf) -> bool:
    """Whether no sum of so many rows can be too large for its type.

    The bounds of a column are asked for only if without them a sum may be too large.
    """
    return all(_is_sum_held(aggregate, rows, bounds_of) for aggregate in grouping.aggregates)


def whole_schema(grouping: Grouping) -> st.StructType:
    """The columns of the result."""
    return st.StructType(
        [st.StructField(f"result_{n}", _type(each)) for n, each in enumerate(grouping.aggregates)]
    )


def whole_row(
    grouping: Grouping, partials: Iterable[pa.RecordBatch], schema: pa.Schema
) -> pa.RecordBatch:
    """The result of what `Groups` returns, at least one row: usually that row itself."""
    table = pa.Table.from_batches(list(partials))
    columns = [
        _combined(each, column, field.type)
        for each, column, field in zip(grouping.aggregates, table.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_sum_held(aggregate: Aggregate, rows: int, bounds_of: BoundsOf) -> bool:
    of = aggregate.of
    if aggregate.kind != SUM or of is None or not of.is_exact:
        return True
    if isinstance(of.type, st.DecimalType):
        digits = of.type.precision
        return rows <= 10 ** (min(DIGITS_MAX, digits + SUM_DIGITS) - digits)
    assert of.bounds is not None
    if max(map(abs, of.bounds)) * rows <= _LONG_MAX:
        return True
    bounds = bounds_of(of.value) if of.operation == COLUMN else None
    return bounds is not None and max(map(abs, bounds)) * rows <= _LONG_MAX


def _type(aggregate: Aggregate) -> st.DataType:
    """Of the result, in Spark."""
    dtype = aggregate.type
    if aggregate.kind == SUM and isinstance(dtype, st.DecimalType):
        return st.DecimalType(min(DIGITS_MAX, dtype.precision + SUM_DIGITS), dtype.scale)
    return dtype


def _combined(aggregate: Aggregate, partials: pa.ChunkedArray, dtype: pa.DataType) -> pa.Array:
    """One value. Dates and times become none of Python's, which has the years 1 to 9999 only."""
    known = partials.drop_null()
    if pat.is_temporal(dtype) and len(known):
        return pa.repeat(pc.min_max(known)[aggregate.kind].cast(dtype), 1)
    values = known.to_pylist()
    if len(values) < 2:
        return pa.array(values or [None], dtype)
    return pa.array([_COMBINED[aggregate.kind](values)], dtype)


def _sum(values: list[Any]) -> Any:
    return reduce(_WIDE.add, values) if isinstance(values[0], Decimal) else sum(values)


def _order(value: Any) -> tuple[bool, Any]:
    """NaN is greater than all others."""
    return (True, 0.0) if isinstance(value, float) and math.isnan(value) else (False, value)


_COMBINED: dict[str, Callable[[list[Any]], Any]] = {
    COUNT: sum,
    SUM: _sum,
    MIN: lambda values: min(values, key=_order),
    MAX: lambda values: max(values, key=_order),
}
