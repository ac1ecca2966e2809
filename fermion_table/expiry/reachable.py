"""Everything that must not be deleted: what snapshots kept, tags and branches refer to.

Those that are being made count as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fermion_table.errors import CorruptMetadata
from fermion_table.metadata import pointers
from fermion_table.metadata.history import latest_listed, load_snapshot, walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import (
    added_entries,
    changelog_entries,
    live_entries,
    manifests_of,
)
from fermion_table.metadata.references import (
    Tag,
    list_branches,
    list_tags,
    pending_snapshots,
    snapshot_of,
)
from fermion_table.metadata.snapshot import SchemaReference, Snapshot, check_writable
from fermion_table.storage.paths import MAIN, branch_path, snapshot_path, tag_path
from fermion_table.storage.store import AtomicStore

SchemaPaths = Callable[[SchemaReference], Iterable[str]]
"""The schema objects that a schema needs, its own included (a schema names its ancestors)."""


@dataclass(slots=True)
class LiveObjects:
    """Everything that a kept snapshot, a tag or a branch (even one to be) refers to, by path."""

    paths: set[str] = field(default_factory=set)

    def add_entry(self, entry: Entry) -> None:
        """A data file and its deletion vector."""
        self.paths.update(paths_of(entry))

    def add_references(
        self, store: AtomicStore, snapshot: Snapshot, schema_paths: SchemaPaths
    ) -> None:
        """Manifests, those of the delta and of the changelog, schemas, and changelog files."""
        self.paths.update(entry.path for entry in changelog_entries(store, snapshot))
        self.paths.update(reference.path for reference in manifests_of(snapshot))
        self.paths.update(schema_paths(snapshot.schema))


def live_objects(
    store: AtomicStore,
    *,
    schema_paths: SchemaPaths,
    now: int,
    earliest: int = 0,
    earliest_changelog: int = 0,
    branch: str = MAIN,
) -> LiveObjects:
    """Everything that must not be deleted.

    Parameters
    ----------
    store
        Of the table.
    schema_paths
        See `SchemaPaths`.
    now
        Milliseconds since 1970 UTC, for tags that expire.
    earliest, earliest_changelog, branch
        The earliest snapshot of this branch to keep, and the earliest changelog, where these are
        later than those that have not expired.

    Raises
    ------
    CorruptMetadata, OSError
        Anything can't be read: then what is alive is not known.
    UnsupportedFeature
        The table needs a newer writer, which may know of other objects.
    """
    live = LiveObjects()
    # These first: what is no longer there has become a tag or branch by now.
    for snapshot in pending_snapshots(store):
        # Where something is missing, its maker came too late, and died before giving up.
        with contextlib.suppress(CorruptMetadata):
            _add_state(store, live, snapshot, schema_paths)
    lefts = list_branches(store)
    for name, left_after in ((MAIN, 0), *((left.name, left.snapshot_id) for left in lefts)):
        first = max(left_after, pointers.first_kept(store, name), earliest if name == branch else 0)
        recorded = max(left_after, pointers.first_recorded(store, name))
        if name == branch:
            recorded = max(recorded, earliest_changelog)
        newest = latest_listed(store, branch=name)
        check_writable(newest, snapshot_path(newest.id, name))
        _add_history(store, live, newest, name, first, recorded, schema_paths)
    _add_state(store, live, load_snapshot(store, 0), schema_paths)
    for left in lefts:
        _add_state(store, live, snapshot_of(left, branch_path(left.name)), schema_paths)
    for tag in list_tags(store):
        if not is_over(tag, now):
            _add_state(store, live, snapshot_of(tag, tag_path(tag.name)), schema_paths)
    return live


def _add_history(
    store: AtomicStore,
    live: LiveObjects,
    newest: Snapshot,
    branch: str,
    first: int,
    recorded: int,
    schema_paths: SchemaPaths,
) -> None:
    """All that the snapshots of a branch refer to, from the first to the newest.

    Before the first, from the first whose changelog is kept on, all but data files count.

    Another expiry may end the walk before the first: what is alive there counts as well.
    """
    last = newest
    for snapshot in walk(store, newest, branch=branch, to_changelogs=True):
        if snapshot.id < min(first, recorded):
            break
        live.add_references(store, snapshot, schema_paths)
        if snapshot.id < first:
            continue
        for entry in added_entries(store, snapshot):
            live.add_entry(entry)
        last = snapshot
    _add_state(store, live, last, schema_paths)


def _add_state(
    store: AtomicStore, live: LiveObjects, snapshot: Snapshot, schema_paths: SchemaPaths
) -> None:
    """All that one snapshot refers to."""
    live.add_references(store, snapshot, schema_paths)
    for entry in live_entries(store, snapshot):
        live.add_entry(entry)


def is_over(tag: Tag, now: int) -> bool:
    """Whether a tag no longer keeps its snapshot, at a time in milliseconds."""
    return tag.expires_ms is not None and tag.expires_ms <= now


def paths_of(entry: Entry) -> dict[str, int]:
    """The files of an entry that lie in this table, with their sizes."""
    paths = {entry.path: entry.size} if entry.path else {}
    if entry.deletion_vector is not None:
        paths[entry.deletion_vector.path] = entry.deletion_vector.size
    return paths
