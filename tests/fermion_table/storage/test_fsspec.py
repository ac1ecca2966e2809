"""Silent and busy servers: one policy of trying again, and an end to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec.asyn
import pytest

import fermion
from fermion.deadline import TIMEOUT_S
from fermion.errors import InvalidArgumentError
from fermion.io.remote import ATTEMPTS, ask, connect
from fermion_table import StorageAccess, Table
from fermion_table.storage.fsspec import FsspecStore


class SilentServer:
    """Takes connections and requests, counts them and never answers."""

    def __init__(self) -> None:
        self.requests = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.held.append(connection)
            threading.Thread(target=self._count, args=(connection,), daemon=True).start()

    def _count(self, connection: socket.socket) -> None:
        while data := connection.recv(65_536):
            self.requests += data.count(b" HTTP/1.1\r\n")

    def close(self) -> None:
        self.socket.close()
        for connection in self.held:
            connection.close()


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    server = SilentServer()
    yield server
    server.close()


def options_of(server: SilentServer, scheme: str) -> tuple[str, dict[str, Any]]:
    if scheme == "http":
        pytest.importorskip("aiohttp")
        return f"{server.url}/t", {}
    pytest.importorskip("s3fs")
    keys = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": server.url}}
    return "s3://bucket/t", keys


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_silent_server_ends_every_call_in_time(
    silent: SilentServer, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a deadline of half a second no request waits longer, and a call sends few of them."""
    waits: list[float] = []
    sync = fsspec.asyn.sync

    def recorded(*arguments: Any, timeout: float, **keywords: Any) -> Any:
        waits.append(timeout)
        return sync(*arguments, timeout=timeout, **keywords)

    monkeypatch.setattr(fsspec.asyn, "sync", recorded)
    url, options = options_of(silent, scheme)
    store = FsspecStore(url, storage_options=options, access=StorageAccess(timeout_s=0.5))
    read = fermion.ReadOptions(timeout_s=0.5)
    for call in (
        lambda: store.read("snapshot/LATEST"),
        lambda: store.exists("snapshot/0.json"),
        lambda: list(store.list()),
        lambda: fermion.open(f"{url}/data/x.fermion", storage_options=options, options=read),
        lambda: Table.open(url, storage_options=options, access=store.access),
    ):
        before = silent.requests
        waits.clear()
        with pytest.raises(fermion.StorageTimeout) as raised:
            call()
        assert 0 < len(waits) <= ATTEMPTS
        assert 0 < min(waits) <= max(waits) <= 0.5
        assert silent.requests - before <= ATTEMPTS
        assert isinstance(raised.value, TimeoutError)
        assert "t" in raised.value.url


class Busy:
    """A file system whose methods fail as told, on a clock that only `sleep` moves."""

    protocol = "http"

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.now = 0.0

    def cat_file(self, path: str) -> bytes:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return b"data"

    def ask(self, **further: Any) -> Any:
        return ask(self, "cat_file", "x", clock=lambda: self.now, sleep=self.sleep, **further)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class AnswerError(Exception):
    """What aiohttp raises for a status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def test_a_busy_server_is_asked_again_but_not_for_ever() -> None:
    assert Busy(AnswerError(503), ConnectionError()).ask() == b"data"
    busy = Busy(*[AnswerError(503)] * 20)
    with pytest.raises(AnswerError):
        busy.ask()
    assert busy.calls == ATTEMPTS
    busy = Busy(*[AnswerError(503)] * 20)
    with pytest.raises(AnswerError):
        busy.ask(timeout_s=0.3)
    assert busy.calls < ATTEMPTS
    assert busy.now < 0.3


@pytest.mark.parametrize(
    "error", [AnswerError(403), AnswerError(404), FileNotFoundError(), KeyError()]
)
def test_what_will_not_pass_is_asked_once(error: Exception) -> None:
    busy = Busy(error, error)
    with pytest.raises(type(error)):
        busy.ask()
    assert busy.calls == 1


def test_changes_and_clients_that_try_again_themselves_are_asked_once() -> None:
    """Else their tries multiply."""
    for busy, further in (
        (Busy(AnswerError(503)), {"repeats": False}),
        (Busy(AnswerError(503)), {}),
    ):
        busy.protocol = "http" if further else "s3"  # type: ignore[misc]
        with pytest.raises(AnswerError):
            busy.ask(**further)
        assert busy.calls == 1


def test_one_of_the_clients_of_s3_tries_again() -> None:
    pytest.importorskip("s3fs")
    filesystem, path = connect("s3://bucket/t", {"key": "k", "secret": "s"})
    assert path == "bucket/t"
    assert filesystem.retries == 1
    assert filesystem.config_kwargs["retries"]["total_max_attempts"] == ATTEMPTS
    mine = {"key": "k", "secret": "s", "config_kwargs": {"retries": {"total_max_attempts": 9}}}
    assert connect("s3://bucket/t", mine)[0].config_kwargs["retries"]["total_max_attempts"] == 9
    assert "mode" not in mine["config_kwargs"]["retries"]  # type: ignore[index,operator]


def test_a_hdfs_client_has_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    filesystem, _ = connect("webhdfs://127.0.0.1:1/t")
    timed = filesystem.session.request
    sent: list[float] = []
    monkeypatch.setattr(timed, "_request", lambda *_, timeout, **__: sent.append(timeout))
    filesystem.session.request("GET", "http://127.0.0.1:1/")
    assert sent == [TIMEOUT_S]
    assert connect("webhdfs://127.0.0.1:1/t")[0].session.request is timed


@pytest.mark.parametrize("timeout_s", [None, "1", 0, -1, float("nan"), float("inf"), True])
def test_time_outs_are_checked(timeout_s: Any) -> None:
    for options in (fermion.ReadOptions, StorageAccess):
        with pytest.raises((TypeError, InvalidArgumentError), match="timeout_s"):
            options(timeout_s=timeout_s)


class WholeFiles(BaseHTTPRequestHandler):
    """A web server that ignores ranges."""

    data = bytes(2_000_000)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        self.wfile.write(self.data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


def test_servers_without_ranges_are_told_as_such(tmp_path: Any) -> None:
    """A file larger than what is read at its end: the first range shows it."""
    pytest.importorskip("aiohttp")
    import numpy as np
    import pyarrow as pa

    values = np.random.default_rng(1).integers(0, 1 << 60, 300_000)
    fermion.write_table(pa.table({"a": values}), tmp_path / "x.fermion")
    WholeFiles.data = (tmp_path / "x.fermion").read_bytes()
    server = ThreadingHTTPServer(("127.0.0.1", 0), WholeFiles)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/x.fermion"
        with pytest.raises(fermion.StorageError, match="does not support ranges"):
            fermion.FermionFile(url).read()
    finally:
        server.shutdown()
        server.server_close()
