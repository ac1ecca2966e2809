"""Changelogs that outlive the data of their snapshots: what reads them, and when they go."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.errors import VersionNotFound
from fermion_table.expiry import expire
from fermion_table.metadata import pointers
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import Crash, CrashingStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
AT_ONCE = timedelta(days=-1)


def made(path: Path, **properties: str) -> Table:
    properties = {"changelog_producer": "lookup", "changelog.num_retained": "1000"} | properties
    return Table.create(path, SCHEMA, primary_key="k", properties=properties, durability="fast")


def write(table: Table, *numbers: int) -> None:
    """Two snapshots for each number: an upsert, and a compaction."""
    for number in numbers:
        table.upsert({"k": [1, number], "v": [number, number]})
        table.compact()


def said(table: Table, *versions: Any) -> list[tuple[str, int, int]]:
    found = table.scan_changes(*versions).to_arrow().to_pylist()
    return [(row["_change_type"], row["k"], row["v"]) for row in found]


def expire_all_but_last(table: Table) -> Any:
    shared_cache.clear()
    return table.expire_snapshots(older_than=AT_ONCE, retain_last=1)


def names(table: Table, directory: str) -> set[str]:
    return {item.path for item in table.store.list(directory)}


@pytest.fixture
def no_grace(monkeypatch):
    """Let snapshot files go at once."""
    original = expire.expire_snapshots
    monkeypatch.setattr(
        expire,
        "expire_snapshots",
        lambda *args, **options: original(*args, **options, snapshot_file_grace_ms=-1),
    )


def test_changes_of_expired_snapshots_are_read_from_changelogs(table_path, no_grace):
    table = made(table_path)
    write(table, 2, 3, 4)
    whole = {start: said(table, start) for start in (0, 2, 4)}
    part = said(table, 2, 4)
    assert expire_all_but_last(table).snapshots == 5
    assert names(table, "expired") == {f"expired/{6:020}-{1:020}"}
    assert len(names(table, "snapshot")) == 9
    assert {start: said(table, start) for start in (0, 2, 4)} == whole
    assert said(table, 2, 4) == part
    for start in (1, 3):  # rows that were not compacted there are gone
        with pytest.raises(VersionNotFound, match="expired"):
            said(table, start)
    with pytest.raises(VersionNotFound, match="snapshot 4"):
        table.scan(snapshot_id=4)
    assert table.verify(data=True).ok
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    assert said(table, 2) == whole[2]
    (path,) = {entry.path for entry in snapshot(table, 4).changelog.entries}
    table.store.delete(path)
    assert [problem.path for problem in table.verify().problems] == [path]


def snapshot(table: Table, snapshot_id: int) -> Any:
    return table.scan_changes(snapshot_id - 1, snapshot_id).snapshot


def test_changelogs_go_when_there_are_enough_newer_ones(table_path, no_grace):
    table = made(table_path, **{"changelog.num_retained": "4"})
    write(table, 2, 3, 4)
    expire_all_but_last(table)
    write(table, 5)
    expire_all_but_last(table)
    assert names(table, "expired") == {f"expired/{8:020}-{5:020}"}
    assert len([path for path in names(table, "data") if "changelog-" in path]) == 2
    assert said(table, 6)[-1] == ("insert", 5, 5)
    for start in (0, 2, 4):
        with pytest.raises(VersionNotFound):
            said(table, start)
    assert table.verify(data=True).ok
    table.set_properties({"changelog.num_retained": "1"})
    expire_all_but_last(table)
    assert names(table, "expired") == {f"expired/{9:020}"}
    assert [path for path in names(table, "data") if "changelog-" in path] == []
    assert len(names(table, "snapshot")) == 4
    table.set_properties({"changelog.num_retained": "100"})  # what is gone does not come back
    write(table, 6)
    expire_all_but_last(table)
    assert pointers.first_recorded(table.store) == 9
    assert table.verify(data=True).ok
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()


def test_changelogs_are_kept_for_a_time(table_path, monkeypatch, no_grace):
    table = made(table_path, **{"changelog.num_retained": "1", "changelog.time_retained": "1 h"})
    write(table, 2, 3)
    expire_all_but_last(table)
    assert said(table, 0)[-1] == ("insert", 3, 3)
    later = expire.now_ms() + 2 * 3600 * 1000
    monkeypatch.setattr("fermion_table.table.maintenance.now_ms", lambda: later)
    expire_all_but_last(table)
    assert names(table, "expired") == {f"expired/{4:020}"}
    with pytest.raises(VersionNotFound):
        said(table, 2)


def test_rows_given_to_writers_are_read_after_their_data_has_expired(table_path, no_grace):
    table = made(table_path, changelog_producer="input")
    table.upsert({"k": [1, 2], "v": [1, 1]})
    table.overwrite({"k": [1], "v": [3]})
    table.upsert({"k": [1], "v": [4]})
    table.upsert({"k": [1], "v": [5]})
    table.compact(full=True)
    expire_all_but_last(table)
    assert said(table, 0, 1) == [("insert", 1, 1), ("insert", 2, 1)]
    assert said(table, 2) == [("insert", 1, 4), ("insert", 1, 5)]
    with pytest.raises(VersionNotFound, match="expired"):
        said(table, 0)  # the overwrite recorded nothing


def test_branches_keep_changelogs_of_their_own(table_path, no_grace):
    table = made(table_path)
    write(table, 2)
    table.branches.create("dev")
    branch = Table.open(table_path, branch="dev", durability="fast")
    write(branch, 3, 4)
    write(table, 5, 6)
    for each in (branch, table):
        expire_all_but_last(each)
    assert [row[1:] for row in said(branch, 2)][-1] == (4, 4)
    assert [row[1:] for row in said(table, 2)][-1] == (6, 6)
    assert table.verify(data=True).ok
    table.branches.delete("dev")
    assert table.remove_orphan_files(older_than=AT_ONCE).files > 0
    assert said(table, 2)[-1] == ("insert", 6, 6)
    assert table.verify(data=True).ok


def test_a_crash_during_expiry_leaves_changelogs_that_can_be_read(table_path, tmp_path):
    """Wherever it stops: what is kept is read, and verifies."""
    table = made(table_path, **{"changelog.num_retained": "3"})
    write(table, 2, 3, 4)
    wanted = said(table, 4)
    for calls in range(1, 100, 4):
        shared_cache.clear()
        path = tmp_path / str(calls)
        shutil.copytree(table_path, path)
        store: AtomicStore = CrashingStore(LocalStore(str(path), durability="fast"), calls)
        is_done = True
        try:
            expire.expire_snapshots(
                store,
                older_than_ms=2**60,
                retain_last=1,
                changelogs=expire.ChangelogRetention(3),
            )
        except Crash:
            is_done = False
        shared_cache.clear()
        found = Table.open(path, durability="fast")
        assert said(found, 4) == wanted
        assert found.verify(data=True).ok
        if is_done:
            break
    assert calls > 5


def test_two_expiries_that_keep_other_changelogs_leave_what_both_keep(table_path):
    store = made(table_path).store
    for marks, first in (([(5, None)], 5), ([(5, 2)], 2), ([(5, 2), (6, None)], 6)):
        for kept, recorded in marks:
            pointers.mark_expired(store, kept, changelog_id=recorded)
        assert pointers.first_recorded(store) == max(first, pointers.first_recorded(store))
    pointers.mark_expired(store, 9, changelog_id=3)
    pointers.drop_old_markers(store)
    assert (pointers.first_kept(store), pointers.first_recorded(store)) == (9, 6)
    assert {item.path[8:] for item in store.list("expired")} == {f"{6:020}", f"{9:020}-{3:020}"}


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_wrong_limits_are_refused(table_path, value):
    with pytest.raises(InvalidArgumentError, match="num_retained"):
        made(table_path, **{"changelog.num_retained": value})
