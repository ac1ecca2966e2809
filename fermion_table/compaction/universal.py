"""Universal compaction: which sorted runs of a tree are merged next, and to which level.

A tree has any number of runs at level 0, each one file of a flush, and at most one run at every
level above. Runs are listed newest first, so their levels ascend. What is picked is a prefix of
them: the order of runs stays the order of time. Pure (no I/O, no clock): the result is the plan.

The rules, in this order; the first that applies decides:

==========  =====================================================================================
reason      applies where
==========  =====================================================================================
``full``    there are several runs, and a full compaction is due: by time, because the tree is
            small, or because much lies below the top level
``space``   as many runs as the trigger, and those before the last one have more than
            ``max_size_amplification_percent`` of its size
``ratio``   as many runs as the trigger, and neighbours of similar size at the beginning
``count``   more runs than the trigger
``level0``  ``force_level0``, and there are runs at level 0
==========  =====================================================================================

A tree may be due whatever the sizes of its runs: by time, or by commits. Nothing is recorded when a
tree is compacted fully, its files tell: all that was written up to the newest file of the top
level, by its time and by the snapshot that added it, is at that level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from fermion.arguments import flag, integer
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.merging.sections import TreeFile
from fermion_table.metadata.history import walk
from fermion_table.metadata.snapshot import Kind, Snapshot
from fermion_table.planning.tree_plan import Tree
from fermion_table.schema.key_options import CompactionSettings
from fermion_table.storage.store import AtomicStore

PickRule = Literal["current", "seed"]
Reason = Literal["full", "space", "ratio", "count", "level0"]

PICK_RULES: tuple[PickRule, ...] = ("current", "seed")


@dataclass(frozen=True, slots=True)
class Run:
    """A sorted run of a tree.

    level: 0, or the level whose only run it is.
    """

    level: int
    size: int


@dataclass(frozen=True, slots=True)
class Unit:
    """What to merge: the first runs, newest first, into one run.

    reason: The rule that picked them.
    output_level: The level of the new run; never 0.
    run_count: How many runs, from the newest on.
    """

    reason: Reason
    output_level: int
    run_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalOptions:
    """When to compact.

    trigger: Number of runs from which on a tree is compacted.
    max_size_amplification_percent: Size of all runs but the last one, in percent of the last one's,
        above which everything is merged.
    size_ratio: Percent by which the next run may be greater than those before it together, and
        still be merged with them.
    num_levels: Levels of a tree, level 0 included. A tree that already has a higher level keeps it.
    pick_rule: Where `ratio` stops: ``seed`` at the first run that is too great; ``current`` takes
        levels 0 and 1 in any case, once runs were found to merge.
    force_level0: Whether runs of level 0 are merged although no other rule applies.
    full_is_due: Whether the interval between full compactions has passed: see `is_full_due`.
    total_size_threshold: A tree of fewer bytes is merged fully each time; None: no such rule.
    incremental_size_threshold: A tree with more bytes below its top level is merged fully; None: no
        such rule.
    Raises TypeError: A value that is no integer, or no bool.
    Raises InvalidArgumentError: A value out of its range, or an unknown pick rule.
    """

    trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    num_levels: int = 6
    pick_rule: PickRule = "current"
    force_level0: bool = False
    full_is_due: bool = False
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None

    def __post_init__(self) -> None:
        integer(self.trigger, "trigger", minimum=1)
        integer(self.max_size_amplification_percent, "max_size_amplification_percent", minimum=0)
        integer(self.size_ratio, "size_ratio", minimum=0)
        integer(self.num_levels, "num_levels", minimum=2)
        for name in ("total_size_threshold", "incremental_size_threshold"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, minimum=0)
        flag(self.force_level0, "force_level0")
        flag(self.full_is_due, "full_is_due")
        if self.pick_rule not in PICK_RULES:
            raise InvalidArgumentError(
                f"pick_rule={self.pick_rule!r}: expected {' or '.join(map(repr, PICK_RULES))}"
            )


def pick(runs: Sequence[Run], options: UniversalOptions) -> Unit | None:
    """Which runs of a tree to merge next.

    runs: All runs of the tree, newest first.
    Returns: None: nothing is to be done. One run alone may be picked: it moves to a higher level.
    Raises InvalidArgumentError: Levels above 0 that do not ascend, or a negative level or size.
    """
    _check(runs)
    if not runs:
        return None
    top = max(options.num_levels - 1, runs[-1].level)
    if _merges_fully(runs, top, options):
        return Unit("full", top, len(runs))
    if len(runs) >= options.trigger:
        if _wastes_space(runs, options):
            return Unit("space", top, len(runs))
        count = _by_ratio(runs, 1, options, forced=False)
        if count > 1:
            return _unit("ratio", runs, count, top)
    if len(runs) > options.trigger:
        count = _by_ratio(runs, len(runs) - options.trigger + 1, options, forced=False)
        return _unit("count", runs, count, top)
    level0_count = sum(run.level == 0 for run in runs)
    if options.force_level0 and level0_count:
        return _unit("level0", runs, _by_ratio(runs, level0_count, options, forced=True), top)
    return None


def is_full_due(interval_ms: int | None, last_full_ms: int | None, now_ms: int) -> bool:
    """Whether the interval between full compactions has passed, or there was none yet.

    interval_ms: None: full compactions are not made by time.
    last_full_ms: When the last one was; None: there was none.
    """
    if interval_ms is None:
        return False
    return last_full_ms is None or now_ms - last_full_ms > interval_ms


def _check(runs: Sequence[Run]) -> None:
    level = 0
    for at, run in enumerate(runs):
        if run.size < 0 or run.level < 0:
            raise InvalidArgumentError(f"runs[{at}]: found {run}, expected no negative number")
        if run.level < level or (run.level == level and level > 0):
            raise InvalidArgumentError(
                f"runs[{at}]: found level {run.level} after level {level}: expected level 0 any "
                "number of times, then ascending levels of one run each"
            )
        level = run.level


def _merges_fully(runs: Sequence[Run], top: int, options: UniversalOptions) -> bool:
    if len(runs) == 1:
        return False
    below_top = sum(run.size for run in runs if run.level != top)
    total, incremental = options.total_size_threshold, options.incremental_size_threshold
    return (
        options.full_is_due
        or (total is not None and sum(run.size for run in runs) < total)
        or (incremental is not None and below_top > incremental)
    )


def _wastes_space(runs: Sequence[Run], options: UniversalOptions) -> bool:
    before_last = sum(run.size for run in runs[:-1])
    return 100 * before_last > options.max_size_amplification_percent * runs[-1].size


def _by_ratio(runs: Sequence[Run], count: int, options: UniversalOptions, *, forced: bool) -> int:
    """How many runs are merged with the first ones; 1 or `count` where no others join them."""
    size = sum(run.size for run in runs[:count])
    is_triggered = forced or count > 1
    for run in runs[count:]:
        is_greater = size * (100 + options.size_ratio) < run.size * 100
        stops_early = options.pick_rule == "seed" or not is_triggered or run.level > 1
        if is_greater and stops_early:
            break
        size += run.size
        count += 1
        is_triggered = True
    return count


def _unit(reason: Reason, runs: Sequence[Run], count: int, top: int) -> Unit:
    """The output goes just below the next run; where that is level 0, more runs are taken."""
    output = top if count == len(runs) else max(0, runs[count].level - 1)
    while output == 0 and count < len(runs):
        output = runs[count].level
        count += 1
    return Unit(reason, top if count == len(runs) else output, count)


_WRITES: tuple[Kind, ...] = ("append", "overwrite", "delete", "upsert")
"""Kinds of commits that count."""


@dataclass(frozen=True, slots=True)
class Due:
    """What is due in a tree.

    options: When it is compacted, with what is due by time, and at level 0.
    is_full: Whether a full compaction is due by the number of commits.
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

    options: When trees are compacted, without what is due.
    now_ms: Milliseconds since 1970 UTC.
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
