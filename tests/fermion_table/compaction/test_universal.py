"""Universal compaction: golden vectors of both pick rules, the early rules, and the invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.compaction.universal import (
    Run,
    Unit,
    UniversalOptions,
    is_full_due,
    pick,
)

NONE = None
# runs, then current, seed, and with level 0 forced current and seed: (reason, output level, runs)
GOLDEN = [
    ([(0, 1)] * 4, NONE, NONE, ("level0", 5, 4), ("level0", 5, 4)),
    ([(0, 1)] * 5, *[("space", 5, 5)] * 4),
    ([(0, 1)] * 4 + [(5, 100)], *[("ratio", 4, 4)] * 4),
    ([(0, 1)] * 4 + [(5, 1)], *[("space", 5, 5)] * 4),
    (
        [(0, 1), (0, 3), (0, 5), (0, 8), (5, 100)],
        *(NONE, NONE, ("level0", 4, 4), ("level0", 4, 4)),
    ),
    (
        [(0, 1), (0, 3), (0, 5), (0, 8), (0, 12), (5, 100)],
        *(("count", 4, 5), ("count", 5, 6), ("count", 4, 5), ("count", 5, 6)),
    ),
    ([(0, 10), (0, 10), (3, 15), (4, 100), (5, 1000)], *[("ratio", 3, 3)] * 4),
    (
        [(0, 10), (0, 10), (1, 500), (4, 600), (5, 10000)],
        *(("ratio", 3, 3), ("ratio", 1, 3), ("ratio", 3, 3), ("ratio", 1, 3)),
    ),
    (
        [(0, 1), (0, 50), (1, 60), (4, 600), (5, 10000)],
        *(NONE, NONE, ("level0", 3, 3), ("level0", 1, 3)),
    ),
    ([(0, 1), (0, 1), (0, 1), (4, 10), (5, 1000)], *[("ratio", 3, 3)] * 4),
    (
        [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (0, 32), (5, 1000)],
        *(("count", 4, 6), ("count", 5, 7), ("count", 4, 6), ("count", 5, 7)),
    ),
]
MODES = [("current", False), ("seed", False), ("current", True), ("seed", True)]


def runs_of(*pairs: tuple[int, int]) -> list[Run]:
    """Return runs from (level, size)."""
    return [Run(level, size) for level, size in pairs]


@st.composite
def trees(draw: st.DrawFn) -> list[Run]:
    """Draw the runs of a tree, newest first."""
    sizes = st.integers(0, 200) | st.integers(0, 10**12)
    low = [Run(0, draw(sizes)) for _ in range(draw(st.integers(0, 9)))]
    levels = sorted(draw(st.sets(st.integers(1, 7), max_size=7)))
    return low + [Run(level, draw(sizes)) for level in levels]


@st.composite
def options(draw: st.DrawFn) -> UniversalOptions:
    """Draw options of any kind."""
    threshold = st.none() | st.integers(0, 400)
    return UniversalOptions(
        trigger=draw(st.integers(1, 8)),
        max_size_amplification_percent=draw(st.integers(0, 400)),
        size_ratio=draw(st.integers(0, 100)),
        num_levels=draw(st.integers(2, 9)),
        pick_rule=draw(st.sampled_from(["current", "seed"])),
        force_level0=draw(st.booleans()),
        full_is_due=draw(st.booleans()),
        total_size_threshold=draw(threshold),
        incremental_size_threshold=draw(threshold),
    )


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: repr(row[0])[:60])
@pytest.mark.parametrize("mode", range(4), ids=lambda mode: f"{MODES[mode]}")
def test_the_picker_gives_the_golden_answers(row, mode):
    rule, forced = MODES[mode]
    expected = row[mode + 1]
    found = pick(runs_of(*row[0]), UniversalOptions(pick_rule=rule, force_level0=forced))
    assert found == (expected and Unit(*expected))


@given(trees(), options())
def test_what_is_picked_is_a_prefix_that_keeps_levels_apart(runs, options):
    """Run by run: the output lies above level 0, below the runs left, and not above the top."""
    unit = pick(runs, options)
    if unit is None:
        return
    assert 1 <= unit.run_count <= len(runs)
    top = max(options.num_levels - 1, runs[-1].level)
    assert 1 <= unit.output_level <= top
    left = runs[unit.run_count :]
    assert all(run.level > unit.output_level for run in left)
    assert all(run.level <= unit.output_level for run in runs[: unit.run_count])
    assert (unit.output_level == top) == (not left or left[0].level == top + 1)


@given(trees(), options())
def test_more_runs_than_the_trigger_are_always_compacted(runs, options):
    unit = pick(runs, options)
    if len(runs) > options.trigger:
        assert unit is not None
        if unit.reason == "count":
            assert len(runs) - unit.run_count + 1 <= options.trigger
    if options.force_level0 and any(run.level == 0 for run in runs):
        assert unit is not None
    if unit is not None and unit.run_count == 1:
        assert unit.reason == "level0"


@given(trees(), options())
def test_compacting_ends(runs, options):
    """Each unit, carried out without loss, leads to a tree for which nothing is picked."""
    for _ in range(len(runs) + 10):
        unit = pick(runs, options)
        if unit is None:
            return
        merged = Run(unit.output_level, sum(run.size for run in runs[: unit.run_count]))
        runs = [merged, *runs[unit.run_count :]]
    pytest.fail(f"still compacting: {runs}")


@pytest.mark.parametrize(
    ("pairs", "settings", "expected"),
    [
        ([(0, 1)], {"full_is_due": True}, None),
        ([(0, 1), (5, 9)], {"full_is_due": True}, Unit("full", 5, 2)),
        ([(0, 1), (5, 9)], {"total_size_threshold": 11}, Unit("full", 5, 2)),
        ([(0, 1), (5, 9)], {"total_size_threshold": 10}, None),
        ([(0, 1), (5, 9)], {"incremental_size_threshold": 0}, Unit("full", 5, 2)),
        ([(0, 1), (5, 9)], {"incremental_size_threshold": 1}, None),
        ([(0, 1), (1, 1), (5, 9)], {"incremental_size_threshold": 1}, Unit("full", 5, 3)),
        ([], {"full_is_due": True, "force_level0": True}, None),
        ([(3, 9)], {"force_level0": True}, None),
        ([(0, 9)], {"force_level0": True}, Unit("level0", 5, 1)),
        ([(0, 1), (8, 100)], {"force_level0": True}, Unit("level0", 7, 1)),
        ([(0, 1), (1, 9)], {"force_level0": True}, Unit("level0", 5, 2)),
        ([(0, 9), (0, 9), (2, 500), (4, 600), (5, 9999)], {}, Unit("ratio", 1, 2)),
        ([(0, 9), (0, 9), (1, 500), (2, 600), (5, 9999)], {}, Unit("ratio", 1, 3)),
    ],
)
def test_early_rules_and_edges(pairs, settings, expected):
    assert pick(runs_of(*pairs), UniversalOptions(**settings)) == expected


def test_a_full_compaction_is_due_by_time():
    assert not is_full_due(None, None, 5)
    assert is_full_due(10, None, 5)
    assert not is_full_due(10, 5, 15)
    assert is_full_due(10, 5, 16)


@pytest.mark.parametrize(
    "pairs", [[(1, 1), (0, 1)], [(0, 1), (2, 1), (2, 1)], [(3, 1), (2, 1)], [(0, -1)], [(-1, 1)]]
)
def test_runs_that_are_no_tree_are_refused(pairs):
    with pytest.raises(InvalidArgumentError, match=r"runs\["):
        pick(runs_of(*pairs), UniversalOptions())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"trigger": 0}, InvalidArgumentError),
        ({"trigger": True}, TypeError),
        ({"num_levels": 1}, InvalidArgumentError),
        ({"size_ratio": -1}, InvalidArgumentError),
        ({"size_ratio": 1.5}, TypeError),
        ({"pick_rule": "oldest"}, InvalidArgumentError),
        ({"force_level0": 1}, TypeError),
        ({"total_size_threshold": -1}, InvalidArgumentError),
        ({"incremental_size_threshold": "1"}, TypeError),
    ],
)
def test_options_out_of_range_are_refused(settings, error):
    (name,) = settings
    with pytest.raises(error, match=name):
        UniversalOptions(**settings)
