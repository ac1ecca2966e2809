"""Filters on tables: a row is found by what its literal means, in bounds, partitions and rows."""

from __future__ import annotations

import datetime
import decimal
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from fermion import col
from fermion_table import Table

EARLY = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
LATE = EARLY.replace(fold=1)
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"partition_by": ["c"]},
    {"partition_by": ["bucket(3, c)"]},
    {"sort_by": ["c"]},
]


def rows_of(table: Table, chosen: Any = None) -> list[int]:
    return sorted(table.scan(columns=["row"], filter=chosen).to_arrow()["row"].to_pylist())


def table_of(path: Path, cells: list[Any], dtype: pa.DataType, layout: dict[str, Any]) -> Table:
    schema = pa.schema([("c", dtype), ("row", pa.int64())])
    table = Table.create(str(path), schema, **layout)
    table.append(pa.table([pa.array(cells, dtype), range(len(cells))], schema=schema))
    return table


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_delete_of_the_second_of_two_repeated_hours_leaves_the_first(
    tmp_path: Path, layout: dict[str, Any]
):
    """The first was asked for before, and Python takes both as equal."""
    table = table_of(tmp_path / "t", [EARLY, LATE], pa.timestamp("us", "UTC"), layout)
    assert rows_of(table, col("c") == EARLY) == [0]
    assert rows_of(table, col("c").isin([EARLY, LATE])) == [0, 1]
    table.delete(col("c") == LATE)
    assert rows_of(table) == [0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_negative_decimal_of_thirty_digits_is_found_by_its_text(
    tmp_path: Path, layout: dict[str, Any]
):
    """By SQL text and by value, where the program works with few digits itself."""
    texts = ["-99999999999999999999.0000000001", "-99999999999999999999.0000000002", "0"]
    table = table_of(tmp_path / "t", list(map(Decimal, texts)), pa.decimal128(38, 10), layout)
    for precision in (28, 3):
        with decimal.localcontext(decimal.Context(prec=precision)):
            assert rows_of(table, f"c = {texts[0]}") == [0]
            assert rows_of(table, f"c <= {texts[1]}") == [1]
            assert rows_of(table, col("c") == Decimal(texts[1])) == [1]
    assert table.overwrite(table.scan(filter="row > 5").to_arrow(), filter=f"c = {texts[0]}")
    assert rows_of(table) == [1, 2]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [pa.decimal128(20, -2), pa.decimal32(5, -2)], ids=str)
def test_rows_are_filtered_and_deleted_by_decimals_of_a_negative_scale(
    tmp_path: Path, dtype: pa.DataType, layout: dict[str, Any]
):
    cells = [Decimal(100), Decimal(-200), Decimal(300), None]
    table = table_of(tmp_path / "t", cells, dtype, layout)
    assert rows_of(table, "c > 99") == [0, 2]
    assert rows_of(table, "c = 101") == []
    table.delete(col("c") < 0)
    assert rows_of(table) == [0, 2, 3]
