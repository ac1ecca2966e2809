"""Handles: what reads a blob, or a range of it, when it is asked to; and their Arrow type."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from fermion.arguments import integer
from fermion.blobs.references import REFERENCE, as_references, check_pieces
from fermion.display import location_text
from fermion.errors import ChecksumError, InvalidArgumentError
from fermion.io.source import open_source
from fermion.layout import BLOB_PIECE_BYTES


class Handle:
    """A blob that is read when it is asked to: all of it, a range, or as a file.

    Two handles are equal that refer to the same bytes. A handle can be pickled, with its
    ``storage_options``, credentials too.

    Attributes
    ----------
    size
        Bytes of the value.
    path, offset
        Path or URL of the file that the value lies in, and where it starts there; None for a short
        value, which the handle holds itself.
    """

    __slots__ = ("_checksums", "_inline", "_storage_options", "offset", "path", "size")

    def __init__(
        self,
        path: str | None,
        offset: int | None,
        size: int,
        checksums: tuple[int, ...] = (),
        inline: bytes | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.path, self.offset, self.size = path, offset, size
        self._checksums, self._inline = checksums, inline
        self._storage_options = storage_options

    @classmethod
    def of(cls, value: Any, storage_options: dict[str, Any] | None = None) -> Handle:
        """The handle of a struct that engines have of one: a dict, or a ``Row`` of Spark.

        Parameters
        ----------
        value
            With the fields ``file``, ``offset``, ``size``, ``checksums`` and ``inline``.
        storage_options
            For fsspec, of the file.

        Raises
        ------
        InvalidArgumentError
            It lacks one of the fields.
        """
        names = ("file", "offset", "size", "checksums", "inline")
        try:
            path, offset, size, sums, inline = (value[name] for name in names)
        except (KeyError, TypeError, ValueError, IndexError):
            raise InvalidArgumentError(
                f"value={value!r:.80}: expected a struct of {', '.join(names)}"
            ) from None
        inline = None if inline is None else bytes(inline)
        checksums = () if sums is None else tuple(map(int, sums))  # pandas has an array of them
        return cls(path, offset, size, checksums, inline, storage_options)

    def _identity(self) -> tuple[str | None, int | None, int, bytes | None]:
        return self.path, self.offset, self.size, self._inline

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Handle) else False

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[type[Handle], tuple[Any, ...]]:
        own = self.path, self.offset, self.size, self._checksums, self._inline
        return Handle, (*own, self._storage_options)

    def __repr__(self) -> str:
        place = "" if self.path is None else f" at {self.offset} of {location_text(self.path)}"
        return f"<Handle: {self.size:,} bytes{place}>"

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Read the value, or a range of it, in one request.

        What is read is checked by the checksums of its pieces of 512 KiB, so that up to 1 MiB is
        read of a short range.

        Parameters
        ----------
        offset, length
            Bytes from the start of the value; ``length=None``: up to its end.

        Returns
        -------
        bytes
            Exactly ``length`` of them.

        Raises
        ------
        InvalidArgumentError
            The range does not lie in the value.
        FileNotFoundError, StorageError
            The file is gone, or can't be read.
        ChecksumError, TruncatedFileError
            It holds other bytes.
        """
        start = integer(offset, "offset", minimum=0)
        stop = self.size if length is None else start + integer(length, "length", minimum=0)
        if not start <= stop <= self.size:
            raise InvalidArgumentError(
                f"{self!r}: expected a range within {self.size} bytes, found offset={start}, "
                f"length={stop - start}"
            )
        if self._inline is not None or start == stop:
            return (self._inline or b"")[start:stop]
        with closing(self._source()) as source:
            return self._read(source, start, stop)

    def open(self) -> io.BufferedReader:
        """The value as a file, for PIL, soundfile, decord and others: seekable, read-only.

        It reads ahead 512 KiB at a time; `io.BufferedReader.read` without a size reads the rest in
        one request. It keeps the file open until it is closed, or garbage.
        """
        return io.BufferedReader(_HandleFile(self), BLOB_PIECE_BYTES)

    def _source(self) -> Any:
        return open_source(self.path, self._storage_options)

    def _read(self, source: Any, start: int, stop: int) -> bytes:
        assert self.offset is not None
        first, end = start, stop
        if self._checksums:
            first -= start % BLOB_PIECE_BYTES
            end = min(-(-stop // BLOB_PIECE_BYTES) * BLOB_PIECE_BYTES, self.size)
        sums, place = np.array(self._checksums, np.uint32), f"{source.name}: blob at {self.offset}"
        data = source.read(self.offset + first, end - first)
        try:
            check_pieces(data, sums, first, place)
        except ChecksumError:
            data = source.read(self.offset + first, end - first)
            check_pieces(data, sums, first, place)
        return bytes(data[start - first : stop - first])


class _HandleFile(io.RawIOBase):
    """A blob as a file without a buffer, which reads up to the end of a piece where it can."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self._at = handle, 0
        self._source = handle._source() if handle.path is not None else None

    def _bytes(self, start: int, stop: int) -> bytes:
        if self._source is None:
            return self._handle.read(start, stop - start)
        return self._handle._read(self._source, start, stop) if start < stop else b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._handle.size}[whence]
        if base + offset < 0:
            raise ValueError(f"expected a position from 0 on, found {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        stop = self._at + len(room)
        if stop // BLOB_PIECE_BYTES > self._at // BLOB_PIECE_BYTES:
            stop -= stop % BLOB_PIECE_BYTES
        data = self._bytes(self._at, max(self._at, min(stop, self._handle.size)))
        room[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        start = min(self._at, self._handle.size)
        data = self._bytes(start, self._handle.size)
        self._at = max(self._at, self._handle.size)
        return data

    def close(self) -> None:
        if self._source is not None and not self.closed:
            self._source.close()
        super().close()


class HandleScalar(pa.ExtensionScalar):
    """A value of `HandleType`."""

    def as_py(self, **options: Any) -> Handle | None:
        """The handle; None for a null."""
        found = self.value
        return None if found is None else Handle.of(found.as_py(), self.type.storage_options)


class HandleType(pa.ExtensionType):
    """The Arrow type of handles: references whose ``file`` is a path or URL.

    ``to_pylist()`` and ``as_py()`` give `Handle`. The storage options of the file are no part of
    Arrow data: where these are read in another process, handles have none.
    """

    def __init__(self, storage_options: dict[str, Any] | None = None) -> None:
        self.storage_options = storage_options
        super().__init__(REFERENCE, "fermion.blob")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> HandleType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[HandleScalar]:
        return HandleScalar

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __reduce__(self) -> tuple[Callable[..., HandleType], tuple[Any, ...]]:
        return HandleType, (self.storage_options,)


_types: list[HandleType] = []
"""All that were made: Arrow holds the type of an array in Python as long as something else does."""


def handle_type(storage_options: dict[str, Any] | None) -> HandleType:
    """The type of handles of files that are opened with these options."""
    for known in _types:
        if known.storage_options == storage_options:
            return known
    _types.append(HandleType(storage_options))
    return _types[-1]


def as_handles(array: pa.Array) -> pa.ExtensionArray:
    """Handles that hold the values of a binary array themselves; handles as they are."""
    if isinstance(array.type, HandleType):
        return array
    return pa.ExtensionArray.from_storage(handle_type(None), as_references(array))


def values_of(handles: Iterable[Handle], opened: dict[str | None, Any]) -> Iterator[bytes]:
    """Read handles one after the other; each file that they lie in is opened once.

    opened: Gets the files by their paths, for the caller to close.
    Raises as `Handle.read`.
    """
    for each in handles:
        if each.path not in opened:
            opened[each.path] = each._source()
        yield each._read(opened[each.path], 0, each.size)


pa.register_extension_type(handle_type(None))
