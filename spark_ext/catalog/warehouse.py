"""A directory of tables as Spark's catalog: namespaces are directories, tables lie in them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fsspec
from pyspark.sql.types import StructType

from fermion.errors import FermionError, InvalidArgumentError
from fermion.redaction import logger, redacted
from fermion_table import (
    DroppedTable,
    StorageAccess,
    Table,
    TableExists,
    TableNotFound,
    VersionNotFound,
    drop_table,
)
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.changes import alter
from spark_ext.catalog.layout import SORT_PROPERTY, layout_of
from spark_ext.catalog.staged import StagedCatalogTable
from spark_ext.catalog.tables import CatalogTable, Schemas
from spark_ext.catalog.versions import options_asked, version_asked
from spark_ext.opening import open_version
from spark_ext.options import DEFAULT_ACCESS, VERSION_OPTIONS, parse_options
from spark_ext.types import BINARY_COLLATION, table_schema
from spark_ext.writing.staged import StagedDefinition

NAMES_SHOWN = 5
"""Files or clones that an error of DROP NAMESPACE names."""
_log = logger(__name__)
_CATALOG = "connector.catalog."
_RESERVED = {"provider", "owner", "external", "is_managed_location", "collation"}
_NAME = re.compile(r"(?!\.)[^/\\\x00]+")


class Warehouse(Callback):
    """The tables below a directory.

    Parameters
    ----------
    name
        The catalog's, in SQL.
    root
        The directory: absolute, or a URL.
    storage_options
        For fsspec.
    access
        How the storage of tables that exist is used.
    """

    Java = interfaces(
        _CATALOG + "StagingTableCatalog",
        _CATALOG + "SupportsNamespaces",
    )

    def __init__(
        self,
        jvm: Jvm,
        name: str,
        root: str,
        storage_options: dict[str, Any] | None,
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> None:
        super().__init__(jvm)
        self._name = name
        self._root = root.rstrip("/")
        self._storage_options = storage_options
        self._access = access
        self._schemas: Schemas = {}

    def initialize(self, name: str, options: Any) -> None:
        """Nothing is left to do."""

    def name(self) -> str:
        """The catalog's name in SQL."""
        return self._name

    def toString(self) -> str:  # noqa: N802 - Java's name
        """For messages."""
        return f"Fermion catalog {self._name} ({self._root})"

    def defaultNamespace(self) -> Any:  # noqa: N802 - Java's name
        """The warehouse's own directory."""
        return self._jvm.array("java.lang.String")

    def capabilities(self) -> Any:
        """None."""
        return self._jvm.type("java.util.HashSet")()

    def tableStateOptionKeys(self) -> Any:  # noqa: N802 - Java's name
        """The options of a query that choose the snapshot: Spark passes them to `loadTable`."""
        names = self._jvm.type("java.util.HashSet")()
        for name in VERSION_OPTIONS:
            names.add(name)
        return names

    def changelogStateOptionKeys(self) -> Any:  # noqa: N802 - Java's name
        """None: there is no change log."""
        return self._jvm.type("java.util.HashSet")()

    def useNullableQuerySchema(self) -> bool:  # noqa: N802 - Java's name
        """Columns of ``CREATE TABLE AS SELECT`` may be null, whatever the query says."""
        return True

    def listTables(self, namespace: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """The tables of a namespace."""
        listed = list(namespace)
        if not self._is_namespace(listed):
            raise self._missing(listed)
        spaces = self._names(listed)
        identifier = self._jvm.type(_CATALOG + "Identifier")
        names = [name for name in self._directories(listed) if self._exists([*listed, name])]
        found = [identifier.of(spaces, name) for name in names]
        return self._jvm.array(_CATALOG + "Identifier", found)

    def tableExists(self, identifier: Any) -> bool:  # noqa: N802 - Java's name
        """Whether there is a table."""
        return self._exists(_parts(identifier))

    def loadTable(self, identifier: Any, *how: Any) -> Any:  # noqa: N802 - Java's name
        """Load a table at its newest snapshot, or at the version or time that the query names."""
        parts = _parts(identifier)
        try:
            table = self._open(parts, version_asked(how), options_asked(how))
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier) from error
        except VersionNotFound as error:
            raise self._jvm.refusal(str(error)) from error
        return self._table(parts, table)

    def invalidateTable(self, identifier: Any) -> None:  # noqa: N802 - Java's name
        """Nothing to do: no table is cached."""

    def createTable(self, identifier: Any, *described: Any) -> Any:  # noqa: N802 - Java's name
        """Make a table without rows."""
        staged = self._stage("create", identifier, described)
        staged.commitStagedChanges()
        parts = _parts(identifier)
        return self._table(parts, self._open(parts, None, {}))

    def stageCreate(self, identifier: Any, *described: Any) -> Any:  # noqa: N802 - Java's name
        """Plan a new table, which becomes visible together with its rows."""
        return self._stage("create", identifier, described)

    def stageReplace(self, identifier: Any, *described: Any) -> Any:  # noqa: N802 - Java's name
        """Plan the replacement of a table; its history is kept."""
        return self._stage("replace", identifier, described)

    def stageCreateOrReplace(self, identifier: Any, *described: Any) -> Any:  # noqa: N802
        """Plan a new table, or the replacement of one."""
        return self._stage("create_or_replace", identifier, described)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomMetric")

    def _stage(self, mode: str, identifier: Any, described: Sequence[Any]) -> StagedCatalogTable:
        if len(described) == 1:
            (info,) = described
            schema, transforms = info.schema(), info.partitions()
            properties = dict(info.properties())
        else:
            columns, transforms, properties = described[0], described[1], dict(described[2])
            schema = self._jvm.type(_CATALOG + "CatalogV2Util").v2ColumnsToStructType(columns)
        if "location" in properties:
            raise InvalidArgumentError(
                f"LOCATION {properties['location']!r}: a catalog's tables lie in its warehouse; "
                "make others with fermion_table.Table.create"
            )
        collation = properties.get("collation", BINARY_COLLATION)
        if collation != BINARY_COLLATION:
            raise InvalidArgumentError(
                f"DEFAULT COLLATION {collation}: tables hold strings of {BINARY_COLLATION} only"
            )
        parts = _parts(identifier)
        partition_by, sort_by = layout_of(transforms)
        if SORT_PROPERTY in properties:
            sort_by = [each.strip() for each in properties.pop(SORT_PROPERTY).split(",")]
        definition = StagedDefinition(
            mode=mode,
            schema=table_schema(StructType.fromJson(json.loads(schema.json()))),
            partition_by=partition_by,
            sort_by=sort_by,
            properties={key: value for key, value in properties.items() if _is_setting(key)},
        )
        try:
            staged = definition.stage(self._location(parts), self._storage_options)
        except TableExists as error:
            if not self._exists(parts):  # the error is about a table in a directory above or below
                raise
            raise self._jvm.error(
                "catalyst.analysis.TableAlreadyExistsException", identifier
            ) from error
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier) from error
        name = ".".join([self._name, *parts])
        return StagedCatalogTable(self._jvm, name, staged, definition, transforms)

    def alterTable(self, identifier: Any, changes: Sequence[Any]) -> Any:  # noqa: N802 - Java's
        """Change a table's columns or settings, as one snapshot."""
        parts = _parts(identifier)
        try:
            table = self._open(parts, None, {})
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier) from error
        try:
            alter(table, changes)
        except FermionError as error:  # PySpark lacks the class in which Spark wraps other errors
            text = f"{type(error).__name__}: {error}"
            raise self._jvm.error("java.lang.UnsupportedOperationException", text) from error
        return self._table(parts, table)

    def dropTable(self, identifier: Any) -> bool:  # noqa: N802 - Java's name
        """Delete a table's own files, and no others; an error if clones need them."""
        parts = _parts(identifier)
        if not self._exists(parts):
            return False
        self._refuse_links(parts)
        self._drop(parts)
        return True

    purgeTable = dropTable  # noqa: N815 - Java's name

    def renameTable(self, old: Any, new: Any) -> None:  # noqa: N802 - Java's name
        """Not supported: the name of a table is its location, and clones may refer to its files."""
        raise InvalidArgumentError(
            f"{'.'.join(_parts(old))}: tables cannot be renamed; Table.clone makes a copy"
        )

    def listNamespaces(self, *inside: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """The directories of the warehouse, or of a namespace, that are not tables."""
        parts = list(inside[0]) if inside else []
        if not self._is_namespace(parts):
            raise self._missing(parts)
        found = [
            self._names([*parts, name])
            for name in self._directories(parts)
            if not self._exists([*parts, name])
        ]
        made = self._jvm.matrix("java.lang.String", len(found))
        for place, names in enumerate(found):
            made[place] = names
        return made

    def namespaceExists(self, namespace: Sequence[str]) -> bool:  # noqa: N802 - Java's name
        """Whether there is such a directory, and no table of that name."""
        return self._is_namespace(list(namespace))

    def loadNamespaceMetadata(self, namespace: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """The location of a namespace."""
        parts = list(namespace)
        if not self._is_namespace(parts):
            raise self._missing(parts)
        found = self._jvm.type("java.util.HashMap")()
        found.put("location", self._location(parts))
        return found

    def createNamespace(self, namespace: Sequence[str], properties: Any) -> None:  # noqa: N802
        """Make a directory; storage without directories needs none."""
        parts = list(namespace)
        given = sorted(set(properties) - {"owner"})
        if given:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: namespaces are directories and have no {given}"
            )
        table = self._table_above(parts)
        if table:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: {'.'.join(table)} is a table, and its directory "
                "can't contain anything else"
            )
        if self._is_namespace(parts) or self._exists(parts):
            raise self._jvm.error(
                "catalyst.analysis.NamespaceAlreadyExistsException", self._names(parts)
            )
        filesystem, path = self._filesystem(self._location(parts))
        filesystem.makedirs(path, exist_ok=True)

    def alterNamespace(self, namespace: Sequence[str], *changes: Any) -> None:  # noqa: N802
        """Not supported: a directory has no properties."""
        raise InvalidArgumentError(
            f"namespace {'.'.join(namespace)}: namespaces are directories and have no properties"
        )

    def dropNamespace(self, namespace: Sequence[str], cascade: bool) -> bool:  # noqa: N802
        """Delete a directory; with CASCADE its tables first. An error if it holds other files."""
        parts = list(namespace)
        if not parts:
            raise InvalidArgumentError(
                f"{self._name}: the catalog's own directory can't be dropped"
            )
        if not self._is_namespace(parts):
            return False
        self._refuse_links(parts)
        tables, spaces, other_files = self._contents(parts)
        planned = [self._planned(table) for table in tables]
        for table, plan in zip(tables, planned, strict=True):
            other_files += ["/".join([*table, each]) for each in plan.left]
        if (tables or len(spaces) > 1) and not cascade:
            raise self._jvm.error(
                "catalyst.analysis.NonEmptyNamespaceException", self._names(parts)
            )
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
            self._drop(table, ignore_clones=True)
        for space in reversed(spaces):
            filesystem, path = self._filesystem(self._location(space))
            if filesystem.isdir(path):  # storage without directories has lost it with its tables
                filesystem.rmdir(path)
        return True

    def _planned(self, parts: Sequence[str]) -> DroppedTable:
        options = self._storage_options
        return drop_table(self._location(parts), storage_options=options, dry_run=True)

    def _drop(self, parts: Sequence[str], *, ignore_clones: bool = False) -> None:
        location, options = self._location(parts), self._storage_options
        dropped = drop_table(location, storage_options=options, ignore_clones=ignore_clones)
        if dropped.left:
            _log.warning(
                "%s: dropped the table; files that do not belong to it were left: %s",
                location,
                ", ".join(dropped.left),
            )

    def _contents(self, parts: Sequence[str]) -> tuple[list[list[str]], list[list[str]], list[str]]:
        """Tables and namespaces of a namespace (itself first), and other files in it."""
        tables: list[list[str]] = []
        spaces = [list(parts)]
        other_files: list[str] = []
        filesystem, path = self._filesystem(self._location(parts))
        for entry in filesystem.ls(path, detail=True):
            name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
            below = [*parts, name]
            if entry["type"] != "directory" or entry.get("islink") or not _NAME.fullmatch(name):
                other_files.append("/".join(below))
            elif self._exists(below):
                tables.append(below)
            else:
                found = self._contents(below)
                tables, spaces, other_files = (
                    tables + found[0],
                    spaces + found[1],
                    other_files + found[2],
                )
        return tables, spaces, other_files

    def _table_above(self, parts: Sequence[str]) -> Sequence[str] | None:
        """The table that has the namespace in its directory; None if there is none."""
        above = (parts[:count] for count in range(1, len(parts)))
        return next((names for names in above if self._exists(names)), None)

    def _refuse_links(self, parts: Sequence[str]) -> None:
        """Refuse to delete what a symbolic link points to.

        Raises
        ------
        InvalidArgumentError
        """
        for count in range(1, len(parts) + 1):
            filesystem, path = self._filesystem(self._location(parts[:count]))
            if filesystem.exists(path) and filesystem.info(path).get("islink"):
                raise InvalidArgumentError(
                    f"{'.'.join(parts)}: {path} is a symbolic link; delete the link, or its "
                    "target, by hand"
                )

    def _is_namespace(self, parts: Sequence[str]) -> bool:
        filesystem, path = self._filesystem(self._location(parts))
        if not parts:
            return True
        return (
            bool(filesystem.isdir(path))
            and not self._exists(parts)
            and not self._table_above(parts)
        )

    def _directories(self, parts: Sequence[str]) -> list[str]:
        filesystem, path = self._filesystem(self._location(parts))
        entries = filesystem.ls(path, detail=True) if filesystem.isdir(path) else []
        return sorted(
            entry["name"].rstrip("/").rsplit("/", 1)[-1]
            for entry in entries
            if entry["type"] == "directory"
        )

    def _names(self, parts: Sequence[str]) -> Any:
        return self._jvm.array("java.lang.String", parts)

    def _missing(self, parts: Sequence[str]) -> Exception:
        return self._jvm.error("catalyst.analysis.NoSuchNamespaceException", self._names(parts))

    def _exists(self, parts: Sequence[str]) -> bool:
        return Table.exists(self._location(parts), storage_options=self._storage_options)

    def _location(self, parts: Sequence[str]) -> str:
        return "/".join([self._root, *map(_checked, parts)])

    def _filesystem(self, location: str) -> tuple[Any, str]:
        found: tuple[Any, str] = fsspec.core.url_to_fs(location, **(self._storage_options or {}))
        return found

    def _open(self, parts: Sequence[str], version: Any, options: dict[str, str]) -> Table:
        """Open a table at the version that SQL names, or at the one that options choose.

        Raises
        ------
        InvalidArgumentError
            SQL names a version, and options choose one too.
        TableNotFound, VersionNotFound
        """
        location, storage_options = self._location(parts), self._storage_options
        if not options:
            return Table.open(
                location, version=version, storage_options=storage_options, access=self._access
            )
        if version is not None:
            raise InvalidArgumentError(
                f"VERSION or TIMESTAMP AS OF with options {sorted(options)}: expected one of them"
            )
        chosen = parse_options({**options, "path": location})
        return open_version(replace(chosen, storage_options=storage_options, access=self._access))

    def _table(self, parts: Sequence[str], table: Table) -> CatalogTable:
        return CatalogTable(self._jvm, ".".join([self._name, *parts]), table, self._schemas)


def _parts(identifier: Any) -> list[str]:
    return [*identifier.namespace(), identifier.name()]


def _checked(name: str) -> str:
    """Check that a name can be the name of a directory.

    Raises
    ------
    InvalidArgumentError
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"{name!r}: not a name for a directory")
    return name


def _is_setting(key: str) -> bool:
    return key not in _RESERVED and not key.startswith("option.")
