"""Runs a page of the documentation as its reader does: its code blocks one after the other.

All blocks of a page share their names and one directory.

- ``python`` is executed; its own assertions say what should come out.
- ``sql`` goes to the session ``spark`` that the page has made, a statement for each semicolon.
- ``shell``: ``fermion ...`` and ``python -m ...`` run in this process, as each would otherwise load
  everything again; of ``pip install`` the extras are looked up in `pyproject.toml`. With ``&`` at
  its end a command runs until the page ends; the page goes on when it has said where it listens.
- ``text output`` is what the block before it has printed, exactly. Other ``text`` and ``json`` are
  for the eye. No other language may be named, and none may be missing, so that no code escapes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import pytest

import fermion.cli
from tests.kit.declared_commands import declared_commands
from tests.kit.documents import PROJECT, Block, blocks

PROGRAM = """
import importlib.metadata
from tests.kit.declared_commands import declared_commands
importlib.metadata.entry_points = declared_commands
from fermion.cli import main
raise SystemExit(main())
"""
"""The program `fermion` in a process of its own."""
RUN = {"python", "sql", "shell"}
SHOWN = {"text", "json"}


def run_page(
    page: Path,
    directory: Path,
    patch: pytest.MonkeyPatch,
    *,
    replaced: Mapping[str, str] | None = None,
    skipped: Container[str] = (),
) -> None:
    """Run the blocks of a page in a directory.

    Parameters
    ----------
    replaced
        Texts of its code, such as the address of a server, and what stands there instead.
    skipped
        What blocks are marked with, after their language, that are left out.

    Raises
    ------
    AssertionError
        A command fails, or a block can't be run; the message names the line of the page.
    """
    patch.chdir(directory)
    try:
        run_blocks(page, patch, replaced or {}, skipped)
    finally:
        while STARTED:
            process = STARTED.pop()
            process.kill()
            process.communicate()


STARTED: list[subprocess.Popen[str]] = []
"""What runs until the page ends."""


def run_blocks(
    page: Path, patch: pytest.MonkeyPatch, replaced: Mapping[str, str], skipped: Container[str]
) -> None:
    """Run the blocks of a page in the current directory."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    for block in blocks(page):
        where = f"{page.relative_to(PROJECT)}:{block.line}"
        if block.language in SHOWN:
            assert block.marks != "output" or printed.getvalue() == block.code, where
            continue
        if block.marks in skipped:
            continue
        assert block.language in RUN, f"{where}: a block of {block.language or 'no language'}"
        code = block.code
        for text, other in replaced.items():
            code = code.replace(text, other)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run_block(block._replace(code=code), names, page, where, patch)


def run_block(
    block: Block, names: dict[str, Any], page: Path, where: str, patch: pytest.MonkeyPatch
) -> None:
    """Run one block with the names of its page."""
    if block.language == "python":
        # The lines of the page, so that a traceback shows them.
        exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
    elif block.language == "sql":
        run_sql(block, names["spark"])
    else:
        for command in commands(block):
            run_command(command, where, patch)


def run_sql(block: Block, spark: Any) -> None:
    """Run the statements of a block, and compute all rows of their results."""
    text = re.sub(r"--.*", "", block.code)
    for statement in filter(str.strip, text.split(";")):
        spark.sql(statement).collect()


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block, without comments."""
    joined = block.code.replace("\\\n", " ")
    words = [shlex.split(line, comments=True) for line in joined.splitlines()]
    return [command for command in words if command]


def run_command(command: list[str], where: str, patch: pytest.MonkeyPatch) -> None:
    """Run one command; its exit status must be 0."""
    program, *arguments = command
    if command[:2] == ["pip", "install"]:
        extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        for extra in re.findall(r"\[(.*)\]", " ".join(arguments)):
            assert set(extra.split(",")) <= set(extras["optional-dependencies"]), where
    elif program == "fermion" and arguments[-1] == "&":
        start_program(arguments[:-1], where)
    elif program == "fermion":
        with patch.context() as for_the_program:
            for_the_program.setattr("importlib.metadata.entry_points", declared_commands)
            assert not fermion.cli.main(arguments), f"{where}: {shlex.join(command)}"
    elif command[:2] == ["python", "-m"]:
        patch.setattr(sys, "argv", arguments[1:])
        assert not exit_status(arguments[1]), f"{where}: {shlex.join(command)}"
    else:
        pytest.fail(f"{where}: {program} is not a program that pages may call")


def start_program(arguments: list[str], where: str) -> None:
    """Start `fermion` as a process of its own, and wait until it says where it listens."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    STARTED.append(process)
    assert process.stdout is not None
    assert any(line.startswith("listening") for line in process.stdout), where


def exit_status(module: str) -> Any:
    """Run a module as a program; what it exits with."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code
    return 0
