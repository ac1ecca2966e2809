"""Where a table lies: a local path, a ``pathlib.Path`` or an fsspec URL, to a store."""

from __future__ import annotations

import os
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from fermion_table.fsspec_store import FsspecStore
from fermion_table.local_store import LocalStore
from fermion_table.storage import AtomicStore, Durability


def open_store(
    location: str | os.PathLike[str],
    *,
    storage_options: dict[str, Any] | None = None,
    durability: Durability = "full",
) -> AtomicStore:
    """The store of the table at a location; nothing is read or made.

    Parameters
    ----------
    location
        A local path, or a URL that fsspec knows (``file://`` is local too).
    storage_options
        For fsspec.
    durability
        Of a local store: ``full``, or ``fast`` without synchronising to disk.
    """
    text = os.fspath(location)
    if not isinstance(location, str) or ("://" not in text and "::" not in text):
        return LocalStore(text, durability=durability)
    filesystem, path = fsspec.core.url_to_fs(text, **(storage_options or {}))
    if isinstance(filesystem, LocalFileSystem):
        return LocalStore(path, durability=durability)
    return FsspecStore(text, storage_options=storage_options)


def location_size(location: str, storage_options: dict[str, Any] | None = None) -> int:
    """Bytes of a file anywhere: of another table's, to which a clone's entries point.

    Raises
    ------
    FileNotFoundError, OSError
    """
    if "://" not in location and "::" not in location:
        return os.stat(location).st_size
    filesystem, path = fsspec.core.url_to_fs(location, **(storage_options or {}))
    filesystem.invalidate_cache()
    return int(filesystem.size(path))
