"""The daemon forks a worker for each connection; none outlives its connection or the daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SECONDS_MAX = 60.0
COMMAND = [sys.executable, "-m", "flink_ext.daemon"]


class Worker:
    """A connection to a worker."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(address)
        self.source = self._socket.makefile("rb")
        greeting = json.loads(self.source.readline())
        self.pid, self.log = greeting["pid"], Path(greeting["log"])

    def ask(self, **request: Any) -> Any:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = self.source.readline()
        return json.loads(answer) if answer else None

    def close(self) -> None:
        self.source.close()
        self._socket.close()


@contextmanager
def daemon(**environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*COMMAND, "tests.kit.echo_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(timeout=SECONDS_MAX)
        process.stdout.close()


def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_connection_has_a_worker_of_its_own():
    with daemon() as (_, address):
        first, second = Worker(address), Worker(address)
        assert first.ask(op="echo", text="a")["before"] == 0
        assert second.ask(op="echo", text="b")["before"] == 0
        assert first.ask(op="echo", text="c")["before"] == 1
        assert first.pid != second.pid
        first.close()
        second.close()


def test_a_worker_ends_with_its_connection_and_others_go_on():
    with daemon() as (_, address):
        first, second = Worker(address), Worker(address)
        first.close()
        until(lambda: not is_running(first.pid))
        until(lambda: not first.log.exists())
        assert second.ask(op="echo", text="b")["text"] == "b"
        second.close()


def test_the_log_of_a_worker_that_dies_says_what_it_printed_and_how_it_ended():
    with daemon() as (_, address):
        worker = Worker(address)
        assert worker.ask(op="die") is None
        until(lambda: "worker ended" in worker.log.read_text())
        assert worker.log.read_text() == "dying as asked\nworker ended: signal SIGKILL\n"
        worker.close()


def test_the_log_of_a_worker_that_fails_has_the_error():
    with daemon() as (_, address):
        worker = Worker(address)
        worker.ask(op="count", to=3, fails_at=1)
        until(lambda: "worker ended" in worker.log.read_text())
        assert "ArithmeticError: no number 1\nworker ended: exit code 1" in worker.log.read_text()
        worker.close()


def test_workers_and_files_are_gone_when_the_standard_input_ends():
    with daemon() as (process, address):
        workers = [Worker(address) for _ in range(3)]
        process.stdin.close()  # as the JVM does when it ends; its sockets close then too
        for worker in workers:
            worker.close()
        assert process.wait(timeout=SECONDS_MAX) == 0
    assert not any(is_running(worker.pid) for worker in workers)
    assert not Path(address).parent.exists()


def test_workers_that_do_not_end_are_killed_with_the_daemon():
    """One is stopped, and can't see that its connection is closed."""
    with daemon() as (process, address):
        worker = Worker(address)
        os.kill(worker.pid, signal.SIGSTOP)
        process.stdin.close()
        assert process.wait(timeout=SECONDS_MAX) == 0
        until(lambda: not is_running(worker.pid))
        worker.close()


def test_workers_end_with_their_connections_where_the_daemon_was_killed():
    with daemon() as (process, address):
        worker = Worker(address)
        process.kill()
        process.wait()
        assert worker.ask(op="echo", text="a")["text"] == "a"
        worker.close()
        until(lambda: not is_running(worker.pid))
        shutil.rmtree(Path(address).parent)  # in life the JVM does it


def test_nobody_else_can_connect():
    with daemon() as (_, address):
        assert Path(address).parent.stat().st_mode & 0o077 == 0


def test_a_long_temporary_folder_is_not_too_long_for_a_socket(tmp_path: Path):
    long = tmp_path / ("t" * 100)
    long.mkdir()
    with daemon(TMPDIR=str(long)) as (_, address):
        worker = Worker(address)
        assert worker.ask(op="echo", text="a")["text"] == "a"
        worker.close()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "usage: python -m flink_ext.daemon MODULE"),
        (["a", "b"], "usage: python -m flink_ext.daemon MODULE"),
        (["tests.kit.no_such_module"], "No module named 'tests.kit.no_such_module'"),
        (["json"], "json has no function serve(source, sink)"),
    ],
)
def test_a_wrong_command_line_is_an_error_before_anything_is_started(arguments, expected):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert expected in done.stderr
    assert done.stdout == ""
