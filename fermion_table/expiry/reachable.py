"""Everything that must not be deleted: what snapshots kept, tags and branches refer to.

Those that are being made count as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import load_snapshot, newest, schema_paths, walk
from fermion_table.metadata.manifest import Entry, ManifestReference, paths_of
from fermion_table.metadata.manifest_store import (
    changelog_entries,
    listed_manifests,
    live_ordinals,
    manifest_files,
    manifests_of,
)
from fermion_table.metadata.references import (
    Tag,
    list_branches,
    list_tags,
    pending_snapshots,
    snapshot_of,
)
from fermion_table.metadata.shared_files import is_outside
from fermion_table.metadata.snapshot import Snapshot, check_writable
from fermion_table.storage.paths import MAIN, branch_path, snapshot_path, tag_path
from fermion_table.storage.store import AtomicStore


@dataclass(slots=True)
class LiveObjects:
    """Everything that a kept snapshot, a tag or a branch (even one to be) refers to, by path.

    What manifests list is held as columns: that may be millions of files.

    asked: The paths that anybody will ask about; of what manifests list hardly more than so many
        are held. None: any path.
    """

    asked: pa.ChunkedArray | None = None
    _paths: set[str] = field(default_factory=set)
    _read: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    _listed: list[pa.Array] = field(default_factory=list)
    _chosen: list[pa.Array] = field(default_factory=list)
    """Of lists before: what was asked for."""

    def among(self, paths: Iterable[str]) -> set[str]:
        """Those of some paths that are live."""
        asked = set(paths)
        found = asked & self._paths
        listed = self._all_listed()
        is_asked = pc.is_in(listed, value_set=pa.array(asked - found, pa.string()))
        return found.union(listed.filter(is_asked).to_pylist())

    def lacks(self, paths: pa.ChunkedArray, others: Collection[str] = ()) -> pa.ChunkedArray:
        """Which of some paths are neither live nor among others, as booleans."""
        known = pa.array({*self._paths, *others}, pa.string())
        value_set = pa.chunked_array([*self._all_listed().chunks, known], pa.string())
        return pc.invert(pc.is_in(paths, value_set=value_set))

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Those that are live and not among some paths, ascending; none of other tables."""
        listed = self._all_listed()
        is_there = pc.is_in(listed, value_set=pa.array(there := set(paths), pa.string()))
        found = {*listed.filter(pc.invert(is_there)).to_pylist(), *(self._paths - there)}
        return sorted(path for path in found if path and not is_outside(path))

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Files of entries: of data, columns, blobs and indexes, and deletion vectors."""
        for entry in entries:
            self._paths.update(paths_of(entry))

    def add_listed(self, store: AtomicStore, references: Iterable[ManifestReference]) -> None:
        """The same of the live entries of manifests."""
        for reference in references:
            key = reference.hash, reference.dead
            if key not in self._read:
                self._read.add(key)
                files = manifest_files(store, reference)
                self._listed += files.paths(live_ordinals(reference))["path"].chunks
                if self.asked is not None and sum(map(len, self._listed)) >= len(self.asked):
                    # The table of what is asked for is made anew each time, so not for a few.
                    listed = pa.chunked_array(self._listed, pa.string())
                    chosen = listed.filter(pc.is_in(listed, value_set=self.asked))
                    self._chosen.append(chosen.combine_chunks())
                    self._listed.clear()

    def _all_listed(self) -> pa.ChunkedArray:
        return pa.chunked_array([*self._chosen, *self._listed], pa.string())

    def add_references(self, store: AtomicStore, snapshot: Snapshot) -> None:
        """Manifests, those of the delta and of the changelog, schemas, and changelog files."""
        self.add_entries(changelog_entries(store, snapshot))
        self._paths.update(reference.path for reference in manifests_of(store, snapshot))
        self._paths.update(schema_paths(store, snapshot.schema))


def live_objects(
    store: AtomicStore,
    *,
    now: int,
    earliest: int = 0,
    earliest_changelog: int = 0,
    branch: str = MAIN,
    asked: pa.ChunkedArray | None = None,
) -> LiveObjects:
    """Everything that must not be deleted.

    asked: See `LiveObjects`.
    now: Milliseconds since 1970 UTC, for tags that expire.
    earliest, earliest_changelog, branch: The earliest snapshot of this branch to keep, and the
        earliest changelog, where these are later than those that have not expired.
    Raises CorruptMetadata, OSError: Anything can't be read: then what is alive is not known.
    Raises UnsupportedFeature: The table needs a newer writer, which may know of other objects.
    """
    live = LiveObjects(asked)
    # These first: what is no longer there has become a tag or branch by now.
    for snapshot in pending_snapshots(store):
        # Where something is missing, its maker came too late, and died before giving up.
        with contextlib.suppress(CorruptMetadata):
            _add_state(store, live, snapshot)
    lefts = list_branches(store)
    for name, left_after in ((MAIN, 0), *((left.name, left.snapshot_id) for left in lefts)):
        marks = pointers.marks(store, name)
        first = max(left_after, *(each.kept for each in marks), earliest if name == branch else 0)
        recorded = max(left_after, *(each.recorded for each in marks))
        if name == branch:
            recorded = max(recorded, earliest_changelog)
        end = newest(store, branch=name, lists=True)
        head = end.snapshot
        if max(first, recorded) > head.id:
            pointers.check_marks(store, head.id, name)
        check_writable(head, snapshot_path(head.id, name))
        if end.is_undecided:
            # Where something is missing, the writer has failed, and deleted its files.
            with contextlib.suppress(CorruptMetadata):
                _add_state(store, live, end.stored)
        _add_history(store, live, head, name, first, recorded)
    _add_state(store, live, load_snapshot(store, 0))
    for left in lefts:
        _add_state(store, live, snapshot_of(left, branch_path(left.name)))
    for tag in list_tags(store):
        if not is_over(tag, now):
            _add_state(store, live, snapshot_of(tag, tag_path(tag.name)))
    return live


def _add_history(
    store: AtomicStore,
    live: LiveObjects,
    newest: Snapshot,
    branch: str,
    first: int,
    recorded: int,
) -> None:
    """All that the snapshots of a branch refer to, from the first to the newest.

    Before the first, from the first whose changelog is kept on, all but data files count.

    Another expiry may end the walk before the first: what is alive there counts as well.
    """
    last = newest
    for snapshot in walk(store, newest, branch=branch, to_changelogs=True):
        if snapshot.id < min(first, recorded):
            break
        live.add_references(store, snapshot)
        if snapshot.id < first:
            continue
        delta = snapshot.delta
        live.add_entries(snapshot.tail[len(snapshot.tail) - delta.tail_entries :])
        live.add_listed(store, delta.added)
        last = snapshot
    _add_state(store, live, last)


def _add_state(store: AtomicStore, live: LiveObjects, snapshot: Snapshot) -> None:
    """All that one snapshot refers to."""
    live.add_references(store, snapshot)
    live.add_entries(snapshot.tail)
    live.add_listed(store, listed_manifests(store, snapshot.manifests))


def is_over(tag: Tag, now: int) -> bool:
    """Whether a tag no longer keeps its snapshot, at a time in milliseconds."""
    return tag.expires_ms is not None and tag.expires_ms <= now
