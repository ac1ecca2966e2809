"""Changes divided into splits: together they are the same changes, and each reads a part."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table, VersionNotFound
from fermion_table.change_feed import change_plan
from fermion_table.engine import ChangeScan
from fermion_table.metadata.manifest_store import live_entries
from tests.kit.tables.change_histories import KINDS, SCHEMA, random_table
from tests.kit.tables.keyed_versions import replayed

AT_ONCE = timedelta(days=-1)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place is a split of its own."""
    monkeypatch.setattr(change_plan, "SPLIT_BYTES", 1)


def read_in_tasks(changes: ChangeScan) -> list[dict[str, Any]]:
    """The rows as tasks in other processes read them, in the order of the tasks."""
    reader = pickle.loads(pickle.dumps(changes.reader))
    tasks = pickle.loads(pickle.dumps(changes.plan().tasks(tasks_min=4)))
    batches = [batch for task in tasks for split in task for batch in reader.read(split, threads=1)]
    assert all(batch.schema == changes.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_the_splits_of_random_histories_have_the_rows_of_the_whole(table_path, divided, kind):
    table = random_table(table_path, kind, commits=7)
    last = table.snapshot.id
    for changes in (
        table.scan_changes(0),
        table.scan_changes(2, last - 1, columns=["s", "v"], filter="k < 9 AND v > 0"),
        table.scan_changes(last),
        table.diff(2).rows(),
    ):
        assert shown(read_in_tasks(changes)) == shown(changes.to_arrow().to_pylist())


@pytest.mark.parametrize("kind", ["deduplicate", "lookup", "aggregation"])
def test_the_changes_of_tasks_can_be_replayed_in_their_order(table_path, divided, kind):
    table = random_table(table_path, kind, commits=7, seed=1)
    before = table.scan(snapshot_id=1).to_arrow().to_pylist()
    found = replayed(before, read_in_tasks(table.scan_changes(1)), ["p", "k"])
    assert shown(found) == shown(table.scan().to_arrow().to_pylist())


def test_a_commit_to_several_trees_is_read_by_several_tasks(table_path, monkeypatch):
    """A tree that no commit touches is in no split; small ones share a split."""
    settings = {"bucket": "4"}
    table = Table.create(
        table_path, SCHEMA, primary_key=["p", "k"], partition_by="p", properties=settings
    )
    keys = range(100)
    rows = pa.table({"p": [k % 2 for k in keys], "k": keys, "v": keys, "s": ["x"] * 100}, SCHEMA)
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))
    assert len(table.scan_changes(0).plan().splits) == 2
    monkeypatch.setattr(change_plan, "SPLIT_BYTES", 1)
    plan = table.scan_changes(0).plan()
    assert len(plan.splits) == 8 + 1
    assert len(plan.tasks(1)) == 9
    (alone,) = table.scan_changes(1).plan().splits
    (before, after) = (live_entries(table.store, each) for each in (alone.start, *alone.snapshots))
    assert (len(before), len(after)) == (1, 2)
    assert len(table.scan_changes(0, filter="p = 1").plan().splits) == 4


def test_files_of_an_append_table_are_read_apart_unless_rows_move_between_them(table_path, divided):
    table = Table.create(table_path, SCHEMA, partition_by="p")
    for p in (0, 0, 1):
        table.append({"p": [p] * 2, "k": [1, 2], "v": [1, 2], "s": ["x", "y"]})
    assert len(table.scan_changes(0).plan().splits) == 3
    assert len(table.scan_changes(0, filter="p = 0").plan().splits) == 2
    table.delete("k = 1")  # marks rows of three files
    assert len(table.scan_changes(3).plan().splits) == 3
    table.overwrite({"p": [0, 2], "k": [2, 3], "v": [2, 3], "s": ["y", "z"]})
    splits = table.scan_changes(4).plan().splits
    assert [len(each.snapshots[0].delta.removed) for each in splits] == [2, 1, 0]


def test_what_has_expired_is_told_by_the_plan_and_by_the_tasks(table_path, divided):
    table = random_table(table_path, "deduplicate", commits=4)
    changes = table.scan_changes(1)
    plan = changes.plan()
    table.compact(full=True)
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    table.remove_orphan_files(older_than=AT_ONCE)
    with pytest.raises(VersionNotFound, match="no snapshot 1"):
        table.scan_changes(1)
    with pytest.raises(VersionNotFound, match="it has expired"):
        list(changes.reader.read(plan.splits[0]))
