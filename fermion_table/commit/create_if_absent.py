"""The atomic step: create a snapshot file if it is absent, and the fence behind it."""

from __future__ import annotations

import time
from functools import partial

import msgspec

from fermion.deadline import time_left
from fermion.exports import dataclass
from fermion.redaction import logger
from fermion_table.errors import CommitStateUnknown, TableError, UnreadableMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import try_load
from fermion_table.metadata.references import load_branch
from fermion_table.metadata.snapshot import Snapshot, decode_snapshot, encode_snapshot
from fermion_table.options import CommitOptions
from fermion_table.storage.json_codec import content_hash, encode_checked, read_hashed
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import (
    AtomicStore,
    CreateResult,
    in_time,
    is_done_when_interrupted,
    unknown_reason,
)

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Creation:
    """What became of the try to create a snapshot file.

    stored: The snapshot as stored, None if the file holds another one.
    is_first_reply: Whether no reply was lost. An earlier try whose reply was may have created the
        snapshot file: long after it, when the snapshot file may have expired, even a loss does not
        prove that nothing was published.
    """

    stored: Snapshot | None
    is_first_reply: bool = True


def create_snapshot_file(
    store: AtomicStore, snapshot: Snapshot, branch: str, options: CommitOptions
) -> Creation:
    """Create a snapshot's file, unless another commit's is there.

    A lost reply is resolved by reading the file back, and trying again while there is none: the
    bytes are the same, so that can only help. This has the store's time-out for itself: the file is
    read back even where the first try has taken all of its own.

    Raises OSError: The store's own, when nothing was created.
    Raises UnreadableMetadata: No reader would take the snapshot; nothing was created.
    Raises CommitStateUnknown: No try got an answer.
    """
    path = snapshot_path(snapshot.id, branch)
    decode = partial(decode_snapshot, keep_unknown=False)
    data, readable = encode_checked(partial(encode_snapshot, snapshot), path, decode)
    result = store.create_if_absent(path, data)
    stored = msgspec.structs.replace(snapshot, hash=readable.hash)
    if result is CreateResult.CREATED:
        return Creation(stored)
    with in_time(store):
        for tried in range(1, options.unknown_tries + 1):
            holder = _holder(store, snapshot.id, branch)
            if holder is not None:
                mine = holder.uuid == snapshot.uuid
                first = result is CreateResult.EXISTS and tried == 1
                return Creation(holder if mine else None, first)
            pause = min(options.backoff_s_min * 2**tried, options.backoff_s_max)
            if tried == options.unknown_tries or pause >= time_left():
                break
            time.sleep(pause)
            result = _create_again(store, path, data)
            if result is CreateResult.CREATED:
                return Creation(stored, is_first_reply=False)
    raise CommitStateUnknown(
        f"{store.location}: {path}: {unknown_reason(store)}: not known whether the commit "
        f"succeeded; commit again with the same commit_user and commit_identifier, or look for "
        f"uuid {snapshot.uuid} in the history"
    )


def proves_absence(
    store: AtomicStore, snapshot: Snapshot, branch: str, error: BaseException
) -> bool:
    """Whether nothing was created where `create_snapshot_file` raised an error.

    A store that raises an OSError says so, and bytes that a reader would refuse are not stored. An
    interrupt (KeyboardInterrupt) says nothing; where nothing goes on after it, the snapshot file
    shows what was done.
    """
    if isinstance(error, (OSError, UnreadableMetadata)):
        return True
    if isinstance(error, Exception) or not is_done_when_interrupted(store):
        return False
    try:
        holder = try_load(store, snapshot.id, branch=branch)
    except (OSError, TableError):
        return False
    return holder is None or holder.uuid != snapshot.uuid


def is_in_history(
    store: AtomicStore, snapshot: Snapshot, branch: str, *, may_be_expired: bool
) -> bool:
    """The fence: whether a snapshot file that was just created is part of the history.

    It is not if its id had been used and had expired before. Nor is it if its parent's snapshot
    file holds another snapshot by now, or is gone without having expired, as the table was replaced
    (by a backup, say). Such a snapshot file is removed again.

    snapshot: As stored in the snapshot file.
    may_be_expired: Whether the base is so old, or the try took so long, that the base may have
        expired. Else a parent that stands (but for snapshot 0, which always does) is proof enough:
        snapshot files outlive their data by much longer than it is old.
    Raises CommitStateUnknown: What it takes to tell can't be read, or has expired.
    """
    try:
        return _is_in_history(store, snapshot, branch, may_be_expired)
    except OSError as error:
        raise CommitStateUnknown(
            f"{store.location}: snapshot {snapshot.id} was created, but whether it is part of the "
            f"history can't be read: {error}"
        ) from error


def _is_in_history(
    store: AtomicStore, snapshot: Snapshot, branch: str, may_be_expired: bool
) -> bool:
    stands = _parent_stands(store, snapshot, branch)
    if stands and not may_be_expired:
        return True
    # An id is marked as expired before its file is deleted: one that is not was never free again.
    # Its neighbours prove nothing: stalled writers may have created them again, too.
    kept = pointers.first_kept(store, branch)
    has_expired = snapshot.id < kept
    if _leads_to(store, snapshot, kept, branch) if has_expired else stands is not False:
        return True
    why = "had expired before" if has_expired else "has no parent in this table"
    _log.warning("%s: snapshot %d %s", store.location, snapshot.id, why)
    holder = try_load(store, snapshot.id, branch=branch)
    if holder is not None and holder.uuid == snapshot.uuid:
        store.delete(snapshot_path(snapshot.id, branch))
    elif has_expired:
        raise CommitStateUnknown(
            f"{store.location}: snapshot {snapshot.id} was created, and its file was deleted "
            f"before it was known to be part of the history: it may have expired"
        )
    return False


def _leads_to(store: AtomicStore, snapshot: Snapshot, last: int, branch: str) -> bool:
    """Whether each snapshot file up to an id holds the child of the one before."""
    for snapshot_id in range(snapshot.id + 1, last + 1):
        child = try_load(store, snapshot_id, branch=branch)
        if child is None or child.parent != snapshot.reference:
            return False
        snapshot = child
    return True


def _parent_stands(store: AtomicStore, snapshot: Snapshot, branch: str) -> bool | None:
    """Whether the parent's snapshot file holds the parent; None where that proves nothing.

    The snapshot file may have expired, or be of the branch that this one left; and snapshot 0
    always stands.
    """
    parent = snapshot.parent
    if parent is None:
        return True
    try:
        data = read_hashed(store, snapshot_path(parent.id, branch), parent.hash)
    except FileNotFoundError:
        left = load_branch(store, branch) if branch != MAIN else None
        is_left = left is not None and left.hash == parent.hash
        return None if is_left or 0 < parent.id < pointers.first_kept(store, branch) else False
    same = content_hash(data) == parent.hash
    return None if same and parent.id == 0 else same


def _create_again(store: AtomicStore, path: str, data: bytes) -> CreateResult:
    try:
        return store.create_if_absent(path, data)
    except OSError as error:  # proves nothing about the try before
        _log.warning("%s: %s: %s", store.location, path, error)
        return CreateResult.UNKNOWN


def _holder(store: AtomicStore, snapshot_id: int, branch: str) -> Snapshot | None:
    """The snapshot of an id; None if there is no file, or no answer."""
    try:
        return try_load(store, snapshot_id, branch=branch)
    except OSError as error:
        _log.warning("%s: snapshot %d can't be read: %s", store.location, snapshot_id, error)
        return None
