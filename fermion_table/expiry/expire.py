"""Expiring snapshots: plans as pure functions, and what carries them out.

Expiry first says that snapshots have expired (a marker, see `pointers`), then computes what is
still alive, then deletes data, then metadata, and snapshot files last: a snapshot file outlives
its data by longer than a commit may take. Whatever stops it, a table is left that verifies, and
perhaps orphan files. Several may run at once: the ids of markers only ascend, and each expiry
deletes what is dead by the markers it has seen.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from fermion.arguments import integer
from fermion.exports import dataclass
from fermion_table.expiry.maintenance import (
    ORPHAN_DIRECTORIES,
    MaintenanceResult,
    despite_expiry,
    is_data,
)
from fermion_table.expiry.reachable import (
    is_over,
    live_objects,
)
from fermion_table.metadata import consumers, pointers
from fermion_table.metadata.file_columns import PATHS, path_table, paths_of_entries
from fermion_table.metadata.history import earliest_id, latest_listed, try_load, walk
from fermion_table.metadata.manifest import Entry, ManifestReference
from fermion_table.metadata.manifest_store import live_ordinals, manifest_files, manifests_of
from fermion_table.metadata.references import (
    HEAD_PROPERTY,
    Branch,
    list_tags,
    load_branch,
)
from fermion_table.metadata.snapshot import Snapshot, check_writable
from fermion_table.moments import now_ms
from fermion_table.options import (
    RETAIN_LAST_DEFAULT,
    RETAIN_MS_DEFAULT,
    SNAPSHOT_FILE_GRACE_MS,
)
from fermion_table.storage.paths import (
    MAIN,
    snapshot_path,
    tag_path,
)
from fermion_table.storage.store import AtomicStore

_DELETABLE = tuple(f"{directory}/" for directory in ORPHAN_DIRECTORIES)


def plan_expiry(
    times_ms: Sequence[tuple[int, int]], *, older_than_ms: int, retain_last: int
) -> int:
    """The earliest snapshot to keep.

    times_ms: Id and time of every snapshot that has not expired, ascending, without snapshot 0.
    older_than_ms: Snapshots before this time expire.
    retain_last: As many stay however old they are; at least 1.
    Returns: An id; 0 if there is nothing to keep.
    """
    retain_last = integer(retain_last, "retain_last", minimum=1)
    kept = [
        snapshot_id
        for position, (snapshot_id, time_ms) in enumerate(times_ms)
        if time_ms >= older_than_ms or position >= len(times_ms) - retain_last
    ]
    return min(kept, default=0)


def plan_snapshot_files(
    times_ms: Sequence[tuple[int, int]], *, earliest: int, now: int, grace_ms: int
) -> list[int]:
    """The snapshot files of expired snapshots that no running commit can want any more.

    times_ms: Id and time of every snapshot file, ascending, without snapshot 0.
    earliest: The earliest snapshot kept.
    now, grace_ms: A snapshot file goes once its successor is older than the grace.
    Returns: A prefix of the ids, ascending: deleting in this order leaves no gap.
    """
    going = []
    for (snapshot_id, _), (_, successor_ms) in itertools.pairwise(times_ms):
        if snapshot_id >= earliest or successor_ms > now - grace_ms:
            break
        going.append(snapshot_id)
    return going


@dataclass(frozen=True, slots=True)
class ChangelogRetention:
    """Which changelogs stay after the data of their snapshots.

    number: Those of so many newest snapshots; None: not by number.
    age_ms: Those that are not older; None: not by age.
    """

    number: int | None = None
    age_ms: int | None = None


def expire_snapshots(
    store: AtomicStore,
    *,
    branch: str = MAIN,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    changelogs: ChangelogRetention | None = None,
    dry_run: bool = False,
    now: int | None = None,
    snapshot_file_grace_ms: int = SNAPSHOT_FILE_GRACE_MS,
    consumer_age_ms: int | None = None,
) -> MaintenanceResult:
    """Let old snapshots of a branch go, with the data that nothing kept refers to.

    branch: Whose own snapshots go; the one that it left stays, as snapshot 0 does.
    older_than_ms: Snapshots before this time go; None for 7 days ago.
    retain_last: As many stay however old they are; None for 10.
    changelogs: Which changelogs outlive their snapshots; None: none do.
    dry_run: Only say what would go.
    now: Milliseconds since 1970 UTC; None takes the clock.
    snapshot_file_grace_ms: Age up to which a snapshot file stays after its data.
    consumer_age_ms: Consumers that have said nothing for longer keep nothing, and are forgotten;
        None: none are.
    Raises CorruptMetadata, OSError: Something kept can't be read; nothing was deleted.
    Raises UnsupportedFeature: The table needs a newer writer.
    """
    began = time.monotonic()
    moment = now_ms() if now is None else now
    limit = moment - RETAIN_MS_DEFAULT if older_than_ms is None else older_than_ms
    retained = RETAIN_LAST_DEFAULT if retain_last is None else retain_last
    silent_since = None if consumer_age_ms is None else moment - consumer_age_ms
    policy = _Policy(limit, retained, changelogs, moment, snapshot_file_grace_ms, silent_since)
    plan, retries = despite_expiry(store, lambda: _plan_run(store, branch, policy, dry_run))
    objects = sorted(plan.objects["path"].to_pylist())
    data, others = list(filter(is_data, objects)), list(itertools.filterfalse(is_data, objects))
    if not dry_run:
        for path in (*plan.consumers, *plan.tags, *data, *others, *plan.slots):
            store.delete(path)
        pointers.drop_old_markers(store, branch)
    return MaintenanceResult(
        snapshots=plan.snapshots,
        slots=len(plan.slots),
        tags=len(plan.tags),
        consumers=len(plan.consumers),
        files=len(data),
        objects=len(others),
        bytes=pc.sum(plan.objects["size"]).as_py() or 0,
        paths=tuple(sorted([*plan.consumers, *plan.tags, *objects, *plan.slots])),
        dry_run=dry_run,
        retries=retries,
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, slots=True)
class _Policy:
    """What is kept: see `expire_snapshots`."""

    older_than_ms: int
    retain_last: int
    changelogs: ChangelogRetention | None
    now: int
    snapshot_file_grace_ms: int
    silent_since: int | None

    def first_kept(self, times_ms: Sequence[tuple[int, int]]) -> int:
        """See `plan_expiry`."""
        return plan_expiry(times_ms, older_than_ms=self.older_than_ms, retain_last=self.retain_last)

    def first_changelog(self, times_ms: Sequence[tuple[int, int]], kept: int) -> int:
        """The first changelog that is kept, of some snapshots: that of `kept` or an earlier one."""
        if self.changelogs is None:
            return kept
        age_ms = self.changelogs.age_ms
        oldest = self.now + 1 if age_ms is None else self.now - age_ms
        number = self.changelogs.number or 1
        return min(kept, plan_expiry(times_ms, older_than_ms=oldest, retain_last=number))


@dataclass(frozen=True, slots=True)
class _Run:
    """What one expiry deletes: paths, of objects with their sizes, as `PATHS`."""

    snapshots: int
    consumers: list[str]
    tags: list[str]
    objects: pa.Table
    slots: list[str]


def _plan_run(
    store: AtomicStore,
    branch: str,
    policy: _Policy,
    dry_run: bool,
) -> _Run:
    """Mark what expires, unless it is a dry run, and find what nothing needs any more."""
    left = load_branch(store, branch) if branch != MAIN else None
    first_own = 1 if left is None else left.snapshot_id + 1
    newest = latest_listed(store, branch=branch)
    check_writable(newest, snapshot_path(newest.id, branch))
    times_ms, void = _snapshot_times(store, newest, branch, first_own)
    there = max(first_own, earliest_id(store, newest.id, branch=branch))
    there = max(there, pointers.first_kept(store, branch))
    if there > newest.id:
        pointers.check_marks(store, newest.id, branch)
    counted = [each for each in times_ms if each[0] not in void]
    kept = policy.first_kept([each for each in counted if each[0] >= there])
    if left is not None:
        kept = min(kept, _moved_to(store, left, newest))
    positions = list(consumers.positions(store))
    over = [each for each in positions if consumers.is_over(each, policy.silent_since)]
    needed = [each.snapshot_id for each in positions if each.branch == branch and each not in over]
    kept = min(kept, max(there, min(needed))) if needed else kept
    recorded_there = min(there, max(first_own, pointers.first_recorded(store, branch)))
    still_recorded = [each for each in counted if each[0] >= recorded_there]
    recorded = max(recorded_there, policy.first_changelog(still_recorded, kept))
    files = _deletable(
        _data_before(store, there, kept, branch, void),
        _metadata_before(store, recorded_there, recorded, branch, void),
    )
    earliest = kept
    if not dry_run:
        if kept > there or (kept and recorded > recorded_there):
            pointers.mark_expired(store, kept, branch, changelog_id=recorded)
        earliest = pointers.follow_markers(store, branch)
        recorded = max(recorded, min(earliest, pointers.first_recorded(store, branch)))
    live = live_objects(
        store,
        now=policy.now,
        earliest=earliest,
        earliest_changelog=recorded,
        branch=branch,
        asked=files["path"],
    )
    old_files = plan_snapshot_files(
        times_ms,
        earliest=min(kept, recorded),
        now=policy.now,
        grace_ms=policy.snapshot_file_grace_ms,
    )
    return _Run(
        snapshots=len({*range(there, kept)} - void),
        consumers=[each.path for each in over],
        tags=[tag_path(tag.name) for tag in list_tags(store) if is_over(tag, policy.now)],
        objects=files.filter(live.lacks(files["path"])),
        slots=[snapshot_path(snapshot_id, branch) for snapshot_id in old_files],
    )


def _moved_to(store: AtomicStore, left: Branch, newest: Snapshot) -> int:
    """The snapshot of a branch that its parent was moved to last: it can be moved on from there."""
    head = latest_listed(store, branch=left.parent).properties.get(HEAD_PROPERTY)
    if head is not None:
        for snapshot in walk(store, newest, branch=left.name):
            if snapshot.id <= left.snapshot_id:
                break
            if snapshot.hash == head:
                return snapshot.id
    return newest.id


def _snapshot_times(
    store: AtomicStore, newest: Snapshot, branch: str, first_own: int
) -> tuple[list[tuple[int, int]], set[int]]:
    """Id and time of a branch's snapshot files but the creation's, ascending; expired ones too.

    And the ids of those that do not count, as their transactions were given up: what they refer
    to may be gone.
    """
    times, void = [], set()
    for snapshot_id in range(newest.id, first_own - 1, -1):
        snapshot = try_load(store, snapshot_id, branch=branch)
        if snapshot is None:
            break
        times.append((snapshot_id, snapshot.time_ms))
        if snapshot.parent_void:
            void.add(snapshot_id - 1)
    return times[::-1], void


def _data_before(
    store: AtomicStore, there: int, earliest: int, branch: str, void: Set[int]
) -> Iterator[pa.Table]:
    """The data that only snapshots that expire may refer to, as `PATHS`.

    The files that were removed after the first of them, up to the first that is kept.
    """
    for snapshot_id in sorted({*range(there + 1, earliest + 1)} - void):
        snapshot = try_load(store, snapshot_id, branch=branch)
        if snapshot is not None:
            delta = snapshot.delta
            yield from _files(store, delta.removed, delta.removed_manifests)


def _metadata_before(
    store: AtomicStore, there: int, earliest: int, branch: str, void: Set[int]
) -> Iterator[pa.Table]:
    """The metadata and changelog files of snapshots whose changelogs expire, as `PATHS`."""
    for snapshot_id in sorted({*range(there, earliest)} - void):
        snapshot = try_load(store, snapshot_id, branch=branch)
        if snapshot is not None:
            yield path_table((each.path, each.size) for each in manifests_of(store, snapshot))
            yield path_table([(snapshot.schema.path, snapshot.schema.size)])
            if snapshot.changelog is not None:
                changelog = snapshot.changelog
                yield from _files(store, changelog.entries, changelog.manifests)


def _files(
    store: AtomicStore, entries: Iterable[Entry], manifests: Iterable[ManifestReference]
) -> Iterator[pa.Table]:
    """The files of entries, and of those that manifests list, as `PATHS`."""
    yield paths_of_entries(entries)
    for reference in manifests:
        yield manifest_files(store, reference).paths(live_ordinals(reference))


def _deletable(*files: Iterable[pa.Table]) -> pa.Table:
    """Files by path, each once, without those that no expiry deletes."""
    named = pa.concat_tables([PATHS.empty_table(), *itertools.chain.from_iterable(files)])
    starts = (pc.starts_with(named["path"], pattern=start) for start in _DELETABLE)
    named = named.filter(functools.reduce(pc.or_, starts))
    named = named.group_by("path").aggregate([("size", "max")]).rename_columns(PATHS.names)
    pa.default_memory_pool().release_unused()  # there may be millions
    return named
