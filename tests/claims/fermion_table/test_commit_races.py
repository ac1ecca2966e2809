"""Commits under races, crashes and lost replies: nothing is lost and nothing happens twice."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.commit_race import race
from fermion_table.checks.verify import verify
from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.request import CommitRequest, FileGroup
from fermion_table.errors import (
    CommitConflict,
    CommitStateUnknown,
)
from fermion_table.metadata import history, pointers
from fermion_table.metadata.history import latest, walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import added_entries, live_entries
from fermion_table.metadata.snapshot import encode_snapshot
from fermion_table.options import CommitOptions
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore, CreateResult
from tests.kit.stores import (
    Crash,
    CrashingStore,
    ForgetfulStore,
    LostReplies,
    MemoryStore,
    WrappedStore,
    made_up_entry,
    made_up_schema,
)
from tests.kit.tables.commit_setups import (
    FIRST_SCHEMA,
    append,
    metadata_objects,
    names,
    new_table,
    referenced_objects,
    small_limits,  # noqa: F401 - a fixture of every test here
    write_data,
)

# Races


class RacingStore(WrappedStore):
    """Lets another writer commit right before each of my first creations."""

    def __init__(self, inner: AtomicStore, winners: list[Entry]) -> None:
        super().__init__(inner)
        self.winners = winners
        self.written: list[str] = []

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "create_if_absent" and self.winners:
            append(self.inner, self.winners.pop(0))
        if operation == "write":
            self.written.append(arguments[0])
        return super().call(operation, *arguments)


def test_a_retry_writes_nothing_again_but_the_slot() -> None:
    store = new_table()
    racing = RacingStore(store, [made_up_entry(f"w{at}") for at in range(5)])
    large = [made_up_entry(f"{at}", rows=2, sequence_offset=at) for at in range(10)]
    snapshot = append(racing, *large)
    assert snapshot.id == 6
    assert len(racing.written) == 1, "the manifest of the added files, once"
    mine = added_entries(store, snapshot)
    assert [entry.sequence_number for entry in mine] == list(range(6, 16))
    assert [entry.row_id_base for entry in mine] == list(range(50, 70, 2))
    assert {entry.added_snapshot for entry in mine} == {6}


def test_metadata_of_lost_tries_is_deleted_once_the_loss_is_proven() -> None:
    store = new_table()
    for at in range(3):
        append(store, made_up_entry(f"{at}"))
    winners = [made_up_entry(f"w{at}") for at in range(3)]
    append(RacingStore(store, winners), made_up_entry("a"), made_up_entry("b"))
    assert metadata_objects(store) == referenced_objects(store)


def test_a_commit_that_always_loses_gives_up_in_time() -> None:
    store = new_table()
    endless = RacingStore(store, [made_up_entry(f"w{at}") for at in range(1000)])
    options = CommitOptions(timeout_s=0.05, backoff_s_min=0.001, backoff_s_max=0.01)
    with pytest.raises(CommitConflict, match="concurrent commits"):
        commit(endless, CommitRequest(kind="append", added=[made_up_entry("a")]), options=options)
    assert "a" not in names(store)
    assert metadata_objects(store) == referenced_objects(store)


WRITER = """
import sys
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.storage.location import open_store
from tests.kit.stores import made_up_entry, made_up_schema

store = open_store(sys.argv[1], durability="fast")
for at in range(int(sys.argv[3])):
    entry = made_up_entry(f"{sys.argv[2]}-{at}", rows=at)
    store.write(entry.path, b"." * entry.size)
    commit(store, CommitRequest(kind="append", added=[entry]))
"""


def append_many(location: str, writer: int, commits: int) -> None:
    store = open_store(location, durability="fast")
    for at in range(commits):
        entry = made_up_entry(f"{writer}-{at}", rows=writer + 1)
        write_data(store, entry)
        append(store, entry, message=f"{writer}")


def check_race(store: AtomicStore, writers: int, commits: int) -> None:
    newest = latest(store)
    assert newest.id == writers * commits
    expected = {f"{writer}-{at}" for writer in range(writers) for at in range(commits)}
    found = names(store)
    assert len(found) == len(expected)
    assert set(found) == expected
    for writer in range(writers):
        mine = [name for name in found if name.split("-")[0] == str(writer)]
        assert mine == [f"{writer}-{at}" for at in range(commits)], "a writer's own order"
    report = verify(store)
    assert report.ok, report
    assert report.snapshots == newest.id + 1
    assert metadata_objects(store) == referenced_objects(store)


def test_eight_threads_lose_no_commit(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, durability="fast")
    create_table(store, FIRST_SCHEMA)
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(append_many, [store.location] * 8, range(8), [8] * 8))
    check_race(store, 8, 8)


@pytest.mark.parametrize(
    ("processes", "commits"), [(4, 12), pytest.param(16, 50, marks=pytest.mark.slow)]
)
def test_processes_lose_no_commit(tmp_path: Path, processes: int, commits: int) -> None:
    store = LocalStore(tmp_path, durability="fast")
    create_table(store, FIRST_SCHEMA)
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, store.location, str(writer), str(commits)])
        for writer in range(processes)
    ]
    assert [process.wait(timeout=300) for process in running] == [0] * processes
    check_race(store, processes, commits)


# Crashes


def crash_requests(store: AtomicStore) -> dict[str, CommitRequest]:
    """One request of each kind, on a table whose tail is full."""
    live = live_entries(store, latest(store))
    compacted = made_up_entry("compacted", rows=20)
    return {
        "append": CommitRequest(kind="append", added=[made_up_entry("x"), made_up_entry("y")]),
        "large append": CommitRequest(
            kind="append", added=[made_up_entry(f"x{at}") for at in range(9)]
        ),
        "delete": CommitRequest(kind="delete", removed=live[:9]),
        "compact": CommitRequest(
            kind="compact",
            groups=[FileGroup(added=(compacted,), removed=tuple(live[3:7]))],
        ),
        "schema": CommitRequest(kind="schema", schema=made_up_schema(1)),
    }


def full_table() -> MemoryStore:
    store = new_table()
    for at in range(12):
        entry = made_up_entry(f"{at:02}")
        append(store, entry)
    return store


@pytest.mark.parametrize("kind", ["append", "large append", "delete", "compact", "schema"])
def test_a_crash_after_any_call_leaves_the_old_state_or_the_new(kind: str) -> None:
    before = full_table()
    old = names(before)
    finished = MemoryStore()
    finished.objects = dict(before.objects)
    commit(finished, crash_requests(finished)[kind])
    new = names(finished)
    outcomes = []
    for calls in range(1, 1000):
        store = MemoryStore()
        store.objects = dict(before.objects)
        request = crash_requests(store)[kind]
        try:
            commit(CrashingStore(store, calls), request)
        except Crash:
            pass
        else:
            break
        found = latest(store)
        assert names(store, found) == (new if found.id == 13 else old)
        outcomes.append(found.id)
        after = append(store, made_up_entry("next"))
        assert after.id == found.id + 1
        assert "next" in names(store)
        write_data(store, *(entry for s in walk(store, after) for entry in added_entries(store, s)))
        report = verify(store)
        assert report.ok, report
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {12, 13}


def test_a_crash_while_creating_leaves_no_table_or_a_whole_one() -> None:
    outcomes = []
    for calls in range(1, 100):
        store = MemoryStore()
        try:
            create_table(CrashingStore(store, calls), FIRST_SCHEMA)
        except Crash:
            pass
        else:
            break
        outcomes.append(history.table_exists(store))
        if not outcomes[-1]:
            create_table(store, FIRST_SCHEMA)
        append(store, made_up_entry("a"))
        assert names(store) == ["a"]
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


# Lost replies


@pytest.mark.parametrize("lost", ["after_success", "before_trying"])
def test_a_lost_reply_is_resolved_by_reading_back(lost: str) -> None:
    store = new_table()
    forgetful = ForgetfulStore(store, LostReplies(**{lost: {1}}))
    snapshot = append(forgetful, made_up_entry("a"))
    assert snapshot == latest(store)
    assert snapshot.id == 1
    append(store, made_up_entry("b"))
    assert names(store) == ["a", "b"]


def test_a_lost_reply_to_a_race_that_was_lost_is_a_loss() -> None:
    store = new_table()

    class LosingStore(ForgetfulStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "create_if_absent" and self.creations == 0:
                append(store, made_up_entry("winner"))
            return super().call(operation, *arguments)

    for lost in ("after_success", "before_trying"):
        snapshot = append(LosingStore(store, LostReplies(**{lost: {1}})), made_up_entry(lost))
        assert snapshot == latest(store)
    assert sorted(names(store)) == ["after_success", "before_trying", "winner", "winner"]


def test_a_storage_that_never_answers_leaves_the_state_unknown_and_deletes_nothing() -> None:
    store = new_table()
    always = LostReplies(before_trying=set(range(100)))
    before = set(store.objects)
    large = [made_up_entry(f"{at}") for at in range(9)]
    with pytest.raises(CommitStateUnknown, match="commit_user"):
        append(ForgetfulStore(store, always), *large)
    assert set(store.objects) > before, "the manifest may be referred to, so it stays"


@pytest.mark.parametrize("lost", ["after_success", "before_trying"])
def test_an_unknown_commit_repeated_under_its_identity_is_published_once(lost: str) -> None:
    store = new_table()
    replies = LostReplies(**{lost: set(range(1, 100))})
    silent = ForgetfulStore(store, replies, reads_fail=True)
    identity = {"commit_user": "job", "commit_identifier": 1}
    large = [made_up_entry(f"{at}") for at in range(9)]
    with pytest.raises(CommitStateUnknown):
        append(silent, *large, **identity)
    append(store, made_up_entry("between"))
    append(store, *large, **identity)
    assert sorted(names(store)) == sorted([*(f"{at}" for at in range(9)), "between"])


def test_an_error_that_proves_nothing_was_created_leaves_nothing() -> None:
    store = new_table()

    class FullStore(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "create_if_absent":
                raise OSError(28, "No space left on device")
            return super().call(operation, *arguments)

    before = dict(store.objects)
    with pytest.raises(OSError, match="No space"):
        append(FullStore(store), *(made_up_entry(f"{at}") for at in range(9)))
    with pytest.raises(OSError, match="No space"):
        create_table(FullStore(MemoryStore()), FIRST_SCHEMA)
    assert store.objects == before


# The fence


class StallingStore(WrappedStore):
    """Stalls before a creation; meanwhile `meanwhile` happens."""

    def __init__(self, inner: MemoryStore, meanwhile: Any) -> None:
        super().__init__(inner)
        self.meanwhile = meanwhile

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "create_if_absent" and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().call(operation, *arguments)


@pytest.mark.parametrize("expired", [3, 4, 5])
@pytest.mark.parametrize("hint", ["current", "missing"])
def test_a_slot_whose_id_had_expired_is_not_taken_for_a_commit(
    expired: int, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_table()
    append(store, made_up_entry("a"))

    def meanwhile() -> None:
        for at in range(6):
            append(store, made_up_entry(f"{at}"))
        pointers.mark_expired(store, expired)
        for snapshot_id in range(1, expired):
            store.delete(snapshot_path(snapshot_id))
        if hint == "missing":
            store.delete("snapshot/LATEST")

    slow = CommitOptions(fence_s=0.0 if hint == "missing" else 60.0)
    request = CommitRequest(kind="append", added=[made_up_entry("late")])
    with caplog.at_level(logging.WARNING):
        snapshot = commit(StallingStore(store, meanwhile), request, options=slow)
    assert "expired before" in caplog.text
    assert snapshot.id == 8
    assert names(store) == ["a", *map(str, range(6)), "late"]
    assert not store.exists(snapshot_path(2))


def test_the_fence_does_not_take_a_quick_follower_for_an_older_history() -> None:
    store = new_table()

    class FollowedStore(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            result = super().call(operation, *arguments)
            if operation == "create_if_absent" and result is CreateResult.CREATED:
                append(store, made_up_entry("follower"))
            return result

    snapshot = append(FollowedStore(store), made_up_entry("a"))
    assert snapshot.id == 1
    assert names(store) == ["a", "follower"]


class ForgottenThenStalling(WrappedStore):
    """The first creation succeeds without a reply; before the next one something happens."""

    def __init__(self, inner: MemoryStore, meanwhile: Any) -> None:
        super().__init__(inner)
        self.meanwhile = meanwhile
        self.creations = 0

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "read" and self.creations == 1:
            raise TimeoutError("no reply")
        if operation != "create_if_absent":
            return super().call(operation, *arguments)
        self.creations += 1
        if self.creations == 2:
            self.meanwhile()
        result = super().call(operation, *arguments)
        return CreateResult.UNKNOWN if self.creations == 1 else result


def test_a_loss_long_after_a_lost_reply_proves_nothing() -> None:
    """What the first try published has expired; its data is in later snapshots all the same."""
    store = new_table()

    def meanwhile() -> None:
        for at in range(6):
            append(store, made_up_entry(f"{at}"))
        pointers.mark_expired(store, 4)
        for snapshot_id in range(1, 4):
            store.delete(snapshot_path(snapshot_id))

    request = CommitRequest(kind="append", added=[made_up_entry("mine")])
    slow = CommitOptions(fence_s=0.0)
    with pytest.raises(CommitStateUnknown, match="snapshot may have expired"):
        commit(ForgottenThenStalling(store, meanwhile), request, options=slow)
    assert names(store) == ["mine", *map(str, range(6))]
    assert not store.exists(snapshot_path(1))


def test_a_slot_that_a_dead_writer_took_after_its_expiry_is_ignored() -> None:
    """It stalled, took an id that had expired, and died before the fence could remove it."""
    store = new_table()
    append(store, made_up_entry("a"), commit_user="job", commit_identifier=1)
    second = append(store, made_up_entry("b"))
    append(store, made_up_entry("c"))
    write_data(store, *live_entries(store, latest(store)))
    pointers.mark_expired(store, 3)
    for snapshot_id in (1, 2):
        store.delete(snapshot_path(snapshot_id))
    stray = msgspec.structs.replace(second, uuid="f" * 32)
    store.objects[snapshot_path(2)] = encode_snapshot(stray)
    shared_cache.clear()
    newest = append(store, made_up_entry("d"), commit_user="job", commit_identifier=2)
    write_data(store, *added_entries(store, newest))
    assert [snapshot.id for snapshot in walk(store, newest)] == [4, 3]
    report = verify(store)
    assert report.ok, report


@pytest.mark.long
def test_commits_of_many_processes_are_all_there_once(tmp_path: Path) -> None:
    """Counts rows and snapshots."""
    assert race(str(tmp_path / "t"), processes=4, commits=10)["commits"] == 40
