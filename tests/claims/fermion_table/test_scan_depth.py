"""How deep a scan's plan goes: tasks, limits, counts, and what statistics leave of each file."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import Table, WriteSettings
from fermion_table.options import OPEN_COST_BYTES
from fermion_table.planning.split import PIECE_ROWS, FileSplit, first_rows, tasks

NOISE = np.random.default_rng(5).bytes(8 * 300_000)
DATA = pa.table(
    {
        "id": pa.array(range(300_000), pa.int64()),
        "k": pa.array([1] * 300_000),
        "noise": pa.array(np.frombuffer(NOISE, np.int64)),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("depth") / "table"
    table = Table.create(path, DATA.schema, durability="fast")
    options = fermion.WriteOptions(stripe_rows=100_000, page_bytes=65_536, durable=False)
    with table.writer(settings=WriteSettings(file_options=options)) as writer:
        writer.write(DATA)
        table.commit(writer.prepare_commit())
    table.append(DATA.slice(0, 10))
    return table


def test_explain_goes_down_to_stripes_and_pages(table):
    """One row of a file of three stripes: one stripe, one page of each column is left."""
    text = table.scan(filter="id = 150000").explain(files=2)
    assert "statistics: 1 of 2 files" in text
    assert "1 of 3 stripes, 3 of " in text
    assert "of 300,000 rows to look at" in text
    whole = table.scan(filter="k = 1").explain(files=1)
    assert "3 of 3 stripes" in whole
    assert "300,000 of 300,000 rows to look at (300,000 certain)" in whole
    assert "stripes" not in table.scan().explain()


def test_a_file_says_what_statistics_leave_of_it(table):
    split = table.scan().plan().splits[0]
    with fermion.open(split.location) as file:
        left = file.prune("id >= 120000 AND id < 130000", columns=["noise"])
        assert (left.stripes, left.stripes_kept, left.rows) == (3, 1, 300_000)
        assert 10_000 <= left.rows_kept < 40_000
        assert 0 < left.pages_kept < left.pages
        assert left.rows_certain <= 10_000
        assert file.prune().rows_certain == 300_000
        assert file.prune(rows=(5, 9)).rows_kept == 4
        assert file.io_stats.bytes_used < split.size / 2


def test_tasks_hold_every_row_once_in_order(tmp_path):
    """A file of 24 MB and a small one; rows are numbers that do not compress."""
    numbers = np.random.default_rng(5).integers(0, 2**63, 3_000_000)
    table = Table.create(tmp_path / "table", pa.schema({"noise": pa.int64()}), durability="fast")
    for part in (numbers, numbers[:10]):
        table.append(pa.table({"noise": part}))
    found = table.scan().plan().tasks(8 * 2**20)
    assert [len(task) for task in found] == [1, 1, 1, 1]
    reader = pickle.loads(pickle.dumps(table.scan().reader))
    batches = [batch for task in found for split in task for batch in reader.read(split)]
    assert pa.Table.from_batches(batches).equals(table.scan().to_arrow())


def test_tasks_are_even_where_files_are_not():
    """Two files, one twice as long as the other: half of the rows to each of two tasks."""
    long, short = (
        FileSplit(location=name, file=name, size=rows * 20, rows=rows)
        for name, rows in (("long", 4_000_000), ("short", 2_000_000))
    )
    first, second = tasks([long, short], (120_000_000 + 2 * OPEN_COST_BYTES) // 2 + 1)
    assert [(each.file, each.row_range[0]) for each in first] == [("long", 0)]
    assert second[-1] == short
    assert abs(sum(each.rows_wanted for each in first) - 3_000_000) < 2 * PIECE_ROWS


def test_a_file_is_not_cut_into_parts_that_cost_less_than_opening_them():
    split = FileSplit(location="a", file="a", size=2 * OPEN_COST_BYTES - 1, rows=10**6)
    assert list(tasks([split], OPEN_COST_BYTES)) == [(split,)]


@given(
    st.lists(st.tuples(st.integers(1, 2**33), st.integers(1, 10**8)), max_size=20),
    st.integers(2**20, 2**30),
)
def test_big_files_are_cut_and_small_ones_put_together(files, target):
    """Pieces cover each file without gaps; what cannot be cut is all that goes over the target."""
    splits = [
        FileSplit(location=f"{place}", file=f"{place}", size=size, rows=rows)
        for place, (size, rows) in enumerate(files)
    ]
    planned = list(tasks(splits, target))
    parts = [piece for task in planned for piece in task]
    for split in splits:
        ranges = [each.row_range or (0, each.rows) for each in parts if each.file == split.file]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == split.rows
        assert all(one[1] == two[0] for one, two in itertools.pairwise(ranges))
        assert all(start % PIECE_ROWS == 0 for start, _ in ranges)
    for task in planned:
        costs = [each.size * each.rows_wanted // each.rows + OPEN_COST_BYTES for each in task]
        units = [
            min(cost, max(each.size * PIECE_ROWS // each.rows, 2 * OPEN_COST_BYTES))
            for each, cost in zip(task, costs, strict=True)
        ]
        over = (units[0] + units[-1]) if len(units) > 1 else 2 * units[0]
        assert sum(costs) <= max(target, OPEN_COST_BYTES) + over + OPEN_COST_BYTES
    assert [each.file for each in parts] == sorted((each.file for each in parts), key=int)


def test_a_file_of_one_piece_stays_as_it_is():
    split = FileSplit(location="a", file="a", size=10**9, rows=100)
    assert list(tasks([split])) == [(split,)]


def test_a_limit_reads_no_more_files_than_hold_the_rows(table):
    few = table.scan(limit=7)
    assert few.to_arrow().column("id").to_pylist() == list(range(7))
    assert few.io_stats["files"] == 1
    assert few.io_stats["bytes_used"] < table.scan().plan().bytes / 4
    more = table.scan(limit=300_004).to_arrow()
    assert more.column("id").to_pylist()[-5:] == [299_999, 0, 1, 2, 3]
    splits = table.scan().plan().splits
    assert first_rows(splits, 0) == []
    assert sum(each.rows_wanted for each in first_rows(splits, 12345)) == 12345


def test_a_count_opens_only_files_that_metadata_cannot_settle(table):
    """Bounds prove that all rows of the small file match, and no row of the other file lies out."""
    scan = table.scan(filter="id < 10")
    assert scan.count() == 20
    assert scan.io_stats["files"] == 1
    certain = table.scan(filter="k = 1")
    assert certain.count() == 300_010
    assert certain.io_stats["files"] == 0


def test_history_reads_under_the_current_schema(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int32()), ("gone", pa.int64())]))
    table.append(pa.table({"a": pa.array([1, 2], pa.int32()), "gone": [5, 6]}))
    table.rename_column("a", "number")
    table.alter_column("number", type=pa.int64())
    table.add_columns({"new": pa.string()}, defaults={"new": "n"})
    table.drop_columns(["gone"])
    table.append(pa.table({"number": [3], "new": ["x"]}))
    old = {"number": [1, 2], "new": ["n", "n"]}
    assert table.scan(snapshot_id=1, schema="current").to_arrow().to_pydict() == old
    assert table.scan(snapshot_id=1).to_arrow().to_pydict() == {"a": [1, 2], "gone": [5, 6]}
    found = table.scan(snapshot_id=1, schema="current", filter="number > 1", columns=["new"])
    assert found.to_arrow().to_pydict() == {"new": ["n"]}
    early = Table.open(table_path, version=1)  # main has dropped the column, compacted or not
    assert early.scan(as_of="main", schema="current").to_arrow().to_pydict() == {
        "a": [1, 2, 3],
        "gone": [None, None, None],
    }
    with pytest.raises(InvalidArgumentError, match="'snapshot' or 'current'"):
        table.scan(schema="today")


def test_a_schema_of_another_line_is_not_taken_for_the_current_one(table_path):
    """Both branches added a column: the same id means different columns."""
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    table.branches.create("other")
    other = Table.open(table_path, branch="other")
    other.add_columns({"theirs": pa.int64()})
    table.add_columns({"mine": pa.string()})
    with pytest.raises(InvalidArgumentError, match="neither an earlier nor a later"):
        table.scan(branch="other", schema="current")
