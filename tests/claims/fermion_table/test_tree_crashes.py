"""Compactions of primary-key tables that die or fail on the way: the table stays as it was."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from fermion_table import Table
from fermion_table.compaction import tree_task
from fermion_table.errors import CommitStateUnknown
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.writing.tree_writer import TreeWriter
from tests.kit.stores import Crash, CrashingStore, ForgetfulStore, LostReplies
from tests.kit.tables.runs import levels, shown, table_of, trees, write_run
from tests.kit.tables.trees import data_files

AT_ONCE = timedelta(days=-1)
TARGET = 1000


def value(k: int, v: int | None = None, kind: str = "+I") -> dict:
    return {"k": k, "v": v, "_kind": kind}


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Two trees of several runs, with files to merge and files to upgrade."""
    path = tmp_path_factory.mktemp("template") / "table"
    settings = {"target_file_size": str(TARGET), "changelog_producer": "lookup"}
    table = table_of(path, settings)
    for n in range(3):
        write_run(table, [value(k, n) for k in range(20 * n, 20 * n + 25)])
        write_run(table, [value(20 * n + 1, kind="-D"), value(1000 + n)])
    write_run(table, [value(k, 1) for k in range(2000, 2025)])
    return path


def copied(template: Path, path: Path) -> Table:
    shared_cache.clear()
    shutil.copytree(template, path)
    return Table.open(path, durability="fast")


def survives(path: Path, before: Table, after: Table) -> bool:
    """Whether the compaction was published; whichever, the table has to be whole."""
    shared_cache.clear()
    found = Table.open(path, durability="fast")
    rows = shown(before)
    assert shown(found) == rows
    assert levels(found) in (levels(before), levels(after))
    is_published = levels(found) == levels(after)
    report = found.verify(data=True)
    assert report.ok, report
    write_run(found, [value(1000, 7)])
    rows = [row if row["k"] != 1000 else {**row, "v": 7} for row in rows]
    assert shown(found) == rows
    found.remove_orphan_files(older_than=AT_ONCE)
    assert found.remove_orphan_files(older_than=AT_ONCE, dry_run=True).paths == ()
    assert data_files(found) >= {f.entry.path for files in trees(found).values() for f in files}
    found.compact(full=True)
    found.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert shown(found) == rows
    assert found.verify(data=True).ok
    return is_published


def test_a_crash_leaves_the_runs_before_or_those_after(template, tmp_path):
    before, done = Table.open(template), copied(template, tmp_path / "done")
    result = done.compact(threads=1)
    assert (result.groups, result.files_upgraded, len(result.snapshots)) == (2, 3, 1)
    assert result.files_after
    outcomes = []
    for calls in range(1, 100):
        path = tmp_path / f"crash-{calls}"
        snapshot = copied(template, path).snapshot
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, snapshot)
        store.calls_left = calls
        try:
            table.compact(threads=1)
        except Crash:
            outcomes.append(survives(path, before, done))
            continue
        break
    assert levels(Table.open(path)) == levels(done)
    assert outcomes == sorted(outcomes)  # once published, it stays
    assert {False, True} <= set(outcomes)


@pytest.mark.long
@pytest.mark.parametrize("which", ["SIGKILL", "SIGINT"])
def test_a_process_that_is_killed_leaves_the_runs_before_or_those_after(
    which, template, tmp_path, signaller
):
    before, done = Table.open(template), copied(template, tmp_path / "done")
    done.compact(threads=1)
    numbers = range(1 if which == "SIGKILL" else 2, 400, 5)
    outcomes = [
        survives(path, before, done)
        for _, path in signaller.run_until_done("compaction", numbers, which, template, tmp_path)
    ]
    assert outcomes == sorted(outcomes)
    assert outcomes[-1]
    assert not outcomes[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("runs_before", [0, 1])
def test_a_failure_halfway_leaves_no_files(template, tmp_path, monkeypatch, threads, runs_before):
    table = copied(template, tmp_path / "t")
    before, files, written = table.snapshot, data_files(table), []
    write_all = TreeWriter.write_run

    def write_some(self, *arguments, **options):
        entries = write_all(self, *arguments, **options)
        written.extend(entries)
        if len(written) > runs_before:
            raise OSError("the disk is full")
        return entries

    monkeypatch.setattr(TreeWriter, "write_run", write_some)
    with pytest.raises(OSError, match="the disk is full"):
        table.compact(full=True, threads=threads)
    assert written
    assert data_files(table) == files
    assert table.refresh() == before


def test_rows_that_fail_to_be_read_leave_no_files(template, tmp_path, monkeypatch):
    table = copied(template, tmp_path / "t")
    files = data_files(table)
    merged = tree_task.merged_rows

    def merged_until_the_end(*arguments, **options):
        yield from merged(*arguments, **options)
        raise OSError("the storage is gone")

    monkeypatch.setattr(tree_task, "merged_rows", merged_until_the_end)
    with pytest.raises(OSError, match="the storage is gone"):
        table.compact()
    assert data_files(table) == files


@pytest.mark.parametrize("lost", [{"after_success": {1}}, {"before_trying": {1}}])
def test_a_lost_reply_is_told_from_a_lost_race(template, tmp_path, lost):
    snapshot = copied(template, tmp_path / "t").snapshot
    inner = LocalStore(str(tmp_path / "t"), durability="fast")
    result = Table(ForgetfulStore(inner, LostReplies(**lost)), snapshot).compact()
    found = Table.open(tmp_path / "t")
    assert result.snapshots == [found.snapshot.id] == [snapshot.id + 1]
    assert shown(found) == shown(Table.open(template))


def test_an_outcome_that_is_unknown_deletes_no_file(template, tmp_path):
    snapshot = copied(template, tmp_path / "t").snapshot
    inner = LocalStore(str(tmp_path / "t"), durability="fast")
    store = ForgetfulStore(inner, LostReplies(after_success={1}), reads_fail=True)
    with pytest.raises(CommitStateUnknown):
        Table(store, snapshot).compact()
    found = Table.open(tmp_path / "t")
    assert found.snapshot.id == snapshot.id + 1
    assert shown(found) == shown(Table.open(template))
    assert found.verify(data=True).ok
