"""A table in a directory of the local file system."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from fermion.errors import on_local_disk
from fermion.redaction import logger
from fermion_table.errors import CommitStateUnknown, CorruptMetadata, UnsafeStorage
from fermion_table.storage.paths import LATEST_HINT, check_path, temporary_name, unique_name
from fermion_table.storage.store import (
    DEFAULT_ACCESS,
    METADATA_BYTES_MAX,
    CreateResult,
    Durability,
    StorageAccess,
    StoredObject,
)

_log = logger(__name__)

FOLDERS_MAX = 10_000
"""Directories whose place a store remembers."""
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


class LocalStore:
    """A table in a local directory; slots are made by hard link, which never overwrites.

    A failure of the operating system is a `fermion.errors.StorageError` that names operation and
    path.

    location: The table's directory; need not exist yet.
    durability: ``full`` calls fsync for files and directories before going on; ``fast`` does not: a
        power failure may take back recent commits, or leave a slot broken.
    access: See `StorageAccess`.
    """

    storage_options: dict[str, Any] | None = None
    done_when_interrupted = True

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> None:
        self.location = os.path.realpath(os.fspath(location))
        self.durability = durability
        self.access = access
        self._folders: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"LocalStore({self.location!r}, durability={self.durability!r})"

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`."""
        target = self.locate(path)
        with (
            on_local_disk("read", target),
            open(target, "rb", buffering=0, opener=_open_at_once) as file,
        ):
            status = os.fstat(file.fileno())
            size = status.st_size
            if not stat.S_ISREG(status.st_mode):
                raise CorruptMetadata(path, "a regular file", "something else of this name")
            if size > stop and stop < METADATA_BYTES_MAX:
                return file.read(stop)
            if size > METADATA_BYTES_MAX:
                raise CorruptMetadata(
                    path, f"at most {METADATA_BYTES_MAX} bytes of metadata", f"{size} bytes"
                )
            return file.readall()

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        target = self.locate(path)
        try:
            with on_local_disk("look for", target):
                os.stat(target)
        except (FileNotFoundError, NotADirectoryError):  # any other error says nothing
            return False
        return True

    def size(self, path: str) -> int:
        """Bytes of an object."""
        target = self.locate(path)
        with on_local_disk("measure", target):
            return os.stat(target).st_size

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every file below a directory; links are not followed, and no files of a table."""
        top = self._inside(directory) if directory else self.location
        for folder, _, names in os.walk(top, onerror=_raise_unless_missing):
            for name in names:
                full = os.path.join(folder, name)
                # It may be deleted while listing.
                with contextlib.suppress(FileNotFoundError), on_local_disk("list", full):
                    status = os.stat(full, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    relative = os.path.relpath(full, self.location).replace(os.sep, "/")
                    yield StoredObject(relative, status.st_size, status.st_mtime_ns // 1_000_000)

    def write(self, path: str, data: bytes) -> None:
        """Store a new object; its name must be unused."""
        target = self._inside(path)
        directory = os.path.dirname(target)
        self._make_directories(directory)
        with on_local_disk("write", target):
            self._write_file(target, data)
            try:
                self._fsync_directory(directory)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(target)
                raise

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """Write a temporary file beside the slot and link it to the slot's name."""
        target = self._inside(path)
        if os.path.lexists(target):
            return CreateResult.EXISTS
        directory, name = os.path.split(target)
        self._make_directories(directory)
        temporary = os.path.join(directory, temporary_name(name, unique_name()))
        try:
            with on_local_disk("create", target):
                self._write_file(temporary, data)
                result = self._link(temporary, target)
        finally:
            with contextlib.suppress(OSError):  # left over: removed with the orphan files
                os.unlink(temporary)
        if result is CreateResult.CREATED:
            self._fsync_created(directory, path)
        return result

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Replace a hint by rename: overwriting is what a hint is for, a slot never.

        LATEST is overwritten in place while its length stays, as a rename onto a file makes some
        file systems write it to disk at once. Torn, it would name an id that is not there.
        """
        target = self._inside(path)
        directory, name = os.path.split(target)
        if name == LATEST_HINT and self._overwritten(target, data):
            return
        temporary = os.path.join(directory, temporary_name(name, unique_name()))
        try:
            with on_local_disk("write", target):
                with open(temporary, "xb", buffering=0) as file:
                    _write_all(file, data)
                os.replace(temporary, target)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _overwritten(self, target: str, data: bytes) -> bool:
        """Whether a file of the same length was there, and holds these bytes now."""
        try:
            descriptor = os.open(target, os.O_WRONLY)
        except OSError:
            return False
        try:
            if os.fstat(descriptor).st_size != len(data):
                return False
            return os.write(descriptor, data) == len(data)
        except OSError:  # a disk that copies on write may be full; the rename tells
            return False
        finally:
            os.close(descriptor)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        target = self._inside(path)
        with contextlib.suppress(FileNotFoundError), on_local_disk("delete", target):
            os.unlink(target)

    def fsync(self, paths: Iterable[str]) -> None:
        """Fsync every directory between the table's and these files."""
        if self.durability == "fast":
            return
        directories = set()
        for path in paths:
            directory = os.path.dirname(self._inside(path))
            while directory not in directories and len(directory) >= len(self.location):
                directories.add(directory)
                directory = os.path.dirname(directory)
        for directory in sorted(directories, reverse=True):
            # What is not there needs no name.
            with contextlib.suppress(FileNotFoundError), on_local_disk("fsync", directory):
                self._fsync_directory(directory)

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """The absolute path of an object; links to directories are resolved once a store."""
        if for_writing:
            target = self._inside(path)
            self._make_directories(os.path.dirname(target))
            return target
        directory, _, name = check_path(path).rpartition("/")
        folder = self._folders.get(directory)
        if folder is None:
            folder = self._inside(directory) if directory else self.location
            if len(self._folders) < FOLDERS_MAX:
                self._folders[directory] = folder
        target = f"{folder}{os.sep}{name}"
        return self._inside(path) if os.path.islink(target) else target

    def _inside(self, path: str) -> str:
        """The absolute path, with links resolved, of a name within the table."""
        target = os.path.realpath(os.path.join(self.location, *check_path(path).split("/")))
        if not target.startswith(self.location.rstrip(os.sep) + os.sep):
            raise UnsafeStorage(
                f"{self.location}: path {path!r}: a link leads out of the table, to {target!r}"
            )
        return target

    def _make_directories(self, directory: str) -> None:
        """Make a directory and those above it, each durable before a file goes into it."""
        if os.path.isdir(directory):
            return
        parent = os.path.dirname(directory)
        self._make_directories(parent)
        with on_local_disk("make", directory):
            with contextlib.suppress(FileExistsError):  # another writer was faster
                os.mkdir(directory)
            self._fsync_directory(parent)

    def _write_file(self, target: str, data: bytes) -> None:
        with open(target, "xb", buffering=0) as file:
            try:
                _write_all(file, data)
                if self.durability == "full":
                    os.fsync(file.fileno())
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(target)
                raise

    def _link(self, temporary: str, target: str) -> CreateResult:
        try:
            os.link(temporary, target)
        except FileExistsError:
            return CreateResult.EXISTS
        except OSError as error:
            if os.stat(temporary).st_nlink == 2:  # a network file system lost the reply
                return CreateResult.CREATED
            if error.errno in _NO_HARD_LINKS:
                raise UnsafeStorage(
                    f"{self.location}: the file system does not support hard links ({error}), "
                    f"which are needed to create a snapshot file without overwriting another one"
                ) from error
            if error.errno in (errno.EIO, errno.ETIMEDOUT, errno.ESTALE):
                _log.warning("%s: link failed (%s), the outcome is unknown", target, error)
                return CreateResult.UNKNOWN
            raise
        return CreateResult.CREATED

    def _fsync_created(self, directory: str, path: str) -> None:
        try:
            self._fsync_directory(directory)
        except OSError as error:
            raise CommitStateUnknown(
                f"{self.location}/{path}: created, but fsync of its directory failed "
                f"({error}); a power failure may undo it"
            ) from error

    def _fsync_directory(self, directory: str) -> None:
        if self.durability == "fast" or os.name == "nt":  # Windows opens no directories
            return
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):  # a file lies there
        with on_local_disk("list", str(error.filename)):
            raise error
