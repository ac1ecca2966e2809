"""What the README promises: its code runs, its commands exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import PROJECT, pages_with_needs

README = PROJECT / "README.md"
BLOCK = re.compile(r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(README.read_text())
# A comment names the modules that the blocks below it need, up to the next such comment. They run
# after the blocks of the page that need none.
STEP = re.compile(
    r"^<!-- requires:(?P<needs>[^>]*)-->$|^```(?P<language>python|shell)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


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


def programs(page: Path) -> dict[tuple[str, ...], str]:
    """The programs of a page on other libraries, by the modules that they need."""
    found: dict[tuple[str, ...], list[str]] = {}
    needs: tuple[str, ...] = ()
    for comment, language, code in STEP.findall(page.read_text()):
        if not language:
            needs = tuple(comment.replace(",", " ").split())
            continue
        run_in_shell = f"__import__('subprocess').run({code!r}, shell=True, check=True)"
        found.setdefault(needs, []).append(code if language == "python" else run_in_shell)
    first = found.get((), [])
    return {needs: "\n".join([*(first if needs else []), *steps]) for needs, steps in found.items()}


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
    environment = {**environment, "PATH": os.pathsep.join([commands, environment["PATH"]])}
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


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.M)
    for command in re.findall(r"\bmake ([a-z]+)", README.read_text()):
        assert command in targets
