"""Dropping a table: its own files go, in an order that may stop anywhere, and no other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import fsspec

from fermion.display import short_repr
from fermion.errors import FermionError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.redaction import redacted
from fermion_table.argument_checks import check_bool
from fermion_table.errors import (
    CorruptMetadata,
    TableNotFound,
    UnsafeStorage,
    UnsupportedFeature,
)
from fermion_table.metadata import pointers
from fermion_table.metadata.clone_links import clones_of, delete_clone_tags
from fermion_table.metadata.history import table_exists, try_load
from fermion_table.metadata.shared_files import creation_properties
from fermion_table.storage.fsspec import OBJECT_STORES
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import (
    BRANCH_DIRECTORY,
    DATA_DIRECTORY,
    PENDING_DIRECTORY,
    SCHEMA_DIRECTORY,
    TAG_DIRECTORY,
    expired_directory,
    is_own_file,
    is_own_folder,
    snapshot_directory,
    snapshot_id_of,
    snapshot_path,
)
from fermion_table.storage.store import AtomicStore, StoredObject

LOCATIONS_SHOWN = 5
"""Clones, or other tables, that a refused drop names."""
FIRST_SCHEMAS = f"{SCHEMA_DIRECTORY}/0-"
"""What names of schemas begin with that tables are made with."""
DROP_PASSES = 3
"""How often a directory is listed again for what writers have stored meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTable:
    """The result of dropping a table.

    Attributes
    ----------
    files, bytes
        The table's files that were deleted, or with ``dry_run`` would have been.
    left
        What lies in the directory and is not the table's, relative to it: files, links, and
        directories by their top name. Empty if the directory is gone.
    location
        The table's, as its clones name it.
    clones
        With ``dry_run``: the locations of the clones that share files with the table, for which it
        would not be dropped.
    tables
        With ``dry_run``: directories in this one, relative to it, in which other tables lie (those
        of a warehouse, too), for which it would not be dropped.
    """

    files: int = 0
    bytes: int = 0
    left: tuple[str, ...] = ()
    location: str = ""
    clones: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    __repr__ = short_repr


def drop_table(
    path: str | os.PathLike[str],
    *,
    storage_options: dict[str, Any] | None = None,
    dry_run: bool = False,
    ignore_clones: bool = False,
) -> DroppedTable:
    """Delete a table with its history; other files in its directory stay.

    Only files and directories of the form that tables make go; links are not followed. A table
    whose data files clones share is not dropped: drop these first. Nor is one in whose directory
    another table or a warehouse lies. The tags that kept files for a clone go with it, where its
    sources can be written. Interrupted, it leaves the table at an
    earlier snapshot, to be dropped again, or files that belong to no table.

    Parameters
    ----------
    path
        A directory, local or an fsspec URL.
    storage_options
        For fsspec.
    dry_run
        Only say what would go, what would be left, and which clones and other tables there are.
    ignore_clones
        Drop the table though it has clones: they lose the files that they share with it.

    Raises
    ------
    TableNotFound
        There is none.
    InvalidArgumentError
        The table has clones; the message names them. One that can't be looked at counts. One that
        was moved since it was made is not known. Or other tables lie in its directory.
    UnsafeStorage
        The directory is a symbolic link.
    OSError
        The storage refused to delete a file.
    """
    dry_run = check_bool(dry_run, "dry_run")
    ignore_clones = check_bool(ignore_clones, "ignore_clones")
    store = open_store(path, storage_options=storage_options)
    text = os.fspath(path)
    if "://" not in text and os.path.islink(os.path.expanduser(text).rstrip(os.sep)):
        raise UnsafeStorage(f"{text}: a symbolic link; drop the table at the place it leads to")
    if not table_exists(store):
        raise TableNotFound(f"{store.location}: no table here (no snapshot)")
    clones = () if ignore_clones else tuple(clones_of(store))
    if clones and not dry_run:
        raise InvalidArgumentError(_why_kept(store, clones))
    tables = tuple(_tables_within(store))
    if tables and not dry_run:
        raise InvalidArgumentError(
            f"{redacted(store.location)}: other tables lie in the directory of this table: "
            f"{_shown(tables)}. Drop them first, or move them away; nothing was dropped"
        )
    properties = _creation_properties(store)
    files, total = delete_own_files(store, dry_run=dry_run)
    if not dry_run:
        remove_empty_folders(store)
        delete_clone_tags(store, properties)
    left = tuple(sorted(_foreign(*_filesystem(store), "")))
    return DroppedTable(
        files=files,
        bytes=total,
        left=left,
        location=store.location,
        clones=clones,
        tables=tables,
    )


def _tables_within(store: AtomicStore) -> list[str]:
    """Directories below that of a table in which other tables lie, relative to it; sorted.

    Each has a snapshot 0, which a branch does not have.
    """
    first = f"/{snapshot_path(0)}"
    paths = (item.path for item in store.list())
    return sorted(path.removesuffix(first) for path in paths if path.endswith(first))


def delete_own_files(store: AtomicStore, *, dry_run: bool = False) -> tuple[int, int]:
    """Delete every file of the form that tables make, in an order that may stop anywhere.

    Returns: Their number and bytes.
    Raises OSError: The storage refused to delete a file.
    """
    kept, creation = pointers.first_kept(store), snapshot_path(0)
    first_schema = _first_schema(store)
    files = total = 0
    for number in range(1 if dry_run else DROP_PASSES):
        own = [
            item
            for item in store.list()
            if is_own_file(item.path)
            and (not item.path.startswith(FIRST_SCHEMAS) or first_schema in (item.path, None))
        ]
        if number and table_exists(store):
            break  # another one
        if not number and first_schema and not any(item.path == creation for item in own):
            own.append(StoredObject(creation, 0, None))  # the listing is behind
        files, total = files + len(own), total + sum(item.size for item in own)
        if dry_run or not own:
            break
        for item in in_order_of_deletion(own, kept):
            store.delete(item.path)
    return files, total


def _first_schema(store: AtomicStore) -> str | None:
    """The schema that a table was made with; None where that can't be read.

    Others of that version are of tables that somebody is about to make here.
    """
    try:
        snapshot = try_load(store, 0)
    except (CorruptMetadata, UnsupportedFeature):
        return None
    return "" if snapshot is None else snapshot.schema.path


def _why_kept(store: AtomicStore, clones: Sequence[str]) -> str:
    """Why a table with clones is not dropped, and how it can be."""
    return (
        f"{redacted(store.location)}: clones share data files of this table: {_shown(clones)}. "
        f"Drop them first; fermion_table.drop_table(..., ignore_clones=True) drops it all the "
        f"same, and they lose these files"
    )


def _shown(locations: Sequence[str]) -> str:
    """Some of several locations, and how many more there are."""
    shown = ", ".join(redacted(location) for location in locations[:LOCATIONS_SHOWN])
    more = len(locations) - LOCATIONS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _creation_properties(store: AtomicStore) -> dict[str, str]:
    """What the table says of its source, if it is a clone; nothing where it is damaged."""
    with contextlib.suppress(FermionError, OSError):
        return creation_properties(store)
    return {}


def in_order_of_deletion(own: Iterable[StoredObject], kept: int) -> list[StoredObject]:
    """The files of a table, in an order that may stop anywhere.

    Branches and tags go first, then snapshot files: expired ones ascending, what hides them, and
    the others from the newest down, so that the newest snapshot file left is always a snapshot with
    all of its files. Snapshot 0, which makes the table, goes then; data last.

    own: All files.
    kept: The first snapshot of the main branch that has not expired.
    """
    slots, marks = snapshot_directory(), expired_directory()
    creation = snapshot_path(0)

    def rank(item: StoredObject) -> tuple[int, int]:
        top = item.path.split("/", 1)[0]
        if top in (BRANCH_DIRECTORY, TAG_DIRECTORY, PENDING_DIRECTORY):
            return 0, 0
        if item.path == creation:
            return 4, 0
        if top in (slots, marks):
            number = snapshot_id_of(item.path.rsplit("/", 1)[-1]) if top == slots else None
            if number is None:
                return 2, 0
            return (1, number) if number < kept else (3, -number)
        return (6, 0) if top == DATA_DIRECTORY else (5, 0)

    return sorted(own, key=rank)


def has_only_empty_folders(store: AtomicStore) -> bool:
    """Whether all that is in a directory is what `remove_empty_folders` removes."""
    filesystem, root = _filesystem(store)
    is_other = _has_folders(filesystem) and any(True for _ in _foreign(filesystem, root, ""))
    return not is_other and not any(True for _ in store.list())


def remove_empty_folders(store: AtomicStore) -> None:
    """Remove a directory and those that tables make in it, where they are empty."""
    filesystem, root = _filesystem(store)
    if _has_folders(filesystem):
        _remove_empty(filesystem, root, "")


def _remove_empty(filesystem: Any, path: str, relative: str) -> None:
    for name, is_folder in _entries(filesystem, path):
        below = f"{relative}/{name}" if relative else name
        if is_folder and is_own_folder(below):
            _remove_empty(filesystem, f"{path}/{name}", below)
    with contextlib.suppress(OSError):  # not empty, or not there
        filesystem.rmdir(path)


def _foreign(filesystem: Any, path: str, relative: str) -> Iterator[str]:
    """What is not the table's: files, links, and directories by their top name."""
    for name, is_folder in _entries(filesystem, path):
        below = f"{relative}/{name}" if relative else name
        if is_folder is True and is_own_folder(below):
            yield from _foreign(filesystem, f"{path}/{name}", below)
        elif is_folder is not False or not is_own_file(below):
            yield below


def _entries(filesystem: Any, path: str) -> list[tuple[str, bool | None]]:
    """Names in a directory, each with whether it is one itself; None for a link."""
    try:
        listed = filesystem.ls(path, detail=True)
    except FileNotFoundError:
        return []
    return [
        (
            each["name"].rstrip("/").rsplit("/", 1)[-1],
            None if each.get("islink") else each["type"] == "directory",
        )
        for each in listed
        if each["name"].rstrip("/") != path
    ]


def _filesystem(store: AtomicStore) -> tuple[Any, str]:
    filesystem, root = fsspec.core.url_to_fs(store.location, **(store.storage_options or {}))
    filesystem.invalidate_cache()
    return filesystem, root.rstrip("/")


def _has_folders(filesystem: Any) -> bool:
    protocol = filesystem.protocol
    return OBJECT_STORES.isdisjoint([protocol] if isinstance(protocol, str) else protocol)
