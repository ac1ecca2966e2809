"""Compaction of a tree, planned: which runs become one, and which files are written again for it.

The files of the runs that were picked are cut into sections. What lies in several runs is merged. A
file alone in its section is *upgraded*: its entry gets the new level, and the file stays. It is
written again all the same, if it is small and has a neighbour to join, or if it holds what the
compaction is to remove. Pure (no I/O): the result is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from fermion.exports import dataclass
from fermion_table.compaction.small_files import SMALL_FRACTION
from fermion_table.compaction.universal import Run, Unit, UniversalOptions, pick
from fermion_table.merging.sections import (
    Section,
    SortedRun,
    TreeFile,
    cut_sections,
    level0_of,
    overlapping_files,
    sorted_runs,
)
from fermion_table.schema.key_options import KeyOptions

Runs = tuple[tuple[TreeFile, ...], ...]


@dataclass(frozen=True, slots=True)
class TreePlan:
    """What a compaction of a tree does.

    unit: The runs that become one, and its level.
    drops: Whether retractions are dropped, and of several rows of a key one is made: no older row
        of these keys is left that they would have to hide.
    expires: Whether expired rows are removed: no older row of their keys is left.
    rewrites: Neighbouring sections whose rows are written again, each group into files of its own.
    upgrades: Files that get the new level, and stay as they are.
    older: Of the runs that do not become one, from the newest to the oldest, the files that may
        hold rows of keys of level 0. These rows are merged with those of level 0, and marked as
        deleted. Empty where nothing is marked.
    """

    unit: Unit
    drops: bool
    expires: bool
    rewrites: tuple[tuple[Section, ...], ...]
    upgrades: tuple[TreeFile, ...]
    older: Runs = ()


def universal_options(options: KeyOptions) -> UniversalOptions:
    """When trees of a table are compacted, by its settings."""
    found = options.compaction
    needs_lookup = options.deletion_vectors or options.changelog_producer == "lookup"
    return UniversalOptions(
        trigger=found.trigger,
        max_size_amplification_percent=found.max_size_amplification_percent,
        size_ratio=found.size_ratio,
        num_levels=found.trigger + 1,
        pick_rule=found.pick_rule,
        force_level0=needs_lookup or found.force_lookup,
        total_size_threshold=found.total_size_threshold,
        incremental_size_threshold=found.incremental_size_threshold,
    )


def plan_tree(
    files: Iterable[TreeFile],
    options: UniversalOptions,
    *,
    target_bytes: int,
    is_full: bool = False,
    keeps_retractions: bool = False,
    marks_replaced: bool = False,
    replaces_whole: bool = True,
    has_expired: Callable[[TreeFile], bool] = lambda file: False,
) -> TreePlan | None:
    """What to compact in a tree; None: nothing.

    files: All files of the tree.
    target_bytes: What a file should have.
    is_full: Whether all runs are merged into the top level, whatever the options say.
    keeps_retractions: Whether retractions, and several rows of a key, stay in the oldest run (see
        `fold.keeps_retractions`).
    marks_replaced: Whether rows of older runs that the new run replaces are marked as deleted.
    replaces_whole: Whether such a row need not be merged with the new one (see
        `MergeEngine.replaces_whole`).
    has_expired: Whether a file is known to hold rows that are expired, or refers to values that are
        moved.
    Raises CorruptMetadata: Files of one run have keys in common.
    """
    runs = sorted_runs(files)
    unit = _full(runs, options) if is_full else pick([_run(run) for run in runs], options)
    if unit is None:
        return None
    is_oldest = unit.run_count == len(runs)
    taken = [file for run in runs[: unit.run_count] for file in run]
    expires = is_oldest or marks_replaced
    drops = expires and not keeps_retractions

    def is_worn(file: TreeFile) -> bool:
        return _is_worn(file, drops) or (expires and has_expired(file))

    is_done = is_full and all(file.level == unit.output_level for file in taken)
    if is_done and not any(map(is_worn, taken)):
        return None
    older = _older(taken, runs[unit.run_count :]) if marks_replaced else ()
    is_whole = replaces_whole or not older
    merging = [] if is_whole else overlapping_files(level0_of(taken), chain(*older))[0]
    unfolded = {id(file) for file in merging}

    def stays(file: TreeFile) -> bool:
        return not is_worn(file) and id(file) not in unfolded

    rewrites: list[tuple[Section, ...]] = []
    upgrades: list[TreeFile] = []
    for group in _groups(cut_sections(taken), SMALL_FRACTION * target_bytes, stays):
        files_of_group = [file for section in group for file in section.files]
        if len(files_of_group) > 1 or not stays(files_of_group[0]):
            rewrites.append(group)
        elif files_of_group[0].level != unit.output_level:
            upgrades += files_of_group
    if not rewrites and not upgrades:
        return None
    return TreePlan(unit, drops, expires, tuple(rewrites), tuple(upgrades), older)


def _older(taken: Iterable[TreeFile], runs: Iterable[SortedRun]) -> Runs:
    """The files of older runs that may have keys of the files of level 0 that are taken."""
    newest = level0_of(taken)
    found = (tuple(overlapping_files(run, newest)[0]) for run in runs)
    return tuple(run for run in found if run)


def _full(runs: Sequence[SortedRun], options: UniversalOptions) -> Unit | None:
    if not runs:
        return None
    return Unit("full", max(options.num_levels - 1, _level(runs[-1])), len(runs))


def _groups(
    sections: Iterable[Section], small_bytes: float, stays: Callable[[TreeFile], bool]
) -> Iterator[tuple[Section, ...]]:
    """Neighbours that are written together; a large file that stays as it is stands alone."""
    group: list[Section] = []
    for section in sections:
        file = section.files[0]
        if not (section.is_single_run and file.size >= small_bytes and stays(file)):
            group.append(section)
            continue
        if group:
            yield tuple(group)
            group = []
        yield (section,)
    if group:
        yield tuple(group)


def _is_worn(file: TreeFile, drops: bool) -> bool:
    """Whether a file holds what the compaction is to remove."""
    entry = file.entry
    return entry.delete_rows > 0 or (drops and (entry.retractions > 0 or entry.keys_repeated > 0))


def _run(run: SortedRun) -> Run:
    return Run(_level(run), sum(file.size for file in run))


def _level(run: SortedRun) -> int:
    return next(iter(run)).level
