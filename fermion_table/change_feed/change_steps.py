"""The commits between two snapshots, and what each of them changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fermion.errors import InvalidArgumentError
from fermion_table.errors import VersionNotFound
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.history import walk
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import added_entries, removed_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep:
    """What one commit, or several at once, changed.

    Attributes
    ----------
    snapshot_id, time_ms
        What the rows say made the change.
    added, removed
        Entries; one of the same file in both had other rows deleted.
    before, after
        The states that it leads from and to; of an append table its files tell enough.
    touched
        Fewer files that hold all keys whose rows differ; None: those added and removed do.
    """

    snapshot_id: int
    time_ms: int
    added: tuple[Entry, ...] = ()
    removed: tuple[Entry, ...] = ()
    before: Snapshot | None = None
    after: Snapshot | None = None
    touched: tuple[Entry, ...] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the files that tell what changed."""
        files = (*self.removed, *self.added) if self.touched is None else self.touched
        return sum(entry.size for entry in files)


def commits_between(
    store: AtomicStore, start: Snapshot, end: Snapshot, *, branch: str
) -> list[Snapshot]:
    """The snapshots after one up to another, oldest first.

    Raises
    ------
    InvalidArgumentError
        The end does not descend from the start.
    VersionNotFound
        Snapshots between them have expired.
    """
    snapshots: list[Snapshot] = []
    for snapshot in walk(store, end, branch=branch, to_changelogs=True):
        if snapshot.hash == start.hash:
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
