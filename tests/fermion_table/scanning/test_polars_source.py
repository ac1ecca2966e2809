"""Filters of lazy Polars frames with infinity and NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

from fermion_table import Table

INFINITY, NAN = float("inf"), float("nan")
VALUES = [1.0, -1.5, INFINITY, -INFINITY, NAN, None, 0.0]
X = polars.col("x")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = pa.schema({"x": pa.float64(), "f": pa.float32(), "n": pa.int64()})
    made = Table.create(tmp_path / "t", schema, durability="fast")
    data = pa.table({"x": VALUES, "f": VALUES, "n": range(len(VALUES))})
    made.append(data.cast(schema))
    return made


@pytest.mark.parametrize(
    "predicate",
    [
        *(
            compare(X, value)
            for value in (INFINITY, -INFINITY, NAN)
            for compare in (
                polars.Expr.__lt__,
                polars.Expr.__le__,
                polars.Expr.__gt__,
                polars.Expr.__ge__,
                polars.Expr.__eq__,
                polars.Expr.__ne__,
            )
        ),
        X.is_in([1.0, INFINITY]),
        X.is_in([NAN]),
        X.is_between(0.0, INFINITY),
        X.is_between(-INFINITY, 0.0),
        polars.col("f") < INFINITY,
        polars.col("n") < INFINITY,
        ~(X < INFINITY),
        (X < INFINITY) | (polars.col("n") == 2),
        polars.lit(INFINITY, polars.Float32) > X,
        X.is_infinite() | X.is_nan(),
    ],
    ids=str,
)
def test_lazy_filters_with_infinity_and_nan_select_what_polars_selects(
    table: Table, predicate: Any
) -> None:
    """The same rows as the filter of the frame in memory."""
    expected = table.scan().to_polars().filter(predicate)
    found = table.scan().to_polars(lazy=True).filter(predicate).collect()
    assert found.equals(expected, null_equal=True)


def test_the_rest_of_a_conjunction_is_still_pushed_down(table: Table) -> None:
    table.append(pa.table({"x": [5.0], "f": pa.array([5.0], pa.float32()), "n": [100]}))
    scan = table.scan()
    frame = scan.to_polars(lazy=True).filter((X < INFINITY) & (polars.col("n") >= 100))
    assert frame.collect()["n"].to_list() == [100]
    assert scan.io_stats["files"] == 1
