"""Every way from the name of a version to its snapshot, and to the branch that leads to it."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from fermion.arguments import integer
from fermion.errors import InvalidArgumentError
from fermion_table.errors import CorruptMetadata, TableError, TableNotFound, VersionNotFound
from fermion_table.metadata.history import (
    before_void,
    earliest_id,
    latest,
    list_ids,
    load_parent,
    load_recorded,
    load_snapshot,
    load_state,
    load_table_schema,
    no_such_snapshot,
    try_load,
)
from fermion_table.metadata.references import (
    closest_names,
    load_branch,
    load_tag,
    missing_name,
    snapshot_of,
)
from fermion_table.metadata.snapshot import TRANSACTIONS, Snapshot
from fermion_table.moments import Moment, milliseconds, moment_of
from fermion_table.storage.paths import MAIN, snapshot_path, tag_path
from fermion_table.storage.store import AtomicStore

Version = int | Moment

_ANCESTOR = re.compile(r"(?P<name>.+?)~(?P<generations>\d{1,18})")


def check_version(version: Any, parameter: str) -> Version:
    """What names a snapshot, other than None; numbers of NumPy become Python's.

    Raises TypeError.
    """
    if isinstance(version, (str, date, np.datetime64)):
        return version  # type: ignore[return-value]
    return integer(version, parameter)


def resolve_version(
    store: AtomicStore,
    version: Version | None = None,
    *,
    branch: str = MAIN,
) -> Snapshot:
    """The snapshot that a version names.

    version: None (the latest), a snapshot id, a time (the latest then; see `moments.Moment`), a
        tag, a branch, ``"main~3"`` (three before the latest), or any of these numbers and times as
        text.
    branch: Where ids and times are looked up.
    Raises TypeError: None of these.
    Raises VersionNotFound: Says the earliest and the latest that there is.
    """
    if version is None:
        return latest(store, branch=branch)
    if isinstance(version, (date, np.datetime64)):  # a datetime is a date
        return snapshot_at(store, moment_of(version, "version"), branch=branch)
    if not isinstance(version, str):
        return load_snapshot(store, integer(version, "version"), branch=branch)
    ancestor = _ANCESTOR.fullmatch(version)
    if ancestor is not None:
        named = resolve_version(store, ancestor["name"], branch=branch)
        return _ancestor(store, named, int(ancestor["generations"]), branch, version)
    if version.isdigit():
        return load_snapshot(store, int(version), branch=branch)
    return _resolve_name(store, version, branch)


def find_version(
    store: AtomicStore, version: Version | None, *, branch: str = MAIN
) -> tuple[Snapshot, str]:
    """The snapshot that a version names, and the branch that it is part of.

    version: As `resolve_version` takes it.
    branch: Where ids and times are looked up.
    Returns: The snapshot, and the branch named by the version (``"dev~2"``), else the given one if
        the snapshot is part of it, else the one it was committed to.
    Raises VersionNotFound.
    """
    if isinstance(version, str):
        branch = _named_branch(store, version.partition("~")[0]) or branch
    snapshot = resolve_version(store, version, branch=branch)
    return snapshot, branch if is_part_of(store, snapshot, branch) else snapshot.branch


def is_relative(store: AtomicStore, version: Version) -> bool:
    """Whether commits change what a version names: a branch, or ``"main~3"``; not a tag's."""
    return isinstance(version, str) and _named_branch(store, version.partition("~")[0]) is not None


def find_recorded(
    store: AtomicStore, version: Version | None, *, branch: str = MAIN
) -> tuple[Snapshot, str]:
    """The same, of a snapshot id also where only the changelog is left.

    The id of a snapshot that was given up stands for the snapshot before it: nothing came between.

    Raises VersionNotFound.
    """
    try:
        return find_version(store, version, branch=branch)
    except VersionNotFound:
        if not isinstance(version, int):
            raise
        before = before_void(store, version, branch=branch)
        snapshot = load_recorded(store, before, branch=branch)
        return snapshot, branch if is_part_of(store, snapshot, branch) else snapshot.branch


def is_part_of(store: AtomicStore, snapshot: Snapshot, branch: str) -> bool:
    """Whether a snapshot is one of a branch's, its ancestors before it left another included.

    Of a snapshot whose file is gone only the branch of its commit is known.
    """
    if snapshot.branch == branch:
        return True
    found = try_load(store, snapshot.id, branch=branch)
    return found is not None and found.hash == snapshot.hash


def snapshot_as_of(store: AtomicStore, time: Moment, *, branch: str = MAIN) -> Snapshot:
    """The latest snapshot at a time; text that is no time is a version, such as ``"main~3"``.

    Raises TypeError: No time; a number could mean anything.
    Raises VersionNotFound.
    """
    if isinstance(time, str):
        with contextlib.suppress(ValueError):
            return snapshot_at(store, datetime.fromisoformat(time), branch=branch)
        return resolve_version(store, time, branch=branch)
    return snapshot_at(store, moment_of(time, "as_of"), branch=branch)


def snapshot_at(
    store: AtomicStore, moment: datetime, *, branch: str = MAIN, newest: Snapshot | None = None
) -> Snapshot:
    """The latest snapshot that was there at a time (UTC if it has no zone).

    newest: Where the history ends; None: at the latest.
    """
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    time_ms = milliseconds(zoned)
    newest = newest or latest(store, branch=branch)
    if newest.time_ms <= time_ms:
        return newest
    load = load_state if TRANSACTIONS in newest.reader_features else load_snapshot
    low, high = earliest_id(store, newest.id, branch=branch), newest.id
    found: Snapshot | None = None
    while low < high:  # times ascend with ids
        middle = (low + high) // 2
        candidate = load(store, middle, branch=branch)
        if candidate is None or candidate.time_ms <= time_ms:
            found, low = candidate, middle + 1
        else:
            high = middle
    if found is None:
        raise no_such_snapshot(store, f"snapshot at {zoned.isoformat()}", branch)
    return found


def tagged_snapshot(store: AtomicStore, name: str) -> Snapshot | None:
    """The snapshot that a tag names, None if there is no such tag."""
    tag = load_tag(store, name)
    return None if tag is None else snapshot_of(tag, tag_path(name))


def snapshot_of_tag(store: AtomicStore, name: str) -> Snapshot:
    """The snapshot that a tag names.

    Raises VersionNotFound: There is no such tag.
    """
    found = tagged_snapshot(store, name)
    if found is None:
        raise missing_name(store, "tag", name)
    return found


def with_readable_version(
    store: AtomicStore, branch: str, error: CorruptMetadata
) -> CorruptMetadata:
    """The error of a newest snapshot that can't be read, with the newest one that can.

    It is looked for among the last hundred. What was found to be corrupt, twice, is not read again.

    Raises TableNotFound: The table was dropped meanwhile: its snapshot files go before all that
        they name.
    """
    corrupt = {error.path}
    try:
        ids = list_ids(store, branch)[:-101:-1]
    except (OSError, TableError):  # nothing more can be said
        return error
    if branch == MAIN and not ids:
        raise TableNotFound(f"{store.location}: dropped while it was opened") from None
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


def _ancestor(
    store: AtomicStore, snapshot: Snapshot, generations: int, branch: str, version: str
) -> Snapshot:
    if generations > snapshot.id:
        raise no_such_snapshot(store, f"version {version!r}", branch)
    if TRANSACTIONS in snapshot.reader_features:  # some ids may be of none that counts
        found: Snapshot | None = snapshot
        for _ in range(generations):
            found = found and load_parent(store, found, branch=snapshot.branch)
        if found is None:
            raise no_such_snapshot(store, f"version {version!r}", branch)
        return found
    if generations == 0:
        return snapshot
    return load_snapshot(store, snapshot.id - generations, branch=snapshot.branch)


def _resolve_name(store: AtomicStore, name: str, branch: str) -> Snapshot:
    tagged = tagged_snapshot(store, name)
    if tagged is not None:
        return tagged
    if name == branch:
        return latest(store, branch=branch)
    with contextlib.suppress(InvalidArgumentError, VersionNotFound):  # no such branch
        return latest(store, branch=name)
    with contextlib.suppress(ValueError):  # not a time
        return snapshot_at(store, datetime.fromisoformat(name), branch=branch)
    error = no_such_snapshot(store, f"version {name!r}", branch)
    raise VersionNotFound(f"{error}{closest_names(store, 'version', name)}")
