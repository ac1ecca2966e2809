"""The engines aggregation and partial_update against a model that goes row by row."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines import aggregation
from fermion_table.schema.field_functions import COMMUTATIVE, RETRACTABLE, FieldFunction
from tests.kit import folds
from tests.kit.tables.aggregate_model import aggregated
from tests.kit.tables.merge_rows import (
    KINDS,
    Row,
    as_rows,
    batch_of,
    by_key,
    check,
    groups_of,
    kinds_of,
    runs_folded,
)
from tests.kit.tables.partial_update_model import updated

TEXTS = st.sampled_from(["", "a", "b", "é", "a,b", "b,,c", ","])
FLOATS = st.sampled_from([0.0, -0.0, 0.5, -2.0, math.nan, math.inf])
ITEM = pa.struct({"i": pa.int64(), "j": pa.string(), "v": pa.string()})
ITEMS = st.lists(
    st.fixed_dictionaries({"i": st.integers(0, 1), "j": st.sampled_from("xy"), "v": TEXTS}),
    max_size=3,
)
MAPS = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9), max_size=3).map(
    lambda found: list(found.items())
)
# function, type, values
NUMBERS = ("sum", "product", "max", "min")
PRICES = st.integers(-99, 99).map(lambda number: Decimal(number) / 4)
SHORT = st.lists(st.none() | st.integers(0, 2), max_size=4)
DISTINCT = FieldFunction(name="collect", distinct=True)
SEVERAL_TEXTS = st.lists(TEXTS, max_size=4)
LISTS = st.lists(st.lists(st.integers(0, 1), max_size=1), max_size=3)
BITMAPS = st.lists(
    st.tuples(st.sampled_from([0, 65_530, 2**40]), st.sampled_from([1, 9, 4_200])), max_size=2
)
BITMAPS = BITMAPS.map(
    lambda ranges: bytes(BitMap64(n for a, size in ranges for n in range(a, a + size)).serialize())
)
CASES: list[tuple[FieldFunction, pa.DataType, st.SearchStrategy]] = [
    *(
        (FieldFunction(name=name), pa.int64(), st.integers(-99, 99))
        for name in ("sum", "product", "max", "min")
    ),
    *((FieldFunction(name=name), pa.float64(), FLOATS) for name in ("max", "min")),
    (FieldFunction(name="sum"), pa.float64(), st.integers(-9, 9).map(lambda number: number / 4)),
    (
        FieldFunction(name="sum"),
        pa.decimal128(20, 2),
        st.integers(-99, 99).map(lambda number: Decimal(number) / 4),
    ),
    (FieldFunction(name="product"), pa.decimal64(18, 0), st.integers(-2, 2).map(Decimal)),
    (FieldFunction(name="max"), pa.string(), TEXTS),
    (FieldFunction(name="min"), pa.decimal32(5, 0), st.integers(-9, 9).map(Decimal)),
    *((FieldFunction(name=name), pa.bool_(), st.booleans()) for name in ("bool_and", "bool_or")),
    *(
        (FieldFunction(name=f"{which}_{what}"), pa.string(), TEXTS)
        for which, what in itertools.product(("first", "last"), ("value", "non_null_value"))
    ),
    (
        FieldFunction(name="last_value"),
        pa.list_(pa.int64()),
        st.lists(st.integers(0, 2), max_size=2),
    ),
    (FieldFunction(name="listagg"), pa.string(), TEXTS),
    (FieldFunction(name="listagg", delimiter="; ", distinct=True), pa.string_view(), TEXTS),
    (FieldFunction(name="listagg", distinct=True), pa.large_string(), TEXTS),
    (
        FieldFunction(name="collect"),
        pa.list_(pa.int64()),
        st.lists(st.none() | st.integers(0, 2), max_size=4),
    ),
    (
        FieldFunction(name="collect", distinct=True),
        pa.large_list(pa.string()),
        st.lists(TEXTS, max_size=4),
    ),
    (DISTINCT, pa.list_(ITEM), ITEMS),
    (
        FieldFunction(name="collect", distinct=True),
        pa.list_(pa.list_(pa.int8())),
        st.lists(st.lists(st.integers(0, 1), max_size=1), max_size=3),
    ),
    (FieldFunction(name="merge_map"), pa.map_(pa.string(), pa.int64()), MAPS),
    (FieldFunction(name="nested_update"), pa.list_(ITEM), ITEMS),
    (FieldFunction(name="nested_update", count_limit=3), pa.large_list(ITEM), ITEMS),
    (FieldFunction(name="nested_update", nested_key=("i",)), pa.list_(ITEM), ITEMS),
    (FieldFunction(name="nested_update", nested_key=("i", "j")), pa.list_(ITEM), ITEMS),
    *((FieldFunction(name="rbm64"), dtype, BITMAPS) for dtype in (pa.binary(), pa.binary_view())),
]
NAMES = [f"{case[0].name}-{case[1]}-{at}" for at, case in enumerate(CASES)]
AMOUNTS = st.sampled_from([0, 1, 2, 3, 8])
# Of each of some forty cases, whose folds share most of their code.
EXAMPLES = settings.default.max_examples // 2


def rows_of(values: st.SearchStrategy, kinds: list[str]) -> st.SearchStrategy[list[Row]]:
    """Draw rows of few keys."""
    row = {"k": st.integers(0, 2), "x": st.none() | values, "_kind": st.sampled_from(kinds)}
    return st.lists(st.fixed_dictionaries(row), max_size=14)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_additions_aggregate_as_in_the_model_however_they_are_grouped(case):
    function, dtype, values = case
    schema, functions = pa.schema({"k": pa.int64(), "x": dtype}), {"x": function}

    def fold(batch, groups, kinds, *, is_oldest=True):
        return folds.aggregation(batch, groups, functions, kinds, is_oldest=is_oldest)

    @settings(max_examples=EXAMPLES)
    @given(rows_of(values, ["+I", "+U"]), st.lists(st.integers(0, 14), max_size=3))
    def run(rows, cuts):
        expected = [aggregated(group, functions) for group in by_key(rows).values()]
        whole = fold(batch_of(rows, schema), groups_of(rows), kinds_of(rows))
        check(whole, rows, expected, schema)
        left, kinds = runs_folded(rows, cuts, schema, fold)
        keys = [{"k": key} for key in left.column("k").to_pylist()]
        merged = fold(left, groups_of(keys), kinds).gather(left)
        assert as_rows(merged) == as_rows(whole.gather(batch_of(rows, schema)))

    run()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case[0].name in RETRACTABLE - {"product"}],
    ids=[name for name in NAMES if name.split("-")[0] in RETRACTABLE - {"product"}],
)
@pytest.mark.parametrize("removes", [False, True])
def test_retractions_take_back_as_in_the_model_however_they_are_grouped(case, removes):
    function, dtype, values = case
    schema, functions = pa.schema({"k": pa.int64(), "x": dtype}), {"x": function}

    def fold(batch, groups, kinds, *, is_oldest=True):
        return folds.aggregation(
            batch, groups, functions, kinds, is_oldest=is_oldest, remove_record_on_delete=removes
        )

    @settings(max_examples=EXAMPLES)
    @given(rows_of(values, [*KINDS, "+I"]), st.lists(st.integers(0, 14), max_size=3))
    def run(rows, cuts):
        expected = [
            aggregated(group, functions, removes=removes) for group in by_key(rows).values()
        ]
        whole = fold(batch_of(rows, schema), groups_of(rows), kinds_of(rows))
        check(whole, rows, expected, schema)
        left, kinds = runs_folded(rows, cuts, schema, fold)
        keys = [{"k": key} for key in left.column("k").to_pylist()]
        merged = fold(left, groups_of(keys), kinds).gather(left)
        assert as_rows(merged) == as_rows(whole.gather(batch_of(rows, schema)))

    run()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case[0].name in COMMUTATIVE],
    ids=[name for name in NAMES if name.split("-")[0] in COMMUTATIVE],
)
def test_commutative_functions_do_not_depend_on_the_order(case):
    function, dtype, values = case
    schema, functions = pa.schema({"k": pa.int64(), "x": dtype}), {"x": function}

    @settings(max_examples=EXAMPLES)
    @given(rows_of(values, ["+I"]), st.randoms(use_true_random=False))
    def run(rows, random):
        mixed = random.sample(rows, len(rows))
        found = [
            as_rows(
                folds.aggregation(batch_of(each, schema), groups_of(each), functions).gather(
                    batch_of(each, schema)
                )
            )
            for each in (rows, mixed)
        ]
        assert found[0] == found[1]

    run()


def aggregate(name, dtype, values, kinds=None, **options) -> list:
    """Return the aggregates of the values of one key: one, or none."""
    kinds = kinds or ["+I"] * len(values)
    rows = [{"k": 7, "x": value, "_kind": kind} for value, kind in zip(values, kinds, strict=True)]
    schema = pa.schema({"k": pa.int64(), "x": dtype})
    function = FieldFunction(name=name, **options)
    batch = batch_of(rows, schema)
    found = folds.aggregation(batch, groups_of(rows), {"x": function}, kinds_of(rows))
    return found.gather(batch).column("x").to_pylist()


@pytest.mark.parametrize(
    ("name", "dtype", "values"),
    [
        ("sum", pa.int8(), [127, 1]),
        ("sum", pa.int8(), [-128, -1]),
        ("sum", pa.uint8(), [255, 1]),
        ("sum", pa.int64(), [2**63 - 1, 1]),
        ("sum", pa.int64(), [-(2**63), -1]),
        ("sum", pa.uint64(), [2**64 - 1, 1]),
        ("sum", pa.decimal128(4, 2), [Decimal("99.99"), Decimal("0.01")]),
        ("product", pa.int32(), [65536, 65536]),
        ("product", pa.int64(), [2**62, 2]),
        ("product", pa.int64(), [-(2**62), 2, 2]),
        ("product", pa.decimal128(4, 2), [Decimal("99.00"), Decimal("2.00")]),
    ],
)
def test_what_is_out_of_range_is_an_error_that_names_the_key(name, dtype, values):
    with pytest.raises(InvalidArgumentError, match=r"key \{'k': 7\}: the \w+ is out of the range"):
        aggregate(name, dtype, values)


@pytest.mark.parametrize(
    ("name", "dtype", "values", "expected"),
    [
        ("sum", pa.int8(), [100, 100, -100], 100),
        ("sum", pa.int64(), [2**63 - 1, 1, -1], 2**63 - 1),
        ("sum", pa.int64(), [-(2**63), 2**63 - 1], -1),
        ("sum", pa.uint64(), [2**63, 2**63 - 1], 2**64 - 1),
        ("product", pa.int64(), [2**62, 2, 0], 0),
        ("product", pa.int64(), [-(2**62), 2], -(2**63)),
        ("product", pa.uint64(), [2**63, 1], 2**63),
    ],
)
def test_sums_on_the_way_may_be_out_of_range(name, dtype, values, expected):
    assert aggregate(name, dtype, values) == [expected]


def test_rows_stay_apart_where_an_early_sum_would_be_out_of_range():
    schema = pa.schema({"k": pa.int64(), "x": pa.int8()})
    rows = [
        {"k": 1, "x": 5},
        {"k": 2, "x": 100},
        {"k": 2, "x": 100},
        {"k": 3, "x": 1},
        {"k": 3, "x": 2},
    ]
    functions = {"x": FieldFunction(name="sum")}
    batch = batch_of(rows, schema)
    found = folds.aggregation(batch, groups_of(rows), functions, is_oldest=False)
    assert found.gather(batch).column("x").to_pylist() == [5, 100, 100, 3]


def test_a_sum_of_floats_that_is_zero_has_no_sign():
    assert repr(aggregate("sum", pa.float64(), [0.0], ["-U"])) == "[0.0]"
    assert repr(aggregate("sum", pa.float64(), [None, -0.0])) == "[0.0]"


def test_products_are_taken_back_by_division():
    kinds = ["+I", "+I", "-U"]
    assert aggregate("product", pa.int64(), [6, 4, 3], kinds) == [8]
    assert aggregate("product", pa.float64(), [6.0, 4.0, 3.0], kinds) == [8.0]
    prices = [Decimal("1.50"), Decimal("2.00"), Decimal("1.50")]
    assert aggregate("product", pa.decimal128(9, 2), prices, kinds) == [Decimal("2.00")]
    for values in ([6, 4, 5], [6, 4, 0]):
        with pytest.raises(InvalidArgumentError, match=r"key \{'k': 7\}: a product was taken back"):
            aggregate("product", pa.int64(), values, kinds)


@pytest.mark.parametrize("name", ["max", "min", "first_value", "first_non_null_value"])
def test_functions_that_take_nothing_back_refuse_or_ignore_it(name):
    """What is stored all the same is older than the column: it has the default, and counts."""
    functions = {"x": FieldFunction(name=name)}
    with pytest.raises(InvalidArgumentError, match=r"fields\.x\.ignore_retract=true"):
        aggregation.check_taken_back(functions, np.array([0, 3], np.int8))
    assert aggregate(name, pa.int64(), [7, 7], ["-D", "-U"]) == [7]
    assert aggregate(name, pa.int64(), [3, 9, -9], ["+I", "-D", "-U"], ignore_retract=True) == [3]
    assert aggregate(name, pa.int64(), [9], ["-D"], ignore_retract=True) == [None]


PARTIAL = pa.schema({"k": pa.int64(), "x": pa.int64(), "y": pa.string()})
PARTIAL_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(0, 2),
            "x": st.none() | st.integers(0, 9),
            "y": st.none() | TEXTS,
            "_kind": st.sampled_from([*KINDS, "+I", "+I"]),
        }
    ),
    max_size=14,
)


@given(PARTIAL_ROWS, st.lists(st.integers(0, 14), max_size=3))
def test_partial_update_fills_rows_as_in_the_model_however_they_are_grouped(rows, cuts):
    def fold(batch, groups, kinds, *, is_oldest=True):
        return folds.partial_update(
            batch, groups, ["k"], kinds, is_oldest=is_oldest, remove_record_on_delete=True
        )

    expected = [updated(group, ["x", "y"], removes=True) for group in by_key(rows).values()]
    whole = fold(batch_of(rows, PARTIAL), groups_of(rows), kinds_of(rows))
    check(whole, rows, expected, PARTIAL)
    left, kinds = runs_folded(rows, cuts, PARTIAL, fold)
    keys = [{"k": key} for key in left.column("k").to_pylist()]
    merged = fold(left, groups_of(keys), kinds).gather(left)
    assert as_rows(merged) == as_rows(whole.gather(batch_of(rows, PARTIAL)))


def test_partial_update_refuses_retractions_and_names_the_options():
    rows = [{"k": 1, "x": 1}, {"k": 1, "x": 1, "_kind": "-U"}]
    with pytest.raises(InvalidArgumentError, match=r"remove_record_on_delete=true"):
        folds.partial_update(batch_of(rows, PARTIAL), groups_of(rows), ["k"], kinds_of(rows))
