"""Storage calls of a Fermion table, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fermion_table import Table
from fermion_table.metadata.history import latest
from fermion_table.storage.location import open_store
from fermion_table.storage.store import AtomicStore, Durability
from tests.kit.stores import WrappedStore

READS = ("read", "exists", "size")


class CountingStore(WrappedStore):
    """A store that counts its calls by name, and the bytes that are read and written.

    Parameters
    ----------
    inner
        The store, or the path of a table.
    durability
        Of the store of a path.
    counted_by
        Another one, which counts for both.
    """

    def __init__(
        self,
        inner: AtomicStore | str,
        durability: Durability = "full",
        counted_by: CountingStore | None = None,
    ) -> None:
        if isinstance(inner, str):
            inner = open_store(inner, durability=durability)
        super().__init__(inner)
        self._counts = self if counted_by is None else counted_by
        self.forget()

    def forget(self) -> None:
        """Count from 0 again."""
        self.calls: Counter[str] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0

    def call(self, operation: str, *arguments: Any) -> Any:
        counts = self._counts
        counts.calls[operation] += 1
        if len(arguments) > 1 and isinstance(arguments[1], bytes):
            counts.bytes_written += len(arguments[1])
        result = super().call(operation, *arguments)
        if operation == "read":
            counts.bytes_read += len(result)
        return result

    @property
    def reads(self) -> int:
        """Calls that fetch something."""
        return sum(self.calls[name] for name in READS)

    def open(self) -> Table:
        """The table at its latest snapshot."""
        return Table(self, latest(self))
