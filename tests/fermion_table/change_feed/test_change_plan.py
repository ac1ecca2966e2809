"""Changes divided into splits: together they are the same changes, and each reads a part."""

from __future__ import annotations

import pickle
import random
import zlib
from collections import Counter, deque
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table, VersionNotFound
from fermion_table.change_feed import change_plan
from fermion_table.engine import ChangeScan, TreeChanges
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


@pytest.mark.long
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


def followed(
    table: Table, ends: list[int], readers: int, chosen: random.Random
) -> list[dict[str, Any]]:
    """The changes of intervals as readers at different speeds give them out.

    A place goes to the reader of its name; all wait where the order of places becomes another one.
    """
    phases: list[tuple[str, list[tuple[ChangeScan, TreeChanges]]]] = []
    for start, end in pairwise(ends):
        changes = table.scan_changes(start, end)
        for tree in pickle.loads(pickle.dumps(changes.trees())):
            if not phases or phases[-1][0] != tree.order:
                phases.append((tree.order, []))
            phases[-1][1].append((changes, tree))
    rows: list[dict[str, Any]] = []
    for _, places in phases:
        queues: dict[int, deque[list[dict[str, Any]]]] = {}
        for changes, tree in places:
            queue = queues.setdefault(zlib.crc32(tree.place.encode()) % readers, deque())
            for split in tree.splits:
                queue.extend(batch.to_pylist() for batch in changes.reader.read(split, threads=1))
        while queues:
            number = chosen.choice(sorted(queues))
            queue = queues[number]
            if not queue:
                del queues[number]
                continue
            rows += queue.popleft()
    return rows


REPLAYED = [kind for kind in KINDS if kind not in ("append table", "input")]


@pytest.mark.long
@pytest.mark.parametrize("kind", REPLAYED)
@pytest.mark.parametrize("seed", range(3))
def test_places_that_are_followed_by_many_readers_replay_to_the_table(table_path, kind, seed):
    """Of any intervals, with any number of readers, however fast each is; also where buckets
    change. The model is a dict: each change finds the row that it says."""
    chosen = random.Random(seed)
    table = random_table(table_path, kind, commits=9, seed=seed)
    inner = sorted(chosen.sample(range(1, table.snapshot.id), 3))
    ends = [0, *inner, table.snapshot.id]
    changes = followed(table, ends, chosen.randint(1, 4), chosen)
    found = replayed([], changes, ["p", "k"])
    assert shown(found) == shown(table.scan().to_arrow().to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_an_append_table_are_followed_before_they_are_deleted(table_path, seed):
    """The model is a multiset, from which only rows are taken that are there."""
    chosen = random.Random(seed)
    table = random_table(table_path, "append table", commits=12, seed=seed)
    inner = sorted(chosen.sample(range(1, table.snapshot.id), 3))
    rows: Counter[str] = Counter()
    for change in followed(table, [0, *inner, table.snapshot.id], 3, chosen):
        kind, *_ = (change.pop(name) for name in [name for name in change if name[:2] == "_c"])
        rows[repr(change)] += 1 if kind == "insert" else -1
        assert rows[repr(change)] >= 0
    assert sorted(rows.elements()) == shown(table.scan().to_arrow().to_pylist())


def test_rows_of_a_partition_that_are_deleted_and_rewritten_are_followed_by_one_reader(table_path):
    """Rows come back, and go with their file: in whichever file they are, the place is one."""
    table = Table.create(table_path, SCHEMA, partition_by="p")
    table.append({"p": [0] * 2, "k": [1, 2], "v": [1, 2], "s": ["x", "y"]})
    table.append({"p": [0] * 2, "k": [3, 4], "v": [1, 2], "s": ["x", "y"]})
    table.delete("v = 1")  # marks rows of both files
    table.restore(2)
    table.overwrite({"p": [0], "k": [2], "v": [3], "s": ["y"]}, dynamic=True)
    assert [tree.order for tree in table.scan_changes(0).trees()] == ["file", "file", "partition"]
    (tree,) = table.scan_changes(2).trees()
    assert tree.place == "[0]"
    assert len(tree.splits) == 3


def test_a_place_has_the_same_name_in_every_plan_and_keeps_the_changes_of_its_keys(table_path):
    """A tree in two intervals, and a partition while the number of its buckets changes."""
    settings = {"bucket": "2"}
    table = Table.create(table_path, SCHEMA, primary_key=["k"], properties=settings)
    rows = pa.table({"p": [0] * 9, "k": range(9), "v": range(9), "s": ["x"] * 9}, SCHEMA)
    table.upsert(rows)
    table.upsert(rows)
    first, second = table.scan_changes(0, 1).trees(), table.scan_changes(1, 2).trees()
    assert {tree.place for tree in first} == {"[[],0]", "[[],1]"}
    assert {tree.order for tree in (*first, *second)} == {"tree"}
    assert len(table.scan_changes(0).trees()) == 2  # the splits of both commits
    table.set_properties({"bucket": "3"})
    table.overwrite(rows)
    (moved,) = table.scan_changes(1).trees()
    assert (moved.place, moved.order) == ("[[],null]", "partition")
    table.upsert(rows.slice(0, 1))
    (tree,) = table.scan_changes(table.snapshot.id - 1).trees()
    assert tree.order not in ("tree", "partition")
    assert table.scan_changes(table.snapshot.id).trees() == ()
