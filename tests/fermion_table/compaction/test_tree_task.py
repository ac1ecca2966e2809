"""Compaction of primary-key tables: a scan shows the same before and after, whatever the engine."""

from __future__ import annotations

import pickle
import random

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CompactionResult, Table
from fermion_table.engine import compact_group
from tests.kit.tables.engines import ENGINES, rows_for
from tests.kit.tables.runs import (
    entries,
    expected,
    levels,
    shown,
    table_of,
    trees,
    write_run,
)
from tests.kit.tables.trees import data_files, rows_of

EXAMPLES = 4
ACTIONS = ["write"] * 4 + ["compact", "full", "small files"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_scan_shows_the_same_rows_after_compaction(engine, seed, tmp_path):
    """Against the model, after each of some runs and compactions of any kind, in any order."""
    properties, kinds = ENGINES[engine]
    table = table_of(tmp_path / "t", properties)
    choice = random.Random(seed)
    actions = choice.choices(ACTIONS, k=8)
    written: list[dict] = []
    for action in ["write", *actions, "full"]:
        if action == "write":
            rows = rows_for(choice, kinds, choice.randrange(1, 8))
            written += rows
            write_run(table, rows)
        else:
            size = 1 if action == "small files" else None
            table.compact(full=action == "full", target_size=size, threads=1)
        assert shown(table) == expected(table, written)
    assert table.scan().count() == len(expected(table, written))
    for column in "kv":
        found = table.scan(columns=[column]).to_arrow().column(column).to_pylist()
        assert sorted(found, key=str) == sorted(
            (row[column] for row in expected(table, written)), key=str
        )
    assert {level for found in levels(table).values() for level in found} <= {2}
    assert table.verify(data=True).ok
    assert table.compact(full=True).groups == 0


def value(k: int, v: int | None = None, kind: str = "+I", **others) -> dict:
    return {"k": k, "v": v, "_kind": kind, **others}


@pytest.fixture
def table(tmp_path) -> Table:
    return table_of(tmp_path / "t", {"bucket": "1"})


def test_runs_below_the_trigger_are_left_alone(table):
    write_run(table, [value(1)])
    assert table.compact() == CompactionResult(seconds=pytest.approx(0, abs=60))
    assert levels(table) == {((), 0): [0]}


def test_full_compaction_leaves_one_run_without_retractions_at_the_top(table):
    for n in range(5):
        write_run(table, [value(n, n), value(7, n), value(n - 1, kind="-D")])
    result = table.compact(full=True)
    assert (result.groups, result.files_before, result.files_after) == (1, 5, 1)
    assert (result.rows, result.files_upgraded) == (2, 0)
    (entry,) = entries(table)
    assert (entry.level, entry.retractions, entry.keys_repeated) == (2, 0, 0)
    assert entry.source == "compact"
    assert rows_of(table, entry) == [(4, None, None, 4, 0), (7, None, None, 4, 0)]
    assert table.snapshot.kind == "compact"


def test_retractions_stay_while_older_rows_may_exist(table):
    choice = random.Random(1)
    write_run(table, [value(k, choice.getrandbits(60)) for k in range(2000)])
    table.compact(full=True)
    for k in (1, 2, 3):
        write_run(table, [value(k, kind="-D"), value(5000 + k)])
    table.compact()
    assert levels(table) == {((), 0): [1, 2]}
    (newest,) = [entry for entry in entries(table) if entry.level == 1]
    assert (newest.retractions, newest.rows) == (3, 6)
    assert table.scan().count() == 2000
    table.compact(full=True)
    assert [entry.retractions for entry in entries(table)] == [0]
    assert table.scan().count() == 2000


def test_tables_with_sequence_fields_keep_retractions_at_the_top(tmp_path):
    """A late row of a smaller sequence must not bring the key back."""
    table = table_of(tmp_path / "t", {"sequence.field": "s", "bucket": "1"})
    write_run(table, [value(1, s=1)])
    write_run(table, [value(1, s=5, kind="-D")])
    table.compact(full=True)
    assert [entry.retractions for entry in entries(table)] == [1]
    write_run(table, [value(1, s=3)])
    assert shown(table) == []
    table.compact(full=True)
    assert shown(table) == []


def test_files_that_overlap_no_others_are_upgraded(table):
    """Their entries change, the files do not."""
    for n in range(3):
        write_run(table, [value(10 * n + k, n) for k in range(10)])
    before, files = entries(table), data_files(table)
    rows = shown(table)
    result = table.compact(full=True, target_size=1)
    assert (result.files_upgraded, result.files_before, result.files_after) == (3, 0, 0)
    assert (result.bytes_before, result.rows, len(result.snapshots)) == (0, 0, 1)
    assert data_files(table) == files
    assert {entry.path: entry.stats for entry in entries(table)} == {
        entry.path: entry.stats for entry in before
    }
    assert [entry.level for entry in entries(table)] == [2, 2, 2]
    assert shown(table) == rows
    deltas = table.snapshot.deltas
    assert (deltas.files_added, deltas.files_removed, deltas.rows_added) == (0, 0, 0)
    assert table.verify(data=True).ok


def test_small_neighbours_are_joined(table):
    for n in range(3):
        write_run(table, [value(10 * n + k, n) for k in range(10)])
    result = table.compact(full=True)
    assert (result.files_upgraded, result.files_before, result.files_after) == (0, 3, 1)
    assert table.scan().count() == 30


def test_new_files_have_the_target_size_and_no_key_in_two_of_them(table):
    """All rows of a key are one row at the top, so files are cut between any two rows."""
    for n in range(2):
        write_run(table, [value(k, n) for k in range(50)])
    result = table.compact(full=True, target_size=1)
    assert (result.files_before, result.files_after) == (2, 50)
    assert shown(table) == [{"k": k, "p": None, "s": None, "v": 1} for k in range(50)]


def test_a_key_without_rows_left_leaves_no_file(table):
    write_run(table, [value(1)])
    write_run(table, [value(1, kind="-D")])
    result = table.compact(full=True)
    assert (result.files_before, result.files_after) == (2, 0)
    assert entries(table) == []
    assert table.snapshot.totals.files == 0
    write_run(table, [value(1, 5)])
    assert [row["v"] for row in shown(table)] == [5]


def test_trees_are_compacted_each_by_itself(tmp_path):
    table = table_of(tmp_path / "t", primary_key=["k", "p"], partition_by=["p"])
    for n in range(3):
        write_run(table, [value(k, n, p=p) for k in range(10) for p in range(n + 1)])
    assert len(trees(table)) == 6
    assert table.compact(full=True, filter="p = 2").files_upgraded == 2
    done = []
    result = table.compact(
        full=True, max_groups_per_commit=2, progress=lambda *found: done.append(found), threads=2
    )
    assert (result.groups, len(result.snapshots), result.files_after) == (4, 2, 4)
    assert done == [(n, 4) for n in (1, 2, 3, 4)]
    assert set(map(tuple, levels(table).values())) == {(2,)}
    assert len(shown(table)) == 30


def test_a_filter_names_partitions(tmp_path):
    table = table_of(tmp_path / "t", {"bucket": "1"}, primary_key=["k", "p"], partition_by=["p"])
    for n in range(2):
        write_run(table, [value(k, n, p=p) for k in range(10) for p in range(3)])
    assert table.compact(full=True, filter="p = 1").groups == 1
    assert levels(table)[(1,), 0] == [2]
    assert table.compact(full=True, filter="p > 5").groups == 0
    with pytest.raises(InvalidArgumentError, match=r"filter: reads column 'k'.*partition columns"):
        table.compact(filter="p = 1 AND k = 1")
    assert table.compact(full=True, filter="p >= 1").groups == 1
    assert sorted(map(len, trees(table).values())) == [1, 1, 2]


def test_a_filter_on_a_table_without_partitions_is_refused(table):
    with pytest.raises(InvalidArgumentError, match="filter: reads column 'k'"):
        table.compact(filter="k = 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sort_by": ["v"]}, "sort_by: is for tables without a primary key"),
        ({"min_input_files": 3}, "min_input_files: is for tables without a primary key"),
        ({"target_size": "x"}, "target_size='x' is not a size"),
    ],
)
def test_arguments_of_append_tables_are_refused(table, arguments, message):
    write_run(table, [value(1)])
    for method in (table.compact, table.plan_compaction):
        with pytest.raises(InvalidArgumentError, match=message):
            method(**arguments)


def test_full_is_for_tables_with_a_primary_key(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    with pytest.raises(InvalidArgumentError, match=r"full=True: .* has no primary key"):
        table.compact(full=True)
    with pytest.raises(TypeError, match="full"):
        table.compact(full="yes")


def test_a_dry_run_changes_nothing(table):
    for n in range(2):
        write_run(table, [value(k, n) for k in range(10)])
    write_run(table, [value(100)])
    before = table.snapshot, data_files(table)
    result = table.compact(full=True, dry_run=True, target_size=1)
    assert (result.dry_run, result.groups, result.files_upgraded) == (True, 1, 1)
    assert (result.files_before, result.files_after, result.rows) == (2, 0, 20)
    assert result.snapshots == []
    assert (table.refresh(), data_files(table)) == before


def test_tasks_and_messages_pickle(table):
    """What Spark does."""
    for n in range(3):
        write_run(table, [value(k, n) for k in range(10)])
    base = table.snapshot
    tasks = pickle.loads(pickle.dumps(table.plan_compaction(full=True)))
    messages = pickle.loads(pickle.dumps([compact_group(task) for task in tasks]))
    result = table.commit_compaction(messages, base)
    assert (result.groups, result.files_before, result.files_after) == (1, 3, 1)
    assert [row["v"] for row in shown(table)] == [2] * 10


def test_messages_are_committed_once(table):
    for n in range(3):
        write_run(table, [value(k, n) for k in range(10)])
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction(full=True)]
    with pytest.raises(InvalidArgumentError, match="only once"):
        table.commit_compaction(messages * 2, base)
    table.commit_compaction(messages, base)
    with pytest.raises(InvalidArgumentError, match="only once"):
        table.commit_compaction(messages, base)
    assert table.verify(data=True).ok
    assert [row["v"] for row in shown(table)] == [2] * 10


def test_upgrades_that_were_committed_are_dropped_the_second_time(table):
    for n in range(3):
        write_run(table, [value(10 * n + k, n) for k in range(10)])
    base = table.snapshot
    tasks = table.plan_compaction(full=True, target_size=1)
    messages = [compact_group(task) for task in tasks]
    assert not messages[0].written
    table.commit_compaction(messages, base)
    result = table.commit_compaction(messages, base)
    assert (result.groups_dropped, result.snapshots) == (1, [])
    assert table.verify(data=True).ok
    assert table.scan().count() == 30


def test_messages_of_another_snapshot_are_refused(table):
    for n in range(3):
        write_run(table, [value(k, n) for k in range(10)])
    messages = [compact_group(task) for task in table.plan_compaction(full=True)]
    write_run(table, [value(1, 9)])
    with pytest.raises(
        InvalidArgumentError, match=r"base: expected snapshot 3, .*found snapshot 4"
    ):
        table.commit_compaction(messages, table.snapshot)


def test_a_sort_order_other_than_that_of_the_key_is_refused(tmp_path):
    """It would have no effect: at creation, and later."""
    with pytest.raises(InvalidArgumentError, match=r"sort_by=\['v'\]: the files of a table with"):
        table_of(tmp_path / "refused", sort_by=["v"])
    table = table_of(tmp_path / "t", sort_by=["k"])
    for columns in (["v"], ["k", "v"]):
        with (
            pytest.raises(InvalidArgumentError, match="expected no sort_by, or the first columns"),
            table.update_schema() as update,
        ):
            update.set_sort_order(columns)
    with table.update_schema() as update:
        update.set_sort_order([])
    assert table.schema.sort_by == ()
