"""The environment of `make paimon`, and programs that run in it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.rival_spark import FOLDER, JARS

HERE = Path(__file__).parent
SECONDS_MAX = 7200


def carried_out(program: str, jar: str, histories: list[dict], scratch: Path) -> dict[str, dict]:
    """Carry out histories with a program of this folder; return its results by name.

    The test is skipped where the environment lacks the library.

    Parameters
    ----------
    jar
        A pattern of the library's file name.
    """
    python = FOLDER / "bin" / "python"
    jars = sorted(JARS.glob(jar))
    if not (FOLDER / "ready").exists() or not jars:
        pytest.skip(f"Paimon's Java engine ({jar}) is not installed: run `make paimon`")
    given, found = scratch / "histories.jsonl", scratch / "results.jsonl"
    given.write_text("".join(json.dumps(each) + "\n" for each in histories), encoding="utf-8")
    done = subprocess.run(
        [python, HERE / program, jars[-1], given, found],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    results = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()]
    assert len(results) == len(histories)
    return {each["name"]: each for each in results}
