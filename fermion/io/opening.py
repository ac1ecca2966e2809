"""Opens the source of a file: by its path, its URL, or its bytes."""

from __future__ import annotations

import os
from typing import Any

from fermion.io.buffer import BufferSource, buffer_of
from fermion.io.mapped import MappedSource
from fermion.io.source import FilesystemSource, LocalSource, Source
from fermion.remote import TIMEOUT_S, resolve


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
