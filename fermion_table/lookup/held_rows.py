"""Rows of small data files that lookups ask for again and again, decoded once and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import pyarrow as pa

from fermion.forks import Lock
from fermion_table.options import LOOKUP_ROWS_BYTES

ROWS_PER_ASKED = 1_024
"""A file is decoded once it was asked for one row in so many."""
EXPANSION = 8
"""A guess: bytes of Arrow data for a byte of a file, at most."""

Choice = tuple[str, bytes]
"""A file's location, and the columns that are read of it."""


class HeldRows:
    """Rows of files, least recently used first out; safe to share between threads.

    Parameters
    ----------
    bytes_max
        Memory of the rows, at most.
    """

    def __init__(self, bytes_max: int = LOOKUP_ROWS_BYTES) -> None:
        self._bytes_max = bytes_max
        self._rows: OrderedDict[Choice, pa.RecordBatch] = OrderedDict()
        self._bytes = 0
        self._asked: dict[Choice, int] = {}
        self._lock = Lock()

    def get(self, choice: Choice) -> pa.RecordBatch | None:
        """All rows of a file; None if they are not held."""
        with self._lock.get():
            found = self._rows.get(choice)
            if found is not None:
                self._rows.move_to_end(choice)
            return found

    def is_worth(self, choice: Choice, wanted: int, rows: int, size: int) -> bool:
        """Whether to decode a file, as some of its rows are asked for.

        Parameters
        ----------
        wanted
            How many rows are asked for now.
        rows, size
            Of the file: all its rows, and its bytes.
        """
        if size * EXPANSION > self._bytes_max:
            return False
        with self._lock.get():
            asked = self._asked[choice] = self._asked.get(choice, 0) + wanted
        return asked * ROWS_PER_ASKED >= rows

    def hold(self, choice: Choice, rows: pa.RecordBatch) -> None:
        """Keep all rows of a file, unless they take more than half of the memory."""
        with self._lock.get():
            if rows.nbytes > self._bytes_max // 2 or choice in self._rows:
                return
            self._rows[choice] = rows
            self._bytes += rows.nbytes
            while self._bytes > self._bytes_max:
                self._bytes -= self._rows.popitem(last=False)[1].nbytes

    def keep_only(self, locations: Collection[str]) -> None:
        """Let go of all other files."""
        with self._lock.get():
            for choice in [each for each in self._asked if each[0] not in locations]:
                del self._asked[choice]
            for choice in [each for each in self._rows if each[0] not in locations]:
                self._bytes -= self._rows.pop(choice).nbytes
