"""Runs programs that have a Spark session of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS_MAX = 500


def run_program(arguments: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Run a Python program in a directory, with Spark's scratch files there; it must succeed.

    Parameters
    ----------
    arguments
        Of the interpreter: ``["-c", TEXT, ...]`` or ``["-m", MODULE, ...]``.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**environment, "SPARK_LOCAL_DIRS": str(directory / "spark")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
