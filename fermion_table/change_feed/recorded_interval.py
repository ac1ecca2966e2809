"""The changes of an interval of a primary-key table, from what compactions have recorded.

A compaction records how the *settled* part of a tree changes: what it holds without the rows that
the changelog does not tell of yet. These are those of level 0 (producer ``lookup``), or those that
are not at the tree's highest level (``full_compaction``). So the changelog files lead from the
settled part of the first state to that of the last one. Keys whose rows at either end are not
settled, or were replaced by a commit that recorded nothing, are looked up in the states instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fermion.exports import dataclass
from fermion_table.change_feed.keyed_changes import KeyedChanges, distinct_keys
from fermion_table.change_feed.recorded_changes import RecordedChanges
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.history import until_expiry
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import (
    added_entries,
    changelog_entries,
    live_entries,
    removed_entries,
)
from fermion_table.metadata.snapshot import Producer, Snapshot
from fermion_table.storage.store import AtomicStore

Found = Iterator[tuple[Snapshot, str | pa.Array, pa.RecordBatch]]
"""Rows, what happened to each of them, and the snapshot that is said to have changed them."""
ReadKeys = Callable[[Sequence[Entry]], Iterable[pa.RecordBatch]]
"""The columns of the key, of all rows of some files that may matter."""


def settled_files(entries: Iterable[Entry], producer: Producer) -> tuple[list[Entry], list[Entry]]:
    """The files of a state that the changelog tells of, and the others.

    producer: ``lookup`` or ``full_compaction``.
    """
    listed = list(entries)
    lowest: dict[tuple[Any, ...], int] = {}
    if producer == "full_compaction":
        for entry in listed:
            tree = entry.partition, entry.bucket
            lowest[tree] = max(lowest.get(tree, 1), entry.level)
    settled: list[Entry] = []
    fresh: list[Entry] = []
    for entry in listed:
        is_settled = entry.level >= lowest.get((entry.partition, entry.bucket), 1)
        (settled if is_settled else fresh).append(entry)
    return settled, fresh


def state_of(snapshot: Snapshot, entries: Iterable[Entry], name: str) -> Snapshot:
    """A snapshot as if it held only some of its files.

    name: Tells this state from the others of the snapshot.
    """
    return msgspec.structs.replace(
        snapshot, manifests=(), tail=tuple(entries), hash=f"{snapshot.hash} {name}"
    )


def producer_of(snapshots: Iterable[Snapshot]) -> Producer | None:
    """What has recorded the changes of compactions, in the last commits that did."""
    found: Producer | None = None
    for snapshot in snapshots:
        if snapshot.changelog is not None and snapshot.changelog.producer != "input":
            found = snapshot.changelog.producer
    return found


def replaces_unrecorded(store: AtomicStore, snapshot: Snapshot, producer: Producer) -> bool:
    """Whether a commit may have replaced settled files without recording what that changed."""
    if _has_recorded(snapshot, producer):
        return False
    if removed_entries(store, snapshot):
        return True
    return any(entry.level for entry in added_entries(store, snapshot))


def _has_recorded(snapshot: Snapshot, producer: Producer) -> bool:
    changelog = snapshot.changelog
    return changelog is not None and changelog.producer == producer


@dataclass(frozen=True, kw_only=True)
class RecordedInterval:
    """The commits between two snapshots, and what they have recorded.

    start, snapshots: The first state, and the commits after it up to the last.
    """

    store: AtomicStore
    key: PrimaryKey
    producer: Producer
    start: Snapshot
    snapshots: Sequence[Snapshot]

    def touched(self) -> list[Entry]:
        """Files that hold all keys whose rows differ at the ends, changelog files among them."""
        recorded = [
            entry
            for snapshot in self.snapshots
            if self._has_recorded(snapshot)
            for entry in changelog_entries(self.store, snapshot)
        ]
        return [*self.unsettled(), *recorded, *self._files(self.snapshots[-1])[1]]

    def unsettled(self) -> list[Entry]:
        """Files with the keys of whose rows changelog files do not tell."""
        found = self._files(self.start)[1]
        for before, after in pairwise((self.start, *self.snapshots)):
            found += self._unrecorded(before, after)
        return found

    def read(self, changes: RecordedChanges, keyed: KeyedChanges, read_keys: ReadKeys) -> Found:
        """The changes; replayed on the first state they give the last.

        changes, keyed: Read changelog files, and compare states.
        read_keys: See `ReadKeys`.
        Raises VersionNotFound: Data that is needed beside changelog files has expired.
        """
        end = self.snapshots[-1]
        with until_expiry(self.store, self.start):
            compared = list(distinct_keys(read_keys(self.unsettled()), self.key))
        known = [self.key.keys(some) for some in compared]
        without = pa.chunked_array(known).combine_chunks() if known else None
        for snapshot in self.snapshots:
            if not self._has_recorded(snapshot):
                continue
            with until_expiry(self.store, snapshot):
                entries = changelog_entries(self.store, snapshot)
                for change, rows in changes.read(entries, self.producer, without):
                    yield snapshot, change, rows
        settled, fresh = self._files(end)
        state = state_of(end, settled, "settled")
        for keys in distinct_keys(read_keys(fresh), self.key):
            new = keys
            if without is not None:
                new = keys.filter(pc.invert(pc.is_in(self.key.keys(keys), value_set=without)))
            for change, rows in keyed.between(state, end, new):
                yield end, change, rows
        for keys in compared:
            for change, rows in keyed.between(self.start, end, keys):
                yield end, change, rows

    def _has_recorded(self, snapshot: Snapshot) -> bool:
        return _has_recorded(snapshot, self.producer)

    def _files(self, snapshot: Snapshot) -> tuple[list[Entry], list[Entry]]:
        settled, fresh = settled_files(live_entries(self.store, snapshot), self.producer)
        return settled, fresh if self.key.options.reads_level0 else []  # those are not shown

    def _unrecorded(self, before: Snapshot, after: Snapshot) -> list[Entry]:
        """The settled files that a commit replaced without recording what that changed."""
        if not replaces_unrecorded(self.store, after, self.producer):
            return []
        old, new = (
            {(entry.file, entry.deletion_vector): entry for entry in self._files(each)[0]}
            for each in (before, after)
        )
        gone, come = old.keys() - new.keys(), new.keys() - old.keys()
        return [*(old[each] for each in gone), *(new[each] for each in come)]
