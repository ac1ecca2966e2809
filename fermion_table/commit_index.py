"""Which identified commits a history holds: what makes a retried commit idempotent."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from fermion.forks import Lock
from fermion_table import hints, json_codec
from fermion_table.errors import CommitConflict, CorruptMetadata
from fermion_table.history import try_load
from fermion_table.paths import snapshot_path
from fermion_table.snapshot import Snapshot, SnapshotReference, commit_identity
from fermion_table.storage import AtomicStore

INDEXES_MAX = 64
"""Tables (and branches) whose index a process keeps."""

Identity = tuple[str, str]


class _Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """What the index needs of a snapshot: decoding no more is much quicker."""

    parent: SnapshotReference | None
    commit_user: str | None = None
    commit_identifier: int | str | None = None


@dataclass(slots=True)
class _Index:
    """Identified commits of a history from its earliest snapshot up to `newest`."""

    newest: SnapshotReference
    commits: dict[Identity, int] = field(default_factory=dict)


_indexes: OrderedDict[tuple[str, str, str], _Index] = OrderedDict()
_lock = Lock()


def committed_before(
    store: AtomicStore, base: Snapshot, user: str, identifier: int | str, *, branch: str
) -> Snapshot | None:
    """The snapshot in the history of `base` that has this user and identifier.

    The first call for a table reads its whole history (as far as it has not expired), later
    ones only what is new.

    Raises
    ------
    CommitConflict
        It was committed, but its snapshot has expired since.
    """
    found = _commits(store, base, branch).get(commit_identity(user, identifier))
    if found is None:
        return None
    snapshot = try_load(store, found, branch=branch)
    if snapshot is None:
        raise CommitConflict(
            f"{store.location}: {user!r} committed {identifier!r} before, as snapshot {found}, "
            f"which has expired since"
        )
    return snapshot


def _commits(store: AtomicStore, base: Snapshot, branch: str) -> dict[Identity, int]:
    key = (store.location, base.table_uuid, branch)
    with _lock:
        known = _indexes.get(key)
    newer: dict[Identity, int] = {}
    reference: SnapshotReference | None = base.reference
    while reference is not None and (known is None or reference != known.newest):
        ancestor: Snapshot | _Ancestor | None = base
        if reference.id != base.id:
            ancestor = _read(store, reference, branch)
        if ancestor is None:  # expired
            reference = None
            break
        if ancestor.commit_user is not None and ancestor.commit_identifier is not None:
            identity = commit_identity(ancestor.commit_user, ancestor.commit_identifier)
            newer[identity] = reference.id
        reference = ancestor.parent
    if known is None or reference is None:  # what is known is of another history, or nothing
        commits = newer
    else:
        commits = {**known.commits, **newer}
    with _lock:
        _indexes[key] = _Index(base.reference, commits)
        _indexes.move_to_end(key)
        while len(_indexes) > INDEXES_MAX:
            _indexes.popitem(last=False)
    return commits


def _read(store: AtomicStore, reference: SnapshotReference, branch: str) -> _Ancestor | None:
    """What the index needs of a snapshot, None if it has expired."""
    path = snapshot_path(reference.id, branch)
    try:
        data = store.read(path)
    except FileNotFoundError:
        return None
    found = json_codec.content_hash(data)
    if found != reference.hash:
        if 0 < reference.id < hints.first_kept(store, branch):
            return None  # a writer that stalled has taken the slot of an expired one, in vain
        raise CorruptMetadata(path, f"hash {reference.hash}", f"hash {found}")
    return json_codec.decode(data, _Ancestor, path)
