"""Writing, parsing and binding filters: what is understood, what is refused, in which words."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate import (
    bind,
    candidate_names,
    col,
    evaluate,
    parse_filter,
    rename_columns,
    resolve_path,
)
from fermion.predicate.expression import Comparison, Constant, IsIn, Not, Opaque

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("t", pa.bool_()),
        ("name", pa.string()),
        ("s", pa.struct([("b", pa.string()), ("c.d", pa.struct([("e", pa.int32())]))])),
        ("x.y", pa.int64()),
        ("x", pa.struct([("y", pa.string())])),
        ("l", pa.list_(pa.struct([("i", pa.int64())]))),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("wall", pa.timestamp("ms")),
        ("clock", pa.time64("us")),
        ("price", pa.decimal128(9, 2)),
        ("blob", pa.binary()),
        ("span", pa.month_day_nano_interval()),
        ("twice", pa.int8()),
        ("twice", pa.int8()),
    ]
)


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        (("a",), ("a",)),
        (("s.b",), ("s", "b")),
        (("s", "b"), ("s", "b")),
        (("s.c.d.e",), ("s", "c.d", "e")),
        (("s", "c.d", "e"), ("s", "c.d", "e")),
        (("x.y",), ("x.y",)),
        (("x", "y"), ("x", "y")),
    ],
)
def test_exact_names_come_before_dotted_paths(path, resolved):
    assert resolve_path(path, SCHEMA)[0] == resolved
    assert bind(col(*path).is_null(), SCHEMA).columns() == {resolved}


def test_a_missing_column_is_a_key_error_that_names_the_closest():
    with pytest.raises(KeyError, match=r"data\.fermion: no column 'nmae'.*'name'"):
        bind(col("nmae") == "x", SCHEMA, where="data.fermion")
    with pytest.raises(ColumnNotFoundError, match=r"'s\.bb'; closest matches: 's\.b'"):
        bind(col("s.bb") == "x", SCHEMA)
    with pytest.raises(ColumnNotFoundError, match=r"'nmae'.*'namely'"):
        bind(col("nmae") == "x", SCHEMA, known=["namely"])
    with pytest.raises(ColumnNotFoundError, match="l is a list or map, not a struct"):
        bind(col("l", "i") == 1, SCHEMA)
    with pytest.raises(ColumnNotFoundError, match="'zz'"):
        parse_filter(pc.field("zz") + 1 > 2, SCHEMA)


def test_a_name_that_two_columns_share_is_refused():
    with pytest.raises(InvalidArgumentError, match="2 columns are named twice"):
        bind(col("twice") > 1, SCHEMA)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (col("a") == "5", ["a is int64", "'5' is str", "without quotes"]),
        (col("a") == True, ["a is int64", "True is bool"]),  # noqa: E712
        (col("t") == 1, ["t is bool", "1 is int"]),
        (col("name") > 5, ["name is string", "5 is int"]),
        (col("name") == datetime.date(2024, 1, 1), ["name is string", "date"]),
        ("name = TIMESTAMP '2024-01-01'", ["name is string"]),
        (
            col("at") > datetime.datetime(2024, 1, 1),
            ["Europe/Berlin", "give the literal a time zone"],
        ),
        (
            col("wall") > datetime.datetime(2024, 1, 1, tzinfo=UTC),
            ["wall is timestamp[ms]", "drop the literal's time zone"],
        ),
        (col("wall") > "2024-01-01 00:00:00Z", ["time zone; drop it"]),
        (col("wall") > "yesterday", ["wall is timestamp[ms]", "'yesterday'", "ISO 8601"]),
        (col("clock") > "25:00", ["clock is time64[us]", "ISO 8601 time"]),
        (col("at") > "2024-03-31 02:30:00", ["Europe/Berlin", "not one moment"]),
        (col("s") == 1, ["s is struct", "compare one of its fields"]),
        (col("span") == 1, ["no order"]),
        (col("a"), ["a is int64", "boolean"]),
        (col("name").is_nan(), ["name is string", "is_nan() needs a number"]),
        (col("a").starts_with("x"), ["a is int64", "starts_with() needs strings"]),
        (col("a").isin([1, "x"]), ["a is int64", "'x' is str"]),
        ([("a", "~", 1)], ["unknown operator '~'", "not in"]),
        ([], ["an empty list is not a filter"]),
        ([("a", ">")], ["list of (column, operator, value)"]),
        ([[]], ["list of (column, operator, value)"]),
        ([(5, ">", 1)], ["column 5"]),
        (7, ["filter of type int", "SQL string"]),
        ("a >", ["not a SQL condition", "supported are"]),
        ("a = 1; a = 2", ["not supported"]),
        ("SELECT 1", ["not a SQL condition"]),
        ("day = DATE '2024-13-01'", ["DATE '2024-13-01'"]),
    ],
)
def test_what_does_not_fit_is_refused_in_words_that_help(given, words):
    with pytest.raises(InvalidArgumentError) as caught:
        parse_filter(given, SCHEMA)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("upper(name) = 'X'", ["UPPER(name)", "not supported", "supported are"]),
        ("a > x", ["GT (a > x)", "not supported"]),
        ("a + 1 > 2", ["not supported"]),
        ("a IN (SELECT 1)", ["In (a IN (SELECT 1))", "not supported"]),
        ("name LIKE '%x'", ["LIKE '%x'", "prefix"]),
        ("name ILIKE 'x%'", ["ILike", "not supported"]),
        ("CASE WHEN t THEN t END", ["Case", "not supported"]),
        ('name = "Rome"', ["double quotes are for names", "write 'Rome'"]),
    ],
)
def test_without_duckdb_conditions_that_need_it_are_refused_in_words_that_help(
    given, words, monkeypatch
):
    monkeypatch.setattr("fermion.sql.engine.has_duckdb", lambda: False)
    with pytest.raises(InvalidArgumentError) as caught:
        parse_filter(given, SCHEMA)
    for word in (*words, "the extra duckdb"):
        assert word in str(caught.value)


def test_python_s_own_connectives_are_refused_with_advice():
    with pytest.raises(InvalidArgumentError, match=r"& \| ~ instead of and, or, not"):
        bool(col("a") > 1)
    with pytest.raises(InvalidArgumentError, match="between"):
        assert 1 < col("a") < 5
    with pytest.raises(InvalidArgumentError, match="parentheses"):
        (col("a") > 1) & 5
    with pytest.raises(InvalidArgumentError, match="for two columns"):
        assert col("a") > col("x")
    with pytest.raises(InvalidArgumentError, match="expected names"):
        col(5)
    with pytest.raises(InvalidArgumentError, match="collection"):
        col("name").isin("abc")
    with pytest.raises(InvalidArgumentError, match="cannot compare with"):
        assert col("a") == object()


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ((col("a") > 1) & (col("s", "b") != "it's"), "a > 1 AND s.b <> 'it''s'"),
        ((col("a") > 1) | col("t") | ~col("t"), "a > 1 OR t OR NOT (t)"),
        ((col("t") | col("t")) & True, "(t OR t) AND TRUE"),
        (col("x.y").isin([1, None]), '"x.y" IN (1, NULL)'),
        (~col("a").isin([1]), "a NOT IN (1)"),
        (col("order").is_valid(), '"order" IS NOT NULL'),
        (col("a").between(1, 2), "a >= 1 AND a <= 2"),
        (~~col("t"), "t"),
        (col("name").starts_with("a%"), "STARTS_WITH(name, 'a%')"),
        (col("blob") == b"\x00\xff", "blob = X'00ff'"),
        (col("day") >= datetime.date(2024, 1, 2), "day >= DATE '2024-01-02'"),
        (col("price") < Decimal("1.50"), "price < 1.50"),
        (col("f") == math.inf, "f = CAST('inf' AS DOUBLE)"),
        (col("f").is_nan() | False, "ISNAN(f) OR FALSE"),
    ],
)
def test_filters_show_themselves_as_sql(expression, text):
    assert str(expression) == text
    assert repr(expression) == f"<fermion filter {text}>"


def test_sql_spellings_mean_the_same_tree():
    tree = parse_filter((col("a") >= 1) & ~(col("s", "b") == "x"), SCHEMA)
    for text in (
        "a >= 1 AND NOT s.b = 'x'",
        "(1 <= a) AND (NOT (`s`.\"b\" = 'x'))",
        "a >= 1 -- comment\n AND NOT (s.b == 'x')",
    ):
        assert parse_filter(text, SCHEMA) == tree
    assert parse_filter("a <> -1.5e0", SCHEMA) == parse_filter(col("a") != -1.5, SCHEMA)
    assert parse_filter("a NOT BETWEEN 1 AND 2", SCHEMA) == Not(
        parse_filter(col("a").between(1, 2), SCHEMA)
    )
    assert parse_filter("t IS NOT TRUE", SCHEMA) == Not(
        parse_filter(col("t").is_valid() & col("t"), SCHEMA)
    )
    assert parse_filter("name LIKE 'abc'", SCHEMA) == parse_filter(col("name") == "abc", SCHEMA)


def test_texts_are_read_as_moments_in_the_column_s_own_zone():
    column = pa.array(
        [
            datetime.datetime(2024, 7, 1, 0, tzinfo=UTC),
            datetime.datetime(2024, 7, 1, 2, tzinfo=UTC),
        ],
        SCHEMA.field("at").type,
    )
    table = pa.table({"at": column})
    for given in (
        "at > TIMESTAMP '2024-07-01 03:00:00'",
        "at > TIMESTAMP '2024-07-01 01:00:00Z'",
        "at > '2024-07-01T03:00:00+02:00'",
        col("at") > "2024-07-01 03:00:00",
        col("at") > datetime.datetime(2024, 7, 1, 1, tzinfo=UTC),
        col("at") > pa.scalar(datetime.datetime(2024, 7, 1, 1), pa.timestamp("ns", "UTC")),
        col("at") > pd.Timestamp("2024-07-01 03:00:00", tz="Europe/Berlin"),
    ):
        assert evaluate(parse_filter(given, table.schema), table).to_pylist() == [False, True]
    dates = evaluate(parse_filter("at >= DATE '2024-07-01'", table.schema), table)
    assert dates.to_pylist() == [True, True]


def test_scalars_of_other_libraries_are_literals():
    for value in (
        np.int8(5),
        np.float32(5),
        pa.scalar(5),
        pa.scalar(5.0),
        np.uint64(5),
        Decimal(5),
    ):
        bound = parse_filter(col("a") == value, SCHEMA)
        assert evaluate(bound, pa.table({"a": [5, 6]})).to_pylist() == [True, False]
    assert (col("a") == pd.NaT).value is None
    assert (col("a") == np.datetime64("NaT")).value is None
    assert (col("a") == pa.scalar(None, pa.int8())).value is None
    wall = pa.table({"wall": pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("ms"))})
    moment = np.datetime64("2024-01-01T00:00:00.000000001")
    assert evaluate(parse_filter(col("wall") < moment, SCHEMA), wall).to_pylist() == [True]
    keyed = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["x"]))[0]
    assert (col("name") == keyed).value == "x"


def test_a_decimal_with_a_huge_exponent_costs_nothing():
    table = pa.table({"a": [1]})
    for text, expected in (("1e999999999", [True]), ("-1e999999999", [False])):
        bound = parse_filter(col("a") < Decimal(text), table.schema)
        assert evaluate(bound, table).to_pylist() == expected
    tiny = parse_filter(col("a") > Decimal("1e-999999999"), table.schema)
    assert evaluate(tiny, table).to_pylist() == [True]


def test_filters_are_values_that_pickle_and_compare():
    expression = bind((col("a") > 1) & col("s.b").isin(["x"]) & ~col("t"), SCHEMA)
    assert pickle.loads(pickle.dumps(expression)) == expression
    assert hash(pickle.loads(pickle.dumps(expression))) == hash(expression)
    with pytest.raises(AttributeError):
        col("a").path = ("b",)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        expression.operands = ()  # type: ignore[attr-defined]
    opaque = parse_filter(pc.field("a") + 1 > 2, SCHEMA)
    again = pickle.loads(pickle.dumps(opaque))
    assert again.paths == opaque.paths
    assert again.expression.equals(opaque.expression)


def test_empty_lists_match_nothing_and_repeats_count_once():
    assert bind(col("a").isin([]), SCHEMA) == Constant(False)
    assert col("a").isin([1, 1, 2]) == IsIn(("a",), (1, 2))
    assert col("a").isin(np.array([3, 3])) == IsIn(("a",), (3,))
    assert col("a").isin(pa.array([3, None])) == IsIn(("a",), (3, None))


def test_columns_can_be_renamed_at_any_depth():
    bound = bind((col("a") > 1) & col("s.b").is_null() & ~col("t"), SCHEMA)
    renamed = rename_columns(bound, {("a",): ("f1",), ("s",): ("f4",), ("s", "b"): ("f4", "f9")})
    assert renamed.columns() == {("f1",), ("f4", "f9"), ("t",)}
    assert str(renamed) == "f1 > 1 AND f4.f9 IS NULL AND NOT (t)"
    assert rename_columns(bound, {}) == bound


def test_pyarrow_expressions_can_be_renamed_too():
    given = (pc.field("a") + 1 > 2) | (pc.field("s", "b") == pc.field("name"))
    bound = parse_filter(given, SCHEMA)
    renamed = rename_columns(
        bound, {("a",): ("n", "f1"), ("s",): ("f4",), ("s", "b"): ("f9",), ("name",): ("name2",)}
    )
    assert renamed.columns() == {("n", "f1"), ("f9",), ("name2",)}
    table = pa.table(
        {"n": [{"f1": 1}, {"f1": 2}, {"f1": 1}], "f9": ["x"] * 3, "name2": ["y", "y", "x"]}
    )
    assert evaluate(renamed, table).to_pylist() == [False, True, True]
    with pytest.raises(InvalidArgumentError, match="by position"):
        rename_columns(parse_filter(pc.field(0) > 1, SCHEMA), {("a",): ("b",)})


def test_only_what_is_not_understood_stays_with_pyarrow():
    known = parse_filter((pc.field("a") > 1) & ~pc.field("t"), SCHEMA)
    assert not any(isinstance(node, Opaque) for node in known.walk())
    mixed = parse_filter((pc.field("a") + 1 > 2) & (pc.field("name") == "x"), SCHEMA)
    kinds = [type(node) for node in mixed.walk()]
    assert Opaque in kinds
    assert Comparison in kinds


def test_candidate_names_are_all_that_binding_may_need():
    given = (col("s.c.d.e") > 1) & (col("a", "b") == 1)
    assert candidate_names(given) == {"s.c.d.e", "s.c.d", "s.c", "s", "a"}
    assert candidate_names(parse_filter(pc.field(0) > 1)) is None
    assert candidate_names(parse_filter(pc.field("q") + 1 > 1)) == {"q"}
    narrow = pa.schema([SCHEMA.field("s")])
    bound = bind(col("s.c.d.e") > 1, narrow, known=SCHEMA.names)
    assert bound.columns() == {("s", "c.d", "e")}


def test_no_filter_is_none_and_col_is_public():
    assert parse_filter(None, SCHEMA) is None
    assert parse_filter(True, SCHEMA) == Constant(True)
    assert fermion.col is col
