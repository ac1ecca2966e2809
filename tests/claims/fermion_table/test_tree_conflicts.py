"""Compactions of primary-key tables beside other commits, expiry, branches and new schemas."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.engine import compact_group
from fermion_table.storage.cache import shared_cache
from tests.kit.tables.runs import (
    entries,
    levels,
    shown,
    table_of,
    trees,
    write_run,
)
from tests.kit.tables.trees import data_files

AT_ONCE = timedelta(days=-1)


def value(k: int, v: int | None = None, kind: str = "+I") -> dict:
    return {"k": k, "v": v, "_kind": kind}


def values(table: Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in shown(table)}


@pytest.fixture
def table(tmp_path) -> Table:
    """One tree of three runs."""
    table = table_of(tmp_path / "t", {"bucket": "1"})
    for n in range(3):
        write_run(table, [value(k, n) for k in range(n, 10 + n)])
    return table


EXPECTED = {0: 0, 1: 1, **dict.fromkeys(range(2, 12), 2)}


def test_an_upsert_between_plan_and_commit_stands_beside_the_compaction(table):
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction(full=True)]
    write_run(table, [value(1, 50), value(2, kind="-D")])
    result = table.commit_compaction(messages, base)
    assert (result.groups_dropped, len(result.snapshots)) == (0, 1)
    assert levels(table) == {((), 0): [0, 2]}
    expected = {**EXPECTED, 1: 50}
    del expected[2]
    assert values(table) == expected
    table.compact(full=True)
    assert values(table) == expected


@pytest.mark.parametrize("first_is_longer", [False, True])
@pytest.mark.parametrize("target", [1, None])
def test_of_two_compactions_of_a_tree_the_later_is_dropped(table, first_is_longer, target):
    """A merges the first runs, B more of them; whichever comes first, the other one's files go."""
    plans = [(table.snapshot, table.plan_compaction(full=True, target_size=target))]
    write_run(table, [value(k, 9) for k in (3, 40)])
    plans.append((table.snapshot, table.plan_compaction(full=True, target_size=target)))
    made = [(base, [compact_group(task) for task in tasks]) for base, tasks in plans]
    if first_is_longer:
        made.reverse()
    results = [table.commit_compaction(messages, base) for base, messages in made]
    assert [result.groups_dropped for result in results] == [0, 1]
    assert values(table) == {**EXPECTED, 3: 9, 40: 9}
    kept = {entry.path for entry in entries(table)}
    late = {entry.path for entry in made[1][1][0].written}
    assert late.isdisjoint(data_files(table))
    assert kept <= data_files(table)
    assert table.verify(data=True).ok


def test_a_restore_between_plan_and_commit_drops_the_compaction(table):
    table.compact(full=True)
    write_run(table, [value(k, 9) for k in range(5)])
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction(full=True)]
    table.restore(2)
    result = table.commit_compaction(messages, base)
    assert (result.groups_dropped, result.snapshots) == (1, [])
    assert values(table) == {0: 0, **dict.fromkeys(range(1, 11), 1)}
    assert levels(table) == {((), 0): [0, 0]}
    assert table.verify(data=True).ok


def test_a_restore_brings_upgraded_files_back_to_their_level(table):
    before = table.snapshot.id
    write_run(table, [value(100, 1)])
    table.compact(full=True, target_size=1)
    assert levels(table) == {((), 0): [2] * 13}
    table.restore(before)
    assert levels(table) == {((), 0): [0, 0, 0]}
    write_run(table, [value(0, 77)])
    assert values(table) == {**EXPECTED, 0: 77}


def test_expiry_and_orphans_leave_the_files_of_a_tree(table):
    """An upgraded file was removed and added: it must not go with the snapshots before."""
    write_run(table, [value(k, 1) for k in range(100, 110)])
    table.compact(full=True, target_size=1)
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    table.remove_orphan_files(older_than=AT_ONCE)
    shared_cache.clear()
    found = Table.open(table.location)
    assert data_files(found) == {entry.path for entry in entries(found)}
    assert values(found) == {**EXPECTED, **dict.fromkeys(range(100, 110), 1)}
    assert found.verify(data=True).ok


def test_every_kept_snapshot_shows_what_it_showed(table):
    seen = {}
    for n in range(4):
        write_run(table, [value(n, 20 + n), value(n + 1, kind="-D")])
        seen[table.snapshot.id] = shown(table)
        table.compact(full=n == 3)
        seen[table.refresh().id] = shown(table)
    for number, rows in seen.items():
        found = table.scan(snapshot_id=number).to_arrow().to_pylist()
        assert sorted(found, key=lambda row: row["k"]) == rows


def test_a_branch_is_compacted_by_itself(table):
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev", durability="fast")
    dev.compact(full=True)
    assert levels(dev) == {((), 0): [2]}
    assert levels(table) == {((), 0): [0, 0, 0]}
    assert values(dev) == values(table) == EXPECTED
    table.branches.fast_forward("dev")
    assert levels(table) == {((), 0): [2]}
    assert values(table) == EXPECTED
    assert table.verify(data=True).ok


def test_a_clone_moves_and_merges_files_of_its_source(table, tmp_path):
    write_run(table, [value(k, 1) for k in range(100, 110)])
    clone = table.clone(tmp_path / "clone", durability="fast")
    result = clone.compact(full=True, target_size=1)
    assert (result.files_upgraded, result.files_before) == (1, 3)
    assert levels(clone) == {((), 0): [2] * 13}
    assert values(clone) == {**EXPECTED, **dict.fromkeys(range(100, 110), 1)}
    assert levels(table) == {((), 0): [0] * 4}
    assert table.verify(data=True).ok
    assert clone.verify(data=True).ok


def test_a_schema_that_changed_between_plan_and_commit(table):
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction(full=True)]
    table.rename_column("v", "w")
    table.add_columns({"n": pa.int64()})
    assert table.commit_compaction(messages, base).groups_dropped == 0
    assert {row["k"]: row["w"] for row in shown(table)} == EXPECTED
    write_run(table, [{"k": 0, "w": 5, "n": 6}])
    table.compact(full=True)
    assert {row["k"]: row["w"] for row in shown(table)} == {**EXPECTED, 0: 5}
    assert [row["n"] for row in shown(table)] == [6] + [None] * 11
    assert table.verify(data=True).ok


def test_runs_of_several_schemas_are_merged_under_the_latest(table):
    table.add_columns({"n": pa.int64()})
    write_run(table, [{"k": 0, "n": 6}])
    table.drop_columns(["p"])
    table.compact(full=True)
    assert [entry.schema_id for entry in entries(table)] == [table.schema.id]
    assert shown(table)[0] == {"k": 0, "s": None, "v": None, "n": 6}
    assert shown(table)[1] == {"k": 1, "s": None, "v": 1, "n": None}


def test_keys_of_several_columns_are_compacted(tmp_path):
    schema = pa.schema([("name", pa.string()), ("k", pa.int32()), ("v", pa.int64())])
    table = Table.create(
        tmp_path / "t",
        schema,
        primary_key=["name", "k"],
        durability="fast",
        properties={"bucket": "3"},
    )
    names = ["", "a", "a\0", "é", "zz" * 50]
    for n in range(4):
        rows = [{"name": name, "k": k, "v": n} for name in names for k in range(n, 5)]
        write_run(table, rows)
    write_run(table, [{"name": "a\0", "k": 4, "_kind": "-D"}])
    before = table.scan().to_arrow().sort_by([("name", "ascending"), ("k", "ascending")])
    table.compact(full=True, target_size=1)
    after = table.scan().to_arrow().sort_by([("name", "ascending"), ("k", "ascending")])
    assert after.equals(before)
    assert after.num_rows == 24
    assert {file.level for files in trees(table).values() for file in files} == {5}
    assert table.verify(data=True).ok


def test_a_copy_of_a_table_is_compacted_where_it_lies(table, tmp_path):
    shutil.copytree(table.location, tmp_path / "copy")
    copy = Table.open(tmp_path / "copy")
    copy.compact(full=True)
    assert values(copy) == EXPECTED
