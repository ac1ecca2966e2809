"""The commits that came first, read from their snapshots for the conflict matrix."""

from __future__ import annotations

from collections.abc import Sequence

from fermion_table.commit.conflict import Mine, Theirs, Tree, needs_files
from fermion_table.errors import CommitConflict, CorruptMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import load_parent, try_load
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import added_entries, removed_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.store import AtomicStore


def commits_since(
    store: AtomicStore, seen: Snapshot, base: Snapshot, mine: Mine, branch: str
) -> list[Theirs]:
    """The commits after `seen` up to `base`, oldest first.

    seen: The snapshot that my commit was decided on.
    mine: Says how much of each commit must be read.
    Raises CommitConflict: `base` does not descend from `seen`.
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
        raise _replaced(store, seen, current)
    return theirs[::-1]


def refuse_replaced(store: AtomicStore, known: Snapshot, newest: Snapshot, branch: str) -> None:
    """Refuse a newest snapshot that does not follow the one that is known.

    The snapshot file of the known one is read where several commits lie between the two.

    Raises CommitConflict.
    """
    if newest.table_uuid != known.table_uuid:
        raise CommitConflict(
            f"{store.location}: the table was replaced by another one; open it again",
            theirs=f"create (table {newest.table_uuid})",
        )
    if newest.hash == known.hash or (newest.parent and newest.parent.hash == known.hash):
        return
    found = try_load(store, known.id, branch=branch) if newest.id > known.id else newest
    same = found is not None and found.hash == known.hash
    if not same and known.id >= pointers.first_kept(store, known.branch):
        raise _replaced(store, known, newest)


def _replaced(store: AtomicStore, known: Snapshot, newest: Snapshot) -> CommitConflict:
    return CommitConflict(
        f"{store.location}: the table was replaced by another state of it, such as a backup: "
        f"snapshot {known.id} ({known.kind}), which this object has seen, is not in its history "
        f"any more, which leads to snapshot {newest.id}; open it again",
        theirs=f"{newest.kind} (snapshot {newest.id})",
    )


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
