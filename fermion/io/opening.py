"""Opens the source of a file: by its path, its URL, or its bytes."""

from __future__ import annotations

import mmap
import os
from typing import Any

from fermion.deadline import TIMEOUT_S
from fermion.errors import file_is_closed, on_local_disk
from fermion.io.remote import resolve
from fermion.io.source import FilesystemSource, LocalSource, PathLike, Source, check_range


class MappedSource(LocalSource):
    """A file of the local file system whose bytes are views of a mapping.

    The mapping lasts as long as a view of it. A file that is truncated, or whose disk fails, ends
    the process with SIGBUS when its bytes are looked at.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._view: memoryview | None = memoryview(b"")
        if self.size:  # an empty file can't be mapped
            try:
                with on_local_disk("map", self.name):
                    mapping = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ)
            except BaseException:
                self.close()
                raise
            self._view = memoryview(mapping)

    def read(self, offset: int, length: int) -> memoryview:
        """Exactly ``length`` bytes from ``offset``; a view of the mapping."""
        view = self._view
        if view is None:
            raise file_is_closed(self.name)
        check_range(self.name, self.size, offset, length)
        return view[offset : offset + length]

    def close(self) -> None:
        """Close the descriptor, and let go of the mapping; a second call does nothing."""
        self._view = None
        super().close()


class BufferSource:
    """A file that lies in memory: any object with the buffer protocol."""

    is_local = True

    def __init__(self, buffer: Any, name: str = "<buffer>") -> None:
        self.name = name
        self._view = memoryview(buffer).cast("B")
        self.size: int | None = len(self._view)

    def read_end(self, length: int) -> memoryview:
        """The last ``length`` bytes, or the whole file when it has fewer; a view."""
        return self._view[max(0, len(self._view) - length) :]

    def read(self, offset: int, length: int) -> memoryview:
        """``length`` bytes from ``offset``; a view."""
        check_range(self.name, self.size, offset, length)
        return self._view[offset : offset + length]

    def again(self) -> BufferSource:
        """The same bytes."""
        return BufferSource(self._view, self.name)

    def close(self) -> None:
        """The buffer is the caller's."""


def buffer_of(given: Any, name: str) -> memoryview:
    """The bytes of an object with the buffer protocol; names the parameter if it has none."""
    try:
        return memoryview(given)
    except TypeError:
        raise TypeError(
            f"{name}: expected a path, a URL or an object with the buffer protocol, found "
            f"{type(given).__name__}"
        ) from None


def open_source(
    path: Any,
    storage_options: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_map: bool = False,
) -> Source:
    """Open a path, an fsspec URL, or an object with the buffer protocol.

    Parameters
    ----------
    memory_map
        Map a file of the local file system; others are read as ever.

    Raises
    ------
    FileNotFoundError, PermissionError
        As the storage says.
    IsADirectoryError, InvalidArgumentError
        It is a directory, or a pipe or a device.
    TypeError
        The path is none of these.
    """
    if not isinstance(path, (str, os.PathLike)):
        return BufferSource(buffer_of(path, "path"))
    filesystem, inner = resolve(path, storage_options)
    if filesystem is None:
        return MappedSource(inner) if memory_map else LocalSource(inner)

    def connect() -> Any:
        return _one_file(resolve(path, storage_options)[0], inner)

    return FilesystemSource(_one_file(filesystem, inner), inner, connect, timeout_s=timeout_s)


def _one_file(filesystem: Any, path: str) -> Any:
    """A file system, or what it has for one file, of which it need not ask again where it lies."""
    opened = getattr(filesystem, "opened", None)
    return filesystem if opened is None else opened(path)
