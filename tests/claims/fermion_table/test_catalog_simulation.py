"""Clients that create, drop and rename tables of the same names under simulated faults."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import Any

import pytest

from fermion_table.catalog import table_list
from fermion_table.catalog.creations import Creations
from fermion_table.catalog.keyed_list import ListChange
from tests.kit.simulation import Faults, Violation, simulate_catalog

pytestmark = pytest.mark.long

SEEDS = 9
RACES = (581, 645, 721, 745)
"""Tables were made while others were dropped in their directory, or dropped by a listing that was
behind."""


def first_violation(first: int, **words: Any) -> str:
    """What the first of some seeds finds; the first of all does."""
    for seed in range(first, first + 20):
        try:
            simulate_catalog(seed, **words)
        except Violation as violation:
            return str(violation)
    return "none"


def test_lists_and_tables_agree_whatever_clients_do_at_once() -> None:
    """A failure names its seed, and `simulate_catalog(seed)` repeats it."""
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcomes.update(simulate_catalog(seed).outcomes)
    for kinds in (("create",), ("drop", "purge"), ("rename",)):
        for how in ("acknowledged", "refused"):
            assert sum(outcomes[f"{kind} {how}"] for kind in kinds), outcomes


@pytest.mark.parametrize("seed", RACES)
def test_tables_made_while_others_are_dropped_open(seed: int) -> None:
    """Seeds that the long run has found."""
    assert simulate_catalog(seed, clients=2 + seed % 3 // 2).commits


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
def test_lists_and_tables_agree_whatever_clients_do_at_once_for_long() -> None:
    """2,000 seeds, or those that the environment names; two or three clients."""
    first = int(os.environ.get("FERMION_SEED_FIRST", "0"))
    end = int(os.environ.get("FERMION_SEED_END", "2000"))
    outcomes: Counter[str] = Counter()
    commits = 0
    for seed in range(first, end):
        report = simulate_catalog(seed, clients=2 + seed % 3 // 2)
        outcomes.update(report.outcomes)
        commits += report.commits
    print("soak:", json.dumps({"seeds": end - first, "commits": commits, **outcomes}))


def test_the_simulation_notices_changes_that_do_not_see_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits of others never make a client decide again."""
    monkeypatch.setattr(ListChange, "concerns", lambda change, entry, draft: False)
    noticed = first_violation(6, faults=Faults(), clients=3)
    assert re.search("are one table|are gone|holds", noticed)


def test_the_simulation_notices_names_that_are_taken_without_a_row_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rename takes the name of a table that is created just now, and needs no row."""
    monkeypatch.setattr(table_list, "_needs_another", lambda row, there: False)
    assert "are gone" in first_violation(24, faults=Faults(), clients=3)


def test_the_simulation_notices_tables_that_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the notes of creates."""
    monkeypatch.setattr(Creations, "noted", lambda creations: {})
    assert "created and there, but not among" in first_violation(0, faults=Faults(), clients=3)
