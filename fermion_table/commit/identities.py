"""Which identified commits a history holds: what makes a retried commit idempotent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial

import msgspec

from fermion.engine import BoundedCache
from fermion.exports import dataclass
from fermion_table.errors import CommitConflict, CorruptMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import try_load
from fermion_table.metadata.references import load_branch
from fermion_table.metadata.snapshot import (
    Snapshot,
    SnapshotReference,
    commit_identities,
    commit_identity,
)
from fermion_table.storage import json_codec
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import AtomicStore

INDEXES_MAX = 64
"""Tables (and branches) whose index a process keeps."""

READS_AT_ONCE_MIN = 4
READS_AT_ONCE_MAX = 32
"""Snapshots read at once: few first, as a repeated commit is mostly one of the latest."""

Identity = tuple[str, str]


class _Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """What the index needs of a snapshot: decoding no more is much quicker."""

    parent: SnapshotReference | None
    commit_user: str | None = None
    commit_identifier: int | str | None = None
    branch_commits: dict[str, tuple[int | str, ...]] = {}
    parent_void: bool = False


@dataclass(slots=True)
class _Index:
    """Identified commits of a history from its earliest snapshot up to `newest`."""

    newest: SnapshotReference
    commits: dict[Identity, int] = field(default_factory=dict)


_indexes = BoundedCache(INDEXES_MAX)


def committed_before(
    store: AtomicStore, base: Snapshot, identity: tuple[str, int | str] | None, *, branch: str
) -> Snapshot | None:
    """The snapshot in the history of `base` that has this user and identifier; None without them.

    The first call for a table reads its history, newest first, until it finds the commit or the
    history ends or has expired: no more than one request for each snapshot, 32 at once. Later
    calls read only what is new.

    Raises CommitConflict: It was committed, but its snapshot has expired since.
    Raises CorruptMetadata: A snapshot file of the history holds other bytes than its child names.
    """
    if identity is None:
        return None
    user, identifier = identity
    found = _find(store, base, commit_identity(user, identifier), branch)
    if found is None:
        return None
    snapshot = try_load(store, found, branch=branch)
    if snapshot is None:
        raise CommitConflict(
            f"{store.location}: {user!r} committed {identifier!r} before, as snapshot {found}, "
            f"which has expired since"
        )
    return snapshot


def _find(store: AtomicStore, base: Snapshot, wanted: Identity, branch: str) -> int | None:
    """The id of the snapshot of an identity, None if the history has none."""
    key = (store.location, base.table_uuid, branch)
    known: _Index | None = _indexes.get(key)
    if known is not None and base.reference == known.newest:
        return known.commits.get(wanted)
    known_id = None if known is None else known.newest.id
    newer: dict[Identity, int] = {}
    is_joined = False
    for snapshot_id, snapshot in _lineage(store, base, branch, known_id):
        identities = commit_identities(snapshot)
        if wanted in identities:
            return snapshot_id  # the index learns of it when all of it is read
        for identity in identities:
            newer.setdefault(identity, snapshot_id)
        if known is not None and snapshot.parent == known.newest:
            is_joined = True
            break
    # If they do not join, what is known is of another history, or nothing.
    commits = {**known.commits, **newer} if known is not None and is_joined else newer
    _indexes.put(key, _Index(base.reference, commits))
    return commits.get(wanted)


def _lineage(
    store: AtomicStore, base: Snapshot, branch: str, known_id: int | None
) -> Iterator[tuple[int, Snapshot | _Ancestor]]:
    """A snapshot and those before it with their ids, newest first; ends where they have expired.

    Nothing from `known_id` on down is read before the snapshot after it was taken. One that does
    not count, as its transaction was given up, has no identity.
    """
    yield base.id, base
    reference, at_once = base.parent, READS_AT_ONCE_MIN
    is_void = base.parent_void
    with ThreadPoolExecutor(READS_AT_ONCE_MAX) as pool:
        while reference is not None:
            above = known_id if known_id is not None and known_id < reference.id else -1
            ids = range(reference.id, max(above, reference.id - at_once), -1)
            at_once = min(2 * at_once, READS_AT_ONCE_MAX)
            paths = [snapshot_path(snapshot_id, branch) for snapshot_id in ids]
            read = partial(_read, store)
            for data in pool.map(read, paths) if len(paths) > 1 else map(read, paths):
                home = branch
                if data is None:  # on the branch that this one left, or expired
                    left = load_branch(store, branch) if branch != MAIN else None
                    if left is None or reference.id > left.snapshot_id:
                        return
                    branch = left.parent
                    if reference.id < left.snapshot_id:
                        break
                    data = bytes(left.snapshot)
                ancestor = _decoded(store, data, reference, home)
                if ancestor is None:
                    return
                if is_void:
                    ancestor = _Ancestor(parent=ancestor.parent, parent_void=ancestor.parent_void)
                yield reference.id, ancestor
                reference, is_void = ancestor.parent, ancestor.parent_void
                if reference is None or branch != home:
                    break


def _read(store: AtomicStore, path: str) -> bytes | None:
    """The bytes of a snapshot file, None if there is none."""
    try:
        return store.read(path)
    except FileNotFoundError:
        return None


def _decoded(
    store: AtomicStore, data: bytes, reference: SnapshotReference, branch: str
) -> _Ancestor | None:
    """What the index needs of a snapshot, None if it has expired."""
    path = snapshot_path(reference.id, branch)
    found = json_codec.content_hash(data)
    if found != reference.hash:  # perhaps it was only sent wrong
        data = _read(store, path) or data
        found = json_codec.content_hash(data)
    if found != reference.hash:
        if 0 < reference.id < pointers.first_kept(store, branch):
            return None  # a writer that stalled has created an expired one's file again, in vain
        raise CorruptMetadata(path, f"hash {reference.hash}", f"hash {found}")
    return json_codec.decode(data, _Ancestor, path)
