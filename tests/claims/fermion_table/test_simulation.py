"""Whole tables under simulated faults keep their promises; with a safeguard removed they do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from fermion_table.commit import commit
from fermion_table.errors import CommitStateUnknown
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import CreateResult
from tests.kit.simulation import (
    Faults,
    Scheduler,
    SimulatedStorage,
    SimulatedStore,
    simulate,
)
from tests.kit.simulation.seeds import SEEDS_PER_TEST, counts_of_seeds, first_violation
from tests.kit.simulation.separate_processes import separate_processes
from tests.kit.simulation.simulation import SNAPSHOT_FILE_GRACE_MS


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(30, 60, 30))]
)
def test_no_promise_is_broken_under_faults(first: int) -> None:
    """60 seeds; a failure names its own, and `simulate(seed)` repeats it."""
    troubles: Counter[str] = Counter()
    commits = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        report = simulate(seed)
        commits += report.snapshots
        troubles.update(report.troubles)
    assert commits > 4 * SEEDS_PER_TEST
    assert set(troubles) == {
        "fails", "lost", "late", "twice", "forgotten", "outage", "killed", "stalls"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
def test_no_promise_is_broken_under_faults_for_long() -> None:
    print("soak:", json.dumps(counts_of_seeds(simulate)))


def test_a_seed_repeats_itself(project_environment: dict[str, str]) -> None:
    """Each weather, here and in interpreters whose sets have other orders."""
    here = str([simulate(seed) for seed in range(4)])
    for order in ("1", "2"):
        program = "from tests.kit.simulation import simulate\n"
        program += "print([simulate(seed) for seed in range(4)])"
        there = subprocess.run(
            [sys.executable, "-c", program],
            env={**project_environment, "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here


@pytest.mark.parametrize("killed", [0.0, 1.0])
def test_a_dead_process_deletes_nothing_and_reports_nothing(
    killed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed and then loses a writer, or is killed by the request to delete its file."""
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    scheduler = Scheduler(0)
    storage = SimulatedStorage(scheduler, Faults(killed=killed))
    storage.write("data/x", b"lost")

    def lose_a_writer() -> None:
        owned = OwnedFiles(SimulatedStore(storage, "table"))
        owned.add("data/x")
        if not killed:
            scheduler.kill("p")
        del owned
        scheduler.pause()
        pytest.fail("the process goes on")

    scheduler.spawn("p", lose_a_writer)
    with separate_processes():
        scheduler.run()
    assert reported == []
    assert killed or "data/x" in storage.objects


def test_the_simulation_notices_a_create_that_overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create-if-absent looks whether the object exists, and then renames over it."""

    def create(self: SimulatedStorage, path: str, data: bytes) -> CreateResult:
        self.replace(path, data)
        return CreateResult.CREATED

    monkeypatch.setattr(SimulatedStorage, "create", create)
    found = first_violation()
    assert re.match(r"seed \d+: writer-\d\.\d was acknowledged as \d+, and is lost", found)


def test_the_simulation_notices_that_the_fence_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled writer takes a slot that has expired, and believes that it has committed."""
    monkeypatch.setattr(commit, "is_in_history", lambda *given, **options: True)
    stalling = Faults(stalls=0.3, stall_ms=5 * SNAPSHOT_FILE_GRACE_MS)
    assert "is lost" in first_violation(stalling)


def test_the_simulation_notices_deletions_after_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit that does not know whether it was published deletes its data files."""

    def run(self: Any, began: float) -> Any:
        try:
            return real(self, began)
        except CommitStateUnknown:
            for entry in self.request.added:
                self.store.storage.delete(entry.path)
            raise

    real = commit.Commit._run
    monkeypatch.setattr(commit.Commit, "_run", run)
    noticed = first_violation(Faults(outage=0.1, outage_ms=2_000))
    assert re.search("no such object|No such file|names a file that is gone", noticed)
