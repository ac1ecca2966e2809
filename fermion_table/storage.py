"""What a table asks of its storage: the protocol `AtomicStore`.

Paths are relative to the table (see `paths`) and checked by every store: none leaves the
table's directory. Objects are immutable once published; only hints are overwritten.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

METADATA_BYTES_MAX = 1 << 30

Durability = Literal["full", "fast"]


class CreateResult(enum.Enum):
    """The outcome of `AtomicStore.create_if_absent`."""

    CREATED = "created"
    """The object did not exist, and holds these bytes now."""
    EXISTS = "exists"
    """An object of that name was there (perhaps an earlier try's own)."""
    UNKNOWN = "unknown"
    """The reply was lost: the object may hold these bytes, now or in a moment."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing.

    Attributes
    ----------
    path
        Relative to the table.
    size
        Bytes.
    modified_ms
        Milliseconds since 1970 UTC by the storage's clock, None when it does not say.
    """

    path: str
    size: int
    modified_ms: int | None


class AtomicStore(Protocol):
    """The objects of one table.

    Every method raises `UnsafeStorage` for a path that leaves the table, and the storage's own
    ``OSError`` when it fails in a way that changed nothing. Stores pickle.

    Attributes
    ----------
    location
        The table's directory, as text that `location.open_store` takes.
    storage_options
        What `fermion.open` and `fermion.Writer` need beside `locate`.
    """

    location: str
    storage_options: dict[str, Any] | None

    def read(self, path: str) -> bytes:
        """All bytes of an object; FileNotFoundError if it does not exist."""

    def exists(self, path: str) -> bool:
        """Whether the object exists; never answered from a cache."""

    def size(self, path: str) -> int:
        """Bytes of an object; FileNotFoundError if it does not exist."""

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every object below a directory, at any depth; empty if there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Store a new object under a name that nobody else uses; durable on return."""

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """The atomic step: store an object whole, if nothing has its name; durable on return.

        Raising means that nothing was created.
        """

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Store a small object in place of another. Not durable; for hints only."""

    def delete(self, path: str) -> None:
        """Delete an object; nothing happens if it does not exist."""

    def synchronise(self, paths: Iterable[str]) -> None:
        """Make the names of objects durable that something else has written and synchronised."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """Where `fermion` finds an object: a local path or a URL.

        ``for_writing`` makes the directories above it.
        """


def is_durable(store: AtomicStore) -> bool:
    """Whether data files of a store are to be synchronised to disk before a commit names them."""
    return getattr(store, "durability", "full") == "full"
