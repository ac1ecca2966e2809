"""What the README promises: its code runs, its commands exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.documents import BLOCKS, PROJECT, README, pages_with_needs, programs


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            code,
            id=f"block{number}",
            marks=[pytest.mark.spark, pytest.mark.slow] if mark.strip() else [],
        )
        for number, (mark, code) in enumerate(BLOCKS, start=1)
    ],
)
def test_the_code_in_the_readme_runs(code, tmp_path, project_environment):
    """Each block alone, in an empty directory; its own assertions say what should come out.

    Without a JVM for it alone, the block of Spark runs in tests/claims/spark_ext/test_examples.py.
    """
    run(code, tmp_path, project_environment)


@pytest.mark.parametrize(
    ("page", "needs"),
    [
        pytest.param(page, needs, id="-".join([page.stem, *needs]))
        for page in pages_with_needs()
        for needs in programs(page)
    ],
)
def test_the_code_for_other_libraries_runs(page, needs, tmp_path, project_environment):
    """The blocks of a page that need the same libraries, in one program."""
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{page.name} is about {', '.join(missing)}, which is not installed here")
    run(programs(page)[needs], tmp_path, project_environment)


def run(code: str, directory: Path, environment: dict[str, str]) -> None:
    """Run a program from a file, so that processes which are spawned can import it."""
    program = directory / "program" / "page.py"
    program.parent.mkdir()
    program.write_text(code)
    commands = str(Path(sys.executable).parent)
    environment = {
        **environment,
        "PATH": os.pathsep.join([commands, environment["PATH"]]),
        "RAY_worker_niceness": "0",  # with 15, workers take minutes to start on a busy machine
    }
    done = subprocess.run(
        [sys.executable, program],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_code_for_each_package():
    """The pattern that finds the blocks may break; then the test above would check nothing."""
    for package in ("fermion", "fermion_table", "spark_ext"):
        assert any(re.search(rf"\b(import|from) {package}\b", code) for _, code in BLOCKS)


def test_continuous_integration_calls_the_command_that_the_readme_names():
    """The README's table has the command for the tests; `.ci/run` calls it first."""
    named = re.findall(r"^\| `(make [a-z-]+)` \|", README.read_text(), re.M)
    assert named == ["make demo", "make test"]
    script = (PROJECT / ".ci" / "run").read_text()
    assert re.findall(r"^make .+$", script, re.M) == [named[1], "make test-services"]


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.M)
    for command in re.findall(r"\bmake ([a-z]+)", README.read_text()):
        assert command in targets
