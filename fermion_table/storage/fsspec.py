"""A table on any fsspec file system whose create-if-absent can be trusted."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem as LocalFileSystem

from fermion.deadline import NoTimeLeft
from fermion.engine import (
    ask,
    connect,
    http_status,
    is_denied_object,
    is_missing,
    is_refused_range,
    storage_error,
)
from fermion.errors import FermionError, StorageError
from fermion.exports import dataclass
from fermion.forks import Lock, PerProcess
from fermion.redaction import as_cause, logger, redacted
from fermion_table.errors import UnsafeStorage
from fermion_table.storage.listing import found_below
from fermion_table.storage.paths import check_path
from fermion_table.storage.probe import check_creates
from fermion_table.storage.rename_create import (
    HDFS,
    WEBHDFS,
    create_by_rename,
    creates_by_rename,
)
from fermion_table.storage.store import (
    DEFAULT_ACCESS,
    METADATA_BYTES_MAX,
    CreateResult,
    StorageAccess,
    StoredObject,
    UnfinishedUpload,
    in_time,
)

_log = logger(__name__)

OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
"""Protocols of storages without directories, where a range may be longer than the object."""
S3 = {"s3", "s3a"}
WEB = {"http", "https"}
"""Protocols that can only be read."""

_memory_lock = Lock()
"""fsspec's memory file system looks, then stores: this makes the two one step."""

_probe_lock = Lock()
_probed: set[tuple[str, str]] = set()
"""File systems, and buckets of them, that have passed the probe in this process."""


class FsspecStore:
    """A table behind an fsspec URL.

    ``memory://`` is trusted. Any other file system is probed before a table gets its first object
    there (see `probe`), and refused if it has no conditional create of its own or the probe
    lets two writers create one object. That of s3fs is a PUT with ``If-None-Match: *``;
    ``hdfs://`` and ``webhdfs://`` rename.

    access: See `StorageAccess`.
    """

    unknown_reason = ""

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
        again = partial(connect, self.location, self.storage_options)
        found = filesystem, root = again()
        self._connection = PerProcess(again, found)
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
            "_trusted": self._trusted,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        trusted = self._trusted
        self._connect()
        self._trusted = trusted  # a probe that passed is not made again in every task

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`.

        One request, of no more bytes, where a range may be longer than the object.
        """
        full = self._inside(path)
        with self._told("read", full):
            if _protocol(self.filesystem) in OBJECT_STORES | {HDFS}:
                try:
                    return bytes(self._ask("cat_file", full, start=0, end=stop))
                except (OSError, ValueError) as error:
                    if not is_refused_range(error):
                        raise
                    return b""  # not even a first byte
            return bytes(self._ask("cat_file", full)[:stop])

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
                self._ask("cat_file", full, start=0, end=1)
            except Exception as error:
                if not is_refused_range(error):  # as that of an empty object is
                    raise
            return True
        self.filesystem.invalidate_cache()
        # Not isfile(), which takes every error for "no such file".
        return bool(self._ask("info", full)["type"] == "file")

    def size(self, path: str) -> int:
        """Bytes of an object."""
        full = self._inside(path)
        with self._told("look for", full):
            self.filesystem.invalidate_cache()
            return int(self._ask("info", full)["size"])

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every object below a directory."""
        self._refuse_partial_view()
        top = self._inside(directory) if directory else self._root
        try:
            with self._told("list", top):
                self.filesystem.invalidate_cache()
                found = found_below(self.filesystem, top, self._ask)
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
            self._ask("pipe_file", full, data, repeats=False)

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """The file system's own conditional create, after the probe."""
        self._check_writable()
        full = self._inside(path)
        with self._told("create", full):
            return self._create(full, data)

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Store a hint; `write` replaces what is there."""
        self.write(path, data)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self._refuse_reading_only()
        full = self._inside(path)
        with contextlib.suppress(FileNotFoundError), self._told("delete", full):
            self._ask("rm_file", full, repeats=False)

    def fsync(self, paths: Iterable[str]) -> None:
        """Nothing to do: these storages acknowledge what is durable."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """The URL of an object."""
        full = self._inside(path)
        if for_writing:
            self._check_writable()
        if for_writing and _protocol(self.filesystem) not in OBJECT_STORES | {HDFS}:
            with contextlib.suppress(NotImplementedError):
                self._ask("makedirs", full.rsplit("/", 1)[0], exist_ok=True, repeats=False)
        return self._url(full)

    @contextlib.contextmanager
    def _told(self, operation: str, full: str) -> Iterator[None]:
        """Say what failed and where: a missing object as FileNotFoundError, else StorageError."""
        try:
            yield
        except (FermionError, StorageError, NotImplementedError, TypeError):
            raise
        except Exception as error:  # noqa: BLE001 - clients have errors of their own
            url = self._url(full)
            if is_missing(error) or (self.access.missing_is_forbidden and is_denied_object(error)):
                text = "no such object"
                raise FileNotFoundError(errno.ENOENT, text, redacted(url)) from as_cause(error)
            raise storage_error(operation, url, error) from as_cause(error)

    def _ask(self, method: str, *arguments: Any, repeats: bool = True, **keywords: Any) -> Any:
        """Call a method of the file system, which gives up in time."""
        return ask(
            self.filesystem,
            method,
            *arguments,
            timeout_s=self.access.timeout_s,
            repeats=repeats,
            **keywords,
        )

    def _url(self, full: str) -> str:
        """Where an object lies, as a URL."""
        if _protocol(self.filesystem) == WEBHDFS:  # which forgets the host
            return f"{self.location}{full[len(self._root) :]}"
        return str(self.filesystem.unstrip_protocol(full))

    def _refuse_partial_view(self) -> None:
        """Refuse what needs to know which objects there are.

        Raises UnsafeStorage.
        """
        if self.access.missing_is_forbidden:
            raise UnsafeStorage(
                f"{redacted(self.location)}: opened with missing_is_forbidden=True, so an "
                f"object without access counts as missing: the table can be read, but not "
                f"written, listed or maintained"
            )

    def _check_writable(self) -> None:
        """Refuse to write where a table can't be written: before its first object is.

        Raises UnsafeStorage.
        """
        self._refuse_reading_only()
        if self._trusted:
            return
        place = self.filesystem._fs_token, self._root.split("/", 1)[0]
        with _probe_lock.get():
            if place not in _probed:
                renames = creates_by_rename(self.filesystem)
                try:
                    check_creates(_Probed(self, self.location, self.filesystem), renames=renames)
                except (NotImplementedError, TypeError) as error:
                    raise UnsafeStorage(
                        f"{redacted(self.location)}: {type(self.filesystem).__name__} can't be "
                        f"written to ({error}); such a table can be read but not written"
                    ) from error
                _probed.add(place)
        self._trusted = True

    def _refuse_reading_only(self) -> None:
        """Refuse to change a storage, or by a store, that is there for reading.

        Raises UnsafeStorage.
        """
        self._refuse_partial_view()
        if _protocol(self.filesystem) in WEB:
            raise UnsafeStorage(
                f"{redacted(self.location)}: a web server is read-only: the table can be "
                f"read but not written"
            )

    def _inside(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _create(self, full: str, data: bytes) -> CreateResult:
        if creates_by_rename(self.filesystem):
            with in_time(self):
                return create_by_rename(self.filesystem, full, data)
        guard: contextlib.AbstractContextManager[Any] = (
            _memory_lock.get()
            if _protocol(self.filesystem) == "memory"
            else contextlib.nullcontext()
        )
        # One PUT: servers that know its condition may not know that of an upload in parts (Ceph).
        is_s3 = _protocol(self.filesystem) in S3
        whole = {"chunksize": len(data) + 1} if is_s3 else {}
        try:
            with guard:
                self._ask("pipe_file", full, data, mode="create", repeats=False, **whole)
        except FileExistsError:
            return CreateResult.EXISTS
        except (PermissionError, FileNotFoundError, NotImplementedError, TypeError, FermionError):
            raise
        except NoTimeLeft:  # it was not sent
            raise
        except Exception as error:  # noqa: BLE001 - any other failure may follow success
            if _is_refused(error):
                return CreateResult.EXISTS
            _log.warning("%s: create failed (%r), the outcome is unknown", full, error)
            self.unknown_reason = str(storage_error("create", self._url(full), error))
            return CreateResult.UNKNOWN
        return CreateResult.CREATED

    def unfinished_uploads(self) -> Iterator[UnfinishedUpload]:
        """Uploads in parts below the table's directory; of S3 alone, others drop them in time."""
        if _protocol(self.filesystem) not in S3:
            return
        self._refuse_partial_view()
        bucket, _, prefix = f"{self._root}/".partition("/")
        marker: dict[str, Any] = {}
        while True:
            with self._told("list uploads of", self._root):
                page = self._ask(
                    "call_s3", "list_multipart_uploads", Bucket=bucket, Prefix=prefix, **marker
                )
            for upload in page.get("Uploads") or ():
                key, begun = upload["Key"], upload["Initiated"]
                if key.startswith(prefix):
                    path = key[len(prefix) :]
                    yield UnfinishedUpload(path, upload["UploadId"], int(begun.timestamp() * 1000))
            if not page.get("IsTruncated"):
                return
            found = {name: page.get(f"Next{name}") for name in ("KeyMarker", "UploadIdMarker")}
            marker = {name: text for name, text in found.items() if text}

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Delete the parts of an upload, if it is still there."""
        self._refuse_reading_only()
        full = self._inside(upload.path)
        bucket, _, key = full.partition("/")
        with self._told("abort an upload of", full):
            try:
                self._ask(
                    "call_s3",
                    "abort_multipart_upload",
                    Bucket=bucket,
                    Key=key,
                    UploadId=upload.id,
                    repeats=False,
                )
            except OSError as error:
                if http_status(error) != HTTPStatus.NOT_FOUND:
                    raise


@dataclass(frozen=True, slots=True)
class _Probed:
    """A store as its probe uses it, which may write already."""

    store: FsspecStore
    location: str
    filesystem: fsspec.AbstractFileSystem

    def create(self, path: str, data: bytes) -> CreateResult:
        full = self.store._inside(path)
        with self.store._told("create", full):
            return self.store._create(full, data)

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        return self.store.read(path, stop)

    def put(self, path: str, data: bytes) -> None:
        full = self.store._inside(path)
        with self.store._told("write", full):
            self.store._ask("pipe_file", full, data, repeats=False)

    def remove(self, path: str) -> None:
        self.store._ask("rm_file", self.store._inside(path), repeats=False)


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
    for key in ("modificationTime", "modification_time"):  # HDFS has milliseconds
        if isinstance(details.get(key), int):
            return int(details[key])
    for key in ("mtime", "LastModified", "last_modified", "modified", "created"):
        value = details.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return int(value * 1000)
    return None
