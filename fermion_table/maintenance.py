"""Expiring snapshots and removing orphan files: plans as pure functions, and what carries them out.

Expiry first says that snapshots have expired (the hint EARLIEST), then computes what is still
alive, then deletes data, then metadata, and slots last: a slot outlives its data by longer than
a commit may take. Whatever stops it, a table is left that verifies, and perhaps orphan files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from fermion.errors import InvalidArgumentError
from fermion_table import hints
from fermion_table.errors import TableNotFound
from fermion_table.history import earliest_id, latest, load_snapshot, table_exists, try_load, walk
from fermion_table.manifest import Entry, ManifestReference
from fermion_table.manifest_store import added_entries, live_entries, removed_entries
from fermion_table.next_snapshot import now_ms
from fermion_table.options import (
    ORPHAN_MS_DEFAULT,
    RETAIN_LAST_DEFAULT,
    RETAIN_MS_DEFAULT,
    SLOT_GRACE_MS,
)
from fermion_table.paths import (
    BRANCH_DIRECTORY,
    DATA_DIRECTORY,
    DELETION_DIRECTORY,
    MAIN,
    MANIFEST_DIRECTORY,
    SCHEMA_DIRECTORY,
    TAG_DIRECTORY,
    branch_path,
    is_temporary,
    snapshot_directory,
    snapshot_path,
    tag_path,
)
from fermion_table.references import Tag, list_branches, list_tags, snapshot_of
from fermion_table.snapshot import SchemaReference, Snapshot
from fermion_table.storage import AtomicStore, StoredObject

SchemaPaths = Callable[[SchemaReference], Iterable[str]]
"""The schema objects that a schema needs, its own included (a schema names its ancestors)."""

ORPHAN_DIRECTORIES = (
    DATA_DIRECTORY,
    DELETION_DIRECTORY,
    MANIFEST_DIRECTORY,
    SCHEMA_DIRECTORY,
)
_DELETABLE = tuple(f"{directory}/" for directory in ORPHAN_DIRECTORIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """What was deleted, or with ``dry_run`` would have been.

    Attributes
    ----------
    snapshots
        Snapshots expired by this run.
    slots
        Slots deleted of snapshots that expired, now or earlier.
    tags
        Tags whose time was over.
    files
        Data files and deletion vectors.
    objects
        Manifests, schemas, temporary files.
    bytes
        Of files and objects.
    paths
        Everything deleted, sorted.
    dry_run
        Whether nothing was.
    """

    snapshots: int = 0
    slots: int = 0
    tags: int = 0
    files: int = 0
    objects: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = ()
    dry_run: bool = False

    def __str__(self) -> str:
        gone = {
            "snapshots": self.snapshots,
            "slots": self.slots,
            "tags": self.tags,
            "data files": self.files,
            "metadata objects": self.objects,
        }
        listed = ", ".join(f"{count:,} {noun}" for noun, count in gone.items() if count)
        verb = "would delete" if self.dry_run else "deleted"
        return f"{verb} {listed or 'nothing'} ({self.bytes:,} bytes)"


@dataclass(slots=True)
class LiveObjects:
    """Everything that a kept snapshot, a tag or a branch refers to, by path."""

    paths: set[str] = field(default_factory=set)

    def add_entry(self, entry: Entry) -> None:
        """A data file and its deletion vector."""
        self.paths.update(_paths_of(entry))

    def add_references(self, snapshot: Snapshot, schema_paths: SchemaPaths) -> None:
        """Manifests, those of the delta, and schemas."""
        self.paths.update(reference.path for reference in _manifests_of(snapshot))
        self.paths.update(schema_paths(snapshot.schema))


def plan_expiry(
    times_ms: Sequence[tuple[int, int]], *, older_than_ms: int, retain_last: int
) -> int:
    """The earliest snapshot to keep.

    Parameters
    ----------
    times_ms
        Id and time of every snapshot that has not expired, ascending, without snapshot 0.
    older_than_ms
        Snapshots before this time expire.
    retain_last
        As many stay however old they are; at least 1.

    Returns
    -------
    int
        An id; 0 if there is nothing to keep.
    """
    if retain_last < 1:
        raise InvalidArgumentError(f"retain_last={retain_last}: expected at least 1")
    kept = [
        snapshot_id
        for position, (snapshot_id, time_ms) in enumerate(times_ms)
        if time_ms >= older_than_ms or position >= len(times_ms) - retain_last
    ]
    return min(kept, default=0)


def plan_slots(
    times_ms: Sequence[tuple[int, int]], *, earliest: int, now: int, grace_ms: int
) -> list[int]:
    """The slots of expired snapshots that no running commit can want any more.

    Parameters
    ----------
    times_ms
        Id and time of every slot, ascending, without snapshot 0.
    earliest
        The earliest snapshot kept.
    now, grace_ms
        A slot goes once its successor is older than the grace.

    Returns
    -------
    list of int
        A prefix of the ids, ascending: deleting in this order leaves no gap.
    """
    going = []
    for (snapshot_id, _), (_, successor_ms) in itertools.pairwise(times_ms):
        if snapshot_id >= earliest or successor_ms > now - grace_ms:
            break
        going.append(snapshot_id)
    return going


def plan_orphans(
    listing: Iterable[StoredObject], *, live: Container[str], older_than_ms: int
) -> list[StoredObject]:
    """The objects that nothing refers to and no running writer can own.

    An object without a time is left alone.
    """
    return [
        item
        for item in listing
        if item.path not in live
        and item.modified_ms is not None
        and item.modified_ms < older_than_ms
    ]


def live_objects(
    store: AtomicStore,
    *,
    schema_paths: SchemaPaths,
    earliest: int | None = None,
    now: int | None = None,
) -> LiveObjects:
    """Everything that must not be deleted.

    Parameters
    ----------
    store
        Of the table.
    schema_paths
        See `SchemaPaths`.
    earliest
        The earliest snapshot of main to keep, instead of the one that has not expired.
    now
        For tags that expire; None takes the clock.

    Raises
    ------
    CorruptMetadata, OSError
        Anything can't be read: then what is alive is not known.
    """
    live = LiveObjects()
    newest = latest(store)
    first = max(earliest or 0, earliest_id(store, newest.id))
    _add_history(store, live, newest, MAIN, first, schema_paths)
    _add_state(store, live, load_snapshot(store, 0), schema_paths)
    for left in list_branches(store):
        newest = latest(store, branch=left.name)
        _add_history(store, live, newest, left.name, left.snapshot_id, schema_paths)
        _add_state(store, live, snapshot_of(left, branch_path(left.name)), schema_paths)
    for tag in list_tags(store):
        if not _is_over(tag, now_ms() if now is None else now):
            _add_state(store, live, snapshot_of(tag, tag_path(tag.name)), schema_paths)
    return live


def expire_snapshots(
    store: AtomicStore,
    *,
    schema_paths: SchemaPaths,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    dry_run: bool = False,
    now: int | None = None,
    slot_grace_ms: int = SLOT_GRACE_MS,
) -> MaintenanceResult:
    """Let old snapshots of main go, with the data that nothing kept refers to.

    Parameters
    ----------
    store
        Of the table.
    schema_paths
        See `SchemaPaths`.
    older_than_ms
        Snapshots before this time go; None for 7 days ago.
    retain_last
        As many stay however old they are; None for 10.
    dry_run
        Only say what would go.
    now
        Milliseconds since 1970 UTC; None takes the clock.
    slot_grace_ms
        Age up to which a slot stays after its data.

    Raises
    ------
    CorruptMetadata, OSError
        Something kept can't be read; nothing was deleted.
    """
    moment = now_ms() if now is None else now
    newest = latest(store)
    slots = _slot_times(store, newest)
    there = max(1, earliest_id(store, newest.id))
    earliest = plan_expiry(
        [slot for slot in slots if slot[0] >= there],
        older_than_ms=moment - RETAIN_MS_DEFAULT if older_than_ms is None else older_than_ms,
        retain_last=RETAIN_LAST_DEFAULT if retain_last is None else retain_last,
    )
    before = _objects_before(store, there, earliest)
    if earliest > there and not dry_run:
        hints.write_earliest(store, earliest)
    live = live_objects(store, schema_paths=schema_paths, earliest=earliest, now=moment)
    going = {path: size for path, size in before.items() if path not in live.paths}
    old_slots = plan_slots(slots, earliest=earliest, now=moment, grace_ms=slot_grace_ms)
    slot_paths = [snapshot_path(snapshot_id) for snapshot_id in old_slots]
    tag_paths = [tag_path(tag.name) for tag in list_tags(store) if _is_over(tag, moment)]
    if not dry_run:
        for path in [*tag_paths, *sorted(going, key=_data_first), *slot_paths]:
            store.delete(path)
    return MaintenanceResult(
        snapshots=max(0, earliest - there),
        slots=len(slot_paths),
        tags=len(tag_paths),
        files=sum(_is_data(path) for path in going),
        objects=sum(not _is_data(path) for path in going),
        bytes=sum(going.values()),
        paths=tuple(sorted([*tag_paths, *going, *slot_paths])),
        dry_run=dry_run,
    )


def remove_orphan_files(
    store: AtomicStore,
    *,
    schema_paths: SchemaPaths,
    older_than_ms: int | None = None,
    dry_run: bool = False,
    now: int | None = None,
) -> MaintenanceResult:
    """Delete files of the table's directory that nothing refers to.

    Files that crashed or lost writers left behind. Slots, tags, branches and hints are never
    touched, nor is anything younger than 3 days.

    Parameters
    ----------
    store
        Of the table.
    schema_paths
        See `SchemaPaths`.
    older_than_ms
        Only files last written before this time go; None for 3 days ago.
    dry_run
        Only say what would go.
    now
        Milliseconds since 1970 UTC; None takes the clock.

    Raises
    ------
    TableNotFound
        No table here: nothing in the directory can be told from an orphan.
    CorruptMetadata, OSError
        Something referred to can't be read; nothing was deleted.
    """
    if not table_exists(store):
        raise TableNotFound(f"{store.location}: no table here (no snapshot)")
    moment = now_ms() if now is None else now
    limit = moment - ORPHAN_MS_DEFAULT if older_than_ms is None else older_than_ms
    listing = [item for directory in ORPHAN_DIRECTORIES for item in store.list(directory)]
    listing += [
        item
        for directory in (snapshot_directory(), BRANCH_DIRECTORY, TAG_DIRECTORY)
        for item in store.list(directory)
        if is_temporary(item.path)
    ]
    # The listing first: whatever a commit publishes after it is live, or too young to be in it.
    live = live_objects(store, schema_paths=schema_paths, now=moment)
    going = plan_orphans(listing, live=live.paths, older_than_ms=limit)
    if not dry_run:
        for item in going:
            store.delete(item.path)
    return MaintenanceResult(
        files=sum(_is_data(item.path) for item in going),
        objects=sum(not _is_data(item.path) for item in going),
        bytes=sum(item.size for item in going),
        paths=tuple(sorted(item.path for item in going)),
        dry_run=dry_run,
    )


def _add_history(
    store: AtomicStore,
    live: LiveObjects,
    newest: Snapshot,
    branch: str,
    first: int,
    schema_paths: SchemaPaths,
) -> None:
    """All that the snapshots of a branch refer to, from the first to the newest."""
    for snapshot in walk(store, newest, branch=branch):
        if snapshot.id < first:
            break
        live.add_references(snapshot, schema_paths)
        if snapshot.id > first:
            for entry in added_entries(store, snapshot):
                live.add_entry(entry)
        else:
            _add_state(store, live, snapshot, schema_paths)


def _add_state(
    store: AtomicStore, live: LiveObjects, snapshot: Snapshot, schema_paths: SchemaPaths
) -> None:
    """All that one snapshot refers to."""
    live.add_references(snapshot, schema_paths)
    for entry in live_entries(store, snapshot):
        live.add_entry(entry)


def _slot_times(store: AtomicStore, newest: Snapshot) -> list[tuple[int, int]]:
    """Id and time of every slot of main but the creation's, ascending; expired ones too."""
    times = []
    for snapshot_id in range(newest.id, 0, -1):
        snapshot = try_load(store, snapshot_id)
        if snapshot is None:
            break
        times.append((snapshot_id, snapshot.time_ms))
    return times[::-1]


def _objects_before(store: AtomicStore, there: int, earliest: int) -> dict[str, int]:
    """What only snapshots that expire may refer to, with sizes.

    Their metadata, and the files that were removed after the first of them, up to the first
    that is kept.
    """
    sizes: dict[str, int] = {}
    for snapshot_id in range(there, earliest + 1):
        snapshot = try_load(store, snapshot_id)
        if snapshot is None:
            continue
        if snapshot_id > there:
            for entry in removed_entries(store, snapshot):
                sizes.update(_paths_of(entry))
        if snapshot_id < earliest:
            sizes.update((reference.path, reference.size) for reference in _manifests_of(snapshot))
            sizes[snapshot.schema.path] = snapshot.schema.size
    return {path: size for path, size in sizes.items() if path.startswith(_DELETABLE)}


def _is_over(tag: Tag, now: int) -> bool:
    return tag.expires_ms is not None and tag.expires_ms <= now


def _paths_of(entry: Entry) -> dict[str, int]:
    """The files of an entry that lie in this table, with their sizes."""
    paths = {entry.path: entry.size} if entry.path else {}
    if entry.deletion_vector is not None:
        paths[entry.deletion_vector.path] = entry.deletion_vector.size
    return paths


def _manifests_of(snapshot: Snapshot) -> tuple[ManifestReference, ...]:
    delta = snapshot.delta
    return (*snapshot.manifests, *delta.added, *delta.removed_manifests)


def _is_data(path: str) -> bool:
    return path.startswith((f"{DATA_DIRECTORY}/", f"{DELETION_DIRECTORY}/"))


def _data_first(path: str) -> tuple[bool, str]:
    return not _is_data(path), path
