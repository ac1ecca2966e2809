"""Few rows of many columns: work that Python does is done once, not for each column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from fermion_table import Table
from tests.kit.counting import calls

ROWS = 100


def rows(columns: int) -> pa.Table:
    """Features of several types; one of them is unknown in all rows."""
    rng = np.random.default_rng(columns)
    makes: list[Callable[[], pa.Array]] = [
        lambda: pa.array(rng.standard_normal(ROWS)),
        lambda: pa.array(rng.standard_normal(ROWS).astype(np.float32)),
        lambda: pa.array(rng.integers(0, 1000, ROWS), mask=rng.random(ROWS) < 0.3),
        lambda: pa.array(np.zeros(ROWS)),
    ]
    known = {f"feature {n}": makes[n % len(makes)]() for n in range(columns - 1)}
    return pa.table({**known, "unknown": pa.nulls(ROWS, pa.float64())})


def reals(columns: int) -> pa.Table:
    """Features of one type."""
    rng = np.random.default_rng(columns)
    return pa.table({f"feature {n}": rng.standard_normal(ROWS) for n in range(columns)})


def created(path: Path, data: pa.Table) -> Table:
    """A table with one file."""
    table = Table.create(str(path), data.schema)
    table.append(data)
    return table


def test_an_append_calls_no_function_of_python_for_each_column(tmp_path: Path) -> None:
    """An append of 2,200 columns calls hardly more than one of 1,100; both give their rows back."""
    counts = []
    for columns in (1_100, 2_200):
        data = rows(columns)
        table = created(tmp_path / str(columns), data)
        counts.append(calls(lambda table=table, data=data: table.append(data)))  # type: ignore[misc]
    assert table.scan().to_arrow().equals(pa.concat_tables([data, data]))
    assert counts[1] - counts[0] < 200


def test_columns_in_another_order_are_matched_by_name(tmp_path: Path) -> None:
    data = rows(30)
    table = created(tmp_path / "t", data)
    table.append(data.select([*range(1, 30), 0]))
    assert table.scan().to_arrow().equals(pa.concat_tables([data, data]))


def test_compacting_more_files_calls_no_function_of_python_for_each_column(tmp_path: Path) -> None:
    """Six files of 1,100 columns are compacted with a few hundred calls more than three."""
    data, counts = reals(1_100), []
    for files in (3, 6):
        table = created(tmp_path / str(files), data)
        for _ in range(files - 1):
            table.append(data.slice(0, 20))
        reopened = Table.open(str(tmp_path / str(files)))
        counts.append(calls(reopened.compact))
        found = table.scan().to_arrow()
        assert found.num_rows == ROWS + (files - 1) * 20
        assert found.slice(found.num_rows - 20).equals(data.slice(0, 20))
    assert counts[1] - counts[0] < 1_000, counts
