"""Servers that tests and benchmarks run on the loopback interface: processes, ports and one folder.

Everything of a set of servers lies in one folder, which is deleted at the end. A small guard waits
for the process that started them, and ends the servers and deletes the folder when that was killed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60
# The guard: reads until the pipe to its parent is closed, then ends what still runs.
GUARD = """
cat > /dev/null
for file in "$1"/*.pid; do [ -f "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null; done
rm -rf "$1"
"""


class NotAvailableError(Exception):
    """Servers can't be started on this machine; the message says what is missing."""


class Servers:
    """Servers that belong together, from `start` until `stop`; a context manager.

    Parameters
    ----------
    folder
        Where they keep everything: must not exist, and does not afterwards.

    Attributes
    ----------
    what
        What they are, for messages.
    """

    what = "the servers"

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything, and wait until it can be used.

        Raises
        ------
        NotAvailableError
            Something is missing on this machine, or a server did not start.
        """
        self._check()
        self.folder.mkdir(parents=True)
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise

    def _check(self) -> None:
        """Find what the servers need, or say what is missing."""

    def _start_all(self) -> None:
        """Start every server, in a folder that is there."""
        raise AssertionError(f"{type(self).__name__} starts nothing")

    def stop(self) -> None:
        """End everything, and delete the folder; a second call does nothing."""
        for name in list(self._processes):
            self.kill(name)
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something; a server that ended meanwhile is an error."""
        ends = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError, KeyError):
                if holds():
                    return
            for name, process in list(self._processes.items()):
                if process.poll() is not None:
                    self._ended(name)
            if time.monotonic() > ends:
                logs = {name: self.log(name)[-500:] for name in self._processes}
                raise NotAvailableError(f"{what} was not ready in {START_SECONDS_MAX} s: {logs}")
            time.sleep(0.1)

    def _ended(self, name: str) -> None:
        """Say that a server ended that is waited for."""
        raise NotAvailableError(f"{name} of {self.what} ended: {self.log(name)[-2000:]}")

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        """End a server, at once unless another signal is given.

        Nothing happens if it does not run.
        """
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        (self.folder / f"{name}.pid").unlink(missing_ok=True)

    def signal(self, name: str, how: int) -> None:
        """Send a signal to a server that goes on: ``SIGSTOP``, ``SIGCONT``."""
        self._processes[name].send_signal(how)

    def running(self) -> list[str]:
        """Names of the servers that run."""
        return sorted(self._processes)

    def log(self, name: str) -> str:
        """What a server has said."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _run(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a server, in a session of its own."""
        if name in self._processes:
            raise ValueError(f"{name} runs already")
        with (self.folder / f"{name}.log").open("ab") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environment,
                start_new_session=True,
            )
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        self._processes[name] = process


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            held = stack.enter_context(socket.socket())
            held.bind((HOST, 0))
            found.append(int(held.getsockname()[1]))
        return found
