"""Conditions in SQL beyond comparisons of a column with a literal, which DuckDB computes."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate import Computed, bind, evaluate, parse_filter, rename_columns
from fermion.predicate.sql_conditions import SqlCondition
from fermion_table import Table

NAN = math.nan
STRUCT = pa.struct([("x", pa.int64()), ("a.b", pa.int32())])
ROWS = pa.record_batch(
    {
        "id": [1, 2, 3, 4],
        "n": pa.array([5, 2, None, 3], pa.int32()),
        "price": [2.0, NAN, 1.0, None],
        "city": ["Rome", "Rimini", "é", None],
        "code": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "half": pa.array([1.0, 2.0, None, 4.0], pa.float16()),
        "s": pa.array([{"x": 1}, {"x": 20}, None, {"x": None}], STRUCT),
        "two words": [1, 0, 0, 0],
        "flag": [True, False, None, True],
        "wide": pa.array([1, 2, 3, 4], pa.decimal256(50, 2)),
    }
)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("id < n", [1]),
        ("n < id AND id > 1", [4]),
        ("id = n", [2]),
        ("id + n > 5 OR id = 3", [1, 3, 4]),
        ("NOT (id + n > 5)", [2]),
        ("lower(city) = 'rome'", [1]),
        ("city LIKE '%i'", [2]),
        ("city LIKE 'R_m%'", [1, 2]),
        ("city NOT LIKE '%i'", [1, 3]),
        ("city ILIKE 'r%' AND id = 2", [2]),
        ("city = 'é' OR length(city) = 4", [1, 3]),
        ("CASE WHEN id > 2 THEN n IS NULL ELSE flag END", [1, 3]),
        ("id BETWEEN n - 1 AND n + 1", [2, 4]),
        ("coalesce(n, 0) = 0", [3]),
        ("id IN (n, 3)", [2, 3]),
        ("s.x * 2 = 2", [1]),
        ('"two words" + 0 = 1', [1]),
        ("`two words` + 0 = 1", [1]),
        ("upper(code) = 'A'", [1, 4]),
        ("half * 2 = 4", [2]),
        ("n::VARCHAR = '5'", [1]),
        ("price + 0 > 1", [1]),  # NaN is not greater, as in `price > 1`
        ("price + 0 < 5", [1, 3]),
        ("price = price", [1, 3]),
        ("price <> price", [2]),
        ("NOT (price + 0 <= 1)", [1, 2]),
        ("flag AND id < n", [1]),
        ("flag = (id > 2)", [2, 4]),
        ("1 + 1 = 2", [1, 2, 3, 4]),
        ("1 + 1 = 3", []),
        ("NULL + 1 = 1", []),
        ("NULL::BOOLEAN", []),
        ("list_contains([1, 4], id)", [1, 4]),
    ],
)
def test_conditions_of_every_kind_select_their_rows(
    tmp_path: Any, text: str, selected: list[int]
) -> None:
    """On a batch, a file of several stripes, a table, and after a pickle and its own text."""
    bound = parse_filter(text, ROWS.schema)
    again = parse_filter(bound.to_sql(), ROWS.schema)
    for filter_ in (bound, pickle.loads(pickle.dumps(bound)), again):
        assert ROWS.filter(evaluate(filter_, ROWS))["id"].to_pylist() == selected
    path = tmp_path / "x.fermion"
    fermion.write_table(ROWS, path, options=fermion.WriteOptions(stripe_rows=3))
    assert fermion.read_table(path, columns=["id"], filter=text)["id"].to_pylist() == selected
    if "a.b" not in text:
        table = Table.create(tmp_path / "t", ROWS)
        assert sorted(table.scan(columns=["id"], filter=text).to_arrow()["id"].to_pylist()) == (
            selected
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum(id) > 1", "sum.. is no function of one row"),
        ("random() > 0.5", "random.. gives other values"),
        ("id > (SELECT 1)", "subquery"),
        ("id IN (SELECT 1)", "subquery"),
        ("row_number() OVER () = 1", "window"),
        ("id + 1", "gives int64; a filter has to give booleans"),
        ("id < n; id > n", "not supported"),
        ("id < n UNION SELECT 1", "expected one expression, without FROM, WHERE"),
        ("year(city) = 1", "No function matches"),
        ("nope(id) = 1", "nope.. is unknown"),
        ("wide + 1 = 2", "column wide: DuckDB has no type decimal256"),
        ("s.nope + 1 = 2", r"no column 's\.nope'"),
        ("lower(City) = 'rome'", "'City'; names are case-sensitive: write 'city'"),
        ('city = "Rome"', "double quotes are for names of columns: write 'Rome' for a text"),
        ('lower("it\'s") = city', "write 'it''s' for a text"),
        ("city < x'zz", "not a SQL condition"),
    ],
)
def test_what_is_no_condition_of_these_rows_is_refused(text: str, message: str) -> None:
    with pytest.raises((InvalidArgumentError, ColumnNotFoundError), match=message):
        parse_filter(text, ROWS.schema)


def test_a_value_that_can_not_be_computed_is_an_error_that_names_the_filter() -> None:
    bound = parse_filter("city::INT = 1", ROWS.schema)
    with pytest.raises(InvalidArgumentError, match=r"filter 'city::INT = 1'.*Could not convert"):
        evaluate(bound, ROWS)


def test_parts_that_statistics_can_use_are_filters_of_their_own(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB gets the rows that they leave."""
    rows = pa.table({"id": range(40_000), "text": [f"t{at}" for at in range(40_000)]})
    path = tmp_path / "x.fermion"
    fermion.write_table(rows, path, options=fermion.WriteOptions(stripe_rows=10_000))
    text = "id >= 35000 AND upper(text) LIKE 'T3%' AND text LIKE 't%'"
    parts = parse_filter(text, rows.schema).children()
    assert [isinstance(part, Computed) for part in parts] == [False, True, False]
    computed: list[int] = []
    compute = SqlCondition.__call__

    def counted(self: SqlCondition, *columns: pa.Array) -> pa.BooleanArray:
        computed.append(len(columns[0]))
        return compute(self, *columns)

    monkeypatch.setattr(SqlCondition, "__call__", counted)
    found = fermion.read_table(path, filter="id >= 35000 AND upper(text) = 'T36000'")
    assert found["id"].to_pylist() == [36_000]
    assert 0 < sum(computed) <= 10_000


def test_rows_change_by_conditions_of_every_kind(tmp_path: Any) -> None:
    table = Table.create(tmp_path / "t", ROWS.select(["id", "n", "city"]))
    table.delete("lower(city) = 'rome'")
    table.update("id = n", {"n": 7})
    assert table.scan().to_arrow().sort_by("id").to_pydict() == {
        "id": [2, 3, 4],
        "n": [7, None, 3],
        "city": ["Rimini", "é", None],
    }


def test_filters_that_need_no_engine_do_not_load_it() -> None:
    code = (
        "import sys; from fermion.predicate import parse_filter;"
        "parse_filter(\"a = 1 AND b LIKE 'x%'\"); import pyarrow as pa;"
        "rows = pa.schema({'m': pa.map_(pa.int8(), pa.int8())});"
        "parse_filter('m[7] > 3 OR NOT m[-1] IN (1, 2)', rows);"
        "assert not {'sqlglot', 'duckdb'} & {*sys.modules};"
        "parse_filter('a < b'); assert 'duckdb' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m[7] > 1 AND l[1] = 5", [2]),  # a key, and the first place
        ("NOT (m[7] > 1) OR m[-1] IS NOT NULL", [1, 3]),
        ("m[007] BETWEEN 2 AND 9", [2]),
        ("l[-1] IN (5, 7) AND t[2] LIKE 'b%'", [1]),
        ("l[1] IS NULL", [3]),
        ("l[1] NOT IN (7, 8) AND NOT m[7] NOT BETWEEN 2 AND 3", [2]),
        ("l[1] not between 6 and 8 AND t[2] NOT LIKE 'b%'", [2]),
        ("array[1, 2][1] = 1 AND ARRAY[5] = l", [2]),
    ],
)
def test_a_number_in_brackets_is_a_key_of_a_map_and_a_place_elsewhere(
    text: str, expected: list[int]
) -> None:
    rows = pa.record_batch(
        {
            "id": [1, 2, 3],
            "m": pa.array([[(7, 1)], [(7, 2)], [(-1, 0)]], pa.map_(pa.int8(), pa.int8())),
            "l": [[5, 7], [5], []],
            "t": ["abc", "xyz", None],
        }
    )
    parsed = pickle.loads(pickle.dumps(parse_filter(text)))
    for filter_ in (parse_filter(text, rows.schema), bind(parsed, rows.schema)):
        assert rows.filter(evaluate(filter_, rows))["id"].to_pylist() == expected
    renamed = rows.rename_columns(["id", "m", "k", "t"])
    if "m[" not in text and "ARRAY" not in text:
        other = bind(rename_columns(parsed, {("l",): ("k",)}), renamed.schema)
        assert renamed.filter(evaluate(other, renamed))["id"].to_pylist() == expected
    with pytest.raises(ColumnNotFoundError):
        bind(parsed, rows.select(["id"]).schema)


NUMBERS = st.sampled_from(["id", "n", "s.x", "1", "2.5", "(id + n)", "abs(n - 3)"])
COMPARISONS = st.builds(
    lambda left, operator, right: f"{left} {operator} {right}",
    NUMBERS,
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    NUMBERS,
)
CONDITIONS = st.recursive(
    COMPARISONS | NUMBERS.map(lambda number: f"{number} IS NULL"),
    lambda inner: st.one_of(
        st.builds(lambda left, right: f"({left}) AND ({right})", inner, inner),
        st.builds(lambda left, right: f"({left}) OR ({right})", inner, inner),
        inner.map(lambda one: f"NOT ({one})"),
        st.builds(lambda one, two: f"CASE WHEN {one} THEN {two} END", inner, inner),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_a_condition_that_is_split_selects_what_it_does_as_a_whole(text: str) -> None:
    import duckdb

    rows = pa.table(ROWS.select(["id", "n", "s"]))
    connection = duckdb.connect()
    connection.register("rows", rows)
    expected = connection.execute(f"SELECT id FROM rows WHERE {text}").fetchall()
    found = rows.filter(evaluate(parse_filter(text, rows.schema), rows))
    assert [(row,) for row in found["id"].to_pylist()] == sorted(expected)
