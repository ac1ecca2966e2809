"""Which identified commits a history holds: what makes a retried commit idempotent."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from fermion_table.history import load_snapshot, walk
from fermion_table.snapshot import Snapshot, SnapshotReference
from fermion_table.storage import AtomicStore

INDEXES_MAX = 64
"""Tables (and branches) whose index a process keeps."""

Identity = tuple[str, int | str]


@dataclass(slots=True)
class _Index:
    """Identified commits of a history from its earliest snapshot up to `newest`."""

    newest: SnapshotReference
    commits: dict[Identity, int] = field(default_factory=dict)


_indexes: OrderedDict[tuple[str, str, str], _Index] = OrderedDict()
_lock = threading.Lock()


def committed_before(
    store: AtomicStore, base: Snapshot, user: str, identifier: int | str, *, branch: str
) -> Snapshot | None:
    """The snapshot in the history of `base` that has this user and identifier.

    The first call for a table reads its whole history, later ones only what is new.
    """
    key = (store.location, base.table_uuid, branch)
    with _lock:
        known = _indexes.get(key)
    newer: dict[Identity, int] = {}
    for snapshot in walk(store, base, branch=branch):
        if known is not None and snapshot.reference == known.newest:
            break
        if snapshot.commit_user is not None and snapshot.commit_identifier is not None:
            newer[snapshot.commit_user, snapshot.commit_identifier] = snapshot.id
    else:
        known = None  # a history that does not lead to what is known, or nothing was known
    commits = {**(known.commits if known is not None else {}), **newer}
    with _lock:
        _indexes[key] = _Index(base.reference, commits)
        _indexes.move_to_end(key)
        while len(_indexes) > INDEXES_MAX:
            _indexes.popitem(last=False)
    found = commits.get((user, identifier))
    return None if found is None else load_snapshot(store, found, branch=branch)
