"""Maintenance: what is kept stays whole, what nothing needs goes, and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.checks.verify import verify
from fermion_table.commit.commit import commit
from fermion_table.commit.fast_forward import fast_forward
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import CorruptMetadata, TableNotFound, VersionNotFound
from fermion_table.expiry import orphans
from fermion_table.expiry.expire import expire_snapshots, plan_expiry, plan_snapshot_files
from fermion_table.expiry.orphans import plan_orphans, remove_orphan_files
from fermion_table.expiry.reachable import LiveObjects, live_objects
from fermion_table.metadata.history import earliest_id, latest, load_snapshot, walk
from fermion_table.metadata.manifest import DeletionVector
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import (
    create_branch,
    create_tag,
    delete_branch,
    load_branch,
    load_tag,
)
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import data_path, snapshot_path
from fermion_table.storage.store import StoredObject
from tests.kit.stores import Crash, CrashingStore, MemoryStore, made_up_entry, made_up_schema
from tests.kit.tables.maintenance_setups import (
    FUTURE_MS,
    MARKS,
    append,
    expire,
    files,
    made_store,
    stored_files,
)

pytestmark = pytest.mark.usefixtures("small_tail")

LIVE, OLD, YOUNG, AGELESS = (digit * 32 for digit in "abcd")


@pytest.fixture
def store() -> MemoryStore:
    return made_store()


# Plans


@given(
    st.lists(st.integers(0, 100), max_size=20).map(sorted), st.integers(0, 110), st.integers(1, 25)
)
def test_expiry_keeps_the_young_and_the_last(
    times: list[int], older_than_ms: int, retain_last: int
) -> None:
    numbered = list(enumerate(times, start=5))
    earliest = plan_expiry(numbered, older_than_ms=older_than_ms, retain_last=retain_last)
    kept = [snapshot_id for snapshot_id, _ in numbered if snapshot_id >= earliest]
    assert len(kept) >= min(retain_last, len(numbered))
    assert all(snapshot_id in kept for snapshot_id, time in numbered if time >= older_than_ms)
    if len(kept) > retain_last:
        assert dict(numbered)[kept[0]] >= older_than_ms


def test_expiry_keeps_at_least_one() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        plan_expiry([(1, 1)], older_than_ms=5, retain_last=0)
    assert plan_expiry([], older_than_ms=5, retain_last=1) == 0


@given(st.lists(st.integers(0, 100), max_size=12).map(sorted), st.integers(0, 15))
def test_slots_go_from_the_first_and_only_when_their_successor_is_old(
    times: list[int], earliest: int
) -> None:
    numbered = list(enumerate(times, start=1))
    going = plan_snapshot_files(numbered, earliest=earliest, now=100, grace_ms=50)
    assert going == list(range(1, len(going) + 1))
    assert all(snapshot_id < earliest for snapshot_id in going)
    assert all(times[snapshot_id] <= 50 for snapshot_id in going)
    assert len(going) < max(1, len(times))


def test_orphans_are_old_and_not_live_and_of_known_age() -> None:
    listing = [
        StoredObject(data_path(LIVE), 1, 10),
        StoredObject(data_path(OLD), 1, 10),
        StoredObject(data_path(YOUNG), 1, 60),
        StoredObject(data_path(AGELESS), 1, None),
    ]
    going = plan_orphans(listing, live={data_path(LIVE)}, older_than_ms=50)
    assert [item.path for item in going] == [data_path(OLD)]


# Expiry


def test_expiry_deletes_what_only_expired_snapshots_need(store: MemoryStore) -> None:
    before = files(store)
    result = expire(store, retain_last=2)
    assert (result.snapshots, result.slots, result.files) == (6, 6, 4)
    assert stored_files(store) == {"abcd", "e", "f", "g"}
    assert files(store) == before
    assert files(store, 7) == {"abcd", "e", "f"}
    with pytest.raises(VersionNotFound, match="earliest 7"):
        load_snapshot(store, 6)
    assert load_snapshot(store, 0).kind == "create"
    report = verify(store)
    assert report.ok, report
    assert report.snapshots == 3
    append(store, "h")
    assert files(store) == {*before, "h"}


def test_a_dry_run_says_the_same_and_deletes_nothing(store: MemoryStore) -> None:
    before = dict(store.objects)
    planned = expire(store, dry_run=True)
    assert store.objects == before
    done = expire(store)
    assert planned.dry_run
    assert dataclasses.replace(planned, dry_run=False) == done
    assert set(before) - set(store.objects) == set(done.paths)
    assert done.seconds > 0


def test_by_default_ten_snapshots_and_seven_days_stay(store: MemoryStore) -> None:
    before = set(store.objects)
    assert expire_snapshots(store, retain_last=1).snapshots == 0
    assert expire_snapshots(store, older_than_ms=FUTURE_MS).snapshots == 0
    assert set(store.objects) == before


def test_a_slot_outlives_its_data(store: MemoryStore) -> None:
    newest = latest(store)
    result = expire(store, now=newest.time_ms + 1000, snapshot_file_grace_ms=3_600_000)
    assert (result.snapshots, result.slots, result.files) == (7, 0, 4)
    assert store.exists(snapshot_path(3))
    with pytest.raises(VersionNotFound, match="earliest 8"):
        load_snapshot(store, 3)
    assert [snapshot.id for snapshot in walk(store, newest)] == [8]
    assert verify(store).ok
    later = expire(store, now=newest.time_ms + 3_700_000, snapshot_file_grace_ms=3_600_000)
    assert (later.snapshots, later.slots, later.files) == (0, 7, 0)
    assert verify(store).ok


def test_a_file_that_a_kept_snapshot_has_restored_stays(store: MemoryStore) -> None:
    old = [entry for entry in live_entries(store, load_snapshot(store, 6)) if "/a." in entry.path]
    commit(store, CommitRequest(kind="restore", added=old))
    expire(store, retain_last=1)
    assert "a" in stored_files(store)
    assert verify(store).ok


def test_tags_and_branches_keep_what_they_need(store: MemoryStore) -> None:
    create_tag(store, "v1", load_snapshot(store, 2))
    create_branch(store, "dev", load_snapshot(store, 3))
    append(store, "x", branch="dev")
    planned = expire(store, dry_run=True)
    assert expire(store).paths == planned.paths
    assert stored_files(store) == {*"abc", "abcd", *"efgx"}
    assert files(store, "v1") == {"a", "b"}
    assert files(store, "dev") == {"a", "b", "c", "x"}
    assert verify(store).ok


def test_a_tag_goes_when_its_time_is_over(store: MemoryStore) -> None:
    create_tag(store, "brief", load_snapshot(store, 2), keep_ms=1000)
    create_tag(store, "long", load_snapshot(store, 1))
    assert expire(store).tags == 1
    assert load_tag(store, "brief") is None
    assert stored_files(store) == {"a", "abcd", *"efg"}


def test_schemas_and_vectors_that_are_needed_stay(store: MemoryStore) -> None:
    commit(store, CommitRequest(kind="schema", schema=made_up_schema(1)))
    commit(store, CommitRequest(kind="schema", schema=made_up_schema(2)))
    entry = live_entries(store, latest(store))[0]
    for version in ("one", "two"):
        path = f"deletion/{version}.dv"
        store.write(path, b".")
        marked = msgspec.structs.replace(
            entry, deletion_vector=DeletionVector(path=path, size=1, rows=1), delete_rows=1
        )
        commit(store, CommitRequest(kind="delete", removed=[entry], added=[marked]))
        entry = marked
    result = expire(store)
    assert [item.path for item in store.list("deletion")] == ["deletion/two.dv"]
    kept = {load_snapshot(store, 0).schema.path, latest(store).schema.path}
    assert {item.path for item in store.list("schema")} == kept
    assert "deletion/one.dv" in result.paths
    assert verify(store).ok


def test_nothing_goes_if_something_kept_cannot_be_read(store: MemoryStore) -> None:
    create_tag(store, "v1", load_snapshot(store, 4))
    tagged = load_snapshot(store, 4)
    assert tagged.manifests
    store.objects[tagged.manifests[0].path] = b"broken"
    shared_cache.clear()
    before = {path for path in store.objects if not path.startswith(MARKS)}
    with pytest.raises(CorruptMetadata):
        expire(store)
    with pytest.raises(CorruptMetadata):
        remove_orphan_files(store, older_than_ms=FUTURE_MS)
    assert {path for path in store.objects if not path.startswith(MARKS)} == before


def test_an_entry_that_names_a_slot_does_not_get_it_deleted(store: MemoryStore) -> None:
    evil = msgspec.structs.replace(made_up_entry("evil"), path=snapshot_path(0))
    commit(store, CommitRequest(kind="append", added=[evil]))
    commit(store, CommitRequest(kind="delete", removed=[evil.path]))
    expire(store)
    assert store.exists(snapshot_path(0))


def test_a_crash_at_any_call_of_an_expiry_leaves_a_sound_table(store: MemoryStore) -> None:
    create_tag(store, "v1", load_snapshot(store, 2))
    expected = files(store)
    for calls in range(1, 1000):
        copy = MemoryStore()
        copy.objects = dict(store.objects)
        try:
            expire(CrashingStore(copy, calls))
        except Crash:
            pass
        else:
            break
        assert files(copy) == expected
        assert files(copy, "v1") == {"a", "b"}
        report = verify(copy)
        assert report.ok, (calls, report)
        append(copy, "next")
        expire(copy, retain_last=2)
        assert verify(copy).ok
    else:
        pytest.fail("never finished")


# Branches


def test_snapshots_of_a_branch_expire_with_what_only_they_need(store: MemoryStore) -> None:
    """Main, the snapshot that the branch left, a branch of the branch and a tag stay whole."""
    create_branch(store, "dev", load_snapshot(store, 3))
    for name in "uvwxyz":
        append(store, name, branch="dev")
    create_branch(store, "fix", load_snapshot(store, 6, branch="dev"), parent="dev")
    append(store, "q", branch="fix")
    create_tag(store, "v1", load_snapshot(store, 5, branch="dev"))
    for name in ("u", "w", "y"):
        commit(store, CommitRequest(kind="delete", removed=[f"data/{name}.fermion"]), branch="dev")
    assert latest(store, branch="dev").id == 12
    planned = expire(store, branch="dev", dry_run=True)
    done = expire(store, branch="dev")
    assert (planned.paths, done.snapshots) == (done.paths, 8)
    assert {path for path in done.paths if path.startswith("data/")} == {"data/y.fermion"}
    assert files(store) == {"abcd", "e", "f", "g"}
    assert files(store, 3) == {"a", "b", "c"}
    assert files(store, branch="dev") == {*"abcvxz"}
    assert files(store, branch="fix") == {*"abcuvwq"}
    assert files(store, "v1") == {*"abcuv"}
    assert earliest_id(store, 12, branch="dev") == 12
    assert earliest_id(store, 7, branch="fix") == 6
    assert [each.id for each in walk(store, latest(store, branch="dev"), branch="dev")] == [12]
    with pytest.raises(VersionNotFound, match="earliest 12"):
        load_snapshot(store, 8, branch="dev")
    report = verify(store)
    assert report.ok, report
    orphans = remove_orphan_files(store, older_than_ms=FUTURE_MS)
    assert orphans.files == 0
    append(store, "r", branch="dev")
    assert files(store, branch="dev") == {*"abcvxzr"}
    expire(store)
    assert verify(store).ok


def test_a_branch_whose_first_snapshots_expired_still_moves_main(store: MemoryStore) -> None:
    create_branch(store, "dev", latest(store))
    append(store, "x", branch="dev")
    commit(store, CommitRequest(kind="delete", removed=["data/e.fermion"]), branch="dev")
    append(store, "y", branch="dev")
    expire(store, branch="dev")
    moved = fast_forward(store, "dev")
    assert moved.kind == "overwrite"  # as a part of what was done can't be read any more
    assert files(store) == {"abcd", *"fgxy"}
    for name in "zuvw":
        append(store, name, branch="dev")
    expired = expire(store, branch="dev")
    assert expired.snapshots == 0  # main was moved to the last but four
    assert fast_forward(store, "dev").kind == "append"
    assert expire(store, branch="dev").snapshots == 4
    assert files(store) == files(store, branch="dev")
    assert verify(store).ok


def test_a_deleted_branch_leaves_no_marks_for_one_of_its_name(store: MemoryStore) -> None:
    create_branch(store, "dev", load_snapshot(store, 3))
    for name in "xyz":
        append(store, name, branch="dev")
    expire(store, branch="dev", snapshot_file_grace_ms=FUTURE_MS)
    for calls in range(1, 100):
        copy = MemoryStore()
        copy.objects = dict(store.objects)
        try:
            delete_branch(CrashingStore(copy, calls), "dev")
        except Crash:
            pass
        else:
            break
        if load_branch(copy, "dev") is not None:
            assert files(copy, branch="dev") in ({*"abcxyz"}, {*"abc"})
        assert verify(copy).ok
    assert list(copy.list("branch")) == []
    create_branch(copy, "dev", load_snapshot(copy, 2))
    append(copy, "w", branch="dev")
    assert files(copy, branch="dev") == {*"abw"}
    assert verify(copy).ok


# Orphans


class AgedStore(MemoryStore):
    """A memory store whose objects were all written at time 0, but for the young."""

    young: frozenset[str] = frozenset()

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        for item in super().list(directory):
            time = 10_000 if item.path in self.young else 0
            yield StoredObject(item.path, item.size, time)


@pytest.mark.parametrize("held", [orphans.HELD_MAX, 3])
def test_orphans_go_and_everything_referred_to_stays(
    store: MemoryStore, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the listing is longer than what is held of it at once."""
    parts: list[int] = []

    def find(*given: Any, asked: Any, **words: Any) -> LiveObjects:
        parts.append(len(asked))
        return live_objects(*given, asked=asked, **words)

    monkeypatch.setattr(orphans, "HELD_MAX", held)
    monkeypatch.setattr(orphans, "BATCH", min(held, orphans.BATCH))
    monkeypatch.setattr(orphans, "live_objects", find)
    create_tag(store, "v1", load_snapshot(store, 2))
    create_branch(store, "dev", load_snapshot(store, 3))
    append(store, "x", branch="dev")
    expire(store, retain_last=2)
    aged = AgedStore()
    aged.objects = store.objects
    left = {
        f"data/k=1/{OLD}.fermion",
        f"manifest/{OLD}.json",
        f"schema/9-{OLD}.json",
        f"deletion/{OLD}.dv",
        f"snapshot/.00000000000000000009.json.{OLD}.tmp",
        f"branch/dev/snapshot/.x.{OLD}.tmp",
    }
    for path in (*left, data_path(YOUNG), "elsewhere/file", "snapshot/notes.txt"):
        aged.write(path, b"..")
    aged.young = frozenset({data_path(YOUNG)})
    before = set(aged.objects)
    planned = remove_orphan_files(aged, now=10_000, dry_run=True, older_than_ms=5000)
    assert set(aged.objects) == before
    result = remove_orphan_files(aged, now=10_000, older_than_ms=5000)
    assert set(result.paths) == set(planned.paths) == left == before - set(aged.objects)
    assert (max(parts) <= 2 * held, len(parts) > 2) == (True, held == 3)
    assert (result.files, result.objects, result.bytes) == (2, 4, 12)
    assert verify(aged).ok


def test_what_is_published_between_rounds_stays(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged = AgedStore()
    aged.objects = store.objects
    left = [f"data/{number:032x}.fermion" for number in range(6)]
    for path in left:
        aged.write(path, b"..")
    rounds: list[LiveObjects] = []

    def find(*given: Any, **words: Any) -> LiveObjects:
        rounds.append(live_objects(*given, **words))
        if len(rounds) > 2:
            rounds[-1]._paths.add(left[0])
        return rounds[-1]

    monkeypatch.setattr(orphans, "HELD_MAX", 3)
    monkeypatch.setattr(orphans, "BATCH", 3)
    monkeypatch.setattr(orphans, "live_objects", find)
    result = remove_orphan_files(aged, now=10_000, older_than_ms=5000)
    assert (sorted(result.paths), result.bytes) == (left[1:], 10)
    assert left[0] in aged.objects


def test_nothing_young_goes_by_default(store: MemoryStore) -> None:
    aged = AgedStore()
    aged.objects = store.objects
    aged.write(data_path(OLD), b"..")
    assert remove_orphan_files(aged, now=1000).paths == ()
    three_days = 3 * 24 * 3600 * 1000
    later = remove_orphan_files(aged, now=three_days + 1)
    assert later.paths == (data_path(OLD),)


def test_where_there_is_no_table_nothing_is_an_orphan() -> None:
    store = MemoryStore()
    store.write("data/precious.fermion", b"..")
    with pytest.raises(TableNotFound):
        remove_orphan_files(store, older_than_ms=FUTURE_MS)
