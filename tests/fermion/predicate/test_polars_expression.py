"""Expressions of Polars as filters."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate import Computed, evaluate, parse_filter
from fermion_table import Table

ROWS = pa.record_batch(
    {
        "id": [1, 2, 3, 4],
        "n": pa.array([5, 2, None, 3], pa.int32()),
        "price": [2.0, math.nan, 1.0, None],
        "city": ["Rome", "Rimini", "é", None],
        "code": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "s": pa.array([{"x": 1}, {"x": 20}, None, {"x": None}]),
        "wide": pa.array([1, 2, 3, 4], pa.decimal256(60, 2)),
    }
)


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("id") > 2,
        pl.col("id") < pl.col("n"),
        ~(pl.col("n") > 2),
        (pl.col("id") >= 2) & (pl.col("city").str.len_chars() == 6),
        (pl.col("id") == 4) | (pl.col("city").str.to_lowercase() == "rome"),
        pl.col("price") > 1.5,  # NaN is the greatest to Polars
        pl.col("price").is_nan(),
        pl.col("n").fill_null(0) == 0,
        pl.col("id").is_in([1, 4]),
        pl.col("n").is_between(2, 3),
        pl.col("s").struct.field("x") * 2 == 2,
        pl.col("code").cast(pl.String) == "a",
        pl.when(pl.col("id") > 2).then(pl.col("n").is_null()).otherwise(pl.col("n") == 5),
        pl.col("n") + 1 > 100,
    ],
    ids=str,
)
def test_they_select_what_polars_selects(tmp_path: Any, expression: pl.Expr) -> None:
    frame = pl.DataFrame(pl.from_arrow(pa.table(ROWS.drop_columns(["wide"]))))
    expected = frame.filter(expression)["id"].to_list()
    bound = parse_filter(expression, ROWS.schema)
    for filter_ in (bound, pickle.loads(pickle.dumps(bound)), parse_filter(bound, ROWS.schema)):
        assert ROWS.filter(evaluate(filter_, ROWS))["id"].to_pylist() == expected
    opposite = ROWS.filter(evaluate(~bound, ROWS))["id"].to_pylist()
    assert opposite == frame.filter(~expression)["id"].to_list()
    path = tmp_path / "x.fermion"
    fermion.write_table(ROWS, path, options=fermion.WriteOptions(stripe_rows=3))
    assert fermion.read_table(path, columns=["id"], filter=expression)["id"].to_pylist() == expected
    table = Table.create(tmp_path / "t", ROWS)
    assert table.scan(columns=["id"], filter=expression).to_arrow()["id"].to_pylist() == expected
    table.delete(expression)
    assert table.scan().count() == len(ROWS) - len(expected)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pl.col("id").sum() > 1, "it has Agg"),
        (pl.col("id").shift() > 1, "it calls Shift"),
        (pl.col("id").over("n") > 1, "it has Over"),
        (pl.col("id").is_unique(), "it calls Boolean IsUnique"),
        (pl.col("city").str.join("") == "x", "it calls StringExpr ConcatVertical"),
        (pl.all() > 1, "it has Selector"),
        (pl.lit(True), "names columns"),
        (pl.col("id") + 1, "expected 0 booleans, found 0 of Int64"),
        (pl.col("id").map_batches(lambda values: values > 1), "of Polars"),
        (pl.col("city") > 1, "cannot compare string"),
    ],
    ids=str,
)
def test_what_is_no_condition_of_one_row_is_refused(expression: pl.Expr, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_filter(expression, ROWS.schema)


def test_a_missing_column_names_the_closest() -> None:
    with pytest.raises(ColumnNotFoundError, match="'City'; names are case-sensitive: write 'city'"):
        parse_filter(pl.col("City").str.len_chars() == 1, ROWS.schema)


def test_parts_that_statistics_can_use_stand_beside_it_once() -> None:
    bound = parse_filter((pl.col("id") > 2) & (pl.col("n").abs() == 3), ROWS.schema)
    again = parse_filter(bound, ROWS.schema)
    assert [isinstance(part, Computed) for part in again.children()] == [False, True]


def test_a_process_without_polars_does_not_load_it() -> None:
    code = (
        "import sys; from fermion.predicate import parse_filter;"
        "parse_filter('a = 1'); assert 'polars' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
