"""What the files that a scan opened were asked for, added up over threads."""

from __future__ import annotations

from typing import Any

import fermion
from fermion.forks import Lock


class IoTotals:
    """Sums of the `io_stats` of files; safe to share between threads, empty when unpickled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._files = self._requests = self._bytes_requested = self._bytes_used = 0

    def __reduce__(self) -> tuple[type[IoTotals], tuple[()]]:
        return IoTotals, ()

    def add(self, file: fermion.FermionFile) -> None:
        """Count a file that is about to be closed."""
        stats = file.io_stats
        with self._lock.get():
            self._files += 1
            self._requests += stats.requests
            self._bytes_requested += stats.bytes_requested
            self._bytes_used += stats.bytes_used

    def as_dict(self) -> dict[str, Any]:
        """``files``, ``requests``, ``bytes_requested`` and ``bytes_used`` so far."""
        with self._lock.get():
            return {
                "files": self._files,
                "requests": self._requests,
                "bytes_requested": self._bytes_requested,
                "bytes_used": self._bytes_used,
            }


class Uncounted(IoTotals):
    """Counts nothing: for files that others count, or that stay open."""

    def add(self, file: fermion.FermionFile) -> None:
        """Do nothing."""
