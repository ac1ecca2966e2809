"""Files of a directory over HTTP, so that each request is seen, whichever process makes it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DATA = "/data/"


@dataclass
class Served:
    """A directory's address, and what was asked of the data files below it.

    Attributes
    ----------
    url
        Of the directory.
    asked
        Path and bytes of the answer, for each request that found a data file.
    """

    url: str
    asked: list[tuple[str, int]] = field(default_factory=list)

    def taken(self) -> list[tuple[str, int]]:
        """What was asked since the last call, sorted."""
        found = sorted(self.asked)
        self.asked.clear()
        return found


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    """Serve the files below a directory on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are used again

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def log_message(self, *words: object) -> None:
            """Nothing is printed."""

        def _answer(self, *, with_body: bool) -> None:
            file = directory / self.path.strip("/")
            content = file.read_bytes() if file.is_file() else b""
            status, size, start = 200 if file.is_file() else 404, len(content), 0
            wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if status == 200 and wanted:
                first, last = wanted.groups()
                start = int(first) if first else max(0, size - int(last))
                content = content[start : int(last) + 1 if first and last else size]
                status = 206
            self.send_response(status)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(content)))
            if status == 206:
                end = start + len(content) - 1
                self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
            self.end_headers()
            if DATA in self.path and status != 404:
                found.asked.append((self.path, len(content) * with_body))
            if with_body:
                self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Served(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()
