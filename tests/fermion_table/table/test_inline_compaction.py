"""Compaction by writers: it follows a commit, bounds the number of runs, never fails it."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.compaction.task import CompactionResult
from fermion_table.merging.sections import sorted_runs
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.table import inline_compaction
from tests.kit.stores import Crash, CrashingStore
from tests.kit.tables.runs import levels, shown, table_of, trees

INLINE = {"compaction": "inline", "bucket": "1"}
AFTER_EACH = {**INLINE, "full_compaction.delta_commits": "1"}
TREE = ((), 0)


def one(k: int, v: int = 0) -> dict:
    return {"k": [k], "v": [v]}


def runs(table: Table) -> int:
    """The greatest number of runs of a tree."""
    return max(len(sorted_runs(files)) for files in trees(table).values())


def by_writer(table: Table) -> None:
    with table.writer() as writer:
        writer.write(one(1, 2))
        table.commit(writer.prepare_commit())


def by_transaction(table: Table) -> None:
    with table.transaction() as changes:
        changes.upsert(one(1, 2))
        changes.delete_keys([3])


CHANGES = {
    "upsert": lambda table: table.upsert(one(1, 2)),
    "append": lambda table: table.append(one(1, 2)),
    "delete_keys": lambda table: table.delete_keys([1]),
    "delete": lambda table: table.delete("k = 1"),
    "update": lambda table: table.update("k = 1", {"v": 5}),
    "overwrite": lambda table: table.overwrite(one(1, 2), filter="k = 2"),
    "merge": lambda table: (
        table.merge(one(1, 2), on="k").when_matched_update({"v": "source.v"}).execute()
    ),
    "writer": by_writer,
    "transaction": by_transaction,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_commit_of_rows_is_followed_by_compaction(change, tmp_path):
    """Against the same table without: the same rows, all at the top, in one more snapshot."""
    table, plain = table_of(tmp_path / "t", AFTER_EACH), table_of(tmp_path / "plain", {})
    for each in (plain, table):
        each.upsert({"k": [1, 2, 3], "v": [1, 1, 1]})
        before = each.snapshot.id
        found = CHANGES[change](each)
    assert shown(table) == shown(plain)
    assert levels(table) == {TREE: [2]}
    assert table.snapshot.kind == "compact"
    assert table.snapshot.id == before + 2
    snapshot = getattr(found, "snapshot", found)
    assert snapshot is None or snapshot.id == before + 1
    assert snapshot is None or snapshot.kind != "compact"


def test_only_trees_that_a_commit_has_changed_are_compacted(tmp_path):
    table = table_of(tmp_path / "t", {**INLINE, "bucket": "2", "write_only": "true"})
    for v in range(4):
        table.upsert({"k": list(range(8)), "v": [v] * 8})
    assert levels(table) == {TREE: [0] * 4, ((), 1): [0] * 4}
    table.set_properties({"write_only": "false"})
    table.upsert(one(1))
    assert sorted(levels(table).values(), key=len) == [[2], [0] * 4]


def test_a_writer_that_only_writes_leaves_all_to_others(tmp_path):
    table = table_of(tmp_path / "t", {**INLINE, "write-only": "true"})
    for v in range(9):
        table.upsert(one(1, v))
    assert levels(table) == {TREE: [0] * 9}
    assert table.compact().groups == 1
    assert levels(table) == {TREE: [2]}


def test_a_failure_is_a_warning_and_the_commit_stands(tmp_path, monkeypatch):
    table = table_of(tmp_path / "t", AFTER_EACH)

    def fails(*arguments, **options):
        raise OSError("the disk is full")

    monkeypatch.setattr(inline_compaction, "run_compaction", fails)
    with pytest.warns(RuntimeWarning, match="snapshot 1 is committed.*OSError: the disk is full"):
        assert table.upsert(one(1)).id == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.upsert(one(2)).id == 2
    monkeypatch.undo()
    assert [row["k"] for row in shown(table)] == [1, 2]
    table.upsert(one(3))
    assert levels(table) == {TREE: [2]}


def test_a_crash_at_any_call_leaves_the_rows_before_or_those_after(tmp_path):
    """Whatever is published, no row is lost, and a later upsert compacts."""
    outcomes = []
    for calls in range(1, 200):
        path = tmp_path / str(calls)
        shared_cache.clear()
        table = table_of(path, AFTER_EACH)
        table.upsert({"k": [1, 2], "v": [0, 0]})
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, table.snapshot)
        store.calls_left = calls
        try:
            table.upsert(one(1, 7))
        except Crash:
            store.calls_left = 10**9
        else:
            outcomes.append("done")
        shared_cache.clear()
        found = Table.open(path, durability="fast")
        values = [row["v"] for row in shown(found)]
        assert values in ([0, 0], [7, 0])
        is_compacted = levels(found) == {TREE: [2]}
        if "done" in outcomes:
            assert is_compacted
            break
        outcomes.append((values[0] == 7, is_compacted))
        assert found.verify(data=True).ok
        found.upsert(one(3))
        assert [row["k"] for row in shown(found)] == [1, 2, 3]
        assert levels(found) == {TREE: [2]}
    assert outcomes[-1] == "done"
    assert {(False, True), (True, False), (True, True)} == set(outcomes[:-1])


def test_threads_that_upsert_and_compact_lose_no_row(tmp_path):
    """Writers of one bucket; few runs are left at the end, and no upsert fails or warns.

    Half of them share a table object.
    """
    path, each = tmp_path / "t", 6
    shared = table_of(path, INLINE)

    def write(number: int) -> None:
        table = shared if number % 2 else Table.open(path, durability="fast")
        for n in range(each):
            table.upsert({"k": [number * each + n, -1], "v": [n, n]})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(6) as executor:
            list(executor.map(write, range(6)))
    table = Table.open(path)
    assert [row["k"] for row in shown(table)] == list(range(-1, 36))
    assert runs(table) < 2 + 3 + 6
    kinds = table.inspect.snapshots().column("kind").to_pylist()
    assert kinds.count("append") == 36
    assert "compact" in kinds
    assert table.verify(data=True).ok


def test_a_writer_waits_for_another_thread_only_where_runs_are_many(tmp_path):
    table = table_of(tmp_path / "t", {**INLINE, "num_sorted_run.stop_trigger": "3"})
    lock = inline_compaction._LOCKS[hash(table.location) % len(inline_compaction._LOCKS)]
    with ThreadPoolExecutor(1) as executor:
        with lock.get():
            for v in range(2):
                executor.submit(table.upsert, one(1, v)).result(timeout=60)
            waiting = executor.submit(table.upsert, one(1, 2))
            time.sleep(0.3)
            assert not waiting.done()
            assert levels(Table.open(tmp_path / "t")) == {TREE: [0, 0, 0]}
        assert waiting.result(timeout=60).id == 3
    assert levels(table) == {TREE: [2]}


def test_a_compaction_that_came_too_late_is_tried_again_while_runs_are_many(tmp_path, monkeypatch):
    table = table_of(tmp_path / "t", {**INLINE, "num_sorted_run.stop_trigger": "4"})
    tried = []
    run = inline_compaction.run_compaction

    def comes_too_late(tasks, base, **options):
        tried.append(base.id)
        if len(tried) == 5:
            return run(tasks, base, **options)
        return CompactionResult(groups=1, groups_dropped=1)

    monkeypatch.setattr(inline_compaction, "run_compaction", comes_too_late)
    for v in range(4):
        table.upsert(one(1, v))
    assert tried == [2, 3, 4, 4, 4]
    assert levels(table) == {TREE: [2]}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"compaction": "outline"}, "compaction='outline': expected one of none, inline"),
        ({"write_only": "maybe"}, "write_only='maybe': expected true or false"),
        ({"num_sorted_run.stop_trigger": "1"}, "stop_trigger='1': expected a number from 2"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, properties, message):
    with pytest.raises(InvalidArgumentError, match=message):
        table_of(tmp_path / "t", properties)
