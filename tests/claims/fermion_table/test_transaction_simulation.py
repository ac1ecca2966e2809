"""Clients that change several tables at once under simulated faults."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import Any

import pytest

from fermion_table.catalog import transactions, view
from fermion_table.commit import undecided
from fermion_table.metadata import decisions, history
from fermion_table.metadata.history import Newest
from fermion_table.storage.store import AtomicStore
from tests.kit.simulation import Faults, Violation, simulate_transactions

SEEDS = 200
SEEDS_MAX = 300
"""Within so many seeds the simulation has to notice that a safeguard is missing."""


HALVES = "counted|are there|value|gone|follow"
"""What the violations say: half of a transaction, or a commit that is lost."""


def first_violation(**words: Any) -> str:
    for seed in range(SEEDS_MAX):
        try:
            simulate_transactions(seed, **words)
        except Violation as violation:
            return str(violation)
    pytest.fail(f"nothing was noticed in {SEEDS_MAX} seeds")


@pytest.mark.long
def test_transactions_are_in_all_of_their_tables_or_in_none_whatever_fails() -> None:
    """A failure names its seed, and `simulate_transactions(seed)` repeats it."""
    outcomes: Counter[str] = Counter()
    commits = void = 0
    for seed in range(SEEDS):
        report = simulate_transactions(seed)
        outcomes.update(report.outcomes)
        commits, void = commits + report.commits, void + report.void
    assert outcomes["transaction acknowledged"] > SEEDS / 2
    assert outcomes["transaction failed"]
    assert outcomes["read acknowledged"] > SEEDS / 2
    assert void > SEEDS / 10, "hardly any snapshot of a transaction that was given up"


def test_a_seed_gives_the_same_simulation_each_time() -> None:
    """Also with other unique names of the process, and with garbage of what ran before."""
    for seed in range(8):
        assert simulate_transactions(seed) == simulate_transactions(seed)


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
def test_transactions_are_in_all_of_their_tables_or_in_none_for_long() -> None:
    """20,000 seeds, or those that the environment names."""
    first = int(os.environ.get("FERMION_SEED_FIRST", "0"))
    end = int(os.environ.get("FERMION_SEED_END", "20000"))
    outcomes: Counter[str] = Counter()
    for seed in range(first, end):
        report = simulate_transactions(seed)
        outcomes.update(report.outcomes)
        outcomes["commits"] += report.commits
        outcomes["void"] += report.void
    print("soak:", json.dumps({"seeds": end - first, **outcomes}))


def test_the_simulation_notices_a_reader_that_ignores_the_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end_at(store: AtomicStore, stored: Any, branch: str) -> Newest:
        return Newest(stored, stored)

    monkeypatch.setattr(history, "end_at", end_at)
    assert re.search(HALVES, first_violation())


def test_the_simulation_notices_a_transaction_that_opens_tables_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions.CatalogTransaction, "_refuse_halves", lambda *arguments: None)
    assert re.search(HALVES, first_violation())


def test_the_simulation_notices_a_writer_that_builds_on_an_undecided_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes it for void, and does not say so by a decision."""
    monkeypatch.setattr(
        undecided, "settled", lambda store, branch, end, options: (end, float("-inf"))
    )
    assert re.search(HALVES, first_violation())


def test_the_simulation_notices_a_decision_that_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waited too long gives up what was committed, or the other way round."""
    real = decisions.decide

    def decide(root: Any, decision: decisions.Decision, *options: Any) -> decisions.Decision:
        path = decisions.decision_path(decision.id)
        root.storage.objects.pop(path, None)
        return real(root, decision, *options)

    monkeypatch.setattr(transactions, "decide", decide)
    monkeypatch.setattr(undecided, "decide", decide)
    slow = first_violation(faults=Faults(stalls=0.3), kinds=("transaction", "append"))
    assert re.search(HALVES, slow)


def test_the_simulation_notices_a_view_that_reads_the_ends_of_histories_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = view._head
    monkeypatch.setattr(
        view, "_head", lambda store, known: real(store, None) if known is None else known
    )
    found = first_violation(faults=Faults(), kinds=("transaction", "read"))
    assert re.search("value", found)
