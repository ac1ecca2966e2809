"""Partial results, added up as Spark adds them, are the aggregates of all rows."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as st

from spark_ext.aggregation import groups
from spark_ext.aggregation.expression import COLUMN, LITERAL, Expression
from spark_ext.aggregation.groups import (
    COUNT,
    MAX,
    MIN,
    SUM,
    Aggregate,
    Grouping,
    Groups,
)
from spark_ext.errors import ConversionError
from spark_ext.types import exchange_schema

CHUNK_ROWS = 1_000
INT64 = (-(2**63), 2**63 - 1)
MONEY = st.DecimalType(12, 2)


def column(name, dtype, bounds=None):
    return Expression(COLUMN, dtype, value=(name,), bounds=bounds)


def decimal(name, digits, scale):
    most = 10**digits - 1
    return column(name, st.DecimalType(digits, scale), (-most, most))


LONG = column("l", st.LongType(), INT64)
KEY = column("k", st.StringType())


def partials(grouping, *batches):
    """The partial results of a task, which the schema that Spark is told describes."""
    schema = exchange_schema(grouping.schema())
    collected = Groups(pickle.loads(pickle.dumps(grouping)), schema)
    made = [each for batch in batches for each in collected.add(batch)]
    return pa.Table.from_batches([*made, *collected.finish()], schema)


def added_up(grouping, table):
    """What Spark makes of partial results: counts and sums are summed, of others one is chosen."""
    found = defaultdict(lambda: [None] * len(grouping.aggregates))
    for row in table.to_pylist():
        (*values,) = row.values()
        keys, results = values[: len(grouping.keys)], values[len(grouping.keys) :]
        state = found[tuple(keys)]
        for number, (aggregate, value) in enumerate(zip(grouping.aggregates, results, strict=True)):
            if value is None:
                continue
            of = aggregate.of
            if aggregate.kind == SUM and isinstance(of.type, st.DecimalType):
                digits = len(value.as_tuple().digits)
                assert digits <= of.type.precision, "Spark casts it to the type of one value"
            how = sum if aggregate.kind in (COUNT, SUM) else min if aggregate.kind == MIN else max
            state[number] = value if state[number] is None else how([state[number], value])
    return dict(found)


ALL = tuple(Aggregate(kind, LONG) for kind in (COUNT, SUM, MIN, MAX))


def test_groups_of_few_and_of_many_keys_in_chunks_add_up(monkeypatch):
    """Of several chunks: few keys, a key a row, and keys that return only after a merge."""
    monkeypatch.setattr(groups, "CHUNK_ROWS", CHUNK_ROWS)
    rows = CHUNK_ROWS // 2 + 1
    values = np.arange(9 * rows) % 97 - 48
    for keys in (np.arange(9 * rows) % 3, np.arange(9 * rows), np.arange(9 * rows) // 4):
        grouping = Grouping((column("k", st.LongType(), INT64),), (Aggregate(COUNT), *ALL))
        table = pa.table({"k": keys, "l": values})
        result = partials(grouping, *table.to_batches(max_chunksize=rows))
        summed = result.group_by("key_0").aggregate(
            [("result_0", "sum"), ("result_2", "sum"), ("result_3", "min"), ("result_4", "max")]
        )
        expected = table.group_by("k").aggregate(
            [("l", "count"), ("l", "sum"), ("l", "min"), ("l", "max")]
        )
        assert summed.sort_by("key_0").to_pydict() == dict(
            zip(summed.column_names, expected.sort_by("k").to_pydict().values(), strict=True)
        )


def test_few_groups_return_few_rows_and_many_groups_are_not_grouped_for_nothing(monkeypatch):
    """Counts the rows that come back."""
    monkeypatch.setattr(groups, "CHUNK_ROWS", CHUNK_ROWS)
    few = pa.record_batch({"k": ["a", None] * 5, "l": range(10)})
    assert partials(Grouping((KEY,), ALL), *[few] * 100).num_rows == 2
    rows = 2 * CHUNK_ROWS
    many = pa.table({"k": [str(n) for n in range(rows)], "l": np.arange(rows)}).to_batches()
    assert partials(Grouping((KEY,), ALL), *many).num_rows == rows


def test_no_row_at_all_is_one_row_without_keys_and_none_with_keys():
    """Spark counts by adding up, and nothing added up is null."""
    assert partials(Grouping((), ALL)).to_pylist() == [
        {"result_0": 0, "result_1": None, "result_2": None, "result_3": None}
    ]
    assert partials(Grouping((KEY,), ALL)).num_rows == 0
    text = Grouping((), (Aggregate(MAX, KEY), Aggregate(MIN, decimal("d", 12, 2))))
    assert partials(text).to_pylist() == [{"result_0": None, "result_1": None}]


def test_integers_whose_sum_may_overflow_are_sent_to_spark_one_by_one():
    """Within a batch, and over batches: the partial results are exact numbers of 64 bits."""
    large = pa.record_batch({"l": [2**62, 2**62, -(2**63), None]})
    result = partials(Grouping((), (Aggregate(SUM, LONG),)), large)
    assert result["result_0"].to_pylist() == [2**62, 2**62, -(2**63), None]
    once = pa.record_batch({"l": [2**62, -1]})
    result = partials(Grouping((), (Aggregate(SUM, LONG),)), *[once] * 5)
    assert sum(result["result_0"].to_pylist()) == 5 * (2**62 - 1)


def test_decimal_sums_come_in_parts_that_fit_the_type_of_one_value():
    """Of three digits, of both signs, beside aggregates that the further rows must not change."""
    grouping = Grouping(
        (KEY,),
        (Aggregate(SUM, decimal("q", 3, 1)), Aggregate(COUNT), Aggregate(MIN, decimal("q", 3, 1))),
    )
    prices = [Decimal("99.9")] * 100 + [Decimal("-50.5")] * 100 + [None]
    batch = pa.record_batch(
        {
            "k": ["a"] * 100 + ["b"] * 100 + ["c"],
            "q": pa.array(prices, pa.decimal128(3, 1)),
        }
    )
    assert added_up(grouping, partials(grouping, batch)) == {
        ("a",): [Decimal("9990.0"), 100, Decimal("99.9")],
        ("b",): [Decimal("-5050.0"), 100, Decimal("-50.5")],
        ("c",): [None, 1, None],
    }


def test_decimals_beyond_64_bits_are_exact():
    """A column of 38 digits with a few large values, in a sum and in a product."""
    large = Decimal("99999999999999999999999999999999.1234")
    values = [large, large.copy_negate(), Decimal("0.0001"), None, Decimal("12.5000")]
    batch = pa.record_batch({"w": pa.array(values, pa.decimal128(38, 4)), "l": [1, 2, 3, 4, None]})
    wide = decimal("w", 38, 4)
    factor = Expression(LITERAL, st.DecimalType(4, 0), value=1000, bounds=(1000, 1000))
    product = Expression("*", st.DecimalType(38, 4), (wide, factor), None, wide.bounds, True)
    grouping = Grouping((), (Aggregate(SUM, wide), Aggregate(MIN, wide), Aggregate(SUM, LONG)))
    with localcontext(prec=60):
        assert added_up(grouping, partials(grouping, batch)) == {
            (): [Decimal("12.5001"), large.copy_negate(), 10]
        }
        small = pa.record_batch({"w": pa.array(values[2:], pa.decimal128(38, 4))})
        grouping = Grouping((), (Aggregate(SUM, product),))
        assert added_up(grouping, partials(grouping, small)) == {(): [Decimal("12500.1000")]}
    with pytest.raises(ConversionError, match="NUMERIC_VALUE_OUT_OF_RANGE"):
        partials(grouping, batch)


def test_nan_is_the_greatest_float_and_zeros_are_equal():
    """As Spark orders floats."""
    x = column("x", st.DoubleType())
    zero = Expression(LITERAL, st.DoubleType(), value=0.0)
    equal = Expression("=", st.BooleanType(), (x, zero))
    grouping = Grouping((KEY,), (Aggregate(MAX, x), Aggregate(MIN, x)))
    rows = {"k": ["a", "a", "b", "b", "c"], "x": [1.0, math.nan, -math.inf, None, math.nan]}
    state = added_up(grouping, partials(grouping, pa.record_batch(rows)))
    assert math.isnan(state["a",][0])
    assert state["a",][1] == 1.0
    assert state["b",] == [-math.inf, -math.inf]
    assert math.isnan(state["c",][1])
    counted = Grouping((equal,), (Aggregate(COUNT),))
    signs = pa.record_batch({"x": [0.0, -0.0, math.nan, None, 5e-324]})
    assert added_up(counted, partials(counted, signs)) == {
        (True,): [2],
        (False,): [2],
        (None,): [1],
    }
