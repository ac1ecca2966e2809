"""The commits that came first, read from their snapshots for the conflict matrix."""

from __future__ import annotations

from fermion_table.conflict import Mine, Theirs, needs_files
from fermion_table.errors import CorruptMetadata
from fermion_table.history import load_parent
from fermion_table.manifest_store import added_entries, removed_entries
from fermion_table.paths import snapshot_path
from fermion_table.snapshot import Snapshot
from fermion_table.storage import AtomicStore


def commits_since(
    store: AtomicStore, seen: Snapshot, base: Snapshot, mine: Mine, branch: str
) -> list[Theirs]:
    """The commits after `seen` up to `base`, oldest first.

    Parameters
    ----------
    store, branch
        Of the table.
    seen
        The snapshot that my commit was decided on.
    base
        The latest.
    mine
        Says how much of each commit must be read.

    Raises
    ------
    CorruptMetadata
        `base` does not descend from `seen`.
    """
    theirs = []
    current = base
    while current.id > seen.id:
        parent = load_parent(store, current, branch=branch)
        if parent is None:  # expired: it may have done anything
            schema = current.schema if current.schema.id != seen.schema.id else None
            theirs.append(Theirs(snapshot_id=current.id, kind="restore", schema=schema))
            return theirs[::-1]
        theirs.append(_commit_of(store, current, parent, mine))
        current = parent
    if current.hash != seen.hash:
        raise CorruptMetadata(
            snapshot_path(seen.id, branch),
            f"hash {seen.hash} (as it was read before)",
            f"snapshot {current.id} of hash {current.hash}",
        )
    return theirs[::-1]


def _commit_of(store: AtomicStore, snapshot: Snapshot, parent: Snapshot, mine: Mine) -> Theirs:
    partitions = snapshot.touched.partitions
    wanted = needs_files(mine)
    removed = removed_entries(store, snapshot) if wanted else []
    return Theirs(
        snapshot_id=snapshot.id,
        kind=snapshot.kind,
        partitions=None if partitions == "many" else frozenset(partitions),
        added=added_entries(store, snapshot) if wanted else (),
        removed=frozenset(entry.file for entry in removed),
        schema=snapshot.schema if snapshot.schema.id != parent.schema.id else None,
    )
