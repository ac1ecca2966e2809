"""Stores for tests: one in memory, and wrappers that crash or lose replies; made-up entries."""

from __future__ import annotations

import threading
import unittest.mock
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from fermion_table.commit import commit
from fermion_table.commit.request import NewSchema
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.schema import encode_schema
from fermion_table.storage import owned_files
from fermion_table.storage.paths import check_path
from fermion_table.storage.store import METADATA_BYTES_MAX, AtomicStore, CreateResult, StoredObject

ROWS_DEFAULT = 10
SIZE_DEFAULT = 100

_delete_own = owned_files._delete_own


def committed_unseen() -> Any:
    """A context in which files that are committed need not exist: their metadata alone is read."""
    return unittest.mock.patch.object(commit, "refuse_missing")


def made_up_entry(name: str, *, rows: int = ROWS_DEFAULT, **fields: Any) -> Entry:
    """An entry of a data file that need not exist.

    Parameters
    ----------
    name
        Of the file ``data/<name>.fermion``.
    rows
        Rows of it.
    **fields
        Any other field of `Entry`.
    """
    return Entry(path=f"data/{name}.fermion", rows=rows, **{"size": SIZE_DEFAULT + rows, **fields})


def made_up_schema(number: int = 0, *, comment: str | None = None) -> NewSchema:
    """A version of a schema of one column, with a comment of any length."""
    made = schema_from_arrow(pa.schema([("made_up", pa.int64())]))
    field = msgspec.structs.replace(made.fields[0], comment=comment)
    return NewSchema(
        number, encode_schema(msgspec.structs.replace(made, id=number, fields=(field,)))
    )


class MemoryStore:
    """An `AtomicStore` in a dictionary; each call is one atomic step."""

    storage_options: dict[str, Any] | None = None

    def __init__(self, location: str = "memory store") -> None:
        self.location = location
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`."""
        try:
            return self.objects[check_path(path)][:stop]
        except KeyError:
            raise FileNotFoundError(path) from None

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        return check_path(path) in self.objects

    def size(self, path: str) -> int:
        """Bytes of an object."""
        return len(self.read(path))

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every object below a directory."""
        prefix = f"{directory}/" if directory else ""
        for path, data in sorted(self.objects.copy().items()):
            if path.startswith(prefix):
                yield StoredObject(path, len(data), None)

    def write(self, path: str, data: bytes) -> None:
        """Store a new object."""
        if self.create_if_absent(path, data) is CreateResult.EXISTS:
            raise FileExistsError(path)

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """Store an object unless there is one."""
        with self._lock:
            if check_path(path) in self.objects:
                return CreateResult.EXISTS
            self.objects[path] = data
            return CreateResult.CREATED

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Store a hint."""
        self.objects[check_path(path)] = data

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self.objects.pop(check_path(path), None)

    def fsync(self, paths: Iterable[str]) -> None:
        """Nothing to do."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """A name; nothing but this store can open it."""
        return check_path(path)


class WrappedStore:
    """A store that passes every call on to another one, through `call`."""

    def __init__(self, inner: AtomicStore) -> None:
        self.inner = inner
        self.location = inner.location
        self.storage_options = inner.storage_options

    def call(self, operation: str, *arguments: Any) -> Any:
        """Carry out an operation of the inner store; subclasses step in here."""
        return getattr(self.inner, operation)(*arguments)

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`."""
        data: bytes = self.call("read", path)
        return data[:stop]

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        return bool(self.call("exists", path))

    def size(self, path: str) -> int:
        """Bytes of an object."""
        return int(self.call("size", path))

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every object below a directory."""
        yield from self.call("list", directory)

    def write(self, path: str, data: bytes) -> None:
        """Store a new object."""
        self.call("write", path, data)

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """Store an object unless there is one."""
        result: CreateResult = self.call("create_if_absent", path, data)
        return result

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Store a hint."""
        self.call("overwrite_hint", path, data)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self.call("delete", path)

    def fsync(self, paths: Iterable[str]) -> None:
        """Make names durable."""
        self.call("fsync", list(paths))

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """Where an object is."""
        return self.inner.locate(path, for_writing=for_writing)


class Crash(BaseException):
    """The process dies here; nothing may catch this."""


def delete_unless_dead(*given: Any) -> None:
    """Delete the files of an owner that is lost, unless its process has died, or dies of it.

    In place of `_delete_own` of `owned_files`, which finalizers call: an exception that is raised
    there reaches no caller, and would be reported as one that nobody expected.
    """
    with suppress(Crash):
        _delete_own(*given)


class CrashingStore(WrappedStore):
    """A store whose process dies right after a number of calls.

    Parameters
    ----------
    inner
        What survives.
    calls_left
        The crash comes after this many calls were carried out.
    """

    def __init__(self, inner: AtomicStore, calls_left: int) -> None:
        super().__init__(inner)
        self.calls_left = calls_left

    def call(self, operation: str, *arguments: Any) -> Any:
        """Carry out an operation, then perhaps die."""
        if self.calls_left <= 0:
            raise Crash(f"before {operation}")
        try:
            return super().call(operation, *arguments)
        finally:
            self.calls_left -= 1
            if self.calls_left == 0:
                raise Crash(f"after {operation} {arguments[:1]}")


@dataclass(slots=True)
class LostReplies:
    """Which creations lose their reply, counted from 1: those that happened, those that did not."""

    after_success: set[int] = field(default_factory=set)
    before_trying: set[int] = field(default_factory=set)


class ForgetfulStore(WrappedStore):
    """A store that does not say what became of some creations.

    Parameters
    ----------
    inner
        What really holds the objects.
    lost
        Which replies are lost.
    reads_fail
        Whether slots can't be read back either, from the first lost reply on.
    """

    def __init__(self, inner: AtomicStore, lost: LostReplies, *, reads_fail: bool = False) -> None:
        super().__init__(inner)
        self.lost = lost
        self.reads_fail = reads_fail
        self.creations = 0
        self._failing = False

    def call(self, operation: str, *arguments: Any) -> Any:
        """Carry out an operation, and perhaps keep quiet about it."""
        if operation == "create_if_absent":
            self.creations += 1
            if self.creations in self.lost.before_trying:
                self._failing = self.reads_fail
                return CreateResult.UNKNOWN
            result = super().call(operation, *arguments)
            if self.creations in self.lost.after_success:
                self._failing = self.reads_fail
                return CreateResult.UNKNOWN
            return result
        if self._failing and operation == "read":
            raise TimeoutError("no reply")
        return super().call(operation, *arguments)
