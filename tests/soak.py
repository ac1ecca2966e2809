"""Runs the long forms of the reliability tests; docs/reliability.md gets what came of it.

    python -m tests.soak [PART ...]

Without parts, all of them. FERMION_SEED_FIRST, FERMION_SEED_END and FERMION_CROWD_SECONDS shorten
the two longest ones; the table says what was run.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "reliability.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
TABLE_TESTS = "tests/fermion_table"


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of test and where its long form is."""

    what: str
    tests: tuple[str, ...]


PARTS = {
    "simulation": Part("simulated storage", (f"{TABLE_TESTS}/test_simulation.py",)),
    "kill": Part(
        "`kill -9` before every change of a file", (f"{TABLE_TESTS}/test_killed_processes.py",)
    ),
    "crowd": Part("16 processes on one table, local disk", (f"{TABLE_TESTS}/test_crowd.py",)),
    "metadata": Part("wrong values in metadata", (f"{TABLE_TESTS}/test_hostile_metadata.py",)),
    "files": Part("damaged files", ("tests/fermion/test_corruption.py",)),
    "memory": Part("more data than memory", (f"{TABLE_TESTS}/test_resource_bounds.py",)),
}


def run(name: str) -> str:
    """Run a part; its row of the table."""
    part = PARTS[name]
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "slow", *part.tests]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "soak"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    said = re.findall(r"(?m)^[.F]?soak: (.*)$", done.stdout)
    summary = done.stdout.strip().splitlines()[-1].strip("= ")
    if done.returncode:
        print(done.stdout[-5_000:], done.stderr[-2_000:], sep="\n", file=sys.stderr)
    how_many = "; ".join(said) or re.sub(r" in .*", "", summary)
    result = "no failure" if done.returncode == 0 else f"**failed**: {summary}"
    return f"| {name} | {part.what} | {how_many} | {result} | {today()}, {seconds:,.0f} s |"


def today() -> str:
    """Date and version."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return f"{datetime.now(UTC):%Y-%m-%d} at {shown.stdout.strip() or 'a release'}"


def write(rows: dict[str, str]) -> None:
    """Put rows in the place of those of the same parts."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")
    }
    kept.pop("part", None)
    kept.update(rows)
    head = "| part | what | how many | result | run |\n|---|---|---|---|---|"
    ordered = [
        kept[name]
        for name in (*PARTS, *(each for each in kept if each not in PARTS))
        if name in kept
    ]
    PAGE.write_text(f"{before}{BEGIN}\n{head}\n" + "\n".join(ordered) + f"\n{END}{after}")


def main() -> int:
    """Run the parts named, or all; 1 if one failed."""
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    failed = False
    for name in sys.argv[1:] or PARTS:
        row = run(name)
        failed = failed or "**failed**" in row
        print(row, flush=True)
        write({name: row})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
