"""``x IN (a, b)`` is ``x = a OR x = b`` in tables: partitions, manifests, files, other engines."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

from fermion import col
from fermion.predicate import bind, evaluate
from fermion.predicate.expression import disjunction
from fermion_table import Table

NUMBERS = [math.nan, -0.0, 0.0, None, math.inf, -math.inf, 1.5, -2.0]
CENTS = [Decimal("0.00"), Decimal("1.50"), Decimal("-2.00"), None, Decimal("7.25")]
LISTS: list[list[Any]] = [
    [math.nan],
    [0.0],
    [-0.0],
    [0],
    [math.nan, 1.5],
    [None, 1.5],
    [None, math.nan],
    [math.inf, -math.inf, -2.0],
    [Decimal("1.5"), Decimal("-0.0")],
    [7.25, 3.0],
]
LAYOUTS: list[tuple[str, pa.DataType, list[Any], dict[str, Any]]] = [
    ("half", pa.float16(), NUMBERS, {}),
    ("double", pa.float64(), NUMBERS, {}),
    ("partitioned", pa.float64(), NUMBERS, {"partition_by": ["x"]}),
    ("narrow partitions", pa.float32(), NUMBERS, {"partition_by": ["x"]}),
    ("bucket", pa.decimal128(7, 2), CENTS, {"partition_by": ["bucket(x, 8)"]}),
    ("truncate", pa.decimal128(7, 2), CENTS, {"partition_by": ["truncate(x, 1)"]}),
]


@pytest.fixture(scope="module", params=LAYOUTS, ids=[layout[0] for layout in LAYOUTS])
def stored(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, pa.Table]:
    """A table of two files or many, and its rows, of which column ``row`` tells each."""
    _, dtype, values, options = request.param
    if pa.types.is_float16(dtype):
        values = [None if each is None else pa.scalar(each, dtype) for each in values]
    data = pa.table({"x": pa.array([*values, *values], dtype), "row": range(2 * len(values))})
    folder = tmp_path_factory.mktemp("in") / "t"
    partition_by = options.get("partition_by")
    table = Table.create(folder, data.schema, partition_by=partition_by, durability="fast")
    for start in (0, len(values)):
        table.append(data.slice(start, len(values)))
    return table, data


def rows_of(found: Any) -> list[int]:
    return sorted(found.column("row").to_pylist())


@pytest.mark.parametrize("choices", LISTS, ids=str)
def test_an_in_list_is_the_or_of_its_equalities_in_a_table(
    stored: tuple[Table, pa.Table], choices: list[Any]
) -> None:
    """Against the equalities over the rows in memory: selected, left out, and counted."""
    table, data = stored
    found = col("x").isin(choices)
    equal = bind(disjunction(col("x") == value for value in choices), data.schema)
    mask = evaluate(equal, data).to_pylist()
    for condition, wanted in ((found, True), (~found, False)):
        expected = [row for row, each in enumerate(mask) if each is wanted]
        for spelling in (condition, bind(condition, data.schema).to_sql()):
            assert rows_of(table.scan(filter=spelling).to_arrow()) == expected
            assert table.scan(filter=spelling).count() == len(expected)


def test_deletes_and_overwrites_follow_the_rule(table_path: Path) -> None:
    """NaN is in no list, and a list with 0.0 removes -0.0."""
    data = pa.table({"x": NUMBERS, "row": range(8)})
    table = Table.create(table_path, data.schema, partition_by=["x"], durability="fast")
    table.append(data)
    table.delete(col("x").isin([math.nan, 1.5]))
    assert rows_of(table.scan().to_arrow()) == [0, 1, 2, 3, 4, 5, 7]
    table.delete(col("x").isin([0.0]))
    assert rows_of(table.scan().to_arrow()) == [0, 3, 4, 5, 7]
    table.delete(~col("x").isin([math.nan, math.inf]))
    assert rows_of(table.scan().to_arrow()) == [3, 4]


def test_engines_find_nan_in_a_list_that_they_push_into_a_dataset(table_path: Path) -> None:
    """As in a dataset of pyarrow: engines there take a NaN for equal to itself."""
    data = pa.table({"x": NUMBERS, "row": range(8)})
    table = Table.create(table_path, data.schema, durability="fast")
    table.append(data)
    own = pyarrow.dataset.dataset(data)
    dataset = table.scan().to_dataset()
    for values in ([math.nan], [math.nan, 1.5, None], [1.5, math.inf]):
        for asked in (pc.field("x").isin(values), ~pc.field("x").isin(values)):
            expected = rows_of(own.to_table(filter=asked))
            assert rows_of(dataset.to_table(filter=asked)) == expected
            assert rows_of(dataset.filter(asked).to_table()) == expected
    # A filter= is ours however it is spelled.
    assert rows_of(table.scan(filter=pc.field("x").isin([math.nan])).to_arrow()) == []


@pytest.mark.parametrize("choices", [[math.nan], [0.0], [-0.0, 1.5], [math.nan, 1.5], [math.inf]])
@pytest.mark.parametrize("negated", [False, True])
def test_polars_gets_what_polars_means_by_a_list(
    table_path: Path, choices: list[float], negated: bool
) -> None:
    """Lazily from a table, against a frame in memory."""
    data = pa.table({"x": NUMBERS, "row": range(8)})
    table = Table.create(table_path, data.schema, durability="fast")
    table.append(data)
    chosen = ~pl.col("x").is_in(choices) if negated else pl.col("x").is_in(choices)
    expected = pl.DataFrame(pl.from_arrow(data)).filter(chosen)["row"].to_list()
    lazy = table.scan().to_polars(lazy=True).filter(chosen).collect()
    assert lazy["row"].to_list() == expected
