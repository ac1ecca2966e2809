"""Hints: ids beside a branch's slots that save looking.

LATEST may be stale or missing, nothing breaks. EARLIEST only ascends, and not being able to read
it is an error: a snapshot that has expired must not count as kept.
"""

from __future__ import annotations

import contextlib
import logging

from fermion_table.paths import MAIN, SNAPSHOT_ID_MAX, earliest_hint_path, latest_hint_path
from fermion_table.storage import AtomicStore

_log = logging.getLogger(__name__)


def read_latest(store: AtomicStore, branch: str = MAIN) -> int | None:
    """An id that was the latest once, None if there is no usable hint."""
    with contextlib.suppress(OSError):
        return _read(store, latest_hint_path(branch))
    return None


def write_latest(store: AtomicStore, snapshot_id: int, branch: str = MAIN) -> None:
    """Move the hint at the latest snapshot; failing to is no failure."""
    try:
        _write(store, latest_hint_path(branch), snapshot_id)
    except OSError as error:
        _log.warning("%s: the hint was not updated: %s", store.location, error)


def read_earliest(store: AtomicStore, branch: str = MAIN) -> int:
    """The id below which (but for 0) data has expired; 0 if nothing has.

    Raises
    ------
    OSError
        The storage's own.
    """
    return _read(store, earliest_hint_path(branch)) or 0


def write_earliest(store: AtomicStore, snapshot_id: int, branch: str = MAIN) -> None:
    """Say that snapshots below an id (but for 0) have expired, before deleting their data.

    An id that is below the one there already changes nothing: what has expired stays so.
    """
    if snapshot_id > read_earliest(store, branch):
        _write(store, earliest_hint_path(branch), snapshot_id)


def _read(store: AtomicStore, path: str) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        text = store.read(path)
        if text.isdigit() and len(text) <= 19 and int(text) <= SNAPSHOT_ID_MAX:
            return int(text)
    return None


def _write(store: AtomicStore, path: str, snapshot_id: int) -> None:
    store.overwrite_hint(path, b"%d" % snapshot_id)
