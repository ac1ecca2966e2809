"""Primary-key tables under simulated faults keep their promises; sabotaged they do not.

At most one row a key, no acknowledged row lost, and nothing deleted comes back: every read is
compared with the rows that the operations of its history leave.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import fermion.deadline
from fermion_table.commit import commit, conflict
from fermion_table.compaction import run, tree_task
from fermion_table.compaction.marking import Marking
from fermion_table.compaction.tree import plan_tree
from fermion_table.merging.sections import TreeFile
from tests.kit.simulation import simulate_keyed
from tests.kit.simulation.seeds import counts_of_seeds, first_violation

pytestmark = pytest.mark.long

SEEDS = 15


def test_no_promise_of_a_primary_key_table_is_broken_under_faults() -> None:
    """15 seeds, 20,000 in the long form; `simulate_keyed(seed)` repeats that of a failure."""
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcomes.update(simulate_keyed(seed).outcomes)
    assert outcomes["compact"] > SEEDS
    assert outcomes["acknowledged"] > 4 * SEEDS


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
def test_no_promise_of_a_primary_key_table_is_broken_under_faults_for_long() -> None:
    print("soak:", json.dumps(counts_of_seeds(simulate_keyed)))


def test_a_run_that_was_stopped_for_a_while_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at the real clock half a minute has gone."""
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 30.0).__next__)
    monkeypatch.setattr(fermion.deadline, "time", clock)
    assert simulate_keyed(3).snapshots > 0


def test_the_simulation_notices_runs_in_the_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs at level 0 the oldest wins."""
    reversed_run = property(lambda file: (0, file.order) if file.level == 0 else (file.level, 0))
    monkeypatch.setattr(TreeFile, "run", reversed_run)
    assert re.search("was read as|reads as", first_violation(run=simulate_keyed))


def test_the_simulation_notices_retractions_that_are_dropped_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compaction drops them although older runs hold rows of their keys."""

    def plan(*given: Any, **options: Any) -> Any:
        found = plan_tree(*given, **options)
        return None if found is None else replace(found, drops=True)

    monkeypatch.setattr(tree_task, "plan_tree", plan)
    assert re.search("was read as|reads as", first_violation(run=simulate_keyed))


def test_the_simulation_notices_newer_rows_at_the_level_of_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compaction of some runs writes to the top level, where files hold the same keys."""

    def plan(files: Any, options: Any, **others: Any) -> Any:
        found = plan_tree(files, options, **others)
        if found is None or found.drops:
            return found
        return replace(found, unit=replace(found.unit, output_level=options.num_levels - 1))

    monkeypatch.setattr(tree_task, "plan_tree", plan)
    assert "files without keys in common" in first_violation(run=simulate_keyed)


def test_the_simulation_notices_that_two_compactions_of_a_tree_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The verdicts that prevent it are turned off: on the tree, and on files that are gone.

    The later compaction would take inputs that it did not find for those of a group that was left
    out, and delete its own published files, which hides what is wrong with the tree.
    """
    monkeypatch.setitem(conflict._ROWS, "compact", lambda mine, theirs: conflict.Ok())
    locate, removed_entries = commit.locate, run.removed_entries
    missing: list[str] = []

    def located(*given: Any) -> Any:
        found = locate(*given)
        missing.extend(found.missing)
        return replace(found, missing=[])

    def removed(*given: Any) -> list[Any]:
        return [*removed_entries(*given), *(SimpleNamespace(file=name) for name in missing)]

    monkeypatch.setattr(commit, "locate", located)
    monkeypatch.setattr(run, "removed_entries", removed)
    noticed = first_violation(run=simulate_keyed)
    assert re.search("files without keys in common|was read as|reads as", noticed)


def test_the_simulation_notices_marks_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction leaves rows that it has written again in the older files."""
    monkeypatch.setattr(Marking, "entries", lambda *given: ([], []))
    assert re.search("was read as|reads as", first_violation(run=simulate_keyed))
