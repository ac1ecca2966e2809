"""A name node and data node in one, small: WebHDFS as its specification says, files in memory."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "/webhdfs/v1"


class WebHdfsServer(ThreadingHTTPServer):
    """Files by path; `renames_overwrite` makes it the careless storage that HDFS is not."""

    daemon_threads = True
    renames_overwrite = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, tuple[bytes, int]] = {}
        self.folders = {"/"}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"webhdfs://127.0.0.1:{self.server_address[1]}"

    def perform(self, op: str, path: str, query: dict[str, str], body: bytes) -> Any:
        """What an operation answers: JSON, bytes, or None where there is no such file."""
        with self.lock:
            return getattr(self, f"do_{op.lower()}")(path, query, body)

    def do_create(self, path: str, query: dict[str, str], body: bytes) -> Any:
        self.do_mkdirs(path.rpartition("/")[0], query, b"")
        self.files[path] = body, self.now()
        return {}

    def do_append(self, path: str, query: dict[str, str], body: bytes) -> Any:
        self.files[path] = self.files[path][0] + body, self.now()
        return {}

    def do_open(self, path: str, query: dict[str, str], body: bytes) -> Any:
        if path not in self.files:
            return None
        start = int(query.get("offset", 0))
        data = self.files[path][0]
        return data[start : start + int(query.get("length", len(data)))]

    def do_mkdirs(self, path: str, query: dict[str, str], body: bytes) -> Any:
        while path not in ("", "/"):
            self.folders.add(path)
            path = path.rpartition("/")[0]
        return {"boolean": True}

    def do_rename(self, path: str, query: dict[str, str], body: bytes) -> Any:
        target = query["destination"]
        taken = target in self.files and not self.renames_overwrite
        if path not in self.files or taken or target.rpartition("/")[0] not in self.folders:
            return {"boolean": False}
        self.files[target] = self.files.pop(path)
        return {"boolean": True}

    def do_delete(self, path: str, query: dict[str, str], body: bytes) -> Any:
        return {"boolean": self.files.pop(path, None) is not None}

    def do_getfilestatus(self, path: str, query: dict[str, str], body: bytes) -> Any:
        if path not in self.files and path not in self.folders:
            return None
        return {"FileStatus": self.status(path, "")}

    def do_liststatus(self, path: str, query: dict[str, str], body: bytes) -> Any:
        if path in self.files:
            return {"FileStatuses": {"FileStatus": [self.status(path, "")]}}
        if path not in self.folders:
            return None
        top = path.rstrip("/") + "/"
        inside = [
            each
            for each in (*self.files, *self.folders)
            if each.startswith(top) and each != top and "/" not in each[len(top) :]
        ]
        found = [self.status(each, each[len(top) :]) for each in sorted(inside)]
        return {"FileStatuses": {"FileStatus": found}}

    def status(self, path: str, suffix: str) -> dict[str, Any]:
        data, modified = self.files.get(path, (b"", 0))
        kind = "FILE" if path in self.files else "DIRECTORY"
        return {
            "pathSuffix": suffix, "type": kind, "length": len(data), "modificationTime": modified,
        }  # fmt: skip

    @staticmethod
    def now() -> int:
        return time.time_ns() // 1_000_000


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: WebHdfsServer

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = unquote(parts.path).removeprefix(PREFIX) or "/"
        op = query["op"].upper()
        if op in ("CREATE", "APPEND") and "datanode" not in query:
            location = f"http://{self.headers['Host']}{self.path}&datanode=true"
            self.reply(307, b"", Location=location)
            return
        found = self.server.perform(op, path, query, body)
        if found is None:
            error = {"exception": "FileNotFoundException", "message": f"no file {path}"}
            self.reply(404, json.dumps({"RemoteException": error}).encode())
        else:
            self.reply(200, found if isinstance(found, bytes) else json.dumps(found).encode())

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the base class's names

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""
