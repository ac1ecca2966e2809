"""``x IN (a, b)`` is ``x = a OR x = b``: rows, statistics, bloom filters, every spelling."""

from __future__ import annotations

import io
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import col
from fermion.predicate import Expression, bind, evaluate, parse_filter
from fermion.predicate.arrow_expression import to_pyarrow
from fermion.predicate.expression import disjunction

EDGES = [math.nan, -0.0, 0.0, math.inf, -math.inf, 1.5, -2.0]
CENTS = [Decimal(text) for text in ("0", "-0.00", "1.50", "-2.00", "99999.99")]
FLOATS = st.none() | st.sampled_from(EDGES)
DECIMALS = st.none() | st.sampled_from(CENTS)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "half": (pa.float16(), FLOATS),
    "float": (pa.float32(), FLOATS),
    "double": (pa.float64(), FLOATS),
    "dictionary": (pa.dictionary(pa.int8(), pa.float64()), FLOATS),
    "decimal": (pa.decimal128(7, 2), DECIMALS),
    "small decimal": (pa.decimal32(7, 2), DECIMALS),
    "wide decimal": (pa.decimal256(40, 2), DECIMALS),
    "integer": (pa.int16(), st.none() | st.sampled_from([0, 1, -2])),
}
# Columns and places in a file: a field of a struct is another way to each.
PLACES = [*((name, False) for name in COLUMNS), ("double", True), ("half", True)]
LITERALS = st.none() | st.sampled_from([*EDGES, *CENTS, 0, 1, 0.1, Decimal("NaN"), np.float32(0.5)])
OPTIONS: list[dict[str, Any]] = [
    {},
    {"bloom_filters": ["c"]},
    {"page_bloom_filters": ["c"], "statistics": False},
    {"bloom_filters": ["c"], "page_bloom_filters": ["c"]},
]


def column_of(values: list[Any], dtype: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).dictionary_encode().cast(dtype)
    if pa.types.is_float16(dtype):
        return pa.array([None if each is None else np.float16(each) for each in values], dtype)
    return pa.array(values, dtype)


def truth(mask: Any) -> list[bool | None]:
    return mask.to_pylist()


def either(path: tuple[str, ...], values: list[Any]) -> Expression:
    """The equalities, one by one."""
    return disjunction(col(*path) == value for value in values)


@pytest.mark.parametrize(("name", "nested"), PLACES)
@given(data=st.data())
def test_an_in_list_is_the_or_of_its_equalities_on_rows(name: str, nested: bool, data: Any):
    """In all three truth values, for tables, batches and what comes back from SQL text."""
    dtype, cells = COLUMNS[name]
    values = data.draw(st.lists(cells, min_size=1, max_size=10))
    choices = data.draw(st.lists(LITERALS, min_size=1, max_size=4))
    column = column_of(values, dtype)
    table = pa.table({"c": pa.StructArray.from_arrays([column], ["x"]) if nested else column})
    path = ("c", "x") if nested else ("c",)
    found = bind(col(*path).isin(choices), table.schema)
    equal = bind(either(path, choices), table.schema)
    for rows in (table, table.slice(1), *table.to_batches()):
        assert truth(evaluate(found, rows)) == truth(evaluate(equal, rows))
        assert truth(evaluate(~found, rows)) == truth(evaluate(~equal, rows))
        again = parse_filter(found.to_sql(), table.schema)
        assert again is not None
        assert truth(evaluate(again, rows)) == truth(evaluate(equal, rows))


@pytest.mark.parametrize(("name", "nested"), PLACES)
@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data(), options=st.sampled_from(OPTIONS))
def test_an_in_list_is_the_or_of_its_equalities_in_a_file(
    name: str, nested: bool, data: Any, options: dict[str, Any]
):
    """With and without statistics and bloom filters, over pages of few rows."""
    dtype, cells = COLUMNS[name]
    values = data.draw(st.lists(cells, min_size=1, max_size=14))
    choices = data.draw(st.lists(LITERALS, min_size=1, max_size=4))
    column = column_of(values, dtype)
    held = pa.StructArray.from_arrays([column], ["x"]) if nested else column
    table = pa.table({"c": held, "row": np.arange(len(values))})
    path = ("c", "x") if nested else ("c",)
    if nested:
        options = {key: each for key, each in options.items() if key == "statistics"}
    sink = io.BytesIO()
    fermion.write_table(table, sink, stripe_rows=7, page_rows_max=2, **options)
    mask = truth(evaluate(bind(either(path, choices), table.schema), table))
    found = col(*path).isin(choices)
    for condition, wanted in ((found, True), (~found, False)):
        expected = [row for row, each in enumerate(mask) if each is wanted]
        for statistics in (True, False):
            with fermion.open(
                sink.getvalue(), options=fermion.ReadOptions(use_statistics=statistics)
            ) as file:
                rows = file.read(["row"], filter=condition)
                assert rows.column("row").to_pylist() == expected
                batches = file.iter_batches(["row"], filter=condition)
                assert [each for batch in batches for each in batch.column(0).to_pylist()] == (
                    expected
                )


VALUES = [math.nan, -0.0, 0.0, 1.0, None]


@pytest.mark.parametrize(
    ("choices", "chosen", "others"),
    [
        ([math.nan], [], [0, 1, 2, 3]),
        ([0.0], [1, 2], [0, 3]),
        ([-0.0], [1, 2], [0, 3]),
        ([math.nan, 1.0], [3], [0, 1, 2]),
        ([1.0, None], [3], []),
        ([], [], [0, 1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("options", OPTIONS)
def test_bug_nan_in_an_in_list_matched_nan(
    choices: list[Any], chosen: list[int], others: list[int], options: dict[str, Any]
):
    """Counted by hand: the rows that IN and NOT IN select, in every spelling."""
    table = pa.table({"c": pa.array(VALUES), "row": range(5)})
    sink = io.BytesIO()
    fermion.write_table(table, sink, page_rows_max=1, **options)
    values = pa.array(choices, pa.float64())
    found = bind(col("c").isin(choices), table.schema)
    spellings: list[tuple[Any, Any]] = [
        (col("c").isin(choices), ~col("c").isin(choices)),
        (col("c").isin(np.array(choices, float)) if None not in choices else found, ~found),
        (found.to_sql(), (~found).to_sql()),
        (to_pyarrow(found, table.schema), to_pyarrow(~found, table.schema)),
        (to_pyarrow(found), to_pyarrow(~found)),
    ]
    with fermion.open(sink.getvalue()) as file:
        for spelling, inverse in spellings:
            assert file.read(["row"], filter=spelling).column("row").to_pylist() == chosen
            assert file.read(["row"], filter=inverse).column("row").to_pylist() == others
        # These take NULL for a value like any other, as pyarrow does.
        null = [4] if None in choices else []
        for translated in ([("c", "in", choices)], pc.field("c").isin(values)):
            rows = file.read(["row"], filter=translated).column("row").to_pylist()
            assert rows == [*chosen, *null]
        rest = [row for row in range(5) if row not in (*chosen, *null)]
        for translated in ([("c", "not in", choices)], ~pc.field("c").isin(values)):
            assert file.read(["row"], filter=translated).column("row").to_pylist() == rest


def test_bug_an_in_list_of_a_float_was_taken_for_one_of_an_equal_decimal():
    """0.1 is one tenth for a decimal column; Decimal(0.1) equals it in Python and is not."""
    table = pa.table({"c": pa.array([Decimal("0.1")], pa.decimal128(5, 1))})
    sink = io.BytesIO()
    fermion.write_table(table, sink)
    with fermion.open(sink.getvalue()) as file:
        for value, rows in ((0.1, 1), (Decimal.from_float(0.1), 0), (0.1, 1)):
            assert file.count(filter=col("c") == value) == rows
            assert file.count(filter=col("c").isin([value])) == rows
            assert len(file.read(filter=col("c").isin([value]))) == rows
