"""A commit's user and identifier, by which a repeated commit is found."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CorruptMetadata, Table
from fermion_table.commit import identities
from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitMetadata, CommitRequest
from fermion_table.metadata.history import latest, load_snapshot
from fermion_table.metadata.references import create_branch
from fermion_table.storage.paths import snapshot_path
from tests.kit.stores import MemoryStore, made_up_entry
from tests.kit.tables.commit_setups import FIRST_SCHEMA, QUICK, append, names, new_table


def test_an_identifier_is_the_same_as_number_and_as_text() -> None:
    """In both directions, and where the index of the history is read anew."""
    store = new_table()
    first = append(store, made_up_entry("a"), commit_user="job", commit_identifier=5)
    second = append(store, made_up_entry("b"), commit_user="job", commit_identifier="6")
    for _ in range(2):
        assert append(store, made_up_entry("x"), commit_user="job", commit_identifier="5") == first
        assert append(store, made_up_entry("x"), commit_user="job", commit_identifier=6) == second
        identities._indexes.clear()
    append(store, made_up_entry("c"), commit_user="job", commit_identifier="05")
    assert names(store) == ["a", "b", "c"]
    assert first.is_commit_of("job", "5")
    assert not first.is_commit_of("other", 5)
    assert not latest(store).is_commit_of("job", 5)


class _Slow(MemoryStore):
    """Counts reads of snapshots; each takes a moment, so that those at once overlap."""

    reads = 0
    running = 0
    most = 0
    wait_s = 0.005

    def read(self, path: str, *stop: int) -> bytes:
        if not path.startswith("snapshot/"):
            return super().read(path, *stop)
        with self._lock:
            self.reads += 1
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.wait_s)
        with self._lock:
            self.running -= 1
        return super().read(path, *stop)

    def forget(self) -> None:
        identities._indexes.clear()
        self.reads = self.most = 0


def slow_table(commits: int, location: str) -> _Slow:
    """Snapshots 1 to `commits`, by job 0, 1, ..."""
    store = _Slow(location)
    store.wait_s = 0
    create_table(store, FIRST_SCHEMA)
    for number in range(commits):
        append(store, commit_user="job", commit_identifier=number)
    store.wait_s = _Slow.wait_s
    return store


def test_the_first_identified_append_reads_a_history_of_300_snapshots_in_few_rounds() -> None:
    """Each snapshot once, 32 at once; the second append reads none of them."""
    store = slow_table(300, "300 snapshots")
    base = latest(store)
    store.forget()
    assert identities.committed_before(store, base, ("new", 1), branch="main") is None
    assert store.reads == 300
    assert store.most > identities.READS_AT_ONCE_MAX // 2
    store.reads = 0
    assert identities.committed_before(store, base, ("new", 2), branch="main") is None
    assert identities.committed_before(store, base, ("job", 7), branch="main").id == 8
    assert store.reads == 1  # the one found
    base = append(store, commit_user="new", commit_identifier=3)
    store.reads = 0
    assert identities.committed_before(store, base, ("new", 4), branch="main") is None
    assert store.reads == 0


def test_a_repeated_commit_is_found_without_reading_what_came_long_before() -> None:
    store = slow_table(120, "120 snapshots")
    base = latest(store)
    store.forget()
    assert identities.committed_before(store, base, ("job", 117), branch="main").id == 118
    assert store.reads <= identities.READS_AT_ONCE_MIN + 1
    store.forget()
    assert identities.committed_before(store, base, ("job", 0), branch="main").id == 1
    assert store.reads <= 121


def test_commits_between_two_lookups_are_read_and_no_others() -> None:
    store = slow_table(60, "60 snapshots")
    early, base = load_snapshot(store, 50), latest(store)
    store.forget()
    assert identities.committed_before(store, early, ("new", 1), branch="main") is None
    store.reads = 0
    assert identities.committed_before(store, base, ("new", 1), branch="main") is None
    assert store.reads == 9  # 51 to 59
    assert identities.committed_before(store, base, ("job", 3), branch="main").id == 4


def test_a_branch_knows_the_commits_before_it_left() -> None:
    """Those of main after that are of another history; the copy in the branch counts."""
    store = slow_table(40, "a branch")
    create_branch(store, "dev", load_snapshot(store, 20), parent="main")
    for moved in (False, True):
        if moved:
            request = CommitRequest(
                kind="append", metadata=CommitMetadata(commit_user="dev", commit_identifier=1)
            )
            assert commit(store, request, options=QUICK, branch="dev").id == 21
        base = latest(store, branch="dev")
        for number, found in ((19, 20), (18, 19), (0, 1), (20, None), (39, None)):
            store.forget()
            snapshot = identities.committed_before(store, base, ("job", number), branch="dev")
            assert (snapshot and snapshot.id) == found
    del store.objects[snapshot_path(20)]  # the branch has a copy
    store.forget()
    assert identities.committed_before(store, base, ("job", 19), branch="dev").id == 20


def test_a_history_whose_slot_holds_other_bytes_is_corrupt() -> None:
    store = slow_table(40, "forged")
    base = latest(store)
    store.forget()
    store.objects[snapshot_path(12)] = store.objects[snapshot_path(11)]
    with pytest.raises(CorruptMetadata, match="hash"):
        identities.committed_before(store, base, ("new", 1), branch="main")


def test_a_table_finds_a_commit_by_its_identity(tmp_path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    made = table.append({"a": [1]}, commit_user="job", commit_identifier=1)
    table.append({"a": [2]})
    assert table.find_commit("job", "1") == made
    assert table.find_commit("job", 2) is None
    for user, identifier in ((None, None), ("job", None), (None, 1), (7, 1), ("job", 1.5)):
        with pytest.raises((TypeError, InvalidArgumentError), match="commit_"):
            table.find_commit(user, identifier)
