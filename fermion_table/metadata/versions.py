"""Versions as callers name them: the snapshot, and the branch whose history leads to it."""

from __future__ import annotations

import contextlib
from datetime import datetime

from fermion_table.errors import CorruptMetadata, TableError
from fermion_table.metadata.history import (
    Version,
    list_ids,
    load_snapshot,
    resolve_version,
    snapshot_at,
    try_load,
)
from fermion_table.metadata.references import load_branch, load_tag
from fermion_table.metadata.schema_store import load_table_schema
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import Moment, moment_of
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import AtomicStore


def find_version(
    store: AtomicStore, version: Version | None, *, branch: str = MAIN
) -> tuple[Snapshot, str]:
    """The snapshot that a version names, and the branch that it is part of.

    Parameters
    ----------
    store
        Of the table.
    version
        As `history.resolve_version` takes it.
    branch
        Where ids and times are looked up.

    Returns
    -------
    The snapshot, and the branch named by the version (``"dev~2"``), else the given one if the
    snapshot is part of it, else the one it was committed to.

    Raises
    ------
    VersionNotFound
    """
    if isinstance(version, str):
        branch = _named_branch(store, version.partition("~")[0]) or branch
    snapshot = resolve_version(store, version, branch=branch)
    return snapshot, branch if is_part_of(store, snapshot, branch) else snapshot.branch


def is_part_of(store: AtomicStore, snapshot: Snapshot, branch: str) -> bool:
    """Whether a snapshot is one of a branch's, its ancestors before it left another included.

    Of a snapshot whose slot is gone only the branch of its commit is known.
    """
    if snapshot.branch == branch:
        return True
    found = try_load(store, snapshot.id, branch=branch)
    return found is not None and found.hash == snapshot.hash


def snapshot_as_of(store: AtomicStore, time: Moment, *, branch: str = MAIN) -> Snapshot:
    """The latest snapshot at a time; text that is no time is a version, such as ``"main~3"``.

    Raises
    ------
    TypeError
        No time; a number could mean anything.
    VersionNotFound
    """
    if isinstance(time, str):
        with contextlib.suppress(ValueError):
            return snapshot_at(store, datetime.fromisoformat(time), branch=branch)
        return resolve_version(store, time, branch=branch)
    return snapshot_at(store, moment_of(time, "as_of"), branch=branch)


def with_readable_version(
    store: AtomicStore, branch: str, error: CorruptMetadata
) -> CorruptMetadata:
    """The error of a newest snapshot that can't be read, with the newest one that can.

    It is looked for among the last hundred. What was found to be corrupt, twice, is not read again.
    """
    corrupt = {error.path}
    try:
        ids = list_ids(store, branch)[:-101:-1]
    except (OSError, TableError):  # nothing more can be said
        return error
    for snapshot_id in ids:
        if snapshot_path(snapshot_id, branch) in corrupt:
            continue
        try:
            snapshot = load_snapshot(store, snapshot_id, branch=branch)
            if snapshot.schema.path in corrupt:
                continue
            load_table_schema(store, snapshot.schema)
        except CorruptMetadata as further:
            corrupt.add(further.path)
        except (OSError, TableError):
            continue
        else:
            return CorruptMetadata(
                error.path,
                error.expected,
                error.found,
                hint=f"snapshot {snapshot_id} is the newest that opens, to be read: "
                f"Table.open({store.location!r}, version={snapshot_id}"
                + (f", branch={branch!r})" if branch != MAIN else ")"),
            )
    return error


def _named_branch(store: AtomicStore, name: str) -> str | None:
    """The name if it is a branch's; tags come first."""
    if load_tag(store, name) is not None:
        return None
    return name if name == MAIN or load_branch(store, name) is not None else None
