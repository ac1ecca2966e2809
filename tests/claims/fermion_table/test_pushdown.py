"""Polars, DuckDB and pyarrow datasets: equal answers, and columns and filters pushed down."""

from __future__ import annotations

import datetime
import math
import pickle

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.engine import filter_of_predicate
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from tests.kit.equality import assert_logically_equal

ROWS, FILES = 500, 6
DAY = datetime.date(2024, 1, 1)


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    values = [math.nan if n % 11 == 0 else None if n % 13 == 0 else n / 4 for n in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "f": pa.array(values, pa.float64(), from_pandas=False),
            "t": [None if n % 7 == 0 else f"t{n % 20}" for n in numbers],
            "d": [DAY + datetime.timedelta(n) for n in numbers],
            "b": [None if n % 5 == 0 else n % 2 == 0 for n in numbers],
            "s": [{"x": n % 9, "y": "z" * (n % 3)} for n in numbers],
        }
    )


WHOLE = rows(0, ROWS * FILES)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("pushdown") / "table"
    table = Table.create(path, WHOLE.schema, durability="fast")
    for start in range(0, ROWS * FILES, ROWS):
        table.append(rows(start, ROWS))
    return table


COMPARISONS = [
    pl.col("id") < 70,
    pl.lit(70) > pl.col("id"),
    pl.col("id") == 1234,
    pl.col("id") != 3,
    pl.col("f") > 100.0,
    pl.col("f") >= 740,
    pl.col("f") < 3,
    pl.col("f") != 2.0,
    pl.col("f").is_nan(),
    pl.col("f").is_not_null(),
    pl.col("t") == "t3",
    pl.col("t").is_in(["t3", "t4"]),
    pl.col("t").str.starts_with("t1"),
    pl.col("d") >= datetime.date(2031, 1, 1),
    pl.col("b"),
    pl.col("b") == False,  # noqa: E712 - an expression
    pl.col("id").is_between(10, 20),
    pl.col("s").struct.field("x") == 4,
    pl.col("id") + 1 == 40,
    pl.col("id").is_in([1, 2999]),
]


@given(st.lists(st.sampled_from(COMPARISONS), min_size=1, max_size=3), st.data())
def test_a_lazy_frame_selects_what_a_whole_one_does(table, parts, data):
    """Conjunctions, alternatives and negations of every kind of comparison, NaN and null too."""
    chosen = parts[0]
    for part in parts[1:]:
        other = ~part if data.draw(st.booleans()) else part
        chosen = chosen & other if data.draw(st.booleans()) else chosen | other
    wanted = pl.DataFrame(pl.from_arrow(WHOLE)).filter(chosen).select("id")
    found = table.scan().to_polars(lazy=True).filter(chosen).select("id").collect()
    assert found.equals(wanted)


@pytest.mark.parametrize("chosen", COMPARISONS, ids=str)
def test_what_is_pushed_down_selects_at_least_the_rows(chosen, table):
    """Every comparison but the sum of the list has a counterpart."""
    pushed = filter_of_predicate(chosen, WHOLE.schema)
    if "+" in str(chosen):
        assert pushed is None
        return
    wanted = set(pl.DataFrame(pl.from_arrow(WHOLE)).filter(chosen)["id"])
    assert wanted <= set(table.scan(filter=pushed).to_arrow().column("id").to_pylist())


def test_polars_opens_one_file_for_one_row(table):
    """The filter reaches the plan: the other files are not opened, other columns not read."""
    scan = table.scan()
    found = scan.to_polars(lazy=True).filter(pl.col("id") == 1234).select("t").collect()
    assert found["t"].to_list() == ["t14"]
    assert scan.io_stats["files"] == 1
    whole = table.scan()
    whole.to_arrow()
    assert whole.io_stats["files"] == FILES
    assert whole.io_stats["bytes_used"] > 3 * scan.io_stats["bytes_used"]


def test_a_predicate_that_cannot_be_read_is_left_to_polars(table):
    frame = table.scan().to_polars(lazy=True)
    odd = pl.col("id") % 1000 == 7
    assert frame.filter(odd).select("id").collect()["id"].to_list() == [7, 1007, 2007]


def test_the_first_rows_are_those_before_a_filter_above_them(table):
    frame = table.scan().to_polars(lazy=True)
    assert frame.head(5).filter(pl.col("id") > 2).collect()["id"].to_list() == [3, 4]
    assert table.scan(limit=4).to_polars(lazy=True).filter(pl.col("id") > 1).collect().height == 2


def test_duckdb_pushes_columns_and_filters_down(table):
    dataset = table.scan().to_dataset()
    with duckdb.connect() as connection:
        relation = connection.from_arrow(dataset)
        assert relation.filter("id >= 2998").project("t").fetchall() == [("t18",), ("t19",)]
        assert dataset.last_scan.schema.names[:1] == ["t"]
        assert set(dataset.last_scan.schema.names) <= {"t", "id"}
        assert f"statistics: 1 of {FILES} files" in dataset.last_scan.explain()
        question = "SELECT count(*), sum(id) FROM dataset WHERE t IN ('t3', 't4') AND id < 900"
        wanted = WHOLE.filter(pc.field("t").isin(["t3", "t4"]) & (pc.field("id") < 900))
        assert connection.execute(question).fetchall() == [
            (wanted.num_rows, pc.sum(wanted.column("id")).as_py())
        ]
        assert f"statistics: 2 of {FILES} files" in dataset.last_scan.explain()
        relation = table.scan().to_duckdb(connection)
        assert (
            relation.aggregate("max(d), count(b)").fetchall()
            == connection.from_arrow(WHOLE).aggregate("max(d), count(b)").fetchall()
        )


def test_a_dataset_answers_as_pyarrows_own_does(table):
    dataset, own = table.scan().to_dataset(), pyarrow.dataset.dataset(WHOLE)
    few = (pc.field("id") > 100) & (pc.field("id") < 105)
    assert isinstance(dataset, pyarrow.dataset.Dataset)
    assert dataset.schema == WHOLE.schema
    assert_logically_equal(dataset.to_table(), WHOLE)
    assert dataset.to_table(columns=["t"], filter=few) == own.to_table(columns=["t"], filter=few)
    assert dataset.scanner(columns=["t"], filter=few).to_table().num_rows == 4
    assert dataset.filter(few).count_rows() == dataset.count_rows(filter=few) == 4
    assert dataset.head(3, columns=["id"]).to_pydict() == {"id": [0, 1, 2]}
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["id"])) == len(WHOLE)
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == len(WHOLE)
    with pytest.raises(InvalidArgumentError, match="not expressions"):
        dataset.scanner(columns={"a": pc.field("id")})


def test_a_narrowed_scan_selects_what_both_filters_do(table):
    scan = table.scan(filter="id >= 10").where(pc.field("id") < 12)
    assert scan.to_arrow().column("id").to_pylist() == [10, 11]
    with pytest.raises(InvalidArgumentError, match="with a limit"):
        table.scan(limit=3).where("id = 1")
