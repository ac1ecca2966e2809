"""Which trees are due for compaction whatever the sizes of their runs: by time, or by commits.

Nothing is recorded when a tree is compacted fully: its files tell. All that was written up to the
newest file of the top level, by its time and by the snapshot that added it, is at that level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fermion_table.compaction.universal import UniversalOptions, is_full_due
from fermion_table.merging.sections import TreeFile
from fermion_table.metadata.history import walk
from fermion_table.metadata.snapshot import Kind, Snapshot
from fermion_table.planning.tree_plan import Tree
from fermion_table.schema.key_options import CompactionSettings
from fermion_table.storage.store import AtomicStore

_WRITES: tuple[Kind, ...] = ("append", "overwrite", "delete", "upsert")
"""Kinds of commits that count."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is due in a tree.

    Attributes
    ----------
    options
        When it is compacted, with what is due by time, and at level 0.
    is_full
        Whether a full compaction is due by the number of commits.
    """

    options: UniversalOptions
    is_full: bool = False


def due_trees(
    trees: Mapping[Tree, Sequence[TreeFile]],
    options: UniversalOptions,
    settings: CompactionSettings,
    snapshot: Snapshot,
    *,
    store: AtomicStore,
    now_ms: int,
) -> dict[Tree, Due]:
    """What is due in each tree.

    Parameters
    ----------
    options
        When trees are compacted, without what is due.
    now_ms
        Milliseconds since 1970 UTC.
    """
    top = options.num_levels - 1
    limit, interval = settings.delta_commits, settings.optimization_interval_ms
    written: dict[Tree, int] = {}
    if limit is not None:
        written = {
            tree: _full_up_to(files, top)
            for tree, files in trees.items()
            if any(file.level < top for file in files)
        }
    full_at = _commit_back(store, snapshot, limit, min(written.values(), default=snapshot.id))
    waiting: dict[Tree, int] = {}
    if options.force_level0 and settings.lookup_interval > 1:
        waiting = {
            tree: min(added)
            for tree, files in trees.items()
            if (added := [_added(file) for file in files if file.level == 0])
        }
    oldest = min(waiting.values(), default=snapshot.id + 1) - 1
    level0_at = _commit_back(store, snapshot, settings.lookup_interval, oldest)
    return {
        tree: Due(
            replace(
                options,
                full_is_due=is_full_due(interval, _last_full_ms(files, top), now_ms),
                force_level0=options.force_level0
                and (tree not in waiting or waiting[tree] <= level0_at),
            ),
            is_full=tree in written and written[tree] < full_at,
        )
        for tree, files in trees.items()
    }


def _last_full_ms(files: Iterable[TreeFile], top: int) -> int | None:
    """The time up to which all that was written is at the top level; None: nothing is there."""
    return max((file.entry.created_ms for file in files if file.level >= top), default=None)


def _full_up_to(files: Iterable[TreeFile], top: int) -> int:
    """The last snapshot of which all that was written is at the top level.

    The oldest file of a tree without a top level was there before any compaction of all its runs.
    """
    listed = list(files)
    at_top = [_added(file) for file in listed if file.level >= top]
    return max(at_top) if at_top else min(map(_added, listed)) - 1


def _added(file: TreeFile) -> int:
    return file.entry.added_snapshot or 0


def _commit_back(store: AtomicStore, snapshot: Snapshot, count: int | None, floor: int) -> int:
    """The id of the commit so many writes back, itself counted; -1: it is not above the floor.

    Snapshots that have expired count as writes.
    """
    if count is None or snapshot.id <= floor:
        return -1
    found = 0
    last = snapshot
    for last in walk(store, snapshot, branch=snapshot.branch):
        if last.id <= floor:
            return -1
        found += last.kind in _WRITES
        if found == count:
            return last.id
    if last.parent is None:
        return -1
    reached = last.id - (count - found)
    return reached if reached > floor else -1
