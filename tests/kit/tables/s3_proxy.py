"""A proxy before a server of S3 that lets requests fail as networks and servers do.

What clients send and receive are real HTTP messages, so that their own way to try again is a part
of what is tested.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

HOP_HEADERS = {"connection", "expect", "keep-alive", "transfer-encoding"}
SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Request:
    """One request of S3."""

    method: str
    path: str
    query: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}{'?' * bool(self.query)}{self.query}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What becomes of a request.

    Attributes
    ----------
    code, status
        An error of S3 in place of the server's answer; the server does not get the request.
    wait_s
        How long the answer is held back.
    loses_reply
        The server carries the request out, and the connection ends without an answer.
    body_bytes
        How much of the answer's body is sent before the connection ends; None: all.
    """

    code: str = ""
    status: int = 503
    wait_s: float = 0
    loses_reply: bool = False
    body_bytes: int | None = None


SLOW_DOWN = Fault(code="SlowDown", status=503)
LOST_REPLY = Fault(loses_reply=True)

Rule = Callable[[Request], Fault | None]


class Proxy:
    """Stands before a server from `start` on; requests that no rule concerns pass."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target).netloc
        self.rules: list[Rule] = []
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextlib.contextmanager
    def failing(
        self, pattern: str, fault: Fault | None = None, times: int = 1_000_000, *, skip: int = 0
    ) -> Iterator[list[Request]]:
        """Let requests fail within the block; which did.

        Parameters
        ----------
        pattern
            A regular expression for requests such as ``PUT /bucket/key?uploadId=1``.
        times
            How many.
        skip
            How many pass before.
        """
        failed: list[Request] = []
        passing = [skip]

        def rule(request: Request) -> Fault | None:
            if not re.search(pattern, str(request)):
                return None
            with self.lock:
                if passing[0]:
                    passing[0] -= 1
                    return None
                if len(failed) == times:
                    return None
                failed.append(request)
            return fault

        self.rules.insert(0, rule)
        try:
            yield failed
        finally:
            self.rules.remove(rule)

    @contextlib.contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the requests within the block by method."""
        found: Counter[str] = Counter()
        first = len(self.requests)
        yield found
        found.update(each.method for each in self.requests[first:])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def handle_error(self, *_: object) -> None:
        """Connections that were cut need not be told of."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        """Read a request, and answer it as the rules say."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        request = Request(self.command, unquote(parts.path), parts.query)
        proxy = self.server.proxy
        proxy.requests.append(request)
        fault = next((found for rule in list(proxy.rules) if (found := rule(request))), Fault())
        if fault.code:
            self._refuse(fault)
            return
        try:
            status, headers, answer = self._forward(body)
        except (OSError, HTTPException):
            self._break()
            return
        time.sleep(fault.wait_s)
        if fault.loses_reply:
            self._break()
            return
        self._send(status, headers, answer, fault.body_bytes)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(self.server.proxy.target, timeout=SECONDS_MAX)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in HOP_HEADERS:
                    connection.putheader(name, value)
            connection.endheaders(body)
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>injected {fault.code}</Message></Error>"
        headers = [("Content-Type", "application/xml")]
        self._send(fault.status, headers, text.encode(), None)

    def _send(
        self, status: int, headers: list[tuple[str, str]], body: bytes, sent: int | None
    ) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # that of HEAD is longer than its body
            elif name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body[:sent])
        self.wfile.flush()
        if sent is not None:
            self._break()

    def _break(self) -> None:
        """End the connection by a reset."""
        self.close_connection = True
        linger: Any = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
