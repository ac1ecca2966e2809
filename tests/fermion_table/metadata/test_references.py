"""Tags and branches: they name snapshots, outlive expiry, and move their parent at once."""

from __future__ import annotations

from typing import Any

import pytest

from fermion.errors import InvalidArgumentError
from fermion_table.checks.verify import verify
from fermion_table.commit.commit import commit, create_table
from fermion_table.commit.fast_forward import difference, fast_forward
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import CommitConflict, CorruptMetadata, VersionNotFound
from fermion_table.expiry.reachable import live_objects
from fermion_table.metadata import history
from fermion_table.metadata.history import latest, load_snapshot, walk
from fermion_table.metadata.manifest_store import added_entries, live_entries, removed_entries
from fermion_table.metadata.references import (
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    list_branches,
    list_tags,
    load_branch,
    load_tag,
)
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import resolve_version, tagged_snapshot
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import branch_path, pending_path, snapshot_path, tag_path
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import Crash, CrashingStore, MemoryStore, made_up_entry, made_up_schema

pytestmark = pytest.mark.usefixtures("small_tail")


@pytest.fixture
def store() -> MemoryStore:
    """Snapshots 0 to 5, one file each."""
    store = MemoryStore()
    create_table(store, made_up_schema())
    for at in range(1, 6):
        append(store, f"{at}")
    return store


def append(store: AtomicStore, *names: str, branch: str = "main") -> Snapshot:
    entries = []
    for name in names:
        entries.append(made_up_entry(name, rows=1))
        store.write(entries[-1].path, b"." * entries[-1].size)
    return commit(store, CommitRequest(kind="append", added=entries), branch=branch)


def names(store: AtomicStore, branch: str = "main", version: Any = None) -> list[str]:
    snapshot = resolve_version(store, version, branch=branch)
    return [entry.path[5:-8] for entry in live_entries(store, snapshot)]


# Tags


def test_a_tag_names_a_snapshot_until_it_is_deleted(store: MemoryStore) -> None:
    tag = create_tag(store, "v1", load_snapshot(store, 3), message="m", keep_ms=1000)
    assert (tag.snapshot_id, tag.message, tag.expires_ms) == (3, "m", tag.created_ms + 1000)
    assert resolve_version(store, "v1") == load_snapshot(store, 3)
    assert resolve_version(store, "v1~1").id == 2
    assert [found.name for found in list_tags(store)] == ["v1"]
    assert load_tag(store, "v1") == tag
    assert load_tag(store, "v2") is None
    assert load_tag(store, "../v1") is None
    delete_tag(store, "v1")
    with pytest.raises(VersionNotFound):
        resolve_version(store, "v1")
    with pytest.raises(VersionNotFound, match="no tag 'v1'"):
        delete_tag(store, "v1")


def test_a_tag_outlives_its_snapshots_slot_and_can_be_tagged_and_branched_again(
    store: MemoryStore,
) -> None:
    third = load_snapshot(store, 3)
    create_tag(store, "v1", third)
    for snapshot_id in (1, 2, 3):
        store.delete(snapshot_path(snapshot_id))
    assert tagged_snapshot(store, "v1") == third
    assert names(store, version="v1") == ["1", "2", "3"]
    create_tag(store, "v1-again", third)
    create_branch(store, "dev", third)
    assert names(store, "dev") == ["1", "2", "3"]
    delete_tag(store, "v1")
    assert tagged_snapshot(store, "v1-again") == third


def test_a_name_is_used_once(store: MemoryStore) -> None:
    create_tag(store, "v1", latest(store))
    create_branch(store, "dev", latest(store))
    with pytest.raises(InvalidArgumentError, match="tag 'v1' exists"):
        create_tag(store, "v1", load_snapshot(store, 1))
    with pytest.raises(InvalidArgumentError, match="branch 'dev' exists"):
        create_branch(store, "dev", load_snapshot(store, 1))
    with pytest.raises(InvalidArgumentError, match="main"):
        create_branch(store, "main", latest(store))


def test_what_has_expired_cannot_be_named(store: MemoryStore) -> None:
    second = load_snapshot(store, 2)
    store.delete(snapshot_path(2))
    with pytest.raises(VersionNotFound, match="expired"):
        create_tag(store, "v1", second)
    assert list_tags(store) == []


def test_a_snapshot_that_expires_while_it_is_tagged_is_not_tagged(store: MemoryStore) -> None:
    class ExpiringStore(MemoryStore):
        def create_if_absent(self, path: str, data: bytes) -> Any:
            result = super().create_if_absent(path, data)
            if path.startswith("pending/"):
                self.delete(snapshot_path(2))
            return result

    expiring = ExpiringStore()
    expiring.objects = store.objects
    with pytest.raises(VersionNotFound, match="expired"):
        create_tag(expiring, "v1", load_snapshot(store, 2))
    assert list_tags(store) == []
    assert not list(store.list("pending"))


def test_every_flip_of_a_tag_is_found(store: MemoryStore) -> None:
    create_tag(store, "v1", latest(store))
    data = store.objects[tag_path("v1")]
    start = data.index(b'"snapshot":')
    for position in range(start, len(data), 5):
        flipped = bytearray(data)
        flipped[position] ^= 1
        store.objects[tag_path("v1")] = bytes(flipped)
        with pytest.raises(CorruptMetadata, match="tags/v1"):
            load_tag(store, "v1")
        assert tag_path("v1") in {problem.path for problem in verify(store).problems}


# Branches


def test_a_branch_has_its_own_history_after_the_snapshot_it_leaves(store: MemoryStore) -> None:
    create_branch(store, "dev", load_snapshot(store, 3))
    assert latest(store, branch="dev") == load_snapshot(store, 3)
    first = append(store, "a", branch="dev")
    append(store, "6")
    assert (first.id, first.branch, first.parent) == (4, "dev", load_snapshot(store, 3).reference)
    assert names(store, "dev") == ["1", "2", "3", "a"]
    assert names(store) == ["1", "2", "3", "4", "5", "6"]
    assert [each.id for each in walk(store, first, branch="dev")] == [4, 3, 2, 1, 0]
    assert names(store, version="dev") == ["1", "2", "3", "a"]
    assert names(store, version="dev~2") == ["1", "2"]
    assert names(store, "dev", version=1) == ["1"]
    assert history.earliest_id(store, 4, branch="dev") == 0
    assert verify(store).ok


def test_a_branch_of_a_branch_goes_back_through_both(store: MemoryStore) -> None:
    create_branch(store, "dev", load_snapshot(store, 2))
    append(store, "a", branch="dev")
    append(store, "b", branch="dev")
    create_branch(store, "fix", latest(store, branch="dev"), parent="dev")
    append(store, "c", branch="fix")
    assert names(store, "fix") == ["1", "2", "a", "b", "c"]
    newest = latest(store, branch="fix")
    assert [each.id for each in walk(store, newest, branch="fix")] == [5, 4, 3, 2, 1, 0]
    assert verify(store).ok


def test_a_branch_keeps_what_it_left_when_that_expires(store: MemoryStore) -> None:
    create_branch(store, "dev", load_snapshot(store, 3))
    for snapshot_id in (1, 2, 3, 4):
        store.delete(snapshot_path(snapshot_id))
    append(store, "a", branch="dev")
    assert names(store, "dev") == ["1", "2", "3", "a"]
    assert history.earliest_id(store, 4, branch="dev") == 3
    with pytest.raises(VersionNotFound, match="earliest 3"):
        load_snapshot(store, 2, branch="dev")


def test_there_is_no_branch_that_was_not_made(store: MemoryStore) -> None:
    with pytest.raises(VersionNotFound, match="no branch 'dev'"):
        latest(store, branch="dev")
    with pytest.raises(VersionNotFound, match="no branch 'dev'"):
        append(store, "a", branch="dev")
    with pytest.raises(VersionNotFound, match="no branch 'dev'"):
        delete_branch(store, "dev")
    assert load_branch(store, "../dev") is None


def test_a_branch_deleted_and_made_again_starts_afresh(store: MemoryStore) -> None:
    create_branch(store, "dev", latest(store))
    append(store, "a", branch="dev")
    delete_branch(store, "dev")
    assert list_branches(store) == []
    assert list(store.list("branch")) == []
    create_branch(store, "dev", load_snapshot(store, 2))
    assert names(store, "dev") == ["1", "2"]


def test_a_crash_while_deleting_a_branch_leaves_a_branch_or_none(store: MemoryStore) -> None:
    create_branch(store, "dev", load_snapshot(store, 3))
    for name in "abc":
        append(store, name, branch="dev")
    whole = ["1", "2", "3", "a", "b", "c"]
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
            found = names(copy, "dev")
            assert found == whole[: len(found)]
        assert verify(copy).ok
        if load_branch(copy, "dev") is None:
            create_branch(copy, "dev", load_snapshot(copy, 1))
            assert names(copy, "dev") == ["1"]


def test_slots_left_over_of_a_deleted_branch_are_not_taken_for_a_new_one(
    store: MemoryStore,
) -> None:
    create_branch(store, "dev", load_snapshot(store, 2))
    append(store, "a", branch="dev")
    store.delete(branch_path("dev"))
    create_branch(store, "dev", load_snapshot(store, 2))
    assert names(store, "dev") == ["1", "2"]


# Fast-forward


def test_main_moves_to_a_branch_in_one_commit(store: MemoryStore) -> None:
    create_branch(store, "dev", latest(store))
    for name in "abcdefgh":
        append(store, name, branch="dev")
    commit(store, CommitRequest(kind="delete", removed=["data/2.fermion"]), branch="dev")
    moved = fast_forward(store, "dev")
    assert (moved.id, moved.branch, moved.kind) == (6, "main", "overwrite")
    assert moved.parent == load_snapshot(store, 5).reference
    assert latest(store) == moved
    assert names(store) == names(store, "dev") == ["1", "3", "4", "5", *"abcdefgh"]
    assert {entry.path[5:-8] for entry in added_entries(store, moved)} == set("abcdefgh")
    assert [entry.path for entry in removed_entries(store, moved)] == ["data/2.fermion"]
    assert moved.row_id_next == latest(store, branch="dev").row_id_next
    assert moved.deltas.files_added == 8
    assert verify(store).ok
    append(store, "z")
    assert names(store)[-1] == "z"
    ids = [entry.row_id_base for entry in live_entries(store, latest(store))]
    assert len(set(ids)) == len(ids)


def test_a_small_branch_needs_no_manifest_to_say_what_it_added(store: MemoryStore) -> None:
    create_branch(store, "dev", latest(store))
    append(store, "a", branch="dev")
    moved = fast_forward(store, "dev")
    assert moved.kind == "append"
    assert moved.delta.tail_entries == 1
    assert [entry.path for entry in added_entries(store, moved)] == ["data/a.fermion"]


def test_a_branch_can_move_main_again_and_again(store: MemoryStore) -> None:
    create_branch(store, "dev", latest(store))
    append(store, "a", branch="dev")
    first = fast_forward(store, "dev")
    assert fast_forward(store, "dev") == first
    append(store, "b", branch="dev")
    second = fast_forward(store, "dev")
    assert second.id == first.id + 1
    assert [entry.path for entry in added_entries(store, second)] == ["data/b.fermion"]


def test_main_does_not_move_over_its_own_commits(store: MemoryStore) -> None:
    create_branch(store, "dev", latest(store))
    append(store, "a", branch="dev")
    append(store, "6")
    before = dict(store.objects)
    with pytest.raises(CommitConflict, match="snapshot 6"):
        fast_forward(store, "dev")
    assert store.objects == before


def test_a_difference_leads_from_one_state_to_the_other() -> None:
    old = [made_up_entry("a"), made_up_entry("b"), made_up_entry("c", delete_rows=0)]
    new = [made_up_entry("b"), made_up_entry("c", delete_rows=1), made_up_entry("d")]
    changes = difference(old, new)
    assert changes.added == (new[1], new[2])
    assert changes.removed == (old[0], old[2])


def test_bug_what_was_to_be_named_and_had_gone_stops_no_expiry(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 3379 of the simulation: its maker came too late, and died before it gave up."""
    create_tag(store, "v1", latest(store))
    pending = store.objects[tag_path("v1")]
    delete_tag(store, "v1")
    for path in [each for each in store.objects if each.startswith("manifest/")]:
        store.delete(path)
    assert latest(store).manifests
    store.objects[pending_path("0" * 32)] = pending
    monkeypatch.setattr("fermion_table.expiry.reachable._add_history", lambda *_: None)
    shared_cache.clear()
    live_objects(store, now=0)
