"""How many seeds tests of the simulation try, in short and long runs."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.kit.simulation import (
    Faults,
    Report,
    Violation,
    simulate,
)

SEEDS_PER_TEST = 30
SEEDS_MAX = 150
"""Within so many seeds the simulation has to notice that a safeguard is missing."""
SOAK_SEEDS = range(
    int(os.environ.get("FERMION_SEED_FIRST", 0)), int(os.environ.get("FERMION_SEED_END", 20_000))
)
"""The environment may name other seeds."""


def counts_of_seeds(run: Callable[[int], Report]) -> dict[str, int]:
    """What the seeds of the long form did."""
    counts = {"seeds": 0, "commits": 0, "requests": 0}
    for seed in SOAK_SEEDS:
        report = run(seed)
        counts["seeds"] += 1
        counts["commits"] += report.snapshots
        counts["requests"] += report.requests
    return counts


def first_violation(faults: Faults | None = None, *, run: Callable[..., Report] = simulate) -> str:
    for seed in range(SEEDS_MAX):
        try:
            run(seed, faults=faults)
        except Violation as violation:
            return str(violation)
    pytest.fail(f"nothing was noticed in {SEEDS_MAX} seeds")
