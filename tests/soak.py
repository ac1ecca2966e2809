"""Runs the long forms of the reliability tests; docs/reliability.md gets what came of it.

    python -m tests.soak [PART ...] [--processes N] [--again]

Without parts, all of them, cheap ones first; ``crowd/disk`` is one piece of a part. Pieces are
done N at a time (2). What a piece did is kept in ``build/soak.json`` and goes into the table at
once, so that a run that is stopped can be continued, and says how far it came. ``--again`` forgets
the pieces of the parts named. ``--seconds`` shortens what lasts a set time: the crowd and each
target of the fuzzer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.fuzz.targets import TARGETS
from tests.kit.files.features import FEATURES

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "reliability.md"
PROGRESS = PROJECT / "build" / "soak.json"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
TABLE_TESTS = "tests/claims/fermion_table"
FILE_TESTS = ("tests/fermion", "tests/claims/fermion")
CORRUPTION = "tests/claims/fermion/test_corruption.py"
SEEDS, SEEDS_PER_PIECE = 20_000, 250
DAMAGED_FILES, DAMAGED_FILES_PER_PIECE = 100_000, 1_000
CROWD_SECONDS, FUZZ_SECONDS = 600, 60
CUTS = "test_a_file_cut_anywhere"
UNCHECKED = "checksum_none"  # its flips are not noticed, and need not be


@dataclass(frozen=True, slots=True)
class Piece:
    """One command.

    Attributes
    ----------
    name
        Of the piece, unique in its part.
    command
        Arguments of the interpreter, or a program and its arguments.
    environment
        What is added to it.
    """

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of test, cut into pieces."""

    what: str
    pieces: tuple[Piece, ...]
    runs_alone: bool = False


def slow_test(name: str, path: str, case: str = "", **environment: Any) -> Piece:
    """A slow test, or one case of it."""
    address = f"{path}[{case}]" if case else path
    command = ("-m", "pytest", "-q", "-s", "-rs", "-p", "no:cacheprovider", "-m", "slow", address)
    given = tuple((key, str(value)) for key, value in environment.items())
    return Piece(name, command, given)


def seeds(module: str, end: int = SEEDS) -> tuple[Piece, ...]:
    """The seeds of a simulation up to an end, some of them a piece."""
    return tuple(
        slow_test(
            f"{first}",
            f"{TABLE_TESTS}/{module}",
            FERMION_SEED_FIRST=first,
            FERMION_SEED_END=first + SEEDS_PER_PIECE,
        )
        for first in range(0, end, SEEDS_PER_PIECE)
    )


def parts(seconds: float | None) -> dict[str, Part]:
    """Every part, cheap ones first."""
    crowd_seconds = CROWD_SECONDS if seconds is None else seconds
    fuzz_seconds = FUZZ_SECONDS if seconds is None else seconds
    crowd = f"{TABLE_TESTS}/test_crowd.py::"
    crowd += "test_sixteen_processes_make_a_serializable_history_for_ten_minutes"
    memory = f"{TABLE_TESTS}/test_resource_bounds.py::"
    memory += "test_gigabytes_are_worked_through_within_the_same_memory"
    return {
        "kill": Part(
            "`kill -9` before every change of a file",
            (slow_test("all", f"{TABLE_TESTS}/test_killed_processes.py"),),
        ),
        "metadata": Part(
            "wrong values in metadata",
            (slow_test("all", f"{TABLE_TESTS}/test_hostile_metadata.py"),),
        ),
        "memory": Part(
            "more data than memory",
            tuple(
                slow_test(name, memory, case)
                for name, case in (
                    ("read", "read-2500"),
                    ("append", "append-5000"),
                    ("compact", "compact-5120"),
                    ("join", "join-2500"),
                    ("train", "train-2500"),
                )
            ),
        ),
        "fuzz": Part(
            f"atheris, {fuzz_seconds:g} s each",
            tuple(Piece(name, ("-m", "tests.fuzz", name, f"{fuzz_seconds:g}")) for name in TARGETS),
        ),
        "sanitize": Part(
            "kernels with AddressSanitizer and UndefinedBehaviorSanitizer",
            (
                # Short property tests: instrumented code is several times slower.
                Piece(
                    "all",
                    ("tools/sanitize", sys.executable, "-n", "2", *FILE_TESTS),
                    (("HYPOTHESIS_PROFILE", "ci"),),
                ),
            ),
            runs_alone=True,
        ),
        "crowd": Part(
            f"16 processes on one table for {crowd_seconds:g} s, on a disk and on S3",
            tuple(
                slow_test(place, crowd, place, FERMION_CROWD_SECONDS=crowd_seconds)
                for place in ("disk", "moto_server", "ceph_server")
            ),
            runs_alone=True,
        ),
        "flips": Part(
            "every flip of every byte of a file of each feature",
            tuple(
                slow_test(name, f"{CORRUPTION}::test_every_flip_of_any_byte_is_noticed", name)
                for name in sorted(FEATURES.keys() - {UNCHECKED})
            ),
        ),
        "cuts": Part(
            "every cut of a file of each feature",
            (
                Piece(
                    "all",
                    ("-m", "pytest", "-q", "-p", "no:cacheprovider", CORRUPTION, "-k", CUTS),
                ),
            ),
        ),
        "files": Part(
            "structured damage under right checksums",
            tuple(
                Piece(
                    f"{first}",
                    ("-m", "tests.kit.files.mutations", f"{first}", f"{DAMAGED_FILES_PER_PIECE}"),
                )
                for first in range(0, DAMAGED_FILES, DAMAGED_FILES_PER_PIECE)
            ),
        ),
        "training": Part(
            "training that is killed and goes on with other ranks and workers",
            seeds("test_training_resumes.py", 10_000),
        ),
        "simulation": Part("simulated storage", seeds("test_simulation.py")),
        "catalog_simulation": Part(
            "simulated storage, clients of one catalog",
            seeds("test_catalog_simulation.py", 2_000),
        ),
        "keyed_simulation": Part(
            "simulated storage, primary-key tables", seeds("test_keyed_simulation.py")
        ),
        "transaction_simulation": Part(
            "simulated storage, transactions across tables",
            seeds("test_transaction_simulation.py"),
        ),
    }


def run(piece: Piece) -> dict[str, Any]:
    """Run a piece; what it did, as it is kept."""
    began = time.monotonic()
    is_program = not piece.command[0].startswith("-")
    command = list(piece.command) if is_program else [sys.executable, *piece.command]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "HYPOTHESIS_PROFILE": "soak", **dict(piece.environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        told = re.sub(r"(?m)^seed \d+\n", "", done.stdout)
        print(f"{' '.join(command)}\n{told[-5_000:]}", file=sys.stderr)
    skipped = re.findall(r"(?m)^SKIPPED .*?: ([^:]*(?:: .*)?)$", done.stdout)
    return {
        "counts": counts_of(done.stdout),
        "failed": done.returncode not in (0, 5),
        "skipped": skipped[0] if skipped else "",
        "seconds": round(time.monotonic() - began),
        "run": version(),
    }


def counts_of(output: str) -> dict[str, int]:
    """What a piece says that it did: its own words, else inputs of a fuzzer or tests of pytest."""
    counts: Counter[str] = Counter()
    for line in re.findall(r"(?m)^[.F]*soak: (.*)$", output):
        counts.update(json.loads(line))
    if not counts:
        for pattern, what in (
            (r"failures in seeds (\d+) to (\d+)", "damaged files"),
            (r"Done (\d+) runs? in", "inputs"),
            (r"(\d+) passed", "tests"),
        ):
            found = re.search(pattern, output)
            if found is not None:
                numbers = [int(each) for each in found.groups()]
                counts[what] = numbers[0] if len(numbers) == 1 else numbers[1] - numbers[0] + 1
                break
    return dict(counts)


def version() -> str:
    """Date and version."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return f"{datetime.now(UTC):%Y-%m-%d} at {shown.stdout.strip() or 'a release'}"


def row(name: str, part: Part, done: dict[str, dict[str, Any]]) -> str:
    """The row of the table for what was done of a part."""
    counts: Counter[str] = Counter()
    for piece in done.values():
        counts.update(piece["counts"])
    how_many = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    is_one = len(part.pieces) == 1
    skipped = {
        piece["skipped"] if is_one else f"{key}: {piece['skipped']}"
        for key, piece in done.items()
        if piece["skipped"]
    }
    if len(done) < len(part.pieces):
        pieces = ", ".join(spans(done, [piece.name for piece in part.pieces]))
        how_many += f"; {len(done)} of {len(part.pieces)} pieces ({pieces})"
    failed = [key for key, piece in done.items() if piece["failed"]]
    result = f"**failed**: {', '.join(failed)}" if failed else "no failure"
    if skipped:
        result += f"; some tests left out: {'; '.join(sorted(skipped))}"
    runs = ", ".join(sorted({piece["run"] for piece in done.values()}))
    seconds = sum(piece["seconds"] for piece in done.values())
    return f"| {name} | {part.what} | {how_many} | {result} | {runs}, {seconds:,} s |"


def spans(done: Iterable[str], names: Sequence[str]) -> list[str]:
    """The pieces done, neighbours together."""
    places = sorted(names.index(name) for name in done if name in names)
    found: list[list[int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return [
        names[first] if first == last else f"{names[first]} to {names[last]}"
        for first, last in found
    ]


def write(name: str, line: str, order: Sequence[str]) -> None:
    """Put a row in the place of that of the same part."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")
    }
    kept.pop("part", None)
    kept[name] = line
    head = "| part | what | how many | result | run |\n|---|---|---|---|---|"
    names = [*order, *(each for each in kept if each not in order)]
    lines = "\n".join(kept[each] for each in names if each in kept)
    PAGE.write_text(f"{before}{BEGIN}\n{head}\n{lines}\n{END}{after}")


def main() -> int:
    """Run the parts named, or all; 1 if a piece failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    every = parts(given.seconds)
    unknown = {name.partition("/")[0] for name in given.parts} - every.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    progress = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    failed = False
    for asked in given.parts or every:
        name, _, only = asked.partition("/")
        done = {} if given.again else progress.get(name, {})
        done = {key: piece for key, piece in done.items() if not piece["failed"]}
        part = every[name]
        left = [each for each in part.pieces if each.name not in done and only in ("", each.name)]
        with ThreadPoolExecutor(1 if part.runs_alone else given.processes) as executor:
            running = {executor.submit(run, piece): piece.name for piece in left}
            try:
                for future in as_completed(running):
                    done[running[future]] = future.result()
                    progress[name] = done
                    PROGRESS.parent.mkdir(exist_ok=True)
                    PROGRESS.write_text(json.dumps(progress, indent=1))
                    write(name, row(name, part, done), list(every))
            except KeyboardInterrupt:
                executor.shutdown(cancel_futures=True)
                raise
        print(row(name, part, done), flush=True)
        failed = failed or any(piece["failed"] for piece in done.values())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
