"""Where the tables of a catalog lie: a directory, the directories in it, and tables elsewhere."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from fermion.engine import ask, connect
from fermion.errors import on_local_disk
from fermion.exports import dataclass
from fermion_table.catalog.names import is_own_path
from fermion_table.expiry.drop import DroppedTable, drop_table
from fermion_table.metadata.history import table_exists
from fermion_table.metadata.shared_files import is_outside, options_for
from fermion_table.storage.local import LocalStore
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import check_path
from fermion_table.storage.store import (
    DEFAULT_ACCESS,
    AtomicStore,
    Durability,
    StorageAccess,
)


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory of a warehouse.

    is_link: Whether it is a symbolic link to a directory.
    """

    name: str
    is_link: bool = False


class Warehouse:
    """A directory with tables.

    location: A local path or a URL; need not exist.
    storage_options, durability, access: As for `Table.create` and `Table.open`.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        storage_options: dict[str, Any] | None = None,
        durability: Durability = "full",
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> None:
        self.root = open_store(
            location,
            storage_options=storage_options,
            durability=durability,
            access=access,
            what="warehouse",
        )
        self.durability: Durability = durability
        self.access = access

    @property
    def location(self) -> str:
        """The directory."""
        return self.root.location

    @property
    def tables_at_once(self) -> int:
        """How many tables are worked on at a time: as many threads as find something to wait for.

        A local disk lets threads wait only for fsync, and where they do not they are slower than
        one: 1,000 tags took 2.7 s with one, 6.9 s with sixteen; with fsync 13.7, 5.2 (four) and
        8.0 s.
        """
        if not isinstance(self.root, LocalStore):
            return 16
        return 4 if self.durability == "full" else 1

    def location_of(self, path: str) -> str | Path:
        """Where a table lies, by its path in the warehouse or its location elsewhere.

        Raises UnsafeStorage: A path that leaves the warehouse.
        """
        if is_outside(path):
            return path
        check_path(path)
        if isinstance(self.root, LocalStore):
            return Path(self.location, *path.split("/"))
        return f"{self.location}/{path}"

    def path_of(self, location: str) -> str:
        """The path in the warehouse of a location; the location itself if it lies elsewhere."""
        below = location.removeprefix(self.location.rstrip("/" + os.sep))
        if below == location or below[:1] not in ("/", os.sep):
            return location
        return below[1:].replace(os.sep, "/")

    def is_own(self, path: str) -> bool:
        """Whether a path is a catalog's own (see `is_own_path`): not that of a table of a user."""
        return any(is_own_path(place) for place in (path, os.fspath(self.location_of(path))))

    def store(self, path: str) -> AtomicStore:
        """The store of a table, by its path in the warehouse or its location elsewhere."""
        location, options = self.location_of(path), self.root.storage_options
        if is_outside(path):
            options = options_for(self.root, path)
        return open_store(
            location, storage_options=options, durability=self.durability, access=self.access
        )

    def has_table(self, path: str) -> bool:
        """Whether there is a table."""
        return table_exists(self.store(path))

    def folders(self, path: str) -> list[Folder]:
        """The directories directly below one, by name; none if it does not exist."""
        if isinstance(self.root, LocalStore):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = os.scandir(Path(self.location, path))
                with found as listed:
                    each = [Folder(one.name, one.is_symlink()) for one in listed if one.is_dir()]
                return sorted(each, key=lambda folder: folder.name)
            return []
        return [Folder(name) for name, is_folder in self._listed(path) if is_folder]

    def is_empty(self, path: str) -> bool:
        """Whether a directory holds nothing, or does not exist."""
        if isinstance(self.root, LocalStore):
            with contextlib.suppress(FileNotFoundError):
                return not os.listdir(Path(self.location, path))
            return True
        return not self._listed(path)

    def make_folder(self, path: str) -> None:
        """Make a directory; object stores need none."""
        if isinstance(self.root, LocalStore):
            folder = Path(self.location, path)
            with on_local_disk("make", str(folder)):
                folder.mkdir(parents=True, exist_ok=True)
            return
        filesystem, root = connect(self.location, self.root.storage_options)
        ask(filesystem, "makedirs", f"{root.rstrip('/')}/{path}", exist_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove an empty directory; nothing happens to one that is not, or does not exist."""
        with contextlib.suppress(OSError):
            if isinstance(self.root, LocalStore):
                os.rmdir(Path(self.location, path))
                return
            filesystem, root = connect(self.location, self.root.storage_options)
            ask(filesystem, "rmdir", f"{root.rstrip('/')}/{path}")

    def drop(self, path: str, *, dry_run: bool = False) -> DroppedTable:
        """Delete the files of a table (see `drop_table`)."""
        options = self.store(path).storage_options
        return drop_table(self.location_of(path), storage_options=options, dry_run=dry_run)

    def _listed(self, path: str) -> list[tuple[str, bool]]:
        """Names directly below a directory, each with whether it is one itself."""
        filesystem, root = connect(self.location, self.root.storage_options)
        top = f"{root.rstrip('/')}/{path}".rstrip("/")
        filesystem.invalidate_cache()
        try:
            listed = ask(filesystem, "ls", top, detail=True)
        except FileNotFoundError:
            return []
        return sorted(
            (each["name"].rstrip("/").rsplit("/", 1)[-1], each["type"] == "directory")
            for each in listed
            if each["name"].rstrip("/") != top
        )
