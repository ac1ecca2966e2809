"""Compactions of trees against other commits: of two that change a tree's runs only one stands."""

from __future__ import annotations

import msgspec
import pytest

from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest, FileGroup
from fermion_table.commit.restore import difference
from fermion_table.errors import CommitConflict
from fermion_table.metadata.history import latest
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from tests.kit.stores import MemoryStore, made_up_entry
from tests.kit.tables.commit_setups import QUICK, new_table


def entry(name: str, level: int = 0, bucket: int = 0, partition: tuple = ()) -> Entry:
    return made_up_entry(
        name, level=level, bucket=bucket, partition=partition, min_key="00", max_key="ff"
    )


def put(store: MemoryStore, kind: str, *added: Entry, removed=()):
    base = latest(store)
    request = CommitRequest(kind=kind, added=added, removed=removed, base=base)
    return commit(store, request, options=QUICK)


def compact(store: MemoryStore, base, *groups: FileGroup):
    request = CommitRequest(kind="compact", groups=groups, base=base)
    return commit(store, request, options=QUICK)


def live(store: MemoryStore) -> dict[str, Entry]:
    return {each.path[5:-8]: each for each in live_entries(store, latest(store))}


def levels(store: MemoryStore) -> dict[str, int]:
    return {name: each.level for name, each in live(store).items()}


def upgraded(each: Entry, level: int) -> FileGroup:
    moved = msgspec.structs.replace(each, level=level)
    return FileGroup(added=(moved,), removed=(each,))


def merged(store: MemoryStore, name: str, level: int, *inputs: str) -> FileGroup:
    return FileGroup(
        added=(entry(name, level),), removed=tuple(live(store)[each] for each in inputs)
    )


def table_of_runs() -> MemoryStore:
    """Level 5 holds a, level 3 b, and level 0 c."""
    store = new_table()
    put(store, "overwrite", entry("a", 5), entry("b", 3))
    put(store, "upsert", entry("c"))
    return store


def test_an_upsert_and_a_compaction_of_the_tree_both_stand():
    store = table_of_runs()
    base, group = latest(store), merged(store, "abc", 5, *"abc")
    put(store, "upsert", entry("d"))
    compact(store, base, group)
    assert levels(store) == {"abc": 5, "d": 0}


@pytest.mark.parametrize("kind", ["append", "delete", "upsert"])
def test_new_runs_of_any_kind_leave_a_compaction_alone(kind):
    store = table_of_runs()
    base, group = latest(store), merged(store, "abc", 5, *"abc")
    put(store, kind, entry("d"))
    compact(store, base, group)
    assert levels(store) == {"abc": 5, "d": 0}


def test_of_two_compactions_of_a_tree_without_a_file_in_common_the_later_is_dropped():
    """Both would put a run into level 4."""
    store = table_of_runs()
    base, group = latest(store), merged(store, "bc", 4, *"bc")
    put(store, "upsert", entry("d"))
    compact(store, latest(store), upgraded(live(store)["d"], 4))
    with pytest.raises(CommitConflict, match="lost its inputs"):
        compact(store, base, group)
    assert levels(store) == {"a": 5, "b": 3, "c": 0, "d": 4}


def test_of_two_compactions_that_share_a_file_the_later_is_dropped():
    store = table_of_runs()
    base, group = latest(store), merged(store, "bc", 4, *"bc")
    compact(store, latest(store), upgraded(live(store)["c"], 2))
    with pytest.raises(CommitConflict, match="lost its inputs"):
        compact(store, base, group)
    assert levels(store) == {"a": 5, "b": 3, "c": 2}


def test_compactions_of_other_trees_stand():
    store = new_table()
    others = [entry("b", bucket=1), entry("p", partition=("x",))]
    put(store, "upsert", entry("a"), *others)
    base, found = latest(store), live(store)
    groups = [upgraded(found[name], 5) for name in "abp"]
    compact(store, base, groups[0])
    compact(store, base, *groups)
    assert levels(store) == {"a": 5, "b": 5, "p": 5}
    assert len(live_entries(store, latest(store))) == 3


def test_a_restore_that_puts_old_runs_back_drops_a_compaction():
    """What was the oldest run when the compaction was planned is not any more."""
    store = new_table()
    put(store, "overwrite", entry("old", 5))
    before = live_entries(store, latest(store))
    put(store, "overwrite", entry("new"), removed=before)
    base, group = latest(store), merged(store, "top", 5, "new")
    wanted = [*live_entries(store, base), *before]
    changes = difference(live_entries(store, base), wanted)
    assert not changes.removed
    put(store, "restore", *changes.added)
    with pytest.raises(CommitConflict, match="lost its inputs"):
        compact(store, base, group)
    assert levels(store) == {"old": 5, "new": 0}


def test_files_that_moved_stay_where_their_rows_are():
    """An upgraded file keeps its row ids, its snapshot and its sequence number."""
    store = table_of_runs()
    before = live(store)["c"]
    compact(store, latest(store), upgraded(before, 2))
    assert live(store)["c"] == msgspec.structs.replace(before, level=2)
    found = latest(store)
    assert (found.deltas.files_added, found.deltas.files_removed) == (0, 0)
    assert found.row_id_next == store_rows(store)


def store_rows(store: MemoryStore) -> int:
    return sum(each.rows for each in live(store).values())
