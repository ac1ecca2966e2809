"""Filters of small stripes, all columns of which are read before the filter is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import ReadOptions, col
from fermion.predicate import RowRanges
from fermion.reading import projection, stripe
from fermion.reading.one_page import OnePageRead
from fermion.reading.strategy import ReadRequest, ReadResult
from fermion_table import Table
from tests.kit.equality import assert_logically_equal

ROWS = 3_000


def stored(path: Path, count: int = ROWS, **options: Any) -> Path:
    random = np.random.default_rng(count)
    words = np.array(["a", "bb", "ccc"])
    holes = random.random(count) < 0.1
    inner = pa.array(random.integers(0, 50, count))
    table = pa.table(
        {
            "id": np.arange(count),
            "number": pa.array(random.integers(0, 100, count), mask=holes),
            "word": pa.array(words[random.integers(0, 3, count)]),
            "s": pa.StructArray.from_arrays([inner, pa.array(random.random(count))], ["x", "y"]),
            "list": [[n, n + 1] for n in range(count)],
        }
    )
    fermion.write_table(table, path, **options)
    return path


def both_ways(read: Callable[[], pa.Table]) -> tuple[pa.Table, pa.Table]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stripe, "TOGETHER_COLUMNS_MAX", 0)
        apart = read()
    return read(), apart


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (["id", "word", "number"], col("number") > 60),
        (["id"], col("number") > 60),
        ([], col("number") > 60),
        (["word"], col("number") > 1000),
        (["s.y", "id"], col("s", "x") < 10),
        (["s", "list"], (col("s", "x") < 10) | col("number").is_null()),
        (["list", "word"], col("word") == "bb"),
    ],
)
@pytest.mark.parametrize("keep_dictionaries", [False, True])
def test_rows_are_those_of_a_filter_that_reads_its_columns_first(
    tmp_path: Path, columns: list[Any], chosen: Any, keep_dictionaries: bool
) -> None:
    path = stored(tmp_path / "rows.fermion")
    options = ReadOptions(keep_dictionaries=keep_dictionaries)
    some = RowRanges.from_indices(np.arange(0, ROWS, 3))

    def read() -> pa.Table:
        with fermion.open(path, options=options) as file:
            parts = [
                file.read(columns, filter=chosen, rows=rows) for rows in (None, some, (5, ROWS - 5))
            ]
        return pa.concat_tables(parts)

    together, apart = both_ways(read)
    assert_logically_equal(together, apart)


def test_all_columns_of_a_small_stripe_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels for flat columns are called once, for the filter's columns and the others."""
    path, calls = stored(tmp_path / "rows.fermion"), []
    read = OnePageRead.read

    def counted(self: OnePageRead, request: ReadRequest) -> ReadResult:
        calls.append([column.ordinal for column in request.columns])
        return read(self, request)

    monkeypatch.setattr(OnePageRead, "read", counted)
    with fermion.open(path) as file:
        file.read(["id", "number", "word"], filter=col("number") > 60)
    assert calls == [[1, 0, 2]]


def test_a_filter_is_bound_once_for_files_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long list is not remembered: it could be large. Text is parsed anew each time."""
    bound: list[Any] = []
    bind = projection.bind
    monkeypatch.setattr(
        projection, "bind", lambda *given, **more: bound.append(given) or bind(*given, **more)
    )
    paths = [stored(tmp_path / f"{n}.fermion", ROWS + n) for n in range(3)]
    many = projection.VALUES_KNOWN_MAX + 1
    for chosen, times in ((col("number") > 7, 1), (col("id").isin(range(many)), 3), ("id > 3", 3)):
        bound.clear()
        counts = [fermion.open(path).count(chosen) for path in paths]
        assert min(counts) > 0
        assert len(bound) == times


def test_a_small_file_of_a_table_is_one_request(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("word", pa.string())]))
    for start in range(0, 20_000, 10_000):
        words = [f"word {n * 7919 % 10_007}" for n in range(10_000)]
        table.append({"id": list(range(start, start + 10_000)), "word": words})
    scan = table.scan(columns=["word"], filter="id > 5000")
    assert scan.to_arrow().num_rows == 14_999
    assert scan.io_stats["files"] == scan.io_stats["requests"] == 2
    assert "pages" in scan.explain(files=2)
