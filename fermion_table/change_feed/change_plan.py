"""Divides the changes between two snapshots into splits that tasks read apart; metadata only.

A split is a part of the same commits: states and commits that name only some of their files. Of an
append table these are files; of a primary-key table all files of some trees, as all rows of a key
are in one tree. Where the changes of compactions were recorded, a split spans all commits (see
`recorded_interval`); otherwise it is a part of one commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from fermion.arguments import integer
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.forks import cached_property
from fermion_table.change_feed.recorded_interval import replaces_unrecorded
from fermion_table.errors import VersionNotFound
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.bucket_counts import bucket_count, bucket_counts
from fermion_table.metadata.history import until_expiry, walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import (
    added_entries,
    changelog_entries,
    live_entries,
    removed_entries,
)
from fermion_table.metadata.snapshot import LEFT_OUT, Changelog, Delta, Producer, Snapshot, Touched
from fermion_table.options import OPEN_COST_BYTES, TASK_BYTES
from fermion_table.planning.split import tasks
from fermion_table.schema.schema import TableSchema
from fermion_table.storage import json_codec
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep:
    """What one commit, or several at once, changed.

    snapshot_id, time_ms: What the rows say made the change.
    added, removed: Entries; one of the same file in both had other rows deleted.
    before, after: The states that it leads from and to; of an append table its files tell enough.
    touched: Fewer files that hold all keys whose rows differ; None: those added and removed do.
    shows_others: Whether the states have other columns of those asked for, as some were dropped or
        came back: then all rows of files that stay have changed, too, and all files are added and
        removed.
    """

    snapshot_id: int
    time_ms: int
    added: tuple[Entry, ...] = ()
    removed: tuple[Entry, ...] = ()
    before: Snapshot | None = None
    after: Snapshot | None = None
    touched: tuple[Entry, ...] | None = None
    shows_others: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the files that tell what changed."""
        files = (*self.removed, *self.added) if self.touched is None else self.touched
        return sum(entry.size for entry in files)


def commits_between(
    store: AtomicStore, start: Snapshot, end: Snapshot, *, branch: str
) -> list[Snapshot]:
    """The snapshots after one up to another, oldest first.

    Raises InvalidArgumentError: The end does not descend from the start; or a commit between them
        left out files that were missing.
    Raises VersionNotFound: Snapshots between them have expired.
    """
    snapshots: list[Snapshot] = []
    for snapshot in walk(store, end, branch=branch, to_changelogs=True):
        if snapshot.hash == start.hash:
            _refuse_lost_files(store, snapshots)
            return snapshots[::-1]
        if snapshot.id <= start.id:
            raise InvalidArgumentError(
                f"{store.location}: snapshot {end.id} does not descend from snapshot {start.id}"
            )
        snapshots.append(snapshot)
    raise VersionNotFound(
        f"{store.location}: no changes after snapshot {start.id}: snapshots up to "
        f"{snapshots[-1].id - 1} have expired"
    )


def _refuse_lost_files(store: AtomicStore, snapshots: Iterable[Snapshot]) -> None:
    """Refuse commits of a repair that left out missing files: nobody knows what rows these held."""
    for snapshot in snapshots:
        if LEFT_OUT in snapshot.properties:
            raise InvalidArgumentError(
                f"{store.location}: snapshot {snapshot.id} left out files that were missing: which "
                "rows were lost is not known; read the changes before and after that apart"
            )


def step_without_files(snapshot: Snapshot) -> ChangeStep:
    """What says which commit changed rows, and when."""
    return ChangeStep(snapshot_id=snapshot.id, time_ms=snapshot.time_ms)


def shows_level0(key: PrimaryKey | None) -> bool:
    """Whether rows count as changed by the commit that wrote them, not by their compaction."""
    options = None if key is None else key.options
    # With `input` commits have told of the rows when they were written.
    return options is None or options.reads_level0 or options.changelog_producer == "input"


def step_of(store: AtomicStore, snapshot: Snapshot, *, shows_level0: bool = True) -> ChangeStep:
    """What the commit of a snapshot changed.

    A compaction changed nothing; but if level 0 is not shown, it shows the rows that it takes from
    there.
    """
    step = step_without_files(snapshot)
    if snapshot.kind == "compact":
        if shows_level0:
            return step
        taken = (entry for entry in removed_entries(store, snapshot) if entry.level == 0)
        return replace(step, removed=tuple(taken))
    added, removed = added_entries(store, snapshot), removed_entries(store, snapshot)
    return replace(step, added=tuple(added), removed=tuple(removed))


SPLIT_BYTES = OPEN_COST_BYTES
"""Small files, or trees, are put together in a split until they have so many bytes."""
Prune = Callable[[Sequence[Entry], Snapshot], Sequence[Entry]]
"""The files of a state that may hold rows, or keys, that the query selects."""
Differ = Callable[[Snapshot, Snapshot], bool]
"""Whether two states have other columns of those that the query asks for."""


@dataclass(frozen=True, slots=True)
class ChangeSplit:
    """A part of the changes between two snapshots. Picklable, immutable.

    Attributes
    ----------
    start, snapshots, steps
        As of a `ChangeScan`: commits, and the state before, with some of their files.
    bytes
        Of the files that tell what changed.
    place
        Where its files are, if splits of other places are apart from it; see `TreeChanges`.
    """

    start: Snapshot | None = None
    snapshots: tuple[Snapshot, ...] = ()
    steps: tuple[ChangeStep, ...] = ()
    bytes: int = 0
    place: str | None = None

    __repr__ = short_repr

    @property
    def cost(self) -> int:
        """Bytes of a file that is open that take as long to read, roughly."""
        return self.bytes + OPEN_COST_BYTES

    @property
    def row_bounds(self) -> None:
        """None: it can't be cut."""
        return

    def part(self, start: int, stop: int) -> ChangeSplit:
        """All of it."""
        return self


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a scan of changes reads.

    Attributes
    ----------
    splits
        In the order of the commits. Those of one key come in their order.
    """

    splits: tuple[ChangeSplit, ...]

    __repr__ = short_repr

    def tasks(
        self, bytes_target: int = TASK_BYTES, *, tasks_min: int = 1
    ) -> list[tuple[ChangeSplit, ...]]:
        """The splits as tasks of about equal cost, in order; see `ScanPlan.tasks`."""
        target = integer(bytes_target, "bytes_target", minimum=1)
        return list(tasks(self.splits, target, integer(tasks_min, "tasks_min", minimum=1)))


@dataclass(frozen=True, slots=True)
class TreeChanges:
    """The changes of one place: of a primary-key table of a tree. Picklable, immutable.

    All changes of a key are in one place, in the order of the commits, and so are those of equal
    rows of an append table where a commit removed some. So tasks that follow a table give a place
    to the same reader each time. Only where ``order`` differs from that of the places before do all
    readers have to be done with these first: keys may have moved from one place to another.

    Attributes
    ----------
    place
        Its name among those of these commits, the same whenever they are planned.
    order
        What places of these commits are: text to compare.
    splits
        To be read one after the other by the `ChangeReader` of the scan.
    """

    place: str
    order: str
    splits: tuple[ChangeSplit, ...]

    __repr__ = short_repr

    @property
    def bytes(self) -> int:
        """Of the files that tell what changed."""
        return sum(split.bytes for split in self.splits)


@dataclass(frozen=True, kw_only=True)
class ChangePlanner:
    """Divides commits into splits.

    store, schemas: Of the table: its schemas by id.
    key: Of a primary-key table.
    prune: See `Prune`; of a primary-key table by the key's columns.
    shows_others: See `ChangeStep`.
    producer: What has recorded changes that are read instead of states.
    apart: Whether each place is a split of its own, however small.
    """

    store: AtomicStore
    schemas: Mapping[int, TableSchema]
    key: PrimaryKey | None
    start: Snapshot
    snapshots: tuple[Snapshot, ...]
    prune: Prune
    shows_others: Differ
    producer: Producer | None = None
    apart: bool = False

    def trees(self) -> Iterator[TreeChanges]:
        """The changes by place, those of one order after the other."""
        apart = replace(self, apart=True)
        groups: list[tuple[str, dict[str, list[ChangeSplit]]]] = []
        for split in apart.splits():
            assert split.place is not None
            order = apart._tree_order
            if self.key is None:
                order = "partition" if split.snapshots[0].delta.removed else "file"
            if not groups or groups[-1][0] != order:
                groups.append((order, {}))
            groups[-1][1].setdefault(split.place, []).append(split)
        for order, places in groups:
            for place, splits in places.items():
                yield TreeChanges(place, order, tuple(splits))

    @cached_property
    def _tree_order(self) -> str:
        """Whether keys stay in their trees, and among which; else only in their partition."""
        states = (self.start, *self.snapshots)
        if self.key is None or not any(self.schemas[s.schema.id].bucket_counts for s in states):
            return "tree"
        counts = set()
        for snapshot in states:
            with until_expiry(self.store, snapshot):
                found = bucket_counts(live_entries(self.store, snapshot), self.schemas)
            counts.add(json_codec.content_hash(repr(sorted(found.items(), key=repr)).encode()))
        return "partition" if len(counts) > 1 else f"tree of {counts.pop()}"

    def splits(self) -> Iterator[ChangeSplit]:
        """The splits, in the order of the commits."""
        if self.producer is not None:
            yield from self._interval(self.producer)
            return
        for before, after in pairwise((self.start, *self.snapshots)):
            with until_expiry(self.store, before), until_expiry(self.store, after):
                found = list(self._commit(before, after))
            yield from found

    def _commit(self, before: Snapshot, after: Snapshot) -> Iterator[ChangeSplit]:
        if self.key is None:
            yield from self._append_commit(before, after)
            return
        told = after.changelog
        if told is not None and told.producer == "input":
            files = _Files(changelog=self._kept(changelog_entries(self.store, after), after))
            yield from self._parts([(before, _Files()), (after, files)])
            return
        added, removed = self._changed(before, after)
        if added or removed:
            states = [
                _Files(live=_bare(live_entries(self.store, each))) for each in (before, after)
            ]
            states[1].added, states[1].removed = added, removed
            yield from self._parts([(before, states[0]), (after, states[1])])

    def _changed(self, before: Snapshot, after: Snapshot) -> tuple[list[Entry], list[Entry]]:
        """The files that a commit added, and those that it removed."""
        if self.shows_others(before, after):
            added, removed = (tuple(live_entries(self.store, each)) for each in (after, before))
        else:
            step = step_of(self.store, after, shows_level0=shows_level0(self.key))
            added, removed = step.added, step.removed
        return self._kept(added, after), self._kept(removed, before)

    def _append_commit(self, before: Snapshot, after: Snapshot) -> Iterator[ChangeSplit]:
        """Files of a partition that rows may have been carried over between stay together."""
        added, removed = self._changed(before, after)
        files = _Files(added=added, removed=removed)
        stay = {entry.file for entry in files.added} & {entry.file for entry in files.removed}
        partitions = [
            {entry.partition for entry in entries if entry.file not in stay}
            for entries in (files.removed, files.added)
        ]
        rewritten = partitions[0] & partitions[1]
        if self.apart:
            rewritten = {entry.partition for entry in removed}

        def place_of(entry: Entry) -> Hashable:
            is_alone = entry.partition not in rewritten or (not self.apart and entry.file in stay)
            return entry.file if is_alone else entry.partition

        old = _Files(live=removed if self.shows_others(before, after) else ())
        yield from self._parts([(before, old), (after, files)], place_of)

    def _interval(self, producer: Producer) -> Iterator[ChangeSplit]:
        """Trees that some commit changed, with all commits."""
        wanted = {self.start.hash, self.snapshots[-1].hash}
        for before, after in pairwise((self.start, *self.snapshots)):
            if replaces_unrecorded(self.store, after, producer):
                wanted |= {before.hash, after.hash}
        states = []
        for snapshot in (self.start, *self.snapshots):
            files = _Files()
            with until_expiry(self.store, snapshot):
                if snapshot.hash in wanted:
                    files.live = _bare(live_entries(self.store, snapshot))
                if snapshot is not self.start:
                    files.added = self._kept(added_entries(self.store, snapshot), snapshot)
                    files.removed = self._kept(removed_entries(self.store, snapshot), snapshot)
                    files.changelog = self._kept(changelog_entries(self.store, snapshot), snapshot)
            states.append((snapshot, files))
        yield from self._parts(states)

    def _kept(self, entries: Sequence[Entry], state: Snapshot) -> list[Entry]:
        return _bare(self.prune(entries, state)) if entries else []

    def _parts(
        self,
        states: Sequence[tuple[Snapshot, _Files]],
        place_of: Callable[[Entry], Hashable] | None = None,
    ) -> Iterator[ChangeSplit]:
        """Some commits, divided by the places of their files.

        states: The state before, and the commits, with the files that count.
        place_of: Files of one place stay together; None: those of a tree.
        """
        if place_of is None:
            place_of = self._tree_of([files for _, files in states])
        sizes: dict[Hashable, int] = {}
        for _, files in states:
            for entry in (*files.removed, *files.added, *files.changelog):
                place = place_of(entry)
                sizes[place] = sizes.get(place, 0) + entry.size
        parts = [[place] for place in sizes] if self.apart else list(_bundles(sizes))
        number = {place: index for index, part in enumerate(parts) for place in part}
        divided = [files.divided(place_of, number) for _, files in states]
        for index, part in enumerate(parts):
            name = f"{states[-1][0].id}.{index}"
            (start, *snapshots) = (
                _state(snapshot, by_part.get(index, _Files()), name)
                for (snapshot, _), by_part in zip(states, divided, strict=True)
            )
            size = sum(sizes[each] for each in part)
            text = msgspec.json.encode(part[0]).decode() if self.apart else None
            yield ChangeSplit(start, tuple(snapshots), bytes=size, place=text)

    def _tree_of(self, states: Sequence[_Files]) -> Callable[[Entry], Hashable]:
        """The tree of a file; all of a partition whose number of buckets differs among them.

        Apart from others, all of a partition if that of any differs between the first and the last.
        """
        if self.apart:
            by_tree = self._tree_order != "partition"
            return lambda entry: (entry.partition, entry.bucket if by_tree else None)
        counts: dict[Hashable, set[int]] = defaultdict(set)
        for files in states:
            for entry in files.all:
                counts[entry.partition].add(bucket_count(entry, self.schemas))

        def place_of(entry: Entry) -> Hashable:
            is_stable = len(counts[entry.partition]) == 1
            return entry.partition, entry.bucket if is_stable else None

        return place_of


@dataclass(slots=True)
class _Files:
    """Files of a state, and of the commit that led to it."""

    live: Sequence[Entry] = ()
    added: Sequence[Entry] = ()
    removed: Sequence[Entry] = ()
    changelog: Sequence[Entry] = ()

    @property
    def all(self) -> Iterable[Entry]:
        """All of them, some twice."""
        return (*self.live, *self.added, *self.removed, *self.changelog)

    def divided(
        self, place_of: Callable[[Entry], Hashable], number: Mapping[Hashable, int]
    ) -> dict[int, _Files]:
        """The same by the number of their place; files of other places are left out."""
        found: dict[int, _Files] = {}
        for name in ("live", "added", "removed", "changelog"):
            for entry in getattr(self, name):
                part = number.get(place_of(entry))
                if part is not None:
                    files = found.setdefault(part, _Files([], [], [], []))
                    getattr(files, name).append(entry)
        return found


def _bundles(sizes: Mapping[Hashable, int]) -> Iterator[list[Hashable]]:
    """Places in their order, so many together that reading them costs more than opening a file."""
    part: list[Hashable] = []
    size = 0
    for place, more in sizes.items():
        part.append(place)
        size += more
        if size >= SPLIT_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def without_files(snapshot: Snapshot) -> Snapshot:
    """A snapshot as if it had no files, and its commit none."""
    return _state(snapshot, _Files(), "without files")


def _state(snapshot: Snapshot, files: _Files, name: str) -> Snapshot:
    """A snapshot as if it had only some files, and its commit only some of its own."""
    added = {entry.file for entry in files.added}
    older = (entry for entry in files.live if entry.file not in added)
    changelog = snapshot.changelog
    if changelog is not None:
        changelog = Changelog(producer=changelog.producer, entries=tuple(files.changelog))
    return msgspec.structs.replace(
        snapshot,
        manifests=(),
        tail=(*older, *files.added),
        delta=Delta(tail_entries=len(files.added), removed=tuple(files.removed)),
        changelog=changelog,
        properties={},
        unknown={},
        touched=Touched(),
        branch_commits={},
        hash=f"{snapshot.hash} {name}",
    )


def _bare(entries: Iterable[Entry]) -> list[Entry]:
    """Entries without statistics."""
    return [msgspec.structs.replace(entry, stats={}) if entry.stats else entry for entry in entries]
