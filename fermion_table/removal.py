"""Dropping a table: its own files go, in an order that may stop anywhere, and no other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import fsspec

from fermion_table import hints
from fermion_table.argument_checks import check_bool
from fermion_table.errors import TableNotFound, UnsafeStorage
from fermion_table.fsspec_store import OBJECT_STORES
from fermion_table.history import table_exists
from fermion_table.location import open_store
from fermion_table.paths import (
    BRANCH_DIRECTORY,
    DATA_DIRECTORY,
    PENDING_DIRECTORY,
    TAG_DIRECTORY,
    expired_directory,
    is_own_file,
    is_own_folder,
    snapshot_directory,
    snapshot_id_of,
    snapshot_path,
)
from fermion_table.storage import AtomicStore, StoredObject

DROP_PASSES = 3
"""How often a directory is listed again for what writers have stored meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTable:
    """What became of a table's directory.

    Attributes
    ----------
    files, bytes
        The table's files that were deleted, or with ``dry_run`` would have been.
    left
        What lies in the directory and is not the table's, relative to it: files, links, and
        directories by their top name. Empty if the directory is gone.
    """

    files: int = 0
    bytes: int = 0
    left: tuple[str, ...] = ()


def drop_table(
    path: str | os.PathLike[str],
    *,
    storage_options: dict[str, Any] | None = None,
    dry_run: bool = False,
) -> DroppedTable:
    """Delete a table with its history, and nothing else that lies in its directory.

    Only files and directories of the form that tables make go; links are not followed. Clones of
    the table lose the data files that they share with it. Interrupted, it leaves the table at an
    earlier snapshot, to be dropped again, or files that belong to no table.

    Parameters
    ----------
    path
        A directory, local or an fsspec URL.
    storage_options
        For fsspec.
    dry_run
        Only say what would go and what would be left.

    Raises
    ------
    TableNotFound
        There is none.
    UnsafeStorage
        The directory is a symbolic link.
    OSError
        The storage refused to delete a file.
    """
    dry_run = check_bool(dry_run, "dry_run")
    store = open_store(path, storage_options=storage_options)
    text = os.fspath(path)
    if "://" not in text and os.path.islink(text.rstrip(os.sep)):
        raise UnsafeStorage(f"{text}: a symbolic link; drop the table at the place it leads to")
    if not table_exists(store):
        raise TableNotFound(f"{store.location}: no table here (no snapshot)")
    kept = hints.first_kept(store)
    files = total = 0
    for _ in range(1 if dry_run else DROP_PASSES):
        own = [item for item in store.list() if is_own_file(item.path)]
        files, total = files + len(own), total + sum(item.size for item in own)
        if dry_run or not own:
            break
        for item in in_order_of_deletion(own, kept):
            store.delete(item.path)
    if not dry_run:
        remove_empty_folders(store)
    left = tuple(sorted(_foreign(*_filesystem(store), "")))
    return DroppedTable(files=files, bytes=total, left=left)


def in_order_of_deletion(own: Iterable[StoredObject], kept: int) -> list[StoredObject]:
    """The files of a table, in an order that may stop anywhere.

    Branches and tags go first, then slots: expired ones ascending, the others from the newest
    down, so that the newest slot left is always a snapshot with all of its files. What hides
    expired snapshots goes when there is none; snapshot 0, which makes the table, then; data last.

    Parameters
    ----------
    own
        All files.
    kept
        The first snapshot of the main branch that has not expired.
    """
    slots, marks = snapshot_directory(), expired_directory()
    creation = snapshot_path(0)

    def rank(item: StoredObject) -> tuple[int, int]:
        top = item.path.split("/", 1)[0]
        if top in (BRANCH_DIRECTORY, TAG_DIRECTORY, PENDING_DIRECTORY):
            return 0, 0
        if item.path == creation:
            return 3, 0
        if top in (slots, marks):
            number = snapshot_id_of(item.path.rsplit("/", 1)[-1]) if top == slots else None
            if number is None:
                return 2, 0
            return 1, number - kept if number < kept else -number + (1 << 63)
        return (5, 0) if top == DATA_DIRECTORY else (4, 0)

    return sorted(own, key=rank)


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
