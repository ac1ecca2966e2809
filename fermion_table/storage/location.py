"""Where a table lies: a local path, a ``pathlib.Path`` or an fsspec URL, to a store."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from fermion.arguments import mapping, plain_path
from fermion.engine import ask, connect, refuse_credentials
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.redaction import redacted
from fermion_table.errors import TableExists, UnsafeStorage
from fermion_table.storage.listing import list_directory
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import snapshot_directory, snapshot_path
from fermion_table.storage.store import (
    DEFAULT_ACCESS,
    AtomicStore,
    Durability,
    StorageAccess,
    in_time,
)

if TYPE_CHECKING:
    from fermion_table.storage import fsspec
else:  # it brings asyncio along, which local tables do not need
    fsspec = LoadedWhenAskedFor("fermion_table.storage.fsspec")

FOLDERS_SEARCHED_MAX = 1000
"""Directories below a new table's that are searched for other tables."""

Location = str | os.PathLike[str]
"""A directory, local or an fsspec URL."""


def open_store(
    location: str | os.PathLike[str],
    *,
    storage_options: dict[str, Any] | None = None,
    durability: Durability = "full",
    access: StorageAccess = DEFAULT_ACCESS,
    what: str = "path",
) -> AtomicStore:
    """The store of the table at a location; nothing is read or made.

    location: A local path, or a URL that fsspec knows (``file://`` is local too).
    durability: Of a local store: ``full``, or ``fast`` without fsync.
    access: See `StorageAccess`.
    what: What users call the location, for messages.
    Raises UnsafeStorage: A URL whose scheme fsspec does not know.
    Raises TypeError, InvalidArgumentError: Names the parameter that is wrong: a location with
        credentials, too.
    """
    if not isinstance(location, (str, os.PathLike)):
        raise TypeError(f"{what}={location!r}: expected a path or a URL")
    mapping(storage_options, "storage_options")
    if durability not in ("full", "fast"):
        raise InvalidArgumentError(f"durability={durability!r}: expected 'full' or 'fast'")
    if not isinstance(access, StorageAccess):
        raise InvalidArgumentError(f"access={access!r}: expected a StorageAccess")
    local = plain_path(location)
    if local is not None:
        return LocalStore(local, durability=durability, access=access)
    text = os.fspath(location)
    refuse_credentials(text, what)
    if not isinstance(location, str) or ("://" not in text and "::" not in text):
        return LocalStore(os.path.expanduser(text), durability=durability, access=access)
    try:
        filesystem, path = connect(text, storage_options)
    except ValueError as error:
        if not str(error).startswith("Protocol not known"):
            raise
        raise UnsafeStorage(
            f"{redacted(text)}: no storage is known for this URL: {error}; expected a local path, "
            f"or a URL such as s3://bucket/table"
        ) from error
    if isinstance(filesystem, fsspec.LocalFileSystem):
        return LocalStore(path, durability=durability, access=access)
    return fsspec.FsspecStore(text, storage_options=storage_options, access=access)


def location_size(location: str, storage_options: dict[str, Any] | None = None) -> int:
    """Bytes of a file anywhere: of another table's, to which a clone's entries point.

    Raises FileNotFoundError, OSError.
    """
    if "://" not in location and "::" not in location:
        return os.stat(location).st_size
    filesystem, path = connect(location, storage_options)
    filesystem.invalidate_cache()
    return int(ask(filesystem, "size", path))


def refuse_nested(store: AtomicStore) -> None:
    """Refuse a new table inside another table's directory, or around one.

    Who drops or moves the outer table would drop or move both. A place that can't be looked into
    (a role may see one prefix only) counts as empty, and at most a thousand directories below the
    new table's own, which mostly does not exist yet, are searched, for as long as
    the store's time-out.

    Raises TableExists: Names the other table; or there is a file.
    """
    with in_time(store):
        if is_file(store):
            raise TableExists(f"{store.location}: expected a directory for a table, found a file")
        for location in _locations_above(store):
            if _is_table(location, store.storage_options):
                raise TableExists(
                    f"{store.location} lies inside the directory of the table {location}: choose "
                    f"a directory beside that one"
                )
        for folder in _tables_below(store):
            raise TableExists(
                f"the table {folder} lies inside {store.location}: choose a directory beside that "
                f"one"
            )


def is_file(store: AtomicStore) -> bool:
    """Whether there is a file where the table's directory should be."""
    if isinstance(store, LocalStore):
        return os.path.isfile(store.location)
    with contextlib.suppress(Exception):  # only for a better message
        if isinstance(store, fsspec.FsspecStore):
            filesystem, path = connect(store.location, store.storage_options)
            return bool(ask(filesystem, "isfile", path))
    return False


def _is_table(location: str, storage_options: dict[str, Any] | None) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return open_store(location, storage_options=storage_options).exists(snapshot_path(0))
    return False


def _locations_above(store: AtomicStore) -> Iterator[str]:
    """The directories above a table's, nearest first; none of a store that has no location."""
    if isinstance(store, LocalStore):
        location = store.location
        while (above := os.path.dirname(location)) != location:
            yield above
            location = above
    elif isinstance(store, fsspec.FsspecStore):
        scheme, _, rest = store.location.rpartition("://")
        while rest := rest.rpartition("/")[0].rstrip("/"):
            yield f"{scheme}://{rest}"


def _tables_below(store: AtomicStore) -> Iterator[str]:
    """Locations of tables below a directory."""
    if isinstance(store, LocalStore):
        top = store.location
        walk: Iterator[tuple[str, set[str]]] = (
            (folder, set(folders)) for folder, folders, _ in os.walk(top)
        )
    elif isinstance(store, fsspec.FsspecStore):
        store.filesystem.invalidate_cache()
        _, top = connect(store.location, store.storage_options)
        walk = _walk(store, top)
    else:
        return
    name = snapshot_directory()
    with contextlib.suppress(OSError, ValueError):
        for folder, folders in itertools.islice(walk, FOLDERS_SEARCHED_MAX):
            below = folder[len(top) :].strip("/")
            location = f"{store.location}/{below}"
            if below and name in folders and _is_table(location, store.storage_options):
                yield location


def _walk(store: fsspec.FsspecStore, top: str) -> Iterator[tuple[str, set[str]]]:
    """Directories, and the names of those in each; one that can't be listed counts as empty.

    Unlike fsspec's own walk it keeps to a deadline.
    """
    waiting = [top]
    while waiting:
        folder, found = waiting.pop(), []
        with contextlib.suppress(OSError):
            found = list_directory(partial(ask, store.filesystem), folder, {})
        yield folder, {each.rsplit("/", 1)[-1] for each in found}
        waiting += found
