"""A directory of tables as Spark's catalog: namespaces are directories, tables lie in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fermion.errors import FermionError, InvalidArgumentError
from fermion.redaction import logger, redacted
from fermion_table import (
    StorageAccess,
    Table,
    TableExists,
    TableNotFound,
    VersionNotFound,
    drop_table,
)
from fermion_table.engine import DroppedTable, WarehouseNames
from spark_ext.catalog.callbacks import Jvm, interfaces, texts
from spark_ext.catalog.change_feed import ChangeFeed
from spark_ext.catalog.changes import alter
from spark_ext.catalog.descriptions import Description
from spark_ext.catalog.loading import inserts, options_asked, version_asked, writes
from spark_ext.catalog.metadata_tables import UNVERSIONED, MetadataTable, metadata_of
from spark_ext.catalog.procedure_calls import ProcedureCatalog
from spark_ext.catalog.procedures import Target
from spark_ext.catalog.staged import StagedCatalogTable
from spark_ext.catalog.tables import CatalogTable, Schemas
from spark_ext.column_names import is_case_sensitive
from spark_ext.opening import open_version
from spark_ext.options import DEFAULT_ACCESS, LOADING_OPTIONS, absolute, parse_options

_log = logger(__name__)
_CATALOG = "connector.catalog."


class Warehouse(ProcedureCatalog):
    """The tables below a directory: absolute, or a URL."""

    Java = interfaces(
        _CATALOG + "StagingTableCatalog",
        _CATALOG + "SupportsNamespaces",
        _CATALOG + "ProcedureCatalog",
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
        self._directory = WarehouseNames(root, storage_options, access)
        self._schemas: Schemas = {}

    def initialize(self, name: str, options: Any) -> None:
        """Nothing is left to do."""

    def name(self) -> str:
        """The catalog's name in SQL."""
        return self._name

    def toString(self) -> str:  # noqa: N802 - Java's name
        """For messages."""
        return f"Fermion catalog {self._name} ({self._directory.root})"

    def defaultNamespace(self) -> Any:  # noqa: N802 - Java's name
        """The warehouse's own directory."""
        return self._jvm.array("java.lang.String")

    def capabilities(self) -> Any:
        """None."""
        return self._jvm.type("java.util.HashSet")()

    def tableStateOptionKeys(self) -> Any:  # noqa: N802 - Java's name
        """The options of a query that choose the columns: Spark passes them to `loadTable`."""
        return self._jvm.text_set(LOADING_OPTIONS)

    def changelogStateOptionKeys(self) -> Any:  # noqa: N802 - Java's name
        """None: there is no change log."""
        return self._jvm.type("java.util.HashSet")()

    def useNullableQuerySchema(self) -> bool:  # noqa: N802 - Java's name
        """Columns of ``CREATE TABLE AS SELECT`` may be null, whatever the query says."""
        return True

    def listTables(self, namespace: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """The tables of a namespace."""
        listed = list(namespace)
        if not self._directory.is_namespace(listed):
            raise self._missing(listed)
        spaces = self._names(listed)
        identifier = self._jvm.type(_CATALOG + "Identifier")
        identifiers = [identifier.of(spaces, name) for name in self._directory.tables(listed)]
        return self._jvm.array(_CATALOG + "Identifier", identifiers)

    def tableExists(self, identifier: Any) -> bool:  # noqa: N802 - Java's name
        """Whether there is a table."""
        return self._directory.exists(_parts(identifier))

    def loadTable(self, identifier: Any, *how: Any) -> Any:  # noqa: N802 - Java's name
        """Load a table at its newest snapshot, or at the version or time that the query names."""
        parts = _parts(identifier)
        try:
            return self._load(parts, how)
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier) from error
        except VersionNotFound as error:
            raise self._jvm.refusal(str(error)) from error

    def _load(self, parts: list[str], how: Sequence[Any]) -> Any:
        """A table, or its changes; if there is none of this name, the metadata table it names."""
        version, options = version_asked(how), options_asked(how)
        try:
            table = self._open(parts, version, options)
        except TableNotFound:
            described = metadata_of(parts)
            if described is None:
                raise
        else:
            chosen = parse_options({**options, "path": table.location})
            if chosen.read_change_feed and not writes(how):
                name = ".".join([self._name, *parts])
                return ChangeFeed(self._jvm, name, table, chosen.ending_snapshot_id)
            change_type = chosen.change_type if inserts(how) else None
            return self._table(parts, table, change_type, chosen.blobs)
        of, kind = described
        table = self._open(of, version, options)
        if parse_options({**options, "path": table.location}).read_change_feed:
            raise InvalidArgumentError(
                f"{'.'.join(parts)}: {kind} have no changes: leave out readChangeFeed"
            )
        if kind in UNVERSIONED and (version is not None or options):
            raise InvalidArgumentError(
                f"{'.'.join(parts)}: {kind} belong to no snapshot; read them without a version"
            )
        return MetadataTable(self._jvm, ".".join([self._name, *parts]), table, kind)

    def _open(self, parts: Sequence[str], version: Any, options: dict[str, str]) -> Table:
        """Open a table at the version that SQL names, or at the one that options choose."""
        if not options:
            return self._directory.table(parts, version)
        if version is not None:
            raise InvalidArgumentError(
                f"VERSION or TIMESTAMP AS OF with options {sorted(options)}: expected one of them"
            )
        chosen = parse_options({**options, "path": self._directory.table(parts).location})
        storage = self._directory.storage_options
        return open_version(replace(chosen, storage_options=storage, access=self._directory.access))

    def _place(self, parts: Sequence[str], requested: str | None) -> str:
        """Where a new table goes, given what LOCATION says."""
        if requested is None:
            return self._directory.place(parts)
        location = _path_of(requested)
        if redacted(location) != location:
            raise InvalidArgumentError(
                f"LOCATION {redacted(location)!r}: give passwords and keys as storage_options of "
                "install_catalog; they are never stored"
            )
        return self._directory.place(parts, location)

    def _target(self, name: str) -> Target:
        """The table that a procedure's argument names: ``db.t``, also with the catalog's name.

        A name without a namespace is one of the current namespace, if this catalog is the current
        one.
        """
        spark = self._jvm.spark
        state = spark._jsparkSession.sessionState()
        parsed = state.sqlParser().parseMultipartIdentifier(name)
        parts = list(self._jvm.type("scala.jdk.javaapi.CollectionConverters").asJava(parsed))
        if len(parts) > 1 and parts[0] == self._name and not self._directory.exists(parts):
            parts = parts[1:]
        manager = state.catalogManager()
        if len(parts) == 1 and manager.currentCatalog().name() == self._name:
            parts = [*manager.currentNamespace(), *parts]
        table = self._directory.table(parts)
        return Target(spark, table, self._directory.storage_options, self._directory.access)

    def invalidateTable(self, identifier: Any) -> None:  # noqa: N802 - Java's name
        """Nothing to do: no table is cached."""

    def createTable(self, identifier: Any, *described: Any) -> Any:  # noqa: N802 - Java's name
        """Make a table without rows; with LOCATION register the one that is there."""
        return self._create(identifier, Description.of(self._jvm, described))

    def _create(self, identifier: Any, description: Description) -> Any:
        parts = _parts(identifier)
        if description.location is not None and not self._directory.exists(parts):
            location = self._place(parts, description.location)
            options = self._directory.storage_options
            if Table.exists(location, storage_options=options):
                table = Table.open(location, storage_options=options, access=self._directory.access)
                description.check_same(self._jvm, table, ".".join([self._name, *parts]))
                self._published(identifier, location)
                return self._table(parts, table)
        self._stage("create", identifier, description).commitStagedChanges()
        return self._table(parts, self._directory.table(parts))

    def createTableLike(self, identifier: Any, info: Any, source: Any) -> Any:  # noqa: N802
        """Make a table with the columns of another one; of a Fermion table also its settings."""
        description = Description.of(self._jvm, (info,)).like(texts(source.properties()))
        return self._create(identifier, description)

    def stageCreate(self, identifier: Any, *described: Any) -> Any:  # noqa: N802 - Java's name
        """Plan a new table, which becomes visible together with its rows."""
        return self._stage("create", identifier, Description.of(self._jvm, described))

    def stageReplace(self, identifier: Any, *described: Any) -> Any:  # noqa: N802 - Java's name
        """Plan the replacement of a table; its history is kept."""
        return self._stage("replace", identifier, Description.of(self._jvm, described))

    def stageCreateOrReplace(self, identifier: Any, *described: Any) -> Any:  # noqa: N802
        """Plan a new table, or the replacement of one."""
        return self._stage("create_or_replace", identifier, Description.of(self._jvm, described))

    def _stage(self, mode: str, identifier: Any, description: Description) -> StagedCatalogTable:
        parts = _parts(identifier)
        location, is_new = self._directory.find(parts), False
        if location is None:
            if mode == "replace":
                raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier)
            location, is_new = self._place(parts, description.location), True
            if location != self._directory.location(parts):
                mode = "create"  # nothing there is replaced
        elif description.location is not None and _path_of(description.location) != location:
            raise InvalidArgumentError(
                f"LOCATION {description.location!r}: the table lies in {redacted(location)}; drop "
                "it first, or leave out LOCATION"
            )
        definition = description.definition(mode)
        try:
            staged = definition.stage(location, self._directory.storage_options)
        except TableExists as error:
            if not self._directory.exists(parts):  # it is about another directory
                raise
            raise self._exists_already(identifier) from error
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier) from error
        name = ".".join([self._name, *parts])
        published = partial(self._published, identifier, location) if is_new else _nothing
        return StagedCatalogTable(
            self._jvm, name, staged, definition, description.transforms, published
        )

    def _published(self, identifier: Any, location: str) -> None:
        """Give a new table its name."""
        try:
            self._directory.register(_parts(identifier), location)
        except TableExists as error:
            if self._directory.is_inside(location):
                if self._directory.is_named(location):
                    return  # another client has put it into the list, or renamed it, meanwhile
                drop_table(location, storage_options=self._directory.storage_options)
            raise self._exists_already(identifier) from error

    def _exists_already(self, identifier: Any) -> Exception:
        return self._jvm.error("catalyst.analysis.TableAlreadyExistsException", identifier)

    def alterTable(self, identifier: Any, changes: Sequence[Any]) -> Any:  # noqa: N802 - Java's
        """Change a table's columns or settings, as one snapshot."""
        parts = _parts(identifier)
        try:
            table = self._directory.table(parts)
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", identifier) from error
        try:
            alter(table, changes, case_sensitive=is_case_sensitive(self._jvm.spark))
        except FermionError as error:  # PySpark lacks the class in which Spark wraps other errors
            text = f"{type(error).__name__}: {error}"
            raise self._jvm.error("java.lang.UnsupportedOperationException", text) from error
        return self._table(parts, table)

    def dropTable(self, identifier: Any) -> bool:  # noqa: N802 - Java's name
        """Delete a table's own files, and no others; an error if clones need them.

        Of a registered table only the name is removed.
        """
        return self._dropped(identifier, purge=False)

    def purgeTable(self, identifier: Any) -> bool:  # noqa: N802 - Java's name
        """The same; registered tables are refused."""
        return self._dropped(identifier, purge=True)

    def _dropped(self, identifier: Any, *, purge: bool) -> bool:
        parts = _parts(identifier)
        if not self._directory.exists(parts):
            return False
        self._warn(self._directory.drop(parts, purge=purge))
        return True

    def _warn(self, *dropped: DroppedTable) -> None:
        """Name the files that were left."""
        for table in dropped:
            if table.left:
                _log.warning(
                    "%s: dropped the table; files that do not belong to it were left: %s",
                    table.location,
                    ", ".join(table.left),
                )

    def renameTable(self, old: Any, new: Any) -> None:  # noqa: N802 - Java's name
        """Give a table another name; its files stay where they are."""
        before, after = _parts(old), _parts(new)
        manager = self._jvm.spark._jsparkSession.sessionState().catalogManager()
        if len(after) > 1 and manager.isCatalogRegistered(after[0]):
            if after[0] != self._name:
                raise InvalidArgumentError(
                    f"RENAME TO {'.'.join(after)}: a table can't move from catalog {self._name} to "
                    f"{after[0]}; clone it, or copy its rows"
                )
            after = after[1:]  # Spark leaves the catalog's name there
        try:
            self._directory.rename(before, after)
        except TableNotFound as error:
            raise self._jvm.error("catalyst.analysis.NoSuchTableException", old) from error
        except TableExists as error:
            raise self._exists_already(new) from error

    def listNamespaces(self, *inside: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """The directories of the warehouse, or of a namespace, that are not tables."""
        parts = list(inside[0]) if inside else []
        if not self._directory.is_namespace(parts):
            raise self._missing(parts)
        spaces = [self._names([*parts, name]) for name in self._directory.namespaces(parts)]
        made = self._jvm.matrix("java.lang.String", len(spaces))
        for place, names in enumerate(spaces):
            made[place] = names
        return made

    def namespaceExists(self, namespace: Sequence[str]) -> bool:  # noqa: N802 - Java's name
        """Whether there is such a directory, and no table of that name."""
        return self._directory.is_namespace(list(namespace))

    def loadNamespaceMetadata(self, namespace: Sequence[str]) -> Any:  # noqa: N802 - Java's name
        """The location of a namespace."""
        parts = list(namespace)
        if not self._directory.is_namespace(parts):
            raise self._missing(parts)
        metadata = self._jvm.type("java.util.HashMap")()
        metadata.put("location", self._directory.location(parts))
        return metadata

    def createNamespace(self, namespace: Sequence[str], properties: Any) -> None:  # noqa: N802
        """Make a directory; storage without directories needs none."""
        parts = list(namespace)
        given = sorted(set(properties) - {"owner"})
        if given:
            raise InvalidArgumentError(
                f"namespace {'.'.join(parts)}: namespaces are directories and have no {given}"
            )
        if self._directory.is_namespace(parts) or self._directory.exists(parts):
            raise self._jvm.error(
                "catalyst.analysis.NamespaceAlreadyExistsException", self._names(parts)
            )
        self._directory.make_namespace(parts)

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
        if not self._directory.is_namespace(parts):
            return False
        self._directory.refuse_links(self._directory.location(parts))
        if not cascade and not self._directory.is_empty(parts):
            raise self._jvm.error(
                "catalyst.analysis.NonEmptyNamespaceException", self._names(parts)
            )
        self._warn(*self._directory.drop_namespace(parts))
        return True

    def _names(self, parts: Sequence[str]) -> Any:
        return self._jvm.array("java.lang.String", parts)

    def _missing(self, parts: Sequence[str]) -> Exception:
        return self._jvm.error("catalyst.analysis.NoSuchNamespaceException", self._names(parts))

    def _table(
        self,
        parts: Sequence[str],
        table: Table,
        change_type: str | None = None,
        blobs: Any = "bytes",
    ) -> CatalogTable:
        return CatalogTable(
            self._jvm,
            ".".join([self._name, *parts]),
            table,
            self._schemas,
            is_registered=not self._directory.is_inside(table.location),
            change_type=change_type,
            blobs=blobs,
        )


def _parts(identifier: Any) -> list[str]:
    return [*identifier.namespace(), identifier.name()]


def _path_of(location: str) -> str:
    """A location as Spark spells it: ``file:/a`` is a local path."""
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    return absolute(location.rstrip("/") or location, "LOCATION")


def _nothing() -> None:
    """A table that is replaced has its name."""
