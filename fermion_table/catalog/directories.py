"""The names of a warehouse as SQL shows them: those of the list, and those of directories.

While there is no list, nothing here makes one before a table is renamed or registered: a table has
the name of its directory. Beside a list, tables in directories that it does not have are shown too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from fermion.engine import connect
from fermion.errors import InvalidArgumentError
from fermion.redaction import redacted
from fermion_table.catalog.catalog import Catalog
from fermion_table.catalog.names import (
    CATALOG_DIRECTORY,
    DATA_PATH,
    TABLES_PATH,
    check_namespace,
    is_table_directory,
    parts_of,
)
from fermion_table.errors import TableExists, TableNotFound
from fermion_table.expiry.drop import DroppedTable, drop_table
from fermion_table.metadata.versions import Version
from fermion_table.storage.store import DEFAULT_ACCESS, StorageAccess
from fermion_table.table.table import Table

NAMES_SHOWN = 5
"""Files or clones that an error names."""
_TEXT_MAX = 60

Parts = Sequence[str]
"""The parts of a name, also where it has none: the warehouse itself."""


class WarehouseNames:
    """The namespaces and tables of a warehouse, for engines that have SQL.

    Parameters
    ----------
    warehouse
        A directory, local or an fsspec URL.
    storage_options
        For fsspec.
    access
        How the storage of tables that exist is used.
    """

    def __init__(
        self,
        warehouse: str,
        storage_options: dict[str, Any] | None = None,
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> None:
        self.storage_options = storage_options
        self.access = access
        self._catalog = Catalog.open(warehouse, storage_options=storage_options, access=access)
        self.root = self._catalog.location.rstrip("/")

    def location(self, parts: Parts) -> str:
        """The directory of a namespace, or of a table that was not renamed.

        Raises
        ------
        InvalidArgumentError
            A part of the name can't be the name of a directory.
        """
        if parts and parts[0] == CATALOG_DIRECTORY:
            raise InvalidArgumentError(f"{parts[0]!r}: the catalog itself lies there")
        for part in parts:
            if not is_table_directory(part):
                raise InvalidArgumentError(f"{part!r}: not a name for a directory")
        return "/".join([self.root, *parts])

    def find(self, parts: Parts) -> str | None:
        """Where the table of a name lies; None if there is no such table."""
        try:
            return self.table(parts).location
        except TableNotFound:
            return None

    def exists(self, parts: Parts) -> bool:
        """Whether a table has a name, also if it is not in its place any more."""
        self.location(parts[:-1])  # no namespace can have another name
        if not self._has_list():
            return self._is_table(self.location(parts))
        return self._catalog.table_exists(parts) or tuple(parts) in self._listed()

    def is_inside(self, location: str) -> bool:
        """Whether a table lies in the warehouse; one outside keeps its files when it is dropped."""
        return location.startswith(f"{self.root}/")

    def table(self, parts: Parts, version: Version | None = None) -> Table:
        """Open a table at its latest snapshot, or at a version.

        Raises
        ------
        TableNotFound, VersionNotFound, InvalidArgumentError
        """
        self.location(parts[:-1])
        if self._has_list():
            return self._catalog.table(parts, version=version)
        return Table.open(
            self.location(parts),
            version=version,
            storage_options=self.storage_options,
            access=self.access,
        )

    def place(self, parts: Parts, requested: str | None = None) -> str:
        """Where a new table goes; see `register`.

        Parameters
        ----------
        requested
            The location that a statement names.

        Raises
        ------
        InvalidArgumentError
            The place is for other tables: a place within the warehouse has its own name. Or no
            directory can have the name.
        TableExists
            A table has the name in its directory.
        """
        check_namespace(parts[:-1])
        natural = self.location(parts)
        above = self._table_above(parts)
        if above:
            raise TableExists(f"{'.'.join(parts)} lies inside the table {'.'.join(above)}")
        if requested is not None and requested != natural:
            self._check_outside(requested)
            return requested
        if not self._is_table(natural):
            return natural
        if requested is not None:
            raise TableExists(f"LOCATION {requested!r}: a table with another name lies there")
        text = quote(".".join(parts), safe="").replace("%", "_")[:_TEXT_MAX]
        return f"{self.root}/{DATA_PATH}/{text}-{secrets.token_hex(8)}"

    def register(self, parts: Parts, location: str) -> None:
        """Put a table that is there into the list; without a list, if its directory is its name.

        Raises
        ------
        TableExists
            There is another table of this name, or this one has another name.
        TableNotFound, CommitConflict, CommitStateUnknown
        """
        known = self.find(parts)
        if known not in (None, location):
            raise TableExists(f"{'.'.join(parts)}: there is a table of this name already")
        if known is not None and (not self._has_list() or tuple(parts) in self._listed()):
            return
        self._catalog.register_table(parts, location)

    def is_named(self, location: str) -> bool:
        """Whether the list has the table that lies somewhere, under any name."""
        return any(self.find(name) == location for name in self._listed())

    def rename(self, old: Parts, new: Parts) -> None:
        """Give a table another name; no file moves, and who reads or writes it goes on.

        Raises
        ------
        TableNotFound
            There is no table of the old name.
        TableExists
            There is a table of the new one.
        InvalidArgumentError
            A namespace has the new name, or it lies in a table.
        CommitConflict, CommitStateUnknown
        """
        natural = self.location(new)
        above = self._table_above(new)
        if above or self.is_namespace(new):
            there = f"lies inside the table {'.'.join(above)}" if above else "is a namespace"
            raise InvalidArgumentError(f"{'.'.join(new)} {there}; choose another name")
        was_free = not self._is_table(natural)
        self._catalog.rename_table(old, new)
        if was_free and self._is_table(natural):  # it was made at the same moment
            self._catalog.rename_table(new, old)
            raise TableExists(f"{'.'.join(new)}: there is a table of this name already")

    def drop(self, parts: Parts, *, purge: bool = False) -> DroppedTable:
        """Delete a table's own files, and no others; of a registered table only its name.

        Raises
        ------
        InvalidArgumentError
            It has clones, lies behind a symbolic link, or is registered and to be purged.
        TableNotFound, OSError, CommitConflict, CommitStateUnknown
        """
        location = self.find(parts)
        is_inside = location is not None and self.is_inside(location)
        if location is not None and is_inside:
            for path in (location, "/".join([self.root, *parts])):  # the first has links resolved
                self.refuse_links(path)
            if not self._has_list():
                return drop_table(location, storage_options=self.storage_options)
        elif location is not None and purge:
            raise InvalidArgumentError(
                f"{'.'.join(parts)} is registered: its files lie in {redacted(location)}; delete "
                "them with fermion_table.drop_table, or leave out PURGE"
            )
        return self._catalog.drop_table(parts, purge=is_inside) or DroppedTable()

    def tables(self, parts: Parts) -> list[str]:
        """The names of the tables in a namespace, ascending."""
        stored = {name for name in self._folders(parts) if self._is_table_at([*parts, name])}
        listed = {name[-1] for name in self._listed() if name[:-1] == tuple(parts)}
        if not self._has_list():
            return sorted(stored)
        others = {
            name for name in stored - listed if self._catalog.table_exists([*parts, name])
        }  # a table of another name may lie there
        return sorted(others | listed)

    def namespaces(self, parts: Parts) -> list[str]:
        """The names of the namespaces in a namespace, ascending."""
        stored = {name for name in self._folders(parts) if not self._is_table_at([*parts, name])}
        listed = {name[len(parts)] for name in self._listed_namespaces(parts)}
        return sorted((stored | listed).difference(self.tables(parts) if listed else ()))

    def is_namespace(self, parts: Parts) -> bool:
        """Whether there is such a directory, or a name in it, and no table of that name."""
        if not parts:
            return True
        filesystem, path = self._connected(self.location(parts))
        if not filesystem.isdir(path) and tuple(parts) not in self._listed_namespaces(parts[:-1]):
            return False
        return not self._is_table_at(parts) and not self._table_above([*parts, ""])

    def make_namespace(self, parts: Parts) -> None:
        """Make a directory; storage without directories needs none.

        Raises
        ------
        InvalidArgumentError
            A table has it in its directory, or no directory can have the name.
        """
        check_namespace(parts)
        table = self._table_above([*parts, ""])
        if table:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: {'.'.join(table)} is a table, and its directory "
                "can't contain anything else"
            )
        if self._has_list():
            self._catalog.create_namespace(parts)
        filesystem, path = self._connected(self.location(parts))
        filesystem.makedirs(path, exist_ok=True)

    def is_empty(self, parts: Parts) -> bool:
        """Whether a namespace has no tables and no namespaces."""
        tables, spaces, _ = self._contents(parts)
        return not tables and len(spaces) == 1

    def drop_namespace(self, parts: Parts) -> list[DroppedTable]:
        """Delete a directory with its tables; nothing if it holds anything else.

        Raises
        ------
        InvalidArgumentError
            It holds other files, a table holds another one, or clones elsewhere share files of a
            table; or a symbolic link.
        """
        self.refuse_links(self.location(parts))
        tables, spaces, other_files = self._contents(parts)
        plans = [(table, self._planned(table)) for table in tables]
        for table, plan in plans:
            other_files += ["/".join([*table, path]) for path in (*plan.left, *plan.tables)]
        if other_files:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: {', '.join(other_files[:NAMES_SHOWN])} "
                f"{'...' if len(other_files) > NAMES_SHOWN else ''}belong to no table; move them "
                "away first. Nothing was dropped"
            )
        locations = {plan.location for _, plan in plans}
        for table, plan in plans:
            elsewhere = [clone for clone in plan.clones if clone not in locations]
            if elsewhere:
                raise InvalidArgumentError(
                    f"namespace {'.'.join(parts)}: clones elsewhere share data files of "
                    f"{'.'.join(table)}: {', '.join(map(redacted, elsewhere[:NAMES_SHOWN]))}; "
                    "drop these first. Nothing was dropped"
                )
        dropped = [self.drop(table) for table in _clones_first(plans)]
        for space in reversed(spaces):
            if self._has_list():
                with contextlib.suppress(TableNotFound):  # it was a directory alone
                    self._catalog.drop_namespace(space)
            filesystem, path = self._connected(self.location(space))
            if filesystem.isdir(path):  # storage without directories has lost it with its tables
                filesystem.rmdir(path)
        return dropped

    def refuse_links(self, location: str) -> None:
        """Refuse to delete what a symbolic link within the warehouse points to.

        Raises
        ------
        InvalidArgumentError
        """
        segments = location[len(self.root) + 1 :].split("/")
        for count in range(1, len(segments) + 1):
            below = "/".join([self.root, *segments[:count]])
            filesystem, path = self._connected(below)
            if filesystem.exists(path) and filesystem.info(path).get("islink"):
                raise InvalidArgumentError(
                    f"{path} is a symbolic link; delete the link, or its target, by hand"
                )

    def _table_above(self, parts: Parts) -> Parts | None:
        """The table that has a name in its directory, or as its namespace; None: there is none."""
        above = (parts[:count] for count in range(1, len(parts)))
        return next((name for name in above if self._is_taken(name)), None)

    def _is_taken(self, parts: Parts) -> bool:
        """Whether a table has a name, or its directory."""
        if self._is_table_at(parts):
            return True
        return self._has_list() and self._catalog.table_exists(parts)

    def _has_list(self) -> bool:
        """Whether names may differ from directories."""
        return self._is_table(f"{self.root}/{TABLES_PATH}")

    def _listed(self) -> set[tuple[str, ...]]:
        """The names in the list; none without a list."""
        return set(map(parts_of, self._catalog.tables())) if self._has_list() else set()

    def _listed_namespaces(self, parts: Parts) -> list[tuple[str, ...]]:
        """The namespaces in the list that lie in a namespace, or deeper."""
        if not self._has_list():
            return []
        start = tuple(parts)
        names = map(parts_of, self._catalog.namespaces())
        return [name for name in names if name[: len(start)] == start and name != start]

    def _check_outside(self, location: str) -> None:
        place, root = _resolved(location), _resolved(self.root)
        if f"{place}/".startswith(f"{root}/") or f"{root}/".startswith(f"{place}/"):
            raise InvalidArgumentError(
                f"LOCATION {location!r} lies in the warehouse, or around it; its tables have the "
                "names of their directories: leave out LOCATION, or rename the table that is there"
            )

    def _is_table(self, location: str) -> bool:
        return Table.exists(location, storage_options=self.storage_options)

    def _is_table_at(self, parts: Parts) -> bool:
        return self._is_table(self.location(parts))

    def _planned(self, parts: Parts) -> DroppedTable:
        """What would be deleted with a table."""
        location = self.find(parts)
        if location is None or not self.is_inside(location):
            return DroppedTable()
        return drop_table(location, storage_options=self.storage_options, dry_run=True)

    def _contents(self, parts: Parts) -> tuple[list[Parts], list[Parts], list[str]]:
        """Tables and namespaces of a namespace (itself first), and other files in it."""
        start = tuple(parts)
        listed = sorted(name for name in self._listed() if name[: len(start)] == start)
        places = {self.find(name) for name in listed}
        tables: list[Parts] = []
        spaces: list[Parts] = [start]
        other_files: list[str] = []
        for space in spaces:  # grows
            for name, is_folder in self._entries(space):
                below = (*space, name)
                if not is_folder:
                    other_files.append("/".join(below))
                elif (location := self.location(below)) in places:
                    continue
                elif not self._is_table(location):
                    spaces.append(below)
                elif self.find(below) == location:
                    tables.append(below)
                else:
                    other_files.append(f"{'/'.join(below)} (a table of another name)")
        spaces += [name for name in self._listed_namespaces(parts) if name not in spaces]
        return [*tables, *listed], sorted(spaces, key=len), other_files

    def _folders(self, parts: Parts) -> list[str]:
        """The directories in a namespace, of tables and namespaces."""
        names = (name for name, is_folder in self._entries(parts, links=True) if is_folder)
        return [name for name in names if parts or name != CATALOG_DIRECTORY]

    def _entries(self, parts: Parts, *, links: bool = False) -> Iterator[tuple[str, bool]]:
        """What lies in a namespace: names, each with whether it is the directory of a name.

        Symbolic links are such directories only with `links`.
        """
        filesystem, path = self._connected(self.location(parts))
        for entry in filesystem.ls(path, detail=True) if filesystem.isdir(path) else ():
            name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
            is_own = entry["type"] == "directory" and (links or not entry.get("islink"))
            yield name, is_own and is_table_directory(name)

    def _connected(self, location: str) -> tuple[Any, str]:
        return connect(location, self.storage_options)


def _clones_first(plans: Sequence[tuple[Parts, DroppedTable]]) -> list[Parts]:
    """Tables in an order in which each is dropped after its clones."""
    waiting = list(plans)
    ordered: list[Parts] = []
    while waiting:
        locations = {plan.location for _, plan in waiting}
        free = [table for table, plan in waiting if locations.isdisjoint(plan.clones)]
        free = free or [table for table, _ in waiting]
        ordered += free
        waiting = [(table, plan) for table, plan in waiting if table not in free]
    return ordered


def _resolved(location: str) -> str:
    """A location without symbolic links, to compare it with others."""
    return location if "://" in location or "::" in location else os.path.realpath(location)
