"""Versions as callers name them: the snapshot, and the branch whose history leads to it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from fermion.errors import InvalidArgumentError
from fermion_table.history import Version, resolve_version, snapshot_at, try_load
from fermion_table.paths import MAIN
from fermion_table.references import load_branch, load_tag
from fermion_table.snapshot import Snapshot
from fermion_table.storage import AtomicStore

Moment = datetime | str | int
"""A time: a datetime or ISO text (UTC without a zone), or milliseconds since 1970 UTC."""


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
    VersionNotFound
    """
    if isinstance(time, str):
        with contextlib.suppress(ValueError):
            return snapshot_at(store, datetime.fromisoformat(time), branch=branch)
        return resolve_version(store, time, branch=branch)
    return snapshot_at(store, moment_of(time), branch=branch)


def moment_of(time: Moment) -> datetime:
    """A time as a datetime with a zone.

    Raises
    ------
    InvalidArgumentError
        Text that is no time.
    """
    if isinstance(time, int):
        return datetime.fromtimestamp(time / 1000, UTC)
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise InvalidArgumentError(
                f"time {time!r}: expected ISO 8601, as in '2026-01-31T12:00:00'"
            ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def moment_ms(time: Moment | timedelta | None, *, now_ms: int) -> int | None:
    """A time as milliseconds since 1970 UTC; a timedelta is that long ago, None stays None."""
    if time is None:
        return None
    if isinstance(time, timedelta):
        return now_ms - time // timedelta(milliseconds=1)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (moment_of(time) - epoch) // timedelta(milliseconds=1)


def _named_branch(store: AtomicStore, name: str) -> str | None:
    """The name if it is a branch's; tags come first."""
    if load_tag(store, name) is not None:
        return None
    return name if name == MAIN or load_branch(store, name) is not None else None
