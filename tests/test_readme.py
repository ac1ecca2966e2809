"""What README and the pages for users promise: code runs, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
README = PROJECT / "README.md"
BLOCK = re.compile(r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(README.read_text())
PAGES = {
    name: BLOCK.findall((PROJECT / "docs" / name).read_text())
    for name in ("guide.md", "primary_key.md", "catalog.md")
}


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

    Without a JVM for it alone, the block of Spark runs in tests/spark_ext/test_examples.py.
    """
    run(code, tmp_path, project_environment)


@pytest.mark.parametrize("name", PAGES)
def test_the_code_in_the_pages_for_users_runs(name, tmp_path, project_environment):
    """All blocks of a page in one program, as a reader runs them one after the other."""
    assert len(PAGES[name]) >= 10
    run("\n".join(code for _, code in PAGES[name]), tmp_path, project_environment)


def run(code: str, directory: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
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


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.M)
    for command in re.findall(r"\bmake ([a-z]+)", README.read_text()):
        assert command in targets
