"""What the long forms did is counted and told as it was: in part, failed, left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import soak

PIECES = tuple(soak.Piece(f"{first}", ("-c", "")) for first in range(0, 50, 10))
PART = soak.Part("something", PIECES)


def done(**changes: object) -> dict[str, object]:
    kept = {"counts": {"seeds": 10}, "failed": False, "skipped": "", "seconds": 7, "run": "today"}
    return {**kept, **changes}


def test_a_whole_part_is_told_in_sums() -> None:
    line = soak.row("x", PART, {piece.name: done() for piece in PIECES})
    assert line == "| x | something | 50 seeds | no failure | today, 35 s |"


def test_a_part_that_was_stopped_says_how_far_it_came() -> None:
    line = soak.row("x", PART, {name: done() for name in ("0", "10", "20", "40")})
    assert "40 seeds; 4 of 5 pieces (0 to 20, 40)" in line


def test_failures_and_what_was_left_out_are_told() -> None:
    pieces = {"0": done(failed=True), "10": done(skipped="no server", counts={})}
    line = soak.row("x", PART, pieces)
    assert "**failed**: 0" in line
    assert "left out: 10: no server" in line


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ('.soak: {"seeds": 2, "commits": 5}\nsoak: {"seeds": 1}\n3 passed', (3, "seeds")),
        ("0 failures in seeds 1000 to 1999\n", (1_000, "damaged files")),
        ("Done 123 runs in 20 second(s)", (123, "inputs")),
        ("1 skipped, 36 passed in 2 s", (36, "tests")),
    ],
)
def test_a_piece_says_what_it_did(output: str, counts: tuple[int, str]) -> None:
    number, what = counts
    assert soak.counts_of(output)[what] == number


def test_the_pieces_cover_every_seed_and_every_test_is_there(project: Path) -> None:
    """Each address of pytest is one that it finds."""
    every = soak.parts(None)
    for name in ("simulation", "keyed_simulation", "transaction_simulation"):
        assert len(every[name].pieces) * soak.SEEDS_PER_PIECE == soak.SEEDS
    assert len(every["files"].pieces) * soak.DAMAGED_FILES_PER_PIECE == soak.DAMAGED_FILES
    addresses = {
        word
        for part in every.values()
        for piece in part.pieces
        for word in piece.command
        if word.startswith("tests/") and ".py" in word
    }
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *sorted(addresses)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2_000:]


def test_a_row_takes_the_place_of_that_of_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{soak.BEGIN}\n| a | 1 |\n| b | 2 |\n{soak.END}\nafter\n")
    monkeypatch.setattr(soak, "PAGE", page)
    soak.write("b", "| b | 3 |", ["b", "a"])
    lines = page.read_text().splitlines()
    assert lines[4:6] == ["| b | 3 |", "| a | 1 |"]
    assert (lines[0], lines[-1]) == ("before", "after")
