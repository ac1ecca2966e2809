"""A table is data: its rows, columns and keys are where people look for them."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion import col
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, VersionNotFound, lit

ROWS = pa.table({"id": range(100), "city": ["Rome", "Oslo"] * 50})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four files of 25 rows, of which two have lost rows: 60 to 69."""
    made = Table.create(tmp_path / "t", ROWS.schema, durability="fast")
    for start in range(0, 100, 25):
        made.append(ROWS.slice(start, 25))
    made.delete("id >= 60 AND id < 70")
    return made


@pytest.fixture
def keyed(tmp_path: Path) -> Table:
    """Keys 0 to 99 in runs that are not merged; the first ten were deleted."""
    made = Table.create(tmp_path / "k", ROWS.schema, primary_key=["id"], durability="fast")
    made.upsert(ROWS)
    made.upsert(ROWS.slice(20, 40))
    made.delete_keys(list(range(10)))
    return made


@pytest.fixture
def empty(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "e", ROWS.schema, durability="fast")


TABLES = pytest.mark.parametrize(("name", "rows"), [("table", 90), ("keyed", 90), ("empty", 0)])


@TABLES
def test_rows_are_counted_and_shown_by_the_table_itself(
    name: str, rows: int, request: pytest.FixtureRequest
) -> None:
    made = request.getfixturevalue(name)
    scanned = made.scan().to_arrow()
    assert made.count() == scanned.num_rows == rows
    assert made.head().num_rows == min(10, rows)
    assert made.head(3) == scanned.slice(0, 3)
    assert made.head(0).schema == scanned.schema
    assert made.to_arrow() == scanned
    assert made.count("city = 'Rome'") == made.scan(filter="city = 'Rome'").count()
    assert made.count(col("id") < 20) == scanned.filter(pc.field("id") < 20).num_rows


@TABLES
def test_every_library_takes_a_table_as_data(
    name: str, rows: int, request: pytest.FixtureRequest
) -> None:
    made = request.getfixturevalue(name)
    expected = made.scan().to_arrow()
    assert pa.table(made) == expected
    assert pa.RecordBatchReader.from_stream(made).read_all() == expected
    assert pl.DataFrame(made).equals(pl.from_arrow(expected))
    assert duckdb.sql("SELECT count(*), max(id) FROM made").fetchall() == [
        (rows, pc.max(expected["id"]).as_py())
    ]
    pd.testing.assert_frame_equal(made.to_pandas(), expected.to_pandas())
    lazy = made.to_polars()
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.select(pl.len()).collect().item() == rows
    assert made.to_polars(lazy=False).equals(pl.from_arrow(expected))
    with duckdb.connect() as connection:
        assert made.to_duckdb(connection).count("id").fetchall() == [(rows,)]


def test_a_table_is_taken_as_rows_of_another_and_of_itself(table: Table, tmp_path: Path) -> None:
    other = Table.create(tmp_path / "other", table)
    assert other.to_arrow() == table.to_arrow()
    other.append(other)
    assert other.count() == 180
    fermion.write_table(table, tmp_path / "rows.fermion")
    assert fermion.read_table(tmp_path / "rows.fermion") == table.to_arrow()
    result = other.merge(table, on=["id"]).when_matched_delete().execute()
    assert (result.rows_deleted, other.count()) == (180, 0)


def test_keys_and_partitions_are_named(tmp_path: Path) -> None:
    schema = pa.schema({"a.b": pa.int64(), "at": pa.timestamp("us"), "s": pa.string()})
    partitions = ["s", "day(at)", "bucket(4, s)", "truncate(2, s)"]
    made = Table.create(tmp_path / "p", schema, partition_by=partitions)
    assert made.columns == ["a.b", "at", "s"]
    assert made.partition_by == partitions
    assert made.primary_key == []
    again = Table.create(tmp_path / "again", schema, partition_by=made.partition_by)
    assert again.schema.partition_by == made.schema.partition_by
    keyed = Table.create(tmp_path / "k", schema, primary_key=["s", "a.b"])
    assert (keyed.primary_key, keyed.partition_by) == (["s", "a.b"], [])
    keyed.rename_column("s", "renamed")
    assert keyed.primary_key == ["renamed", "a.b"]
    keyed.columns.append("not the table's")
    assert keyed.columns == ["a.b", "at", "renamed"]


def test_len_is_refused_with_a_hint_and_a_table_is_true(empty: Table) -> None:
    with pytest.raises(TypeError, match=r"table\.count\(\), or len\(table\.columns\)"):
        len(empty)
    assert bool(empty)


@pytest.mark.parametrize("name", ["table", "keyed"])
def test_a_sample_is_of_the_rows_and_the_same_for_a_seed(
    name: str, request: pytest.FixtureRequest
) -> None:
    made = request.getfixturevalue(name)
    shown = made.to_arrow()
    rows = set(shown["id"].to_pylist())
    drawn = made.sample(20, seed=1)
    ids = drawn["id"].to_pylist()
    assert len(set(ids)) == len(ids) == 20
    assert set(ids) <= rows
    assert drawn == made.sample(20, seed=1) == pickle.loads(pickle.dumps(made)).sample(20, seed=1)
    assert drawn["city"].to_pylist() == [["Rome", "Oslo"][number % 2] for number in ids]
    assert made.sample(1000, seed=3) == shown
    assert made.sample(20, seed=2**128 - 1).num_rows == 20  # PyTorch gives seeds beyond 2**63
    assert made.sample(0).schema == shown.schema
    assert {tuple(made.sample(3)["id"].to_pylist()) for _ in range(20)} != {tuple(ids[:3])}
    of_rome = made.scan(columns=["id"], filter="city = 'Rome'").sample(5, seed=0)
    assert of_rome.num_rows == 5
    assert all(number % 2 == 0 for number in of_rome["id"].to_pylist())
    assert made.scan(columns=[]).sample(7).num_rows == 7
    assert set(made.scan(limit=5).sample(9)["id"].to_pylist()) == set(
        made.scan(limit=5).to_arrow()["id"].to_pylist()
    )


def test_every_row_is_drawn_as_often(table: Table) -> None:
    """Of 300 draws of 30 of 90 rows each comes about 100 times: never below 50 or above 160."""
    drawn = pa.concat_tables(table.sample(30, seed=seed) for seed in range(300))
    times = pc.value_counts(drawn["id"].combine_chunks()).to_pylist()
    assert len(times) == 90
    assert all(50 < row["counts"] < 160 for row in times)


def test_a_sample_opens_only_files_that_hold_a_row_of_it(table: Table) -> None:
    scan = table.scan()
    assert scan.sample(1, seed=5).num_rows == 1
    assert scan.io_stats["files"] == 1


@pytest.mark.parametrize("name", ["table", "keyed"])
@pytest.mark.parametrize("filter", [None, "city = 'Rome'", "id % 7 = 3"])
def test_rows_are_taken_by_their_place_in_the_scan(
    name: str, filter: str | None, request: pytest.FixtureRequest
) -> None:
    scan = request.getfixturevalue(name).scan(filter=filter)
    shown = scan.to_arrow()
    last = shown.num_rows - 1
    for rows in ([last, 0, 5, 5, 3], [], list(range(last + 1)), np.array([2], np.uint8)):
        assert scan.take(rows) == shown.take(pa.array(rows, pa.int64()))
    assert scan.take(pa.array([1, 0])) == shown.take([1, 0])
    assert scan.select([]).take([3, 3, 1]).num_rows == 3
    assert scan.head_scan(4).take([3]) == shown.slice(3, 1)
    assert pickle.loads(pickle.dumps(scan)).take([1]) == shown.slice(1, 1)


def test_rows_that_are_not_there_are_not_taken(table: Table, empty: Table) -> None:
    for number in (-1, 90, 1 << 62):
        with pytest.raises(InvalidArgumentError, match=f"from 0 to 90, exclusive, found {number}"):
            table.scan().take([0, number])
    with pytest.raises(InvalidArgumentError, match="from 0 to 4, exclusive, found 4"):
        table.scan(limit=4).take([4])
    with pytest.raises(InvalidArgumentError, match="from 0 to 0"):
        empty.scan().take([0])
    assert empty.scan().take([]) == empty.to_arrow()
    for wrong in (5, "12", [1.5], [True], [None], None):
        with pytest.raises((TypeError, InvalidArgumentError), match="rows"):
            table.scan().take(wrong)  # type: ignore[arg-type]


def test_taking_a_row_opens_its_file_alone(table: Table) -> None:
    scan = table.scan()
    assert scan.take([30, 26, 30])["id"].to_pylist() == [30, 26, 30]
    assert scan.io_stats["files"] == 1


def test_heads_and_samples_of_wide_tables_have_all_columns(tmp_path: Path) -> None:
    wide = pa.table({f"c{number}": [number, number + 1] for number in range(10_000)})
    made = Table.create(tmp_path / "w", wide, durability="fast")
    assert made.head(1) == wide.slice(0, 1)
    assert made.sample(1, seed=0).num_columns == 10_000
    assert len(repr(made)) < 300
    assert made.columns == wide.column_names


def test_a_table_shows_the_snapshot_that_it_sees(table: Table, tmp_path: Path) -> None:
    table.tags.create("before")
    table.branches.create("dev")
    Table.open(table.location).append({"id": [500]})
    Table.open(table.location, branch="dev").delete("id < 50")
    assert table.count() == 90
    assert Table.open(table.location).count() == 91
    assert Table.open(table.location, branch="dev").count() == 40
    assert Table.open(table.location, version="before").head(1)["id"].to_pylist() == [0]
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        assert pool.apply(table.count) == 90


def test_a_scan_takes_every_version_that_open_takes(table: Table) -> None:
    table.tags.create("all", version=4)
    table.branches.create("dev")
    Table.open(table.location, branch="dev").delete("id < 50")
    counts: list[tuple[Any, int]] = [
        (1, 25), ("2", 50), ("all", 100), ("all~1", 75), ("main", 90), ("main~1", 100),
        ("dev", 40), ("dev~1", 90), (table.snapshots()[3].id, 75),
    ]  # fmt: skip
    for version, expected in counts:
        assert table.scan(version=version).count() == expected, version
        assert Table.open(table.location, version=version).count() == expected, version
    assert table.scan(version=2, columns=["id"], filter="id > 40").count() == 9
    for other in ({"snapshot_id": 1}, {"tag": "all"}, {"as_of": "main~1"}):
        with pytest.raises(InvalidArgumentError, match="expected one of them"):
            table.scan(version=1, **other)
    with pytest.raises(VersionNotFound, match="no version 'nope'"):
        table.scan(version="nope")
    for wrong in (2.5, True, [1], b"main"):
        with pytest.raises(TypeError, match="version"):
            table.scan(version=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.head(-1), InvalidArgumentError),
        (lambda t: t.head("3"), TypeError),
        (lambda t: t.sample(-1), InvalidArgumentError),
        (lambda t: t.sample(2.5), TypeError),
        (lambda t: t.sample(3, seed=-1), InvalidArgumentError),
        (lambda t: t.sample(3, seed="1"), TypeError),
        (lambda t: t.count("nope = 1"), ColumnNotFoundError),
        (lambda t: t.count(5), InvalidArgumentError),
        (lambda t: t.to_polars(lazy=1), TypeError),
        (lambda t: t.to_duckdb("x"), TypeError),
        (lambda t: t.add_columns_with({"x": "NULL"}), InvalidArgumentError),
        (lambda t: t.add_columns_with({"x": "nope * 2"}), ColumnNotFoundError),
        (lambda t: t.add_columns_with({"x": col("nope")}), ColumnNotFoundError),
        (lambda t: t.add_columns_with({"x": pc.field("nope")}), ColumnNotFoundError),
        (lambda t: t.add_columns_with({"x": 5}), TypeError),
        (lambda t: t.add_columns_with({"city": "id"}), InvalidArgumentError),
        (lambda t: t.add_columns_with({}), InvalidArgumentError),
        (lambda t: t.add_columns_with(lambda rows: rows, read=["id"]), TypeError),
    ],
)
def test_wrong_arguments_are_refused(
    table: Table, call: Callable[[Table], Any], error: type[Exception]
) -> None:
    before = table.snapshot.id
    with pytest.raises(error):
        call(table)
    assert table.refresh().id == before


def test_new_columns_have_the_types_that_their_expressions_give(table: Table) -> None:
    table.add_columns_with(
        {
            "twice": "id * 2",
            "half": "id / 2",
            "upper": "upper(city)",
            "same": col("city"),
            "next": pc.field("id") + 1,
            "text": lit("id"),
            "is_first": "id = 0",
        }
    )
    assert table.scan(filter="id = 3").to_arrow().to_pylist() == [
        {
            "id": 3,
            "city": "Oslo",
            "twice": 6,
            "half": 1.5,
            "upper": "OSLO",
            "same": "Oslo",
            "next": 4,
            "text": "id",
            "is_first": False,
        }
    ]
    types = dict(zip(table.columns, table.schema.to_arrow().types, strict=True))
    assert types["twice"] == types["next"] == pa.int64()
    assert (types["half"], types["is_first"]) == (pa.float64(), pa.bool_())
    table.add_columns_with({"small": "id"}, schema=pa.schema({"small": pa.int8()}))
    assert table.schema.to_arrow().field("small").type == pa.int8()


def test_a_description_from_statistics_reads_no_page(table: Table) -> None:
    """All data files are gone. One of them had lost rows: statistics are of what it stores."""
    before = Table.open(table.location, version="main~1")
    files = list(Path(table.location).glob("data/**/*.fermion"))
    assert len(files) == 4
    for file in files:
        file.unlink()
    described = table.describe(sample=0)
    assert described.to_pylist() == [
        {
            "column": "id",
            "type": "int64",
            "nulls": 0,
            "min": "0",
            "max": "99",
            "distinct": None,
            "source": "stored",
        },
        {
            "column": "city",
            "type": "string",
            "nulls": 0,
            "min": "Oslo",
            "max": "Rome",
            "distinct": None,
            "source": "stored",
        },
    ]
    assert before.describe(sample=0)["source"].to_pylist() == ["exact", "exact"]


def test_a_description_estimates_from_rows_what_statistics_do_not_tell(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": range(20_000),
            "few": [number % 7 for number in range(20_000)],
            "list": [[1], None] * 10_000,
            "none": pa.nulls(20_000, pa.int8()),
            "half": [None, 1.5] * 10_000,
        }
    )
    made = Table.create(tmp_path / "t", rows, durability="fast")
    found = {row["column"]: row for row in made.describe().to_pylist()}
    assert found["few"]["distinct"] == 7
    assert 4_000 < found["id"]["distinct"] <= 20_000
    assert found["list"]["source"] == "sampled"
    assert 8_500 < found["list"]["nulls"] < 11_500
    assert (found["none"]["nulls"], found["none"]["min"]) == (20_000, None)
    assert (found["half"]["nulls"], found["half"]["max"]) == (10_000, "1.5")
    whole = made.describe(["half", "id"], sample=30_000)
    assert whole["distinct"].to_pylist() == [1, 20_000]
    assert whole["source"].to_pylist() == ["exact", "exact"]


def test_a_description_of_a_wide_table_reads_few_columns(tmp_path: Path) -> None:
    """Counted: the rows drawn have a hundred columns, of ten thousand that are described."""
    wide = pa.table({f"c{number}": [number, number + 1] for number in range(10_000)})
    made = Table.create(tmp_path / "w", wide, durability="fast")
    described = made.describe()
    assert described.num_rows == 10_000
    assert described["distinct"].null_count == 9_900
    assert described["distinct"][99].as_py() == 2


@pytest.mark.parametrize("name", ["keyed", "empty"])
def test_what_is_stored_is_not_called_exact(name: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(name)
    described = made.describe()
    rows = made.count()
    assert described["source"].to_pylist() == (["stored"] * 2 if rows else ["exact"] * 2)
    assert described["max"][0].as_py() == ("99" if rows else None)
    with pytest.raises(ColumnNotFoundError, match="nope"):
        made.describe(["nope"])
    with pytest.raises(TypeError, match="sample"):
        made.describe(sample="all")  # type: ignore[arg-type]
