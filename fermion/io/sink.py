"""Where a writer's bytes go. A file gets its name only when it is complete.

Only ``write()`` is asked of the target; the position is counted here, never asked for. What had the
name before stays, byte for byte, until then: nothing is deleted or replaced that the same writer
did not make. A sink that is dropped without `Sink.commit` aborts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from fermion.errors import (
    FermionError,
    InvalidArgumentError,
    StorageError,
    is_a_directory,
    no_file,
    on_local_disk,
)
from fermion.io.remote import is_missing, protocols, renames_in_one_step, resolve, storage_error
from fermion.io.source import FilesystemSource, LocalSource, PathLike, Source
from fermion.redaction import as_cause, redacted

if TYPE_CHECKING:
    import io

    import fsspec

BUFFER_BYTES = 4 * 1024 * 1024
UPLOAD_BYTES = 5 * 1024 * 1024  # the least that S3 takes as a part
COPY_BYTES = 8 * 1024 * 1024
NAME_BYTES_MAX = 160  # of the file's own name in that of its temporary file; 255 is the usual limit

UPLOADING = frozenset({"s3", "s3a", "gs", "gcs"})
"""Storages that show an object, and replace another, when its upload is complete."""
WRITING_THROUGH = frozenset({"abfs", "abfss", "az", "adl", "dbfs", "ftp", "webhdfs"})
"""Storages whose fsspec files are buffered, but delete or truncate the target before the end."""

_TOLD = (FermionError, StorageError, IsADirectoryError, FileExistsError, NotImplementedError)
"""Errors that say what is wrong where a file can't be written."""


class Sink(Protocol):
    """An append-only target for one file."""

    name: str

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""

    def written(self) -> Source:
        """The file as it is now, to be read before `commit`; nothing is written any more."""

    def commit(self) -> None:
        """Make the file visible under its name."""

    def abort(self) -> None:
        """Leave nothing behind, and what had the name before as it was; never raises."""


class LocalSink:
    """A local file: written beside its final place, fsynced, then renamed.

    A file that is replaced hands its permissions on. Through a symbolic link the file that it leads
    to is replaced; the link stays.

    Raises InvalidArgumentError: The target is a pipe, a socket or a device: a rename would replace
        it.
    Raises FileNotFoundError, IsADirectoryError, StorageError.
    """

    def __init__(self, path: PathLike, *, durable: bool = True) -> None:
        self.name = os.fspath(path)
        self._durable = durable
        old = _old_file(self.name)
        self._place = os.path.realpath(self.name) if os.path.islink(self.name) else self.name
        folder, base = os.path.split(self._place)
        self._folder = folder or "."
        self._temporary = os.path.join(self._folder, _temporary_name(base))
        self._buffer = bytearray()
        self._file = _create_local(self._temporary, self._folder, self.name)
        self._discard = weakref.finalize(
            self, _discard_local, self._file, self._temporary, os.getpid()
        )
        if old is not None:
            _hand_on(old, self._file.fileno())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes, through a buffer of 4 MiB."""
        # Not one of Python's own: that of a forked process would be written as well.
        if len(self._buffer) + len(data) > BUFFER_BYTES:
            self._flush()
            if len(data) >= BUFFER_BYTES:
                self._write_all(memoryview(data))
                return
        self._buffer += data

    def _flush(self) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        self._write_all(memoryview(buffer))

    def _write_all(self, data: memoryview) -> None:
        with on_local_disk("write", self.name):
            while data.nbytes:
                data = data[self._file.write(data) :]

    def copy(self, descriptor: int, length: int) -> int:
        """Copy the first bytes of an open file, before anything is written here.

        Returns: How many were copied: none where the kernel has no way to.
        """
        done = 0
        copy = getattr(os, "copy_file_range", None)  # Linux
        with contextlib.suppress(OSError):
            while copy is not None and done < length:
                moved = copy(descriptor, self._file.fileno(), length - done, offset_src=done)
                if not moved:
                    break
                done += moved
        return done

    def written(self) -> Source:
        """The temporary file, fsynced; messages call it by its final name."""
        self._finish()
        source = LocalSource(self._temporary)
        source.name = self.name
        return source

    def commit(self) -> None:
        """Flush, fsync and rename to the final name (replacing what was there)."""
        self._finish()
        with on_local_disk("write", self.name):
            os.replace(self._temporary, self._place)
            self._discard.detach()
            if self._durable:
                _fsync_folder(self._folder)

    def _finish(self) -> None:
        """Flush, fsync and close; a second call does nothing."""
        if self._file.closed:
            return
        self._flush()
        with on_local_disk("write", self.name):
            if self._durable:
                os.fsync(self._file.fileno())
            self._file.close()

    def abort(self) -> None:
        """Remove the temporary file."""
        self._discard()


def _old_file(path: str) -> os.stat_result | None:
    """The file that is to be replaced, if there is one; refuse what is no file."""
    if not os.path.basename(path) and not os.path.isdir(path):
        raise InvalidArgumentError(f"path={path!r}: expected the name of a file at its end")
    try:
        found = os.stat(path)
    except FileNotFoundError:  # a link may lead to no file yet
        return None
    if not stat.S_ISREG(found.st_mode):
        raise no_file(path, found)
    return found


def _temporary_name(base: str) -> str:
    short = base.encode("utf-8", "surrogateescape")[:NAME_BYTES_MAX].decode("utf-8", "ignore")
    return f".{short}.{uuid.uuid4().hex}.tmp"


def _create_local(temporary: str, folder: str, name: str) -> io.FileIO:
    try:
        with on_local_disk("write", name):
            return open(temporary, "xb", buffering=0)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, f"no such folder: {folder!r}", name) from None
    except NotADirectoryError as error:
        raise NotADirectoryError(error.errno, error.strerror, name) from None


def _hand_on(old: os.stat_result, descriptor: int) -> None:
    """Owner and permissions of the file that is replaced, as far as they can be given."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):  # only root may give a file away
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777)


def _discard_local(file: io.FileIO, temporary: str, process: int) -> None:
    """Remove an unfinished file; a forked process leaves its parent's alone."""
    with contextlib.suppress(OSError):
        file.close()
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FilesystemSink:
    """A file of any fsspec file system.

    Where the storage shows an object only once its upload is complete, that is how it is written.
    Elsewhere, and where it is to be read before it appears, it is written under a temporary name in
    the same directory and moved at the end.

    Raises InvalidArgumentError: The file system cannot be written to.
    Raises IsADirectoryError.
    """

    def __init__(
        self,
        filesystem: fsspec.AbstractFileSystem,
        path: str,
        *,
        read_back: bool = False,
        block_bytes: int | None = None,
    ) -> None:
        self.name = filesystem.unstrip_protocol(path)
        self._filesystem = filesystem
        self._path = path
        try:
            with self._told():
                opened = _open_upload(filesystem, path, read_back, block_bytes)
            self._file, self._temporary = opened
        except NotImplementedError as error:
            raise InvalidArgumentError(
                f"{self.name}: {type(filesystem).__name__} can't be written to"
            ) from error
        self._discard = weakref.finalize(
            self, _discard_upload, filesystem, self._file, self._temporary, os.getpid()
        )

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        with self._told():
            self._file.write(data)

    def written(self) -> Source:
        """The file under its temporary name; messages call it by its final one."""
        with self._told():
            self._file.close()
        source = FilesystemSource(self._filesystem, self._temporary or self._path)
        source.name = self.name
        return source

    def commit(self) -> None:
        """Finish the upload, and move the file to its final name where it has another one."""
        with self._told():
            self._file.close()
            if self._temporary is not None:
                _move(self._filesystem, self._temporary, self._path)
        self._discard.detach()

    def abort(self) -> None:
        """Discard the upload, and the file with the temporary name."""
        self._discard()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Say of a failure which file was written."""
        try:
            yield
        except _TOLD:
            raise
        except Exception as error:  # noqa: BLE001 - clients have errors of their own
            if is_missing(error):
                text = os.strerror(errno.ENOENT)
                raise FileNotFoundError(errno.ENOENT, text, redacted(self.name)) from as_cause(
                    error
                )
            raise storage_error("write", self.name, error) from as_cause(error)


def _open_upload(
    filesystem: fsspec.AbstractFileSystem, path: str, read_back: bool, block_bytes: int | None
) -> tuple[Any, str | None]:
    """A file to write to, and its temporary path where it is not written under its own."""
    known = protocols(filesystem)
    if not read_back and not UPLOADING.isdisjoint(known):
        return filesystem.open(path, "wb", block_size=UPLOAD_BYTES), None
    if _is_directory(filesystem, path):
        raise is_a_directory(filesystem.unstrip_protocol(path))
    temporary = _beside(path)
    if renames_in_one_step(filesystem):
        return filesystem.create_file(temporary, block_bytes), temporary
    file = filesystem.open(temporary, "wb", block_size=UPLOAD_BYTES)
    if read_back or not _is_buffered(file):
        return file, temporary
    if not WRITING_THROUGH.isdisjoint(protocols(file.fs)):  # of a file system within another, too
        return file, temporary
    file.closed = True  # nothing was sent
    return filesystem.open(path, "wb", block_size=UPLOAD_BYTES), None


def _is_directory(filesystem: fsspec.AbstractFileSystem, path: str) -> bool:
    if not UPLOADING.isdisjoint(protocols(filesystem)):
        return False  # there a file may have the name of a directory
    try:
        return bool(filesystem.isdir(path))
    except Exception:  # noqa: BLE001 - what can't be told is not in the way
        return False


def _beside(path: str) -> str:
    folder, slash, base = path.rpartition("/")
    return f"{folder}{slash}{_temporary_name(base)}"


def _is_buffered(file: Any) -> bool:
    from fsspec.spec import AbstractBufferedFile  # loaded already, by whoever has such a file

    return isinstance(file, AbstractBufferedFile)


def _discard_upload(
    filesystem: fsspec.AbstractFileSystem, file: Any, temporary: str | None, process: int
) -> None:
    """Give an upload up; a forked process leaves its parent's alone."""
    is_own = os.getpid() == process
    with contextlib.suppress(Exception):  # nothing may hide the error that led here
        if not _is_buffered(file):
            if is_own:  # what HDFS has of a file need not be completed
                getattr(file, "abandon", file.close)()
        else:
            file.closed = True  # else fsspec publishes what it holds when the file is dropped
            if is_own and file.offset is not None:  # something was sent
                file.discard()
    if is_own and temporary is not None:
        with contextlib.suppress(Exception):  # the same
            filesystem.rm_file(temporary)


def _move(filesystem: fsspec.AbstractFileSystem, temporary: str, path: str) -> None:
    """Give a complete file its name.

    Raises OSError: What had the name before has it still.
    """
    if renames_in_one_step(filesystem):
        filesystem.mv(temporary, path, overwrite=True)
        return
    if not _renames(filesystem):
        filesystem.cp_file(temporary, path)
        with contextlib.suppress(Exception):  # the file has its name
            filesystem.rm_file(temporary)
        return
    # Many refuse to rename onto a file that is there: it gives way, and comes back after an error.
    old = _beside(path) if filesystem.exists(path) else None
    if old is not None:
        filesystem.mv(path, old)
    try:
        filesystem.mv(temporary, path)
        filesystem.invalidate_cache()
        if not filesystem.exists(path):  # HDFS says so by an answer that fsspec drops
            raise OSError(f"{path}: the storage refused to rename {temporary} to it")
    except BaseException:
        if old is not None:
            filesystem.mv(old, path)
        raise
    if old is not None:
        with contextlib.suppress(Exception):  # the file has its name
            filesystem.rm_file(old)


def _renames(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Whether a file system has a way of its own to rename; else it copies, whole or not at all."""
    from fsspec import AbstractFileSystem  # loaded already, by whoever has one

    return type(filesystem).mv is not AbstractFileSystem.mv


class StreamSink:
    """Any object with ``write()``: a pipe, a socket, a ``BytesIO``. The caller closes it."""

    def __init__(self, stream: Any) -> None:
        self.name = str(getattr(stream, "name", "<stream>"))
        self._stream = stream

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        self._stream.write(data)

    def written(self) -> Source:
        """Refused, as nothing but ``write()`` is asked of the object."""
        raise InvalidArgumentError(
            f"{self.name}: read_back: expected a path or a URL, found an object with write(), "
            "which can't be read"
        )

    def commit(self) -> None:
        """Flush where the object can."""
        flush = getattr(self._stream, "flush", None)
        if flush is not None:
            flush()

    def abort(self) -> None:
        """Nothing can be taken back; the bytes lack a footer and are no valid file."""


def copy_start(source: Source, sink: Sink, length: int) -> None:
    """Write the first bytes of a file to a sink that has none yet.

    Between local files the kernel copies, where it can without moving a byte (reflinks).
    """
    at = 0
    if isinstance(source, LocalSource) and isinstance(sink, LocalSink):
        at = sink.copy(source.descriptor, length)
    while at < length:
        data = source.read(at, min(COPY_BYTES, length - at))
        sink.write(data)
        at += len(data)


def check_target(target: Any, name: str) -> None:
    """Refuse what `open_sink` does not take.

    name: Of the parameter, for the message.
    Raises TypeError.
    """
    if not isinstance(target, (str, os.PathLike)) and not callable(getattr(target, "write", None)):
        raise TypeError(
            f"{name}: expected a path, a URL or an object with write(), found "
            f"{type(target).__name__}"
        )


def open_sink(
    target: Any,
    *,
    durable: bool = True,
    read_back: bool = False,
    storage_options: dict[str, Any] | None = None,
    block_bytes: int | None = None,
) -> Sink:
    """A sink for a path, an fsspec URL, or an object with ``write()``.

    Parameters
    ----------
    block_bytes
        Size of the blocks of a file on HDFS; None: as the cluster is configured.

    Raises
    ------
    InvalidArgumentError
        For an object with ``write()``, where the file is to be read back.
    TypeError
        The target is none of these.
    """
    if not isinstance(target, (str, os.PathLike)):
        check_target(target, "path")
        stream = StreamSink(target)
        if read_back:
            stream.written()
        return stream
    filesystem, inner = resolve(target, storage_options)
    if filesystem is None:
        return LocalSink(inner, durable=durable)
    return FilesystemSink(filesystem, inner, read_back=read_back, block_bytes=block_bytes)
