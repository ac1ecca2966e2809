"""What a table asks of its storage: the protocol `AtomicStore`.

Paths are relative to the table (see `paths`) and checked by every store: none leaves the
table's directory. Objects are immutable once published; only hints are overwritten.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np

from fermion.deadline import TIMEOUT_S, check_timeout, deadline
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAccess:
    """How `Table.open` uses the storage of a table.

    Attributes
    ----------
    missing_is_forbidden
        For a role without the right to list, to which S3 answers 403 for a missing object as for a
        denied one: such an object counts as absent. Where access to the newest snapshot is denied,
        an older one is seen. The table can't be written, listed or cleaned then.
    timeout_s
        Seconds after which requests to the storage are given up, with all that is tried again for
        them. All requests of one step have this time together: opening the table or looking for
        its latest snapshot, planning a scan, opening a data file, reading one object or range (a
        second time, too, where a checksum fails). After a reply to the creation of a snapshot was
        lost, finding out what became of it has this time once more. How long a scan, a write or a
        commit takes in all is not limited. A local disk has no limit; nor have storages whose
        fsspec client is not asynchronous, but for those of HDFS, other than the client's own.
    allowed_roots
        Folders outside of the table (absolute paths or URLs) below which its metadata may name
        files, though it was not cloned from there, or they lie on another storage; to another
        storage the table's storage options do not go.
    """

    missing_is_forbidden: bool = False
    timeout_s: float = TIMEOUT_S
    allowed_roots: Sequence[str] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        roots = _checked_roots(self.allowed_roots)
        object.__setattr__(self, "allowed_roots", roots)
        check_timeout(self.timeout_s)
        forbidden = self.missing_is_forbidden
        if not isinstance(forbidden, bool | np.bool_):
            raise InvalidArgumentError(
                f"missing_is_forbidden={forbidden!r}: expected True or False"
            )
        object.__setattr__(self, "missing_is_forbidden", bool(forbidden))


def _checked_roots(roots: Any) -> tuple[str, ...]:
    if isinstance(roots, (str, bytes, os.PathLike)) or not isinstance(roots, Iterable):
        raise InvalidArgumentError(f"allowed_roots={roots!r}: expected a list of folders")
    checked = []
    for root in roots:
        text = os.fspath(root) if isinstance(root, (str, os.PathLike)) else root
        if not isinstance(text, str) or not ("://" in text or os.path.isabs(text)):
            raise InvalidArgumentError(
                f"allowed_roots: {root!r}: expected an absolute path or a URL"
            )
        checked.append(text.rstrip("/") or "/")
    return tuple(checked)


DEFAULT_ACCESS = StorageAccess()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing.

    path: Relative to the table.
    modified_ms: Milliseconds since 1970 UTC by the storage's clock, None when it does not say.
    """

    path: str
    size: int
    modified_ms: int | None


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload in parts that was begun and is not completed: no listing of objects shows it.

    path: Of the object that it is to become, relative to the table.
    begun_ms: Milliseconds since 1970 UTC by the storage's clock.
    """

    path: str
    id: str
    begun_ms: int


class AtomicStore(Protocol):
    """The objects of one table.

    Every method raises `UnsafeStorage` for a path that leaves the table, and an ``OSError`` (a
    `fermion.errors.StorageError`, or one that tells of a name, as ``FileNotFoundError``) when it
    fails in a way that changed nothing. Stores pickle.

    Only the storage's own answer that there is no such object means that it is absent. Any other
    failure raises: access denied, no reply, an outage, a bucket that is not there.

    location: The table's directory, as text that `location.open_store` takes.
    storage_options: What `fermion.open` and `fermion.Writer` need beside `locate`.
    """

    location: str
    storage_options: dict[str, Any] | None

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`, exclusive; FileNotFoundError if it does not exist.

        Whoever knows how long an object may be asks for one byte more, and takes no memory for
        what is longer.
        """

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

    def fsync(self, paths: Iterable[str]) -> None:
        """Make the names of objects durable that something else has written and fsynced."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """Where `fermion` finds an object: a local path or a URL.

        ``for_writing`` makes the directories above it.
        """


def is_durable(store: AtomicStore) -> bool:
    """Whether data files of a store are to be fsynced before a commit names them."""
    return getattr(store, "durability", "full") == "full"


def access_of(store: AtomicStore) -> StorageAccess:
    """What `StorageAccess` a store was opened with."""
    found: StorageAccess = getattr(store, "access", DEFAULT_ACCESS)
    return found


def in_time(store: AtomicStore) -> AbstractContextManager[float]:
    """The limit of time for the requests of a ``with`` block together (see `StorageAccess`)."""
    return deadline(access_of(store).timeout_s)


def can_list(store: AtomicStore) -> bool:
    """Whether a store may be listed: not where a missing object can't be told from a denied one."""
    return not access_of(store).missing_is_forbidden


def unknown_reason(store: AtomicStore) -> str:
    """Why the latest outcome of a create is unknown, for messages."""
    return getattr(store, "unknown_reason", "") or "the reply was lost"


def is_done_when_interrupted(store: AtomicStore) -> bool:
    """Whether nothing of a call goes on that an interrupt has ended, as it does in a network."""
    return getattr(store, "done_when_interrupted", False)
