"""The fence: what a stalled writer takes for its commit, where snapshot ids have expired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.errors import CommitStateUnknown
from fermion_table.metadata import pointers
from fermion_table.metadata.history import latest, list_ids
from fermion_table.metadata.snapshot import Snapshot, encode_snapshot
from fermion_table.options import CommitOptions
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import CreateResult
from tests.kit.stores import MemoryStore, WrappedStore, made_up_entry
from tests.kit.tables.commit_setups import append, names, new_table

SLOW = CommitOptions(fence_s=0.0)
"""Every attempt counts as one that took long."""
LATER = tuple("efghi")


class StallingStore(WrappedStore):
    """Something happens before or after a creation of a snapshot file, of which some get no reply.

    Parameters
    ----------
    before, after
        What happens at a creation, by its number from 1 on.
    forgets
        The creations whose reply is lost; the snapshot file can't be read after them.
    """

    def __init__(
        self,
        inner: MemoryStore,
        *,
        before: dict[int, Callable[[], None]] | None = None,
        after: dict[int, Callable[[], None]] | None = None,
        forgets: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(inner)
        self.before, self.after, self.forgets = before or {}, after or {}, forgets
        self.creations = 0

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "read" and self.creations in self.forgets:
            raise TimeoutError("no reply")
        if operation != "create_if_absent":
            return super().call(operation, *arguments)
        self.creations += 1
        number = self.creations
        self.before.get(number, lambda: None)()
        result = super().call(operation, *arguments)
        self.after.get(number, lambda: None)()
        return CreateResult.UNKNOWN if number in self.forgets else result


def expire(store: MemoryStore, first_kept: int) -> None:
    """What an expiry leaves once the snapshot files are old enough."""
    pointers.mark_expired(store, first_kept)
    for snapshot_id in range(1, first_kept):
        store.delete(snapshot_path(snapshot_id))


def create_again(store: MemoryStore, snapshot: Snapshot) -> None:
    """A request to create a snapshot file arrives once more, after the snapshot has expired."""
    data = encode_snapshot(snapshot)
    assert store.create_if_absent(snapshot_path(snapshot.id), data) is CreateResult.CREATED


def request(name: str) -> CommitRequest:
    return CommitRequest(kind="append", added=[made_up_entry(name)])


def made_on(base: Snapshot, name: str) -> Snapshot:
    """The snapshot of a writer that stalls before it creates the file."""
    store = new_table()
    create_again(store, base)
    return append(store, made_up_entry(name))


def test_bug_a_parent_that_was_created_again_after_its_expiry_proved_a_commit() -> None:
    """The parent's writer lost a reply, and stalled before its second attempt (seed 3551)."""
    store = new_table()
    append(store, made_up_entry("a"))
    parent = append(store, made_up_entry("b"))

    def meanwhile() -> None:
        for name in LATER:
            append(store, made_up_entry(name))
        expire(store, 7)
        create_again(store, parent)

    snapshot = commit(StallingStore(store, before={1: meanwhile}), request("late"), options=SLOW)
    assert snapshot.id == 8
    assert names(store) == ["a", "b", *LATER, "late"]
    assert list_ids(store) == [0, 2, 7, 8]  # 2 is for its writer to remove


def test_bug_a_child_that_was_created_after_its_expiry_proved_a_commit() -> None:
    """The child's writer stalled before it created the file, and has not removed it yet."""
    store = new_table()
    append(store, made_up_entry("a"))

    def meanwhile() -> None:
        mine = latest(store)
        child = made_on(mine, "stalled")
        for name in LATER:
            append(store, made_up_entry(name))
        expire(store, 7)
        create_again(store, child)

    stalling = StallingStore(store, before={2: meanwhile}, forgets=frozenset({1}))
    with pytest.raises(CommitStateUnknown, match="may have expired"):
        commit(stalling, request("mine"), options=SLOW)
    assert names(store) == ["a", "mine", *LATER]
    assert list_ids(store) == [0, 3, 7]
    assert pointers.read_latest(store) == 7


@pytest.mark.parametrize("first_kept", [3, 7])
def test_bug_a_commit_that_expired_before_its_reply_was_made_twice(first_kept: int) -> None:
    """The reply comes so late that the snapshot file is gone."""
    store = new_table()

    def meanwhile() -> None:
        for name in ("b", "c", *LATER):
            append(store, made_up_entry(name))
        expire(store, first_kept)

    with pytest.raises(CommitStateUnknown, match="may have expired"):
        commit(StallingStore(store, after={1: meanwhile}), request("a"), options=SLOW)
    assert names(store) == ["a", "b", "c", *LATER]


@pytest.mark.parametrize("parents", [0, 1])
def test_a_commit_that_expires_is_published_while_its_snapshot_file_stays(parents: int) -> None:
    """Snapshot files outlive their data: the history leads from this one to those kept."""
    store = new_table()
    for at in range(parents):
        append(store, made_up_entry(f"{at}"))

    def meanwhile() -> None:
        for name in LATER:
            append(store, made_up_entry(name))
        pointers.mark_expired(store, parents + 4)
        store.delete(snapshot_path(parents))

    snapshot = commit(StallingStore(store, after={1: meanwhile}), request("mine"), options=SLOW)
    assert snapshot.id == parents + 1
    assert names(store) == [*map(str, range(parents)), "mine", *LATER]


def test_bug_a_base_that_a_stalled_writer_left_took_commits() -> None:
    """The file was created after its expiry; the pointer file was not updated for as long."""
    store = new_table()
    append(store, made_up_entry("a"))
    left = append(store, made_up_entry("b"))
    for name in LATER:
        append(store, made_up_entry(name))
    expire(store, 7)
    create_again(store, left)
    store.overwrite_hint("snapshot/LATEST", b"1")
    assert latest(store).id == 2
    snapshot = commit(store, request("new"), options=SLOW)
    assert snapshot.id == 8
    assert names(store) == ["a", "b", *LATER, "new"]
