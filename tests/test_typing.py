"""What type checkers say of the public API: wrong names of options are errors."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

from fermion import WriteOptions
from fermion.options import WriteOverrides

PROJECT = Path(__file__).resolve().parent.parent
CASES = "tests/typing_cases.py"


def test_wrong_options_are_errors_and_results_have_their_types(project_environment):
    """mypy, with the cache of `make lint`; a GitHub workflow runs pyright on the same file."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", CASES],
        cwd=PROJECT,
        env=project_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_options_of_calls_are_those_of_write_options():
    """Each is written twice: a type checker can't derive one from the other."""
    options = get_type_hints(WriteOptions)
    names = {field.name for field in dataclasses.fields(WriteOptions)}
    assert get_type_hints(WriteOverrides) == {name: options[name] for name in names}
