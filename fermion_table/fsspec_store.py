"""A table on any fsspec file system whose create-if-absent can be trusted."""

from __future__ import annotations

import contextlib
import errno
import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem

from fermion.errors import FermionError
from fermion.forks import Lock, PerProcess
from fermion.remote import (
    is_denied_object,
    is_missing,
    is_refused_range,
    redacted,
    storage_error,
)
from fermion_table.errors import UnsafeStorage
from fermion_table.listing import found_below
from fermion_table.paths import TEMPORARY_SUFFIX, check_path, unique_name
from fermion_table.rename_create import WEBHDFS, create_by_rename
from fermion_table.storage import (
    DEFAULT_ACCESS,
    METADATA_BYTES_MAX,
    CreateResult,
    StorageAccess,
    StoredObject,
)

_log = logging.getLogger(__name__)

OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
"""Protocols of storages without directories, where a range may be longer than the object."""
WEB = {"http", "https"}
"""Protocols that can only be read."""
PROBE_THREADS = 8
PROBE_KEYS = 50

_memory_lock = Lock()
"""fsspec's memory file system looks, then stores: this makes the two one step."""

_probe_lock = Lock()
_probed: set[tuple[str, str]] = set()
"""File systems, and buckets of them, that have passed the probe in this process."""


class FsspecStore:
    """A table behind an fsspec URL.

    ``memory://`` is trusted. Any other file system is probed before a process commits to it (or to
    a bucket of it) first, and refused if it has no conditional create of its own or the probe finds
    two winners. That of s3fs is a PUT with ``If-None-Match: *``; ``webhdfs://`` renames.

    Parameters
    ----------
    url
        The table's directory.
    storage_options
        For fsspec.
    access
        See `StorageAccess`.
    """

    def __init__(
        self,
        url: str,
        *,
        storage_options: dict[str, Any] | None = None,
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> None:
        self.location = url.rstrip("/")
        self.storage_options = storage_options
        self.access = access
        self._connect()

    def _connect(self) -> None:
        connect = partial(fsspec.core.url_to_fs, self.location, **(self.storage_options or {}))
        found = filesystem, root = connect()
        self._connection = PerProcess(connect, found)
        self._root = root.rstrip("/")
        self._trusted = _protocol(filesystem) == "memory"

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        """The file system that the table lies on; a forked process connects to it anew."""
        found: fsspec.AbstractFileSystem = self._connection.get()[0]
        return found

    def __repr__(self) -> str:
        return f"FsspecStore({redacted(self.location)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {
            "location": self.location,
            "storage_options": self.storage_options,
            "access": self.access,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()

    def read(self, path: str) -> bytes:
        """All bytes of an object, in one request where a range may be longer than the object."""
        full = self._inside(path)
        with self._told("read", full):
            if _protocol(self.filesystem) in OBJECT_STORES:
                try:
                    return bytes(self.filesystem.cat_file(full, start=0, end=METADATA_BYTES_MAX))
                except (OSError, ValueError) as error:
                    if not is_refused_range(error):
                        raise
                    return b""  # not even a first byte
            return bytes(self.filesystem.cat_file(full))

    def exists(self, path: str) -> bool:
        """Whether the object exists; one request, and no listing, of an object store.

        Only the answer that there is no such object means that there is none.
        """
        full = self._inside(path)
        try:
            with self._told("look for", full):
                return self._is_there(full)
        except FileNotFoundError:
            return False

    def _is_there(self, full: str) -> bool:
        if _protocol(self.filesystem) in OBJECT_STORES | WEB:
            try:
                self.filesystem.cat_file(full, start=0, end=1)
            except Exception as error:
                if not is_refused_range(error):  # as that of an empty object is
                    raise
            return True
        self.filesystem.invalidate_cache()
        # Not isfile(), which takes every error for "no such file".
        return bool(self.filesystem.info(full)["type"] == "file")

    def size(self, path: str) -> int:
        """Bytes of an object."""
        full = self._inside(path)
        with self._told("look for", full):
            self.filesystem.invalidate_cache()
            return int(self.filesystem.info(full)["size"])

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every object below a directory."""
        self._refuse_partial_view()
        top = self._inside(directory) if directory else self._root
        try:
            with self._told("list", top):
                self.filesystem.invalidate_cache()
                found = found_below(self.filesystem, top)
        except FileNotFoundError:
            return
        for full, details in sorted(found.items()):
            relative = full[len(self._root) :].lstrip("/")
            yield StoredObject(relative, int(details.get("size") or 0), _modified_ms(details))

    def write(self, path: str, data: bytes) -> None:
        """Store a new object."""
        self._check_writable()
        full = self._inside(path)
        with self._told("write", full):
            self.filesystem.pipe_file(full, data)

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """The file system's own conditional create, after the probe."""
        self._check_writable()
        full = self._inside(path)
        with self._told("create", full):
            if not self._trusted:
                place = self.filesystem._fs_token, self._root.split("/", 1)[0]
                with _probe_lock:
                    if place not in _probed:
                        self._probe()
                        _probed.add(place)
                self._trusted = True
            return self._create(full, data)

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Store a hint."""
        self._check_writable()
        full = self._inside(path)
        with self._told("write", full):
            self.filesystem.pipe_file(full, data)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self._check_writable()
        full = self._inside(path)
        with contextlib.suppress(FileNotFoundError), self._told("delete", full):
            self.filesystem.rm_file(full)

    def synchronise(self, paths: Iterable[str]) -> None:
        """Nothing to do: these storages acknowledge what is durable."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """The URL of an object."""
        full = self._inside(path)
        if for_writing:
            self._check_writable()
        if for_writing and _protocol(self.filesystem) not in OBJECT_STORES:
            with contextlib.suppress(NotImplementedError):
                self.filesystem.makedirs(full.rsplit("/", 1)[0], exist_ok=True)
        return self._url(full)

    @contextlib.contextmanager
    def _told(self, operation: str, full: str) -> Iterator[None]:
        """Say what failed and where: a missing object as FileNotFoundError, else StorageError."""
        try:
            yield
        except (FermionError, NotImplementedError, TypeError):
            raise
        except Exception as error:
            url = self._url(full)
            if is_missing(error) or (self.access.missing_is_forbidden and is_denied_object(error)):
                raise FileNotFoundError(errno.ENOENT, "no such object", redacted(url)) from error
            raise storage_error(operation, url, error) from error

    def _url(self, full: str) -> str:
        """Where an object lies, as a URL."""
        if _protocol(self.filesystem) == WEBHDFS:  # which forgets the host
            return f"{self.location}{full[len(self._root) :]}"
        return str(self.filesystem.unstrip_protocol(full))

    def _refuse_partial_view(self) -> None:
        """Refuse what needs to know which objects there are.

        Raises
        ------
        UnsafeStorage
        """
        if self.access.missing_is_forbidden:
            raise UnsafeStorage(
                f"{redacted(self.location)}: opened with missing_is_forbidden=True, where an "
                f"object that access is denied to counts as absent: such a table can be read, but "
                f"not written, listed or cleaned"
            )

    def _check_writable(self) -> None:
        """Refuse to write to a storage or by a store that is there for reading.

        Raises
        ------
        UnsafeStorage
        """
        self._refuse_partial_view()
        if _protocol(self.filesystem) in WEB:
            raise UnsafeStorage(
                f"{redacted(self.location)}: a web server stores nothing: such a table can be "
                f"read but not written"
            )

    def _inside(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _create(self, full: str, data: bytes) -> CreateResult:
        if _protocol(self.filesystem) == WEBHDFS:
            return create_by_rename(self.filesystem, full, data)
        guard: contextlib.AbstractContextManager[Any] = (
            _memory_lock if _protocol(self.filesystem) == "memory" else contextlib.nullcontext()
        )
        try:
            with guard:
                self.filesystem.pipe_file(full, data, mode="create")
        except FileExistsError:
            return CreateResult.EXISTS
        except (PermissionError, FileNotFoundError, NotImplementedError, TypeError, FermionError):
            raise
        except Exception as error:  # noqa: BLE001 - any other failure may follow success
            if _is_refused(error):
                return CreateResult.EXISTS
            _log.warning("%s: create failed (%r), the outcome is unknown", full, error)
            return CreateResult.UNKNOWN
        return CreateResult.CREATED

    def _probe(self) -> None:
        """Let threads race for keys; refuse the storage unless each key has one winner.

        Raises
        ------
        UnsafeStorage
            Creating is look-then-write, is not offered, or had two winners or a wrong one.
        """
        if _protocol(self.filesystem) != WEBHDFS:
            refuse_look_then_write(self.filesystem, self.location)
        directory = f"{self._root}/probe-{unique_name()}"
        with ThreadPoolExecutor(PROBE_THREADS) as executor:
            for key in range(PROBE_KEYS):
                full = f"{directory}/{key}{TEMPORARY_SUFFIX}"
                contents = [b"%d" % thread for thread in range(PROBE_THREADS)]
                try:
                    results = list(executor.map(self._create, [full] * len(contents), contents))
                    self._check_one_winner(full, contents, results)
                finally:
                    with contextlib.suppress(Exception):  # must not hide the probe's verdict
                        self.filesystem.rm_file(full)

    def _check_one_winner(
        self, full: str, contents: Sequence[bytes], results: Sequence[CreateResult]
    ) -> None:
        winners = [
            content
            for content, result in zip(contents, results, strict=True)
            if result is CreateResult.CREATED
        ]
        if winners != [self.filesystem.cat_file(full)]:
            raise UnsafeStorage(
                f"{redacted(self.location)}: {len(winners)} of {PROBE_THREADS} writers were told "
                f"that they created the same file; commits would be lost. Keep the table on a "
                f"local disk or on an object store with conditional writes"
            )


def refuse_look_then_write(filesystem: fsspec.AbstractFileSystem, location: str) -> None:
    """Refuse a file system that has fsspec's generic create: it looks, and then writes.

    Raises
    ------
    UnsafeStorage
        Whatever a probe would find, two writers could both succeed.
    """
    while isinstance(filesystem, DirFileSystem):
        filesystem = filesystem.fs
    implementation = type(filesystem)
    if issubclass(implementation, AsyncFileSystem):
        own = "mode" in inspect.signature(implementation._pipe_file).parameters
    else:
        own = implementation.pipe_file is not fsspec.AbstractFileSystem.pipe_file
    if not own:
        raise UnsafeStorage(
            f"{redacted(location)}: {implementation.__name__} has no conditional create: it looks "
            f"whether a file exists and then writes it, so two writers could both succeed; such a "
            f"table can be read but not written"
        )


def _protocol(filesystem: fsspec.AbstractFileSystem) -> str:
    protocol = filesystem.protocol
    return protocol if isinstance(protocol, str) else protocol[0]


def _is_refused(error: Exception) -> bool:
    """Whether the cause is HTTP's *Precondition Failed*, which s3fs tells by S3's message alone.

    Ceph's gateway sends none.
    """
    response = getattr(error.__cause__, "response", None)
    if not isinstance(response, dict):
        return False
    details = response.get("ResponseMetadata")
    return (
        isinstance(details, dict)
        and details.get("HTTPStatusCode") == HTTPStatus.PRECONDITION_FAILED
    )


def _modified_ms(details: dict[str, Any]) -> int | None:
    if isinstance(details.get("modificationTime"), int):  # HDFS has milliseconds
        return int(details["modificationTime"])
    for key in ("mtime", "LastModified", "last_modified", "modified", "created"):
        value = details.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return int(value * 1000)
    return None
