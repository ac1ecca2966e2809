"""The atomic step: create a snapshot's slot if it is absent, and the fence behind it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import msgspec

from fermion_table import hints, json_codec
from fermion_table.errors import CommitStateUnknown
from fermion_table.history import list_ids, try_load
from fermion_table.options import CommitOptions
from fermion_table.paths import snapshot_path
from fermion_table.snapshot import Snapshot, encode_snapshot
from fermion_table.storage import AtomicStore, CreateResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Creation:
    """What became of the try for a slot.

    Attributes
    ----------
    stored
        The snapshot as stored, None if another one holds the slot.
    is_first_reply
        Whether no reply was lost. An earlier try whose reply was may have created the slot: long
        after it, when the slot may have expired, even a loss does not prove that nothing was
        published.
    """

    stored: Snapshot | None
    is_first_reply: bool = True


def create_slot(
    store: AtomicStore, snapshot: Snapshot, branch: str, options: CommitOptions
) -> Creation:
    """Create a snapshot's slot, unless another one holds it.

    A lost reply is resolved by reading the slot back, and trying again while it is empty: the
    bytes are the same, so that can only help.

    Raises
    ------
    OSError
        The store's own, when nothing was created.
    CommitStateUnknown
        No try got an answer.
    """
    path = snapshot_path(snapshot.id, branch)
    data = encode_snapshot(snapshot)
    result = store.create_if_absent(path, data)
    for tried in range(1, options.unknown_tries + 1):
        if result is CreateResult.CREATED:
            stored = msgspec.structs.replace(snapshot, hash=json_codec.content_hash(data))
            return Creation(stored, tried == 1)
        holder = _holder(store, snapshot.id, branch)
        if holder is not None:
            mine = holder.uuid == snapshot.uuid
            return Creation(holder if mine else None, result is CreateResult.EXISTS and tried == 1)
        if tried < options.unknown_tries:
            time.sleep(min(options.backoff_s_min * 2**tried, options.backoff_s_max))
            result = _create_again(store, path, data)
    raise CommitStateUnknown(
        f"{store.location}: {path}: no reply says whether the commit was published; commit again "
        f"with the same commit_user and commit_identifier, or look for uuid {snapshot.uuid} in "
        f"the history"
    )


def is_in_history(store: AtomicStore, snapshot: Snapshot, branch: str, *, search: bool) -> bool:
    """The fence: whether a slot that was just created is part of the history.

    It is not if its id had been used and had expired before: then later snapshots exist that
    were not made on it. Such a slot is removed again. Slots outlive their data by much longer than
    a quick try takes, so after one a hint that names nothing later is answer enough.

    Parameters
    ----------
    store, branch
        Of the table.
    snapshot
        As stored in the slot.
    search
        Look for later snapshots by listing as well, not by the hint alone: after a try that
        took so long that its base may have expired meanwhile.
    """
    # The hint first: if it names a later snapshot, the child of this one existed before.
    hint = max(list_ids(store, branch)) if search else hints.read_latest(store, branch)
    if not search and hint is not None and hint <= snapshot.id:
        return True
    child = try_load(store, snapshot.id + 1, branch=branch)
    if child is not None:
        lost = child.parent != snapshot.reference
    else:
        later = hint is not None and hint > snapshot.id
        lost = later and try_load(store, hint or 0, branch=branch) is not None
    if lost:
        _log.warning("%s: snapshot %d had expired before", store.location, snapshot.id)
        holder = try_load(store, snapshot.id, branch=branch)
        if holder is not None and holder.uuid == snapshot.uuid:
            store.delete(snapshot_path(snapshot.id, branch))
    return not lost


def _create_again(store: AtomicStore, path: str, data: bytes) -> CreateResult:
    try:
        return store.create_if_absent(path, data)
    except OSError as error:  # proves nothing about the try before
        _log.warning("%s: %s: %s", store.location, path, error)
        return CreateResult.UNKNOWN


def _holder(store: AtomicStore, snapshot_id: int, branch: str) -> Snapshot | None:
    """The snapshot in a slot; None if the slot is empty or does not answer."""
    try:
        return try_load(store, snapshot_id, branch=branch)
    except OSError as error:
        _log.warning("%s: snapshot %d can't be read: %s", store.location, snapshot_id, error)
        return None
