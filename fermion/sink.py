"""Where a writer's bytes go. A file gets its name only when it is complete.

Only ``write()`` is asked of the target; the position is counted here, never asked for.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from fermion.errors import InvalidArgumentError
from fermion.source import FilesystemSource, LocalSource, PathLike, Source, resolve

if TYPE_CHECKING:
    import fsspec

BUFFER_BYTES = 4 * 1024 * 1024
COPY_BYTES = 8 * 1024 * 1024


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
        """Leave nothing behind; never raises."""


class LocalSink:
    """A local file: written beside its final place, synchronised, then renamed."""

    def __init__(self, path: PathLike, *, durable: bool = True) -> None:
        self.name = os.fspath(path)
        self._durable = durable
        folder, base = os.path.split(self.name)
        self._folder = folder or "."
        self._temporary = os.path.join(self._folder, f".{base}.{uuid.uuid4().hex}.tmp")
        self._file = open(self._temporary, "xb", buffering=BUFFER_BYTES)  # noqa: SIM115

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes, through a buffer of 4 MiB."""
        self._file.write(data)

    def copy(self, descriptor: int, length: int) -> int:
        """Copy the first bytes of an open file, before anything is written here.

        Returns
        -------
        How many were copied: none where the kernel has no way to.
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
        """The temporary file, synchronised; messages call it by its final name."""
        self._finish()
        source = LocalSource(self._temporary)
        source.name = self.name
        return source

    def commit(self) -> None:
        """Flush, synchronise and rename to the final name (replacing what was there)."""
        self._finish()
        os.replace(self._temporary, self.name)
        if self._durable:
            _synchronise_folder(self._folder)

    def _finish(self) -> None:
        """Flush, synchronise and close; a second call does nothing."""
        if self._file.closed:
            return
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())
        self._file.close()

    def abort(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _synchronise_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FilesystemSink:
    """A file of any fsspec file system, written under its final name when it is closed.

    Object stores show an object only once its upload is complete. Elsewhere a half-written file
    has no footer and is removed by `abort`.
    """

    def __init__(self, filesystem: fsspec.AbstractFileSystem, path: str) -> None:
        self.name = filesystem.unstrip_protocol(path)
        self._filesystem = filesystem
        self._path = path
        self._file = filesystem.open(path, "wb", block_size=max(BUFFER_BYTES, 5 * 2**20))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        self._file.write(data)

    def written(self) -> Source:
        """The file, which is visible from now on: nothing can be read before the upload is over."""
        self._file.close()
        return FilesystemSource(self._filesystem, self._path)

    def commit(self) -> None:
        """Finish the upload; a second time does nothing."""
        self._file.close()

    def abort(self) -> None:
        """Discard the upload and whatever became visible of it."""
        with contextlib.suppress(Exception):  # nothing may hide the error that led here
            discard = getattr(self._file, "discard", None)
            if discard is not None:
                discard()
        with contextlib.suppress(Exception):  # the same
            if self._filesystem.exists(self._path):
                self._filesystem.rm_file(self._path)


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


def open_sink(
    target: Any,
    *,
    durable: bool = True,
    read_back: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Sink:
    """A sink for a path, an fsspec URL, or an object with ``write()``.

    Raises
    ------
    InvalidArgumentError
        For an object with ``write()``, where the file is to be read back.
    """
    if not isinstance(target, (str, os.PathLike)):
        stream = StreamSink(target)
        if read_back:
            stream.written()
        return stream
    filesystem, inner = resolve(target, storage_options)
    if filesystem is None:
        return LocalSink(inner, durable=durable)
    return FilesystemSink(filesystem, inner)
