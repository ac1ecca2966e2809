"""A store with 20 ms latency: a local folder behind fsspec that counts requests and bytes."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

LATENCY_SECONDS = 0.020


class SlowFileSystem(AbstractFileSystem):
    """Reads as S3 answers: every request waits, whatever its length; a range may be a suffix.

    Attributes
    ----------
    requests
        Looks at a file's size and reads of ranges.
    bytes_read
        Bytes of those ranges.
    rounds
        Waits for an answer, one after the other: a request begins a new round if the first of
        the round before has been answered.
    """

    protocol = ("slow", "s3")
    cachable = True  # one instance, so that its counters see everything

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.local = LocalFileSystem()
        self.lock = threading.Lock()
        self.requests = 0
        self.bytes_read = 0
        self.rounds = 0
        self._answered = 0.0  # when the first request of this round is, by the monotonic clock

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("slow://")

    def unstrip_protocol(self, name: str) -> str:
        return f"slow://{self._strip_protocol(name)}"

    def answer(self, length: int = 0) -> None:
        """Count a request and wait as long as a store would take."""
        with self.lock:
            self.requests += 1
            self.bytes_read += length
            if time.monotonic() >= self._answered:
                self.rounds += 1
                self._answered = time.monotonic() + LATENCY_SECONDS
        time.sleep(LATENCY_SECONDS)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self.answer()
        return self.local.info(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        self.answer()
        return self.local.ls(self._strip_protocol(path), detail=detail)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        data = self.range(path, start or 0, end)
        self.answer(len(data))
        return data

    def range(self, path: str, start: int, end: int | None) -> bytes:
        """Bytes of a file, uncounted; a negative start counts from the end."""
        with open(self._strip_protocol(path), "rb") as file:
            file.seek(max(start, -os.fstat(file.fileno()).st_size), 2 if start < 0 else 0)
            return file.read() if end is None else file.read(end - file.tell())

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            raise PermissionError(f"{path}: mode {mode!r}: this store is read-only")
        return SlowFile(self, path, mode, cache_type="none")


class SlowFile(AbstractBufferedFile):
    """An open file of the store; each of its reads is a request."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)


def slow_file_system() -> SlowFileSystem:
    """The one instance of this process, registered as ``slow://``."""
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    found: SlowFileSystem = fsspec.filesystem("slow")
    return found
