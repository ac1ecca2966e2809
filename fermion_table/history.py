"""Snapshots in a store: the latest one, one by id, the chain of parents, versions by name."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from fermion.errors import InvalidArgumentError
from fermion_table import json_codec
from fermion_table.errors import CorruptMetadata, TableNotFound, VersionNotFound
from fermion_table.manifest_store import read_stored
from fermion_table.metadata_cache import shared_cache
from fermion_table.paths import (
    MAIN,
    SNAPSHOT_ID_MAX,
    latest_hint_path,
    snapshot_directory,
    snapshot_id_of,
    snapshot_path,
)
from fermion_table.snapshot import SchemaReference, Snapshot, decode_snapshot
from fermion_table.storage import AtomicStore

_log = logging.getLogger(__name__)

Version = int | str | datetime

LATEST_TRIES = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANCESTOR = re.compile(r"(?P<name>.+?)~(?P<generations>\d{1,18})")


def latest(store: AtomicStore, *, branch: str = MAIN, start: int | None = None) -> Snapshot:
    """The newest snapshot of a branch, found without listing a directory.

    Parameters
    ----------
    store
        Of the table.
    branch
        Which history.
    start
        An id that was seen; None asks the hint. A directory is listed only when neither
        leads anywhere (or only to snapshot 0, behind which snapshots may have expired).

    Raises
    ------
    TableNotFound
        No snapshot at all.
    CorruptMetadata
        The newest slot does not hold a snapshot.
    """
    known = start if start is not None else read_hint(store, branch)
    snapshot_id = 0
    for _ in range(LATEST_TRIES):
        newest = _latest_id(store, branch, known)
        if newest is None:
            if branch != MAIN:
                raise VersionNotFound(f"{store.location}: no branch {branch!r}")
            raise TableNotFound(f"{store.location}: no table here (no snapshot)")
        snapshot_id = newest
        found = try_load(store, snapshot_id, branch=branch)
        if found is not None:
            return found
        known = None  # expired between looking and reading: what we knew is of no use
    raise CorruptMetadata(
        snapshot_path(snapshot_id, branch), "a snapshot that was just seen", "no such object"
    )


def table_exists(store: AtomicStore) -> bool:
    """Whether there is a table: snapshot 0 is never deleted."""
    return store.exists(snapshot_path(0))


def load_snapshot(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> Snapshot:
    """A snapshot by id.

    Raises
    ------
    VersionNotFound
        Not there (any more); says the earliest and the latest.
    """
    if 0 <= snapshot_id <= SNAPSHOT_ID_MAX:
        found = try_load(store, snapshot_id, branch=branch)
        if found is not None:
            return found
    raise _not_found(store, f"snapshot {snapshot_id}", branch)


def try_load(store: AtomicStore, snapshot_id: int, *, branch: str = MAIN) -> Snapshot | None:
    """A snapshot by id, None if its slot is empty."""
    path = snapshot_path(snapshot_id, branch)
    try:
        data = store.read(path)
    except FileNotFoundError:
        return None
    snapshot = decode_snapshot(data, path)
    if snapshot.id != snapshot_id:
        raise CorruptMetadata(path, f"snapshot {snapshot_id}", f"snapshot {snapshot.id}")
    shared_cache.put(snapshot.hash, snapshot, len(data))
    return snapshot


def load_parent(store: AtomicStore, snapshot: Snapshot, *, branch: str = MAIN) -> Snapshot | None:
    """The snapshot before, None before snapshot 0 and where history has expired.

    Raises
    ------
    CorruptMetadata
        The parent's slot holds other bytes than those its child was made on.
    """
    reference = snapshot.parent
    if reference is None:
        return None
    parent: Snapshot | None = shared_cache.get(reference.hash)
    if parent is None:
        parent = try_load(store, reference.id, branch=branch)
    if parent is not None and parent.hash != reference.hash:
        raise CorruptMetadata(
            snapshot_path(reference.id, branch),
            f"hash {reference.hash} (the parent of snapshot {snapshot.id})",
            f"hash {parent.hash}",
        )
    return parent


def walk(store: AtomicStore, snapshot: Snapshot, *, branch: str = MAIN) -> Iterator[Snapshot]:
    """A snapshot, its parent, and so on, newest first, each checked by its child's hash.

    Ends after snapshot 0, or after the earliest one that has not expired.
    """
    current: Snapshot | None = snapshot
    while current is not None:
        yield current
        current = load_parent(store, current, branch=branch)


def resolve_version(
    store: AtomicStore,
    version: Version | None = None,
    *,
    branch: str = MAIN,
    load_tag: Callable[[str], Snapshot | None] | None = None,
) -> Snapshot:
    """The snapshot that a version names.

    Parameters
    ----------
    store
        Of the table.
    version
        None (the latest), a snapshot id, a datetime (the latest at that time; UTC if it has
        no zone), a tag, a branch, ``"main~3"`` (three before the latest), or any of these
        numbers and times as text.
    branch
        Where ids and times are looked up.
    load_tag
        Finds a tag's snapshot, None if there is no such tag.

    Raises
    ------
    VersionNotFound
        Says the earliest and the latest that there is.
    """
    if version is None:
        return latest(store, branch=branch)
    if isinstance(version, datetime):
        return snapshot_at(store, version, branch=branch)
    if isinstance(version, int):
        return load_snapshot(store, version, branch=branch)
    ancestor = _ANCESTOR.fullmatch(version)
    if ancestor is not None:
        named = resolve_version(store, ancestor["name"], branch=branch, load_tag=load_tag)
        return _ancestor(store, named, int(ancestor["generations"]), branch, version)
    if version.isdigit():
        return load_snapshot(store, int(version), branch=branch)
    return _resolve_name(store, version, branch, load_tag)


def snapshot_at(store: AtomicStore, moment: datetime, *, branch: str = MAIN) -> Snapshot:
    """The latest snapshot that was there at a time (UTC if it has no zone)."""
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    time_ms = (zoned - _EPOCH) // timedelta(milliseconds=1)
    newest = latest(store, branch=branch)
    if newest.time_ms <= time_ms:
        return newest
    low, high = earliest_id(store, newest.id, branch=branch), newest.id
    found: Snapshot | None = None
    while low < high:  # times ascend with ids
        middle = (low + high) // 2
        candidate = load_snapshot(store, middle, branch=branch)
        if candidate.time_ms <= time_ms:
            found, low = candidate, middle + 1
        else:
            high = middle
    if found is None:
        raise _not_found(store, f"snapshot at {zoned.isoformat()}", branch)
    return found


def earliest_id(store: AtomicStore, latest_id: int, *, branch: str = MAIN) -> int:
    """The smallest id from which on all ids exist: 0, unless early snapshots have expired."""
    low, high = 0, latest_id
    if store.exists(snapshot_path(min(1, latest_id), branch)) and store.exists(
        snapshot_path(0, branch)
    ):
        return 0
    while low < high:
        middle = (low + high) // 2
        if middle > 0 and store.exists(snapshot_path(middle, branch)):
            high = middle
        else:
            low = middle + 1
    return low


def list_ids(store: AtomicStore, branch: str = MAIN) -> list[int]:
    """The ids of all slots, ascending, by listing the directory."""
    listed = [
        snapshot_id_of(item.path.rsplit("/", 1)[-1])
        for item in store.list(snapshot_directory(branch))
    ]
    return sorted(snapshot_id for snapshot_id in listed if snapshot_id is not None)


def load_schema(store: AtomicStore, reference: SchemaReference) -> bytes:
    """The JSON of a schema version, checked against its reference.

    Raises
    ------
    CorruptMetadata
        Not what the reference says.
    """
    cached: bytes | None = shared_cache.get(reference.hash)
    if cached is None:
        stored = read_stored(store, reference.path, reference.hash, reference.size)
        cached = json_codec.decompressed(stored, reference.path)
        shared_cache.put(reference.hash, cached, len(cached))
    return cached


def read_hint(store: AtomicStore, branch: str = MAIN) -> int | None:
    """The id that the hint names, None if there is no usable hint."""
    with contextlib.suppress(OSError):
        text = store.read(latest_hint_path(branch))
        if text.isdigit() and len(text) < 20:
            return int(text)
    return None


def write_hint(store: AtomicStore, snapshot_id: int, branch: str = MAIN) -> None:
    """Move the hint; failing to is no failure."""
    try:
        store.overwrite_hint(latest_hint_path(branch), b"%d" % snapshot_id)
    except OSError as error:
        _log.warning("%s: the hint was not updated: %s", store.location, error)


def _latest_id(store: AtomicStore, branch: str, known: int | None) -> int | None:
    if known is not None:
        newest = _probe_forward(store, branch, known)
        if newest > known or (known > 0 and store.exists(snapshot_path(known, branch))):
            return newest
    ids = list_ids(store, branch)
    return _probe_forward(store, branch, max(ids)) if ids else None


def _probe_forward(store: AtomicStore, branch: str, known: int) -> int:
    """The last of the contiguous ids that begin after a known one: probe +1, +2, +4, bisect."""

    def taken(snapshot_id: int) -> bool:
        return snapshot_id <= SNAPSHOT_ID_MAX and store.exists(snapshot_path(snapshot_id, branch))

    low, step = known, 1
    while taken(low + step):
        low, step = low + step, step * 2
    high = low + step  # not taken
    while high - low > 1:
        middle = (low + high) // 2
        if taken(middle):
            low = middle
        else:
            high = middle
    return low


def _ancestor(
    store: AtomicStore, snapshot: Snapshot, generations: int, branch: str, version: str
) -> Snapshot:
    if generations > snapshot.id:
        raise _not_found(store, f"version {version!r}", branch)
    if generations == 0:
        return snapshot
    return load_snapshot(store, snapshot.id - generations, branch=branch)


def _resolve_name(
    store: AtomicStore,
    name: str,
    branch: str,
    load_tag: Callable[[str], Snapshot | None] | None,
) -> Snapshot:
    tagged = load_tag(name) if load_tag is not None else None
    if tagged is not None:
        return tagged
    if name == branch:
        return latest(store, branch=branch)
    with contextlib.suppress(InvalidArgumentError, VersionNotFound):  # no such branch
        return latest(store, branch=name)
    with contextlib.suppress(ValueError):  # not a time
        return snapshot_at(store, datetime.fromisoformat(name), branch=branch)
    raise _not_found(store, f"version {name!r}", branch)


def _not_found(store: AtomicStore, what: str, branch: str) -> VersionNotFound:
    newest = latest(store, branch=branch)
    first = try_load(store, earliest_id(store, newest.id, branch=branch), branch=branch)
    spans = [
        f"{name} {snapshot.id} of {_time(snapshot)}"
        for name, snapshot in (("earliest", first), ("latest", newest))
        if snapshot is not None
    ]
    return VersionNotFound(f"{store.location}: no {what}; {', '.join(spans)}")


def _time(snapshot: Snapshot) -> str:
    return datetime.fromtimestamp(snapshot.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
