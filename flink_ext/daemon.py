"""Forks Python workers for a JVM: ``python -m flink_ext.daemon MODULE``.

It imports the module once, so that a worker begins at once. It prints the path of a socket; each
connection gets a worker, which sends a line ``{"pid": ..., "log": ...}`` and then runs
``MODULE.serve(source, sink)``. What a worker prints goes to its log, whose last line says how it
ended. A worker ends with its connection; the daemon ends with its standard input, and all workers
with it.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType

SOCKET_PATH_BYTES_MAX = 100
"""Of a Unix socket: Linux takes 107 bytes, macOS 103."""
_END_SECONDS_MAX = 2.0
_POLL_SECONDS = 0.02


class Daemon:
    """Listens, forks and reaps, in one thread.

    module: Its function ``serve(source, sink)`` is what workers run.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._folder = _private_folder()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._wakes, self._woken = socket.socketpair()
        self._running: dict[int, Path] = {}  # logs by process

    def run(self) -> None:
        """Fork workers until the standard input ends; then end those that are left."""
        path = self._folder / "socket"
        try:
            self._listener.bind(str(path))
            self._listener.listen(128)
            for end in (self._wakes, self._woken):
                end.setblocking(False)
            signal.signal(signal.SIGCHLD, _nothing)
            signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
            print(path, flush=True)
            self._listen()
        finally:
            self._end_workers()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as ready:
            for source in (sys.stdin.fileno(), self._listener, self._wakes):
                ready.register(source, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._listener:
                        self._fork()
                    elif key.fileobj is self._wakes:
                        self._wakes.recv(4096)
                        self._reap()
                    elif not os.read(sys.stdin.fileno(), 4096):
                        return

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            pid = os.fork()
            if pid:
                self._running[pid] = self._log(pid)
                return
            code = 1
            try:
                self._work(connection)
                code = 0
            except BaseException:  # noqa: BLE001 - a fork must not go on as the daemon
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def _work(self, connection: socket.socket) -> None:
        """What a worker does, in its process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._listener.close()
        self._wakes.close()
        self._woken.close()
        log = self._log(os.getpid())
        nothing = os.open(os.devnull, os.O_RDONLY)
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for file, number in ((nothing, 0), (written, 1), (written, 2)):
            os.dup2(file, number)
            os.set_inheritable(number, True)
        os.close(nothing)
        os.close(written)
        with connection.makefile("rb") as source, connection.makefile("wb") as sink:
            sink.write(json.dumps({"pid": os.getpid(), "log": str(log)}).encode() + b"\n")
            sink.flush()
            self._module.serve(source, sink)

    def _log(self, pid: int) -> Path:
        return self._folder / f"worker-{pid}.log"

    def _reap(self) -> None:
        """Note how workers ended; the logs of those that ended well are not needed."""
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            log, code = self._running.pop(pid), os.waitstatus_to_exitcode(status)
            if code == 0:
                log.unlink(missing_ok=True)
                continue
            how = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
            with log.open("a") as stream:
                stream.write(f"worker ended: {how}\n")

    def _end_workers(self) -> None:
        self._listener.close()
        for ending in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _END_SECONDS_MAX
            while self._running and time.monotonic() < deadline:
                self._reap()
                time.sleep(_POLL_SECONDS)
            for pid in self._running:
                os.kill(pid, ending)


def _private_folder() -> Path:
    """A folder that only this user can enter, whose path is short enough for a socket."""
    folder = tempfile.mkdtemp(prefix="fermion-")
    if len(os.fsencode(folder)) + len("/socket") > SOCKET_PATH_BYTES_MAX:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="fermion-", dir="/tmp")
    return Path(folder)


def _nothing(*signal: object) -> None:
    """Wake the selector, whose socket the interpreter writes to."""


def main() -> None:
    """Run a daemon for the module that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m flink_ext.daemon MODULE")
    for number in (signal.SIGINT, signal.SIGTERM):  # those of a terminal are for the JVM
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    module = importlib.import_module(sys.argv[1])
    if not hasattr(module, "serve"):
        sys.exit(f"{sys.argv[1]} has no function serve(source, sink)")
    Daemon(module).run()


if __name__ == "__main__":
    main()
