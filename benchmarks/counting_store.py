"""Storage calls of a Fermion table, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fermion_table import Table
from fermion_table.metadata.history import latest
from fermion_table.storage.location import open_store
from fermion_table.testing import WrappedStore

READS = ("read", "exists", "size")


class CountingStore(WrappedStore):
    """A store that counts its calls by name, and the bytes that are read and written."""

    def __init__(self, path: str, durability: Any = "full") -> None:
        super().__init__(open_store(path, durability=durability))
        self.calls: Counter[str] = Counter()
        self.bytes_written = 0

    def call(self, operation: str, *arguments: Any) -> Any:
        self.calls[operation] += 1
        if len(arguments) > 1 and isinstance(arguments[1], bytes):
            self.bytes_written += len(arguments[1])
        return super().call(operation, *arguments)

    @property
    def reads(self) -> int:
        """Calls that fetch something."""
        return sum(self.calls[name] for name in READS)

    def open(self) -> Table:
        """The table at its latest snapshot."""
        return Table(self, latest(self))
