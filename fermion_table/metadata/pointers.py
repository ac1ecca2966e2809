"""Pointer files, which name the latest and the earliest snapshot, and expiry markers.

LATEST may be stale or missing, nothing breaks. EARLIEST may be too low where two expiries ran at
once: what must not be wrong goes by the expiry markers too. Not being able to read either is an
error: a snapshot that has expired must not count as kept.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass

from fermion.redaction import logger
from fermion_table.errors import CorruptMetadata, UnreadableMetadata
from fermion_table.storage.paths import (
    MAIN,
    SNAPSHOT_ID_MAX,
    earliest_hint_path,
    expired_directory,
    expired_mark_path,
    ids_of_expired_mark,
    latest_hint_path,
    snapshot_path,
)
from fermion_table.storage.store import AtomicStore, CreateResult

_log = logger(__name__)

POINTER_BYTES_MAX = 19
"""Digits of the greatest id."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """An expiry marker, or the EARLIEST that follows them.

    kept, recorded: The first snapshot that has not expired, and the first changelog, which is no
        later one.
    """

    kept: int
    recorded: int
    path: str

    @property
    def greatest(self) -> int:
        """The greatest id: one of a snapshot that there was, as the newest never expires."""
        return max(self.kept, self.recorded)


def read_latest(store: AtomicStore, branch: str = MAIN) -> int | None:
    """An id that was the latest once, None if there is no usable pointer file."""
    with contextlib.suppress(OSError):
        return _read(store, latest_hint_path(branch))
    return None


def write_latest(store: AtomicStore, snapshot_id: int, branch: str = MAIN) -> None:
    """Move the pointer file to the latest snapshot; failing to is no failure."""
    try:
        _write(store, latest_hint_path(branch), snapshot_id)
    except OSError as error:
        _log.warning("%s: the pointer file was not updated: %s", store.location, error)


def read_earliest(store: AtomicStore, branch: str = MAIN) -> int:
    """The id below which (but for 0) data has expired, by the pointer file: it may be too low.

    Raises OSError: The storage's own.
    """
    return _read(store, earliest_hint_path(branch)) or 0


def first_kept(store: AtomicStore, branch: str = MAIN) -> int:
    """The id below which (but for 0) data has expired; 0 if nothing has. It only ascends.

    Raises OSError: The storage's own.
    """
    return max((mark.kept for mark in marks(store, branch)), default=0)


def first_recorded(store: AtomicStore, branch: str = MAIN) -> int:
    """The id below which (but for 0) changelogs have expired, up to `first_kept`; it only ascends.

    Raises OSError: The storage's own.
    """
    return max((mark.recorded for mark in marks(store, branch)), default=0)


def marks(store: AtomicStore, branch: str = MAIN) -> list[Mark]:
    """The expiry markers of a branch, and its EARLIEST.

    Raises OSError: The storage's own.
    """
    named = read_earliest(store, branch)
    found = markers(store, branch)
    # Only a marker can say that changelogs are kept longer.
    return [*found, Mark(named, 0 if found else named, earliest_hint_path(branch))]


def markers(store: AtomicStore, branch: str = MAIN) -> list[Mark]:
    """The expiry markers of a branch; raises as `marks`."""
    found = []
    for item in store.list(expired_directory(branch)):
        ids = ids_of_expired_mark(item.path.rsplit("/", 1)[-1])
        if ids is not None:
            found.append(Mark(*ids, item.path))
    return found


def check_marks(store: AtomicStore, seen: int, branch: str = MAIN) -> None:
    """Refuse an expiry marker, or an EARLIEST, of a snapshot that was never made.

    It would hide all snapshots, let none be added, and let all data but that of the newest snapshot
    be deleted.

    seen: The id of a snapshot of the branch.
    Raises CorruptMetadata: Names the marker.
    Raises OSError: The storage's own.
    """
    last = None
    while True:
        mark = max(marks(store, branch), key=lambda mark: mark.greatest)
        # The first snapshot that is kept is there, unless another expiry has come in between.
        if mark.greatest <= seen or _has_file(store, mark.greatest, branch):
            return
        if mark == last:
            raise CorruptMetadata(
                mark.path,
                "the id of a snapshot that there is",
                f"{mark.greatest}, which hides all snapshots",
                "repair_table (fermion table repair) removes it",
            )
        last = mark


def mark_expired(
    store: AtomicStore, snapshot_id: int, branch: str = MAIN, *, changelog_id: int | None = None
) -> int:
    """Say that snapshots below an id (but for 0) have expired, before deleting their data.

    An expiry marker is created, never overwritten, so that of several writers at once the greatest
    id counts. The pointer file follows.

    changelog_id: Changelogs from this id on are kept longer; not below `first_recorded`. None: none
        are.
    Returns: The id below which data has expired now: this one, or one that others have marked.
    Raises OSError: The storage's own: whether the expiry marker is there is not known then.
    """
    path = expired_mark_path(snapshot_id, branch, changelog_id=changelog_id)
    result = store.create_if_absent(path, b"")
    if result is CreateResult.UNKNOWN and not store.exists(path):
        raise OSError(errno.EIO, "the reply was lost: not known whether it was created", path)
    return follow_markers(store, branch)


def follow_markers(store: AtomicStore, branch: str = MAIN) -> int:
    """Move EARLIEST up to the greatest expiry marker, which whoever deletes data does before.

    Returns: The id below which data has expired.
    """
    while True:
        kept = first_kept(store, branch)
        if read_earliest(store, branch) >= kept:
            return kept
        _write(store, earliest_hint_path(branch), kept)


def drop_old_markers(store: AtomicStore, branch: str = MAIN) -> None:
    """Delete the expiry markers that a greater one, of snapshots and of changelogs, replaces."""
    found = sorted(markers(store, branch))
    recorded_max = max((mark.recorded for mark in found), default=0)
    for mark in found[:-1]:
        if mark.recorded < recorded_max or found[-1].recorded == recorded_max:
            store.delete(mark.path)


def _has_file(store: AtomicStore, snapshot_id: int, branch: str) -> bool:
    """Whether there is a snapshot of an id, which may be any number."""
    return snapshot_id <= SNAPSHOT_ID_MAX and store.exists(snapshot_path(snapshot_id, branch))


def _read(store: AtomicStore, path: str) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return _parsed(store.read(path, POINTER_BYTES_MAX + 1))
    return None


def _parsed(text: bytes) -> int | None:
    """The id of a pointer file's bytes, None if they are no id."""
    if text.isdigit() and len(text) <= POINTER_BYTES_MAX and int(text) <= SNAPSHOT_ID_MAX:
        return int(text)
    return None


def _write(store: AtomicStore, path: str, snapshot_id: int) -> None:
    text = b"%d" % snapshot_id
    if _parsed(text) != snapshot_id:
        raise UnreadableMetadata(f"{path}: not stored, as {snapshot_id} is not a snapshot id")
    store.overwrite_hint(path, text)
