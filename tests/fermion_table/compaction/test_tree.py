"""Plans of tree compaction: what is merged, upgraded or left alone, and that levels stay runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.compaction.tree import TreePlan, plan_tree, universal_options
from fermion_table.compaction.universal import Run, UniversalOptions, pick
from fermion_table.merging.sections import TreeFile, sorted_runs
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.key_options import CompactionSettings, KeyOptions

TARGET = 100
OPTIONS = UniversalOptions(trigger=3, num_levels=4)


def file(
    keys: tuple[int, int], level: int = 0, order: int = 0, size: int = 1, **fields
) -> TreeFile:
    """A file of some keys; `fields` are those of its entry."""
    entry = Entry(path=f"{level}-{order}-{keys[0]}", size=size, rows=10, level=level, **fields)
    return TreeFile(*keys, level, order, size, entry)


def ranges(files) -> list[tuple[int, int]]:
    return [(file.min_key, file.max_key) for file in files]


def rewritten(plan: TreePlan) -> list[list[tuple[int, int]]]:
    """Bounds of the files of each rewrite."""
    return [ranges(f for section in group for f in section.files) for group in plan.rewrites]


@st.composite
def trees(draw: st.DrawFn) -> list[TreeFile]:
    """Draw the files of a tree: runs of level 0, and one a level."""
    runs = [(0, order) for order in range(draw(st.integers(0, 5)))]
    runs += [(level, 0) for level in sorted(draw(st.sets(st.integers(1, 5))))]
    files = []
    for level, order in runs:
        cuts = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=8)))
        for low, high in zip(cuts[::2], cuts[1::2], strict=False):
            marks = st.sampled_from([{}, {}, {"retractions": 1}, {"keys_repeated": 2}])
            size = draw(st.sampled_from([1, 69, 70, 200]))
            files.append(file((low, high), level, order, size, **draw(marks)))
    return files


def carried_out(files: list[TreeFile], plan: TreePlan) -> list[TreeFile]:
    """The tree afterwards, each rewrite as one file."""
    level = plan.unit.output_level
    replaced = [f for group in plan.rewrites for section in group for f in section.files]
    replaced += plan.upgrades
    kept = [f for f in files if not any(f is gone for gone in replaced)]
    for group in plan.rewrites:
        kept.append(file((group[0].min_key, group[-1].max_key), level, size=TARGET))
    for moved in plan.upgrades:
        kept.append(file((moved.min_key, moved.max_key), level, size=moved.size))
    return kept


@given(trees(), st.booleans(), st.booleans())
def test_a_plan_replaces_a_prefix_of_the_runs_by_one_run_of_a_level_above_0(files, is_full, keeps):
    runs = sorted_runs(files)
    plan = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=is_full, keeps_retractions=keeps)
    if plan is None:
        picked = pick([Run(*_level_and_size(run)) for run in runs], OPTIONS)
        assert picked is None or is_full
        if is_full and runs:
            assert {f.level for f in files} == {max(3, _level_and_size(runs[-1])[0])}
        return
    unit = plan.unit
    taken = [f for run in runs[: unit.run_count] for f in run]
    left = [f for run in runs[unit.run_count :] for f in run]
    assert plan.drops == (not left and not keeps)
    assert unit.output_level > 0
    named = [f for group in plan.rewrites for section in group for f in section.files]
    named += plan.upgrades
    assert len({id(f) for f in named}) == len(named)
    assert all(any(f is each for each in taken) for f in named)
    stays = [f for f in taken if not any(f is each for each in named)]
    assert all(f.level == unit.output_level for f in stays)
    after = carried_out(files, plan)
    assert [f.level for f in after if f.level == 0] == []
    new = [run for run in sorted_runs(after) if _level_and_size(run)[0] == unit.output_level]
    assert sum(len(run) for run in new) == len(plan.rewrites) + len(plan.upgrades) + len(stays)
    drops = plan.drops
    for f in [*plan.upgrades, *stays]:
        assert not (drops and (f.entry.retractions or f.entry.keys_repeated))


def _level_and_size(run) -> tuple[int, int]:
    listed = list(run)
    return listed[0].level, sum(f.size for f in listed)


@given(trees(), st.booleans())
def test_a_full_compaction_is_not_repeated(files, keeps):
    plan = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=True, keeps_retractions=keeps)
    if plan is None:
        return
    after = carried_out(files, plan)
    assert {f.level for f in after} == {plan.unit.output_level}
    again = plan_tree(after, OPTIONS, target_bytes=TARGET, is_full=True, keeps_retractions=keeps)
    assert again is None


@pytest.mark.parametrize(
    ("files", "rewrites", "upgrades"),
    [
        # overlapping files are merged; a large one alone is upgraded
        (
            [file((0, 9), order=1), file((5, 20), order=2), file((30, 40), order=3, size=70)],
            [[(5, 20), (0, 9)]],
            [(30, 40)],
        ),
        # small files join their neighbours, also a section that is merged
        (
            [file((0, 1), order=1), file((2, 3), order=2), file((3, 4), order=3)],
            [[(0, 1), (3, 4), (2, 3)]],
            [],
        ),
        # a small file between large ones joins nothing
        (
            [
                file((0, 1), order=1, size=70),
                file((2, 3), order=2, size=69),
                file((4, 5), order=3, size=70),
            ],
            [],
            [(0, 1), (2, 3), (4, 5)],
        ),
        # what the top level must not hold is written again, with small neighbours
        (
            [
                file((0, 1), order=1, size=70, retractions=1),
                file((2, 3), order=2, size=69),
                file((4, 5), order=3, size=70, keys_repeated=1),
                file((6, 7), order=4, size=70),
            ],
            [[(0, 1), (2, 3), (4, 5)]],
            [(6, 7)],
        ),
        # deleted rows go
        (
            [file((0, 1), order=n, size=70, delete_rows=int(n == 1)) for n in (1,)]
            + [file((2 * n, 2 * n + 1), order=n, size=70) for n in (2, 3)],
            [[(0, 1)]],
            [(4, 5), (6, 7)],
        ),
    ],
)
def test_what_is_merged_and_what_is_upgraded(files, rewrites, upgrades):
    plan = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=True)
    assert plan is not None
    assert (plan.unit.output_level, plan.unit.run_count) == (3, len(files))
    assert rewritten(plan) == rewrites
    assert ranges(plan.upgrades) == upgrades


def test_below_the_top_files_with_retractions_are_upgraded():
    old = file((0, 99), level=3, size=10_000)
    new = [file((10 * n, 10 * n + 9), order=n, size=80, retractions=1) for n in range(3)]
    plan = plan_tree([old, *new], OPTIONS, target_bytes=TARGET)
    assert plan is not None
    assert (plan.unit.output_level, plan.drops, plan.rewrites) == (2, False, ())
    assert ranges(plan.upgrades) == [(0, 9), (10, 19), (20, 29)]


def test_tables_that_keep_retractions_upgrade_them_to_the_top():
    files = [file((10 * n, 10 * n + 9), order=n, size=80, retractions=1) for n in range(3)]
    plan = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=True, keeps_retractions=True)
    assert plan is not None
    assert (plan.drops, plan.rewrites, len(plan.upgrades)) == (False, (), 3)


@pytest.mark.parametrize(
    ("fields", "is_planned"),
    [({}, False), ({"retractions": 1}, True), ({"keys_repeated": 1}, True)],
)
def test_one_run_at_the_top_is_compacted_only_for_what_can_go(fields, is_planned):
    files = [file((0, 1), level=3), file((2, 3), level=3, **fields)]
    full = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=True)
    assert (full is not None) == is_planned
    assert plan_tree(files, OPTIONS, target_bytes=TARGET) is None
    keeps = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=True, keeps_retractions=True)
    assert keeps is None


def test_a_tree_keeps_a_level_above_those_of_its_settings():
    files = [file((0, 1), level=7), file((0, 1), order=1)]
    plan = plan_tree(files, OPTIONS, target_bytes=TARGET, is_full=True)
    assert plan is not None
    assert plan.unit.output_level == 7


def test_a_tree_without_files_is_not_compacted():
    assert plan_tree([], OPTIONS, target_bytes=TARGET, is_full=True) is None
    assert plan_tree([], OPTIONS, target_bytes=TARGET) is None


def test_options_come_from_the_settings_of_the_table():
    settings = CompactionSettings(
        trigger=7,
        max_size_amplification_percent=50,
        size_ratio=3,
        pick_rule="seed",
        total_size_threshold=5,
        incremental_size_threshold=6,
    )
    assert universal_options(KeyOptions(compaction=settings)) == UniversalOptions(
        trigger=7,
        max_size_amplification_percent=50,
        size_ratio=3,
        num_levels=8,
        pick_rule="seed",
        total_size_threshold=5,
        incremental_size_threshold=6,
    )
    lookups = [
        KeyOptions(deletion_vectors=True),
        KeyOptions(changelog_producer="lookup"),
        KeyOptions(compaction=CompactionSettings(force_lookup=True)),
    ]
    assert all(universal_options(options).force_level0 for options in lookups)
    assert not universal_options(KeyOptions()).force_level0
