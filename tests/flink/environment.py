"""The environment of `make test-flink`, and programs that run in it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.flink.values import decoded

PROJECT = Path(__file__).resolve().parent.parent.parent
PYTHON = PROJECT / ".venv-flink" / "bin" / "python"
JAR = PROJECT / "flink_ext" / "java" / "flink" / "target" / "flink-fermion.jar"
ANSWER = b"fermion-answer "
SECONDS_MAX = 900
"""For an answer, or for what a test waits for: on a busy machine a job takes a minute."""
KILL_SECONDS_MAX = 20
LOG_SHOWN = 6000
# The first compiler alone, and one thread for garbage: lives as short as these mostly compile.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class FlinkError(Exception):
    """A statement failed; the message has the causes."""


def python_of_flink() -> Path:
    """The interpreter that has PyFlink; the test is skipped where there is none.

    FERMION_FLINK_PYTHON names another one.
    """
    python = Path(os.environ.get("FERMION_FLINK_PYTHON") or PYTHON)
    if not python.exists():
        pytest.skip(f"Flink is not installed ({python} is missing): run `make test-flink`")
    return python


def connector() -> Path:
    """The jar of the connector; the test is skipped where it was not built."""
    if not JAR.exists():
        pytest.skip(f"the connector is not built ({JAR} is missing): run `make flink`")
    return JAR


def child_environment() -> dict[str, str]:
    """The variables of a process of Flink: it imports this checkout, and nothing of ours else."""
    dropped = {"PYTHONHOME", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPATH": str(PROJECT), "JVM_ARGS": JVM, "JDK_JAVA_OPTIONS": JVM}


class FlinkProcess:
    """One process of `tests/flink/program.py`, which runs statements until it is ended.

    Parameters
    ----------
    scratch
        A folder for its log.
    settings
        Of Flink, for every request.
    """

    def __init__(self, scratch: Path, settings: Mapping[str, str] | None = None) -> None:
        self.log = scratch / "flink.log"
        self.settings = dict(settings or {})
        self._is_asked = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [python_of_flink(), "-m", "tests.flink.program"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=child_environment(),
                start_new_session=True,
            )

    def sql(
        self,
        *statements: str,
        batch: bool = True,
        settings: Mapping[str, str] | None = None,
        rows_max: int | None = None,
    ) -> list[tuple[str, tuple[Any, ...]]]:
        """Run statements one after the other; INSERTs are waited for.

        Parameters
        ----------
        rows_max
            Of the last statement: then its job is cancelled. A stream needs it.

        Returns
        -------
        The rows of the last statement, each with its kind: ``+I``, ``-U``, ``+U`` or ``-D``.

        Raises
        ------
        FlinkError
            A statement failed.
        TimeoutError
            No answer in time; the process is killed.
        """
        self.send(*statements, batch=batch, settings=settings, rows_max=rows_max)
        return self.rows()

    def send(
        self,
        *statements: str,
        batch: bool = True,
        settings: Mapping[str, str] | None = None,
        rows_max: int | None = None,
        savepoints: Path | None = None,
    ) -> None:
        """As `sql`, without waiting: `rows` returns the answer.

        Parameters
        ----------
        savepoints
            A folder: the job of an INSERT runs until it has a file ``stop``, then stops with a
            savepoint there, whose path is the one row of the answer.
        """
        request = {
            "statements": statements,
            "batch": batch,
            "settings": {**self.settings, **(settings or {})},
            "rows_max": rows_max,
            "savepoints": None if savepoints is None else str(savepoints),
        }
        assert self.process.stdin is not None
        self._is_asked = True
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The rows of what was sent; see `sql`."""
        answer = json.loads(self._answer())
        self._is_asked = False
        if "error" in answer:
            raise FlinkError(answer["error"])
        return [(kind, tuple(values)) for kind, values in decoded(answer["rows"])]

    @property
    def is_ready(self) -> bool:
        """Whether it takes a request: it runs, and has answered all before."""
        return self.process.poll() is None and not self._is_asked

    def _answer(self) -> bytes:
        assert self.process.stdout is not None
        end = time.monotonic() + SECONDS_MAX
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.kill()
                raise TimeoutError(f"no answer within {SECONDS_MAX} s:\n{self.logged()}")
            line = self.process.stdout.readline()
            if not line:
                raise FlinkError(f"the process of Flink ended:\n{self.logged()}")
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER)

    def logged(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-LOG_SHOWN:]

    def processes(self) -> list[int]:
        """The ids of its process group: its JVM, and their children."""
        group = self.process.pid
        return [pid for pid in _running() if pid != group and _group_of(pid) == group]

    def workers(self) -> list[int]:
        """The ids of the Python processes that read and write tables for it."""
        daemons = {pid for pid in self.processes() if b"flink_ext.daemon" in _command_of(pid)}
        return [pid for pid in daemons if _parent_of(pid) in daemons]

    def kill(self) -> None:
        """End it with SIGKILL, and all that it started in its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        end = time.monotonic() + KILL_SECONDS_MAX
        while self.processes() and time.monotonic() < end:
            time.sleep(0.05)

    def close(self) -> None:
        """End it as it ends by itself."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def flink_process(
    scratch: Path, settings: Mapping[str, str] | None = None
) -> Iterator[FlinkProcess]:
    """A process of Flink, killed at the end with all that it started."""
    process = FlinkProcess(scratch, settings)
    try:
        yield process
    finally:
        process.kill()


def wait_until(holds: Callable[[], bool], what: str, process: FlinkProcess | None = None) -> None:
    """Wait until something holds; TimeoutError after `SECONDS_MAX`, or if a process ends."""
    end = time.monotonic() + SECONDS_MAX
    while not holds():
        ended = process is not None and process.process.poll() is not None
        if ended or time.monotonic() > end:
            raise TimeoutError(f"{what}:\n{'' if process is None else process.logged()}")
        time.sleep(0.1)


@functools.cache
def python_of_workers() -> Path:
    """The interpreter of these tests, importing this checkout although workers drop PYTHONPATH."""
    program = Path(tempfile.mkdtemp(prefix="fermion-flink-")) / "python"
    atexit.register(shutil.rmtree, program.parent, ignore_errors=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{PROJECT}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


def use_catalog(warehouse: str, name: str = "lake") -> Sequence[str]:
    """Statements that make a catalog with workers of the tests' interpreter, and use it."""
    return (
        f"CREATE CATALOG {name} WITH ('type' = 'fermion', 'warehouse' = '{warehouse}', "
        f"'python.executable' = '{python_of_workers()}')",
        f"USE CATALOG {name}",
    )


def with_connector(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings with the jar of the connector."""
    return {"pipeline.jars": f"file://{connector()}", **(settings or {})}


def _running() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _group_of(pid: int) -> int | None:
    """The process group of a process; None if it has ended, though nobody has waited for it."""
    state, _, group = _facts_of(pid)
    return None if state in "ZX" else int(group)


def _parent_of(pid: int) -> int:
    return int(_facts_of(pid)[1])


def _facts_of(pid: int) -> list[str]:
    """State, parent and process group."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    return ["X", "0", "0"]


def _command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
