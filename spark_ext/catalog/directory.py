"""A warehouse: namespaces are directories, tables lie in them. Which names there are, and where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fsspec

from fermion.errors import InvalidArgumentError
from fermion.redaction import logger, redacted
from fermion_table import DroppedTable, StorageAccess, Table, drop_table
from spark_ext.opening import open_version
from spark_ext.options import parse_options

NAMES_SHOWN = 5
"""Files or clones that an error of DROP NAMESPACE names."""
_NAME = re.compile(r"(?!\.)[^/\\\x00]+")
_log = logger("spark_ext.catalog.warehouse")


class WarehouseDirectory:
    """The namespaces and tables below a directory. Names are sequences of their parts.

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
        self.root = root.rstrip("/")
        self.storage_options = storage_options
        self.access = access

    def location(self, parts: Sequence[str]) -> str:
        """Where a table or namespace of a name lies.

        Raises
        ------
        InvalidArgumentError
            A part of the name can't be the name of a directory.
        """
        return "/".join([self.root, *map(_checked, parts)])

    def exists(self, parts: Sequence[str]) -> bool:
        """Whether there is a table."""
        return Table.exists(self.location(parts), storage_options=self.storage_options)

    def open(self, parts: Sequence[str], version: Any, options: dict[str, str]) -> Table:
        """Open a table at the version that SQL names, or at the one that options choose.

        Raises
        ------
        InvalidArgumentError
            SQL names a version, and options choose one too.
        TableNotFound, VersionNotFound
        """
        location, storage_options = self.location(parts), self.storage_options
        if not options:
            return Table.open(
                location, version=version, storage_options=storage_options, access=self.access
            )
        if version is not None:
            raise InvalidArgumentError(
                f"VERSION or TIMESTAMP AS OF with options {sorted(options)}: expected one of them"
            )
        chosen = parse_options({**options, "path": location})
        return open_version(replace(chosen, storage_options=storage_options, access=self.access))

    def drop(self, parts: Sequence[str], *, ignore_clones: bool = False) -> None:
        """Delete a table's own files, and no others; a warning names what is left.

        Raises
        ------
        InvalidArgumentError
            It has clones, or lies behind a symbolic link.
        TableNotFound, OSError
        """
        self.refuse_links(parts)
        location, options = self.location(parts), self.storage_options
        dropped = drop_table(location, storage_options=options, ignore_clones=ignore_clones)
        if dropped.left:
            _log.warning(
                "%s: dropped the table; files that do not belong to it were left: %s",
                location,
                ", ".join(dropped.left),
            )

    def tables(self, parts: Sequence[str]) -> list[str]:
        """The names of the tables in a namespace, ascending."""
        return [name for name in self._directories(parts) if self.exists([*parts, name])]

    def namespaces(self, parts: Sequence[str]) -> list[str]:
        """The names of the namespaces in a namespace, ascending."""
        return [name for name in self._directories(parts) if not self.exists([*parts, name])]

    def is_namespace(self, parts: Sequence[str]) -> bool:
        """Whether there is such a directory, and no table of that name."""
        filesystem, path = self._filesystem(self.location(parts))
        if not parts:
            return True
        return (
            bool(filesystem.isdir(path)) and not self.exists(parts) and not self.table_above(parts)
        )

    def make_namespace(self, parts: Sequence[str]) -> None:
        """Make a directory; storage without directories needs none.

        Raises
        ------
        InvalidArgumentError
            A table has it in its directory.
        """
        table = self.table_above(parts)
        if table:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: {'.'.join(table)} is a table, and its directory "
                "can't contain anything else"
            )
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
            It holds other files, or clones elsewhere share files of a table; or a symbolic link.
        """
        self.refuse_links(parts)
        tables, spaces, other_files = self._contents(parts)
        planned = [self._planned(table) for table in tables]
        for table, plan in zip(tables, planned, strict=True):
            other_files += ["/".join([*table, each]) for each in plan.left]
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
        for table in tables:  # the clones go too
            self.drop(table, ignore_clones=True)
        for space in reversed(spaces):
            filesystem, path = self._filesystem(self.location(space))
            if filesystem.isdir(path):  # storage without directories has lost it with its tables
                filesystem.rmdir(path)

    def table_above(self, parts: Sequence[str]) -> Sequence[str] | None:
        """The table that has a name in its directory; None if there is none."""
        above = (parts[:count] for count in range(1, len(parts)))
        return next((names for names in above if self.exists(names)), None)

    def refuse_links(self, parts: Sequence[str]) -> None:
        """Refuse to delete what a symbolic link points to.

        Raises
        ------
        InvalidArgumentError
        """
        for count in range(1, len(parts) + 1):
            filesystem, path = self._filesystem(self.location(parts[:count]))
            if filesystem.exists(path) and filesystem.info(path).get("islink"):
                raise InvalidArgumentError(
                    f"{'.'.join(parts)}: {path} is a symbolic link; delete the link, or its "
                    "target, by hand"
                )

    def _planned(self, parts: Sequence[str]) -> DroppedTable:
        options = self.storage_options
        return drop_table(self.location(parts), storage_options=options, dry_run=True)

    def _contents(self, parts: Sequence[str]) -> tuple[list[list[str]], list[list[str]], list[str]]:
        """Tables and namespaces of a namespace (itself first), and other files in it."""
        tables: list[list[str]] = []
        spaces = [list(parts)]
        other_files: list[str] = []
        filesystem, path = self._filesystem(self.location(parts))
        for entry in filesystem.ls(path, detail=True):
            name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
            below = [*parts, name]
            if entry["type"] != "directory" or entry.get("islink") or not _NAME.fullmatch(name):
                other_files.append("/".join(below))
            elif self.exists(below):
                tables.append(below)
            else:
                found = self._contents(below)
                tables, spaces, other_files = (
                    tables + found[0],
                    spaces + found[1],
                    other_files + found[2],
                )
        return tables, spaces, other_files

    def _directories(self, parts: Sequence[str]) -> list[str]:
        filesystem, path = self._filesystem(self.location(parts))
        entries = filesystem.ls(path, detail=True) if filesystem.isdir(path) else []
        return sorted(
            entry["name"].rstrip("/").rsplit("/", 1)[-1]
            for entry in entries
            if entry["type"] == "directory"
        )

    def _filesystem(self, location: str) -> tuple[Any, str]:
        found: tuple[Any, str] = fsspec.core.url_to_fs(location, **(self.storage_options or {}))
        return found


def _checked(name: str) -> str:
    """Check that a name can be the name of a directory.

    Raises
    ------
    InvalidArgumentError
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"{name!r}: not a name for a directory")
    return name
