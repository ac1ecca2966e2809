"""The commits that came first, read from their snapshots for the conflict matrix."""

from __future__ import annotations

from collections.abc import Sequence

from fermion_table.commit.conflict import Mine, Theirs, Tree, needs_files
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import load_parent
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import added_entries, removed_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore


def commits_since(
    store: AtomicStore, seen: Snapshot, base: Snapshot, mine: Mine, branch: str
) -> list[Theirs]:
    """The commits after `seen` up to `base`, oldest first.

    Parameters
    ----------
    seen
        The snapshot that my commit was decided on.
    mine
        Says how much of each commit must be read.

    Raises
    ------
    CorruptMetadata
        `base` does not descend from `seen`.
    """
    theirs: list[Theirs] = []
    current = base
    while current.id > seen.id:
        is_next = current.parent is not None and current.parent.hash == seen.hash
        parent = seen if is_next else load_parent(store, current, branch=branch)
        found = None if parent is None else _commit_of(store, current, parent, mine)
        if parent is None or found is None:  # expired: it may have done anything
            schema = current.schema if current.schema.id != seen.schema.id else None
            unknown = Theirs(snapshot_id=current.id, kind="restore", schema=schema, is_known=False)
            return [unknown, *theirs[::-1]]
        theirs.append(found)
        current = parent
    if current.hash != seen.hash:
        raise CorruptMetadata(
            snapshot_path(seen.id, branch),
            f"hash {seen.hash} (as it was read before)",
            f"snapshot {current.id} of hash {current.hash}",
        )
    return theirs[::-1]


def _commit_of(
    store: AtomicStore, snapshot: Snapshot, parent: Snapshot, mine: Mine
) -> Theirs | None:
    """What a snapshot did to its parent; None if that has expired before it could be read."""
    partitions = snapshot.touched.partitions
    wanted = needs_files(mine)
    try:
        removed = removed_entries(store, snapshot) if wanted else []
        added = added_entries(store, snapshot) if wanted else []
    except CorruptMetadata:
        if snapshot.id >= pointers.first_kept(store, snapshot.branch):
            raise
        return None
    return Theirs(
        snapshot_id=snapshot.id,
        kind=snapshot.kind,
        partitions=None if partitions == "many" else frozenset(partitions),
        added=added,
        removed=frozenset(entry.file for entry in removed),
        trees=_trees(snapshot, added, removed),
        schema=snapshot.schema if snapshot.schema.id != parent.schema.id else None,
    )


def _trees(snapshot: Snapshot, added: Sequence[Entry], removed: Sequence[Entry]) -> frozenset[Tree]:
    """The trees whose runs a commit replaced or put back: new runs at level 0 leave the others."""
    is_new = snapshot.kind in ("append", "delete", "upsert")
    placed = (entry for entry in added if entry.level or not is_new)
    return frozenset(
        (entry.partition, entry.bucket) for entry in (*removed, *placed) if entry.bucket is not None
    )
