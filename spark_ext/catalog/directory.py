"""A warehouse: which names of tables and namespaces there are, and where they lie.

Namespaces are directories, and a table has the name of its directory. Tables that were renamed, and
registered tables, which lie elsewhere, have their names in the list of `fermion_table.Catalog`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import fsspec

from fermion.errors import InvalidArgumentError
from fermion.redaction import logger, redacted
from fermion_table import (
    Catalog,
    DroppedTable,
    StorageAccess,
    Table,
    TableExists,
    TableNotFound,
    drop_table,
)
from fermion_table.engine import CATALOG_DIRECTORY, DATA_PATH, TABLES_PATH, parts_of
from spark_ext.opening import open_version
from spark_ext.options import absolute, parse_options

NAMES_SHOWN = 5
"""Files or clones that an error of DROP NAMESPACE names."""
_TEXT_MAX = 60
_NAME = re.compile(r"(?!\.)[^/\\\x00]+")
_log = logger("spark_ext.catalog.warehouse")  # the name that the documentation gives


class WarehouseDirectory:
    """The namespaces and tables of a warehouse. Names are sequences of their parts.

    Parameters
    ----------
    root
        The directory: absolute, or a URL.
    storage_options
        For fsspec.
    access
        How the storage of tables that exist is used.
    """

    def __init__(
        self, root: str, storage_options: dict[str, Any] | None, access: StorageAccess
    ) -> None:
        self.storage_options = storage_options
        self.access = access
        self._catalog = Catalog.open(root, storage_options=storage_options, access=access)
        self.root = self._catalog.location.rstrip("/")

    def location(self, parts: Sequence[str]) -> str:
        """The directory of a namespace, or of a table that was not renamed.

        Raises
        ------
        InvalidArgumentError
            A part of the name can't be the name of a directory.
        """
        if parts and parts[0] == CATALOG_DIRECTORY:
            raise InvalidArgumentError(f"{parts[0]!r}: the catalog itself lies there")
        return "/".join([self.root, *map(_checked, parts)])

    def find(self, parts: Sequence[str]) -> str | None:
        """Where the table of a name lies; None if there is no such table."""
        try:
            return self._opened(parts, None).location
        except TableNotFound:
            return None

    def exists(self, parts: Sequence[str]) -> bool:
        """Whether a table has a name, also if it is not in its place any more."""
        self.location(parts[:-1])  # no namespace can have another name
        if not self._has_list():
            return self._is_table(self.location(parts))
        return self._catalog.table_exists(parts) or tuple(parts) in self._listed()

    def is_inside(self, location: str) -> bool:
        """Whether a table lies in the warehouse; one outside keeps its files when it is dropped."""
        return location.startswith(f"{self.root}/")

    def open(self, parts: Sequence[str], version: Any, options: dict[str, str]) -> Table:
        """Open a table at the version that SQL names, or at the one that options choose.

        Raises
        ------
        InvalidArgumentError
            SQL names a version, and options choose one too.
        TableNotFound, VersionNotFound
        """
        self.location(parts[:-1])
        if not options:
            return self._opened(parts, version)
        if version is not None:
            raise InvalidArgumentError(
                f"VERSION or TIMESTAMP AS OF with options {sorted(options)}: expected one of them"
            )
        location = self._opened(parts, None).location
        chosen = parse_options({**options, "path": location})
        return open_version(
            replace(chosen, storage_options=self.storage_options, access=self.access)
        )

    def place(self, parts: Sequence[str], requested: str | None) -> str:
        """Where a new table goes; see `register`.

        Parameters
        ----------
        requested
            What LOCATION says.

        Raises
        ------
        InvalidArgumentError
            The place is for other tables: a place within the warehouse has its own name; or it has
            a password in it.
        TableExists
            A table has the name in its directory.
        """
        natural = self.location(parts)
        above = self.table_above(parts)
        if above:
            raise TableExists(f"{'.'.join(parts)} lies inside the table {'.'.join(above)}")
        if requested is not None:
            location = path_of(requested)
            if location != natural:
                self._check_outside(location)
                return location
        if not self._is_table(natural):
            return natural
        if requested is not None:
            raise TableExists(f"LOCATION {requested!r}: a table with another name lies there")
        text = quote(".".join(parts), safe="").replace("%", "_")[:_TEXT_MAX]
        return f"{self.root}/{DATA_PATH}/{text}-{secrets.token_hex(8)}"

    def register(self, parts: Sequence[str], location: str) -> None:
        """Put a table that is there into the list; without a list, if its directory is its name.

        Raises
        ------
        TableExists
            There is another table of this name, or this one has another name.
        TableNotFound, CommitConflict, CommitStateUnknown
        """
        found = self.find(parts)
        if found not in (None, location):
            raise TableExists(f"{'.'.join(parts)}: there is a table of this name already")
        if found is not None and (not self._has_list() or tuple(parts) in self._listed()):
            return
        self._catalog.register_table(parts, location)

    def is_named(self, location: str) -> bool:
        """Whether the list has the table that lies somewhere, under any name."""
        return any(self.find(name) == location for name in self._listed())

    def rename(self, old: Sequence[str], new: Sequence[str]) -> None:
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
        above = self.table_above(new)
        if above or self.is_namespace(new):
            there = f"lies inside the table {'.'.join(above)}" if above else "is a namespace"
            raise InvalidArgumentError(f"{'.'.join(new)} {there}; choose another name")
        was_free = not self._is_table(natural)
        self._catalog.rename_table(old, new)
        if was_free and self._is_table(natural):  # it was made at the same moment
            self._catalog.rename_table(new, old)
            raise TableExists(f"{'.'.join(new)}: there is a table of this name already")

    def drop(self, parts: Sequence[str], *, purge: bool = False) -> None:
        """Delete a table's own files, and no others; of a registered table only its name.

        A warning names other files, which are left.

        Raises
        ------
        InvalidArgumentError
            It has clones, lies behind a symbolic link, or is registered and to be purged.
        TableNotFound, OSError, CommitConflict, CommitStateUnknown
        """
        location = self.find(parts)
        if location is None:  # its name is all that there is
            self._catalog.drop_table(parts)
        elif self.is_inside(location):
            for path in (location, "/".join([self.root, *parts])):  # the first has links resolved
                self.refuse_links(path)
            self._drop_files(parts, location)
        elif purge:
            raise InvalidArgumentError(
                f"{'.'.join(parts)} is registered: its files lie in {redacted(location)}; delete "
                "them with fermion_table.drop_table, or leave out PURGE"
            )
        else:
            self._catalog.drop_table(parts)

    def tables(self, parts: Sequence[str]) -> list[str]:
        """The names of the tables in a namespace, ascending."""
        found = {
            name
            for name in self._directories(parts)
            if self._is_table(self.location([*parts, name]))
        }
        if self._has_list():
            listed = {name[-1] for name in self._listed() if name[:-1] == tuple(parts)}
            others = found - listed
            found = {name for name in others if self._catalog.table_exists([*parts, name])} | listed
        return sorted(found)

    def namespaces(self, parts: Sequence[str]) -> list[str]:
        """The names of the namespaces in a namespace, ascending."""
        found = {
            name
            for name in self._directories(parts)
            if not self._is_table(self.location([*parts, name]))
        }
        listed, depth = self._listed_namespaces(parts), len(parts)
        found |= {name[depth] for name in listed}
        return sorted(found.difference(self.tables(parts) if listed else ()))

    def is_namespace(self, parts: Sequence[str]) -> bool:
        """Whether there is such a directory, or a name in it, and no table of that name."""
        if not parts:
            return True
        location = self.location(parts)
        filesystem, path = self._filesystem(location)
        if not filesystem.isdir(path) and not self._is_listed_namespace(parts):
            return False
        return not self._is_table(location) and not self.table_above([*parts, ""])

    def make_namespace(self, parts: Sequence[str]) -> None:
        """Make a directory; storage without directories needs none.

        Raises
        ------
        InvalidArgumentError
            A table has it in its directory.
        """
        table = self.table_above([*parts, ""])
        if table:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: {'.'.join(table)} is a table, and its directory "
                "can't contain anything else"
            )
        if self._has_list():
            self._catalog.create_namespace(parts)
        filesystem, path = self._filesystem(self.location(parts))
        filesystem.makedirs(path, exist_ok=True)

    def is_empty(self, parts: Sequence[str]) -> bool:
        """Whether a namespace has no tables and no namespaces."""
        tables, spaces, _ = self._contents(parts)
        return not tables and len(spaces) == 1

    def drop_namespace(self, parts: Sequence[str]) -> None:
        """Delete a directory with its tables; nothing if it holds anything else.

        Raises
        ------
        InvalidArgumentError
            It holds other files, a table holds another one, or clones elsewhere share files of a
            table; or a symbolic link.
        """
        self.refuse_links(self.location(parts))
        tables, spaces, other_files = self._contents(parts)
        planned = [self._planned(table) for table in tables]
        for table, plan in zip(tables, planned, strict=True):
            other_files += ["/".join([*table, each]) for each in (*plan.left, *plan.tables)]
        if other_files:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: {', '.join(other_files[:NAMES_SHOWN])} "
                f"{'...' if len(other_files) > NAMES_SHOWN else ''}belong to no table; move them "
                "away first. Nothing was dropped"
            )
        locations = {plan.location for plan in planned}
        for table, plan in zip(tables, planned, strict=True):
            elsewhere = [clone for clone in plan.clones if clone not in locations]
            if elsewhere:
                raise InvalidArgumentError(
                    f"namespace {'.'.join(parts)}: clones elsewhere share data files of "
                    f"{'.'.join(table)}: {', '.join(map(redacted, elsewhere[:NAMES_SHOWN]))}; "
                    "drop these first. Nothing was dropped"
                )
        for table in self._clones_first(tables):
            self.drop(table)
        for space in reversed(spaces):
            if self._has_list():
                with contextlib.suppress(TableNotFound):  # it was a directory alone
                    self._catalog.drop_namespace(space)
            filesystem, path = self._filesystem(self.location(space))
            if filesystem.isdir(path):  # storage without directories has lost it with its tables
                filesystem.rmdir(path)

    def table_above(self, parts: Sequence[str]) -> Sequence[str] | None:
        """The table that has a name in its directory, or as its namespace; None: there is none."""
        above = (parts[:count] for count in range(1, len(parts)))
        return next((name for name in above if self._is_taken(name)), None)

    def refuse_links(self, location: str) -> None:
        """Refuse to delete what a symbolic link within the warehouse points to.

        Raises
        ------
        InvalidArgumentError
        """
        segments = location[len(self.root) + 1 :].split("/")
        for count in range(1, len(segments) + 1):
            below = "/".join([self.root, *segments[:count]])
            filesystem, path = self._filesystem(below)
            if filesystem.exists(path) and filesystem.info(path).get("islink"):
                raise InvalidArgumentError(
                    f"{path} is a symbolic link; delete the link, or its target, by hand"
                )

    def _opened(self, parts: Sequence[str], version: Any) -> Table:
        if self._has_list():
            return self._catalog.table(parts, version=version)
        options = self.storage_options
        return Table.open(
            self.location(parts), version=version, storage_options=options, access=self.access
        )

    def _is_taken(self, parts: Sequence[str]) -> bool:
        """Whether a table has a name, or its directory."""
        if self._is_table(self.location(parts)):
            return True
        return self._has_list() and self._catalog.table_exists(parts)

    def _has_list(self) -> bool:
        """Whether names may differ from directories."""
        return self._is_table(f"{self.root}/{TABLES_PATH}")

    def _listed(self) -> set[tuple[str, ...]]:
        """The names in the list; none without a list."""
        return set(map(parts_of, self._catalog.tables())) if self._has_list() else set()

    def _listed_namespaces(self, parts: Sequence[str]) -> list[tuple[str, ...]]:
        """The namespaces in the list that lie in a namespace, or deeper."""
        if not self._has_list():
            return []
        start = tuple(parts)
        found = map(parts_of, self._catalog.namespaces())
        return [name for name in found if name[: len(start)] == start and name != start]

    def _is_listed_namespace(self, parts: Sequence[str]) -> bool:
        return tuple(parts) in self._listed_namespaces(parts[:-1])

    def _check_outside(self, location: str) -> None:
        if redacted(location) != location:
            raise InvalidArgumentError(
                f"LOCATION {redacted(location)!r}: give passwords and keys as storage_options of "
                "install_catalog; they are never stored"
            )
        place, root = _resolved(location), _resolved(self.root)
        if f"{place}/".startswith(f"{root}/") or f"{root}/".startswith(f"{place}/"):
            raise InvalidArgumentError(
                f"LOCATION {location!r} lies in the warehouse, or around it; its tables have the "
                "names of their directories: leave out LOCATION, or rename the table that is there"
            )

    def _is_table(self, location: str) -> bool:
        return Table.exists(location, storage_options=self.storage_options)

    def _drop_files(self, parts: Sequence[str], location: str) -> None:
        if self._has_list():
            dropped = self._catalog.drop_table(parts, purge=True)
        else:
            dropped = drop_table(location, storage_options=self.storage_options)
        if dropped is not None and dropped.left:
            _log.warning(
                "%s: dropped the table; files that do not belong to it were left: %s",
                location,
                ", ".join(dropped.left),
            )

    def _planned(self, parts: Sequence[str]) -> DroppedTable:
        location = self.find(parts)
        if location is None or not self.is_inside(location):
            return DroppedTable()
        return drop_table(location, storage_options=self.storage_options, dry_run=True)

    def _clones_first(self, tables: list[list[str]]) -> list[list[str]]:
        """Tables in an order in which each is dropped after its clones."""
        plans = [(table, self._planned(table)) for table in tables]
        ordered: list[list[str]] = []
        while plans:
            left = {plan.location for _, plan in plans}
            free = [left.isdisjoint(plan.clones) for _, plan in plans]
            free = free if any(free) else [True] * len(plans)
            ordered += [table for (table, _), is_free in zip(plans, free, strict=True) if is_free]
            plans = [each for each, is_free in zip(plans, free, strict=True) if not is_free]
        return ordered

    def _contents(self, parts: Sequence[str]) -> tuple[list[list[str]], list[list[str]], list[str]]:
        """Tables and namespaces of a namespace (itself first), and other files in it."""
        start = tuple(parts)
        listed = [name for name in self._listed() if name[: len(start)] == start]
        places = {self.find(name) for name in listed}
        tables, spaces, other_files = self._stored(parts, places)
        known = {tuple(name) for name in spaces}
        spaces += [[*name] for name in self._listed_namespaces(parts) if tuple(name) not in known]
        return [*tables, *map(list, sorted(listed))], sorted(spaces, key=len), other_files

    def _stored(
        self, parts: Sequence[str], places: set[str | None]
    ) -> tuple[list[list[str]], list[list[str]], list[str]]:
        """What `_contents` returns, of directories; without tables at the places given."""
        tables: list[list[str]] = []
        spaces = [list(parts)]
        other_files: list[str] = []
        filesystem, path = self._filesystem(self.location(parts))
        for entry in filesystem.ls(path, detail=True) if filesystem.isdir(path) else ():
            name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
            below = [*parts, name]
            if entry["type"] != "directory" or entry.get("islink") or not _NAME.fullmatch(name):
                other_files.append("/".join(below))
            elif (location := self.location(below)) in places:
                continue
            elif not self._is_table(location):
                found = self._stored(below, places)
                tables, spaces, other_files = (
                    tables + found[0],
                    spaces + found[1],
                    other_files + found[2],
                )
            elif self.find(below) == location:
                tables.append(below)
            else:
                other_files.append(f"{'/'.join(below)} (a table of another name)")
        return tables, spaces, other_files

    def _directories(self, parts: Sequence[str]) -> list[str]:
        filesystem, path = self._filesystem(self.location(parts))
        entries = filesystem.ls(path, detail=True) if filesystem.isdir(path) else []
        names = [
            entry["name"].rstrip("/").rsplit("/", 1)[-1]
            for entry in entries
            if entry["type"] == "directory"
        ]
        return [
            name for name in names if _NAME.fullmatch(name) and (parts or name != CATALOG_DIRECTORY)
        ]

    def _filesystem(self, location: str) -> tuple[Any, str]:
        found: tuple[Any, str] = fsspec.core.url_to_fs(location, **(self.storage_options or {}))
        return found


def path_of(location: str) -> str:
    """A location as Spark spells it: ``file:/a`` is a local path."""
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    return absolute(location.rstrip("/") or location, "LOCATION")


def _resolved(location: str) -> str:
    """A location without symbolic links, to compare it with others."""
    return location if "://" in location or "::" in location else os.path.realpath(location)


def _checked(name: str) -> str:
    """Check that a name can be the name of a directory.

    Raises
    ------
    InvalidArgumentError
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"{name!r}: not a name for a directory")
    return name
