"""The catalog: tables of a warehouse by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fermion.display import location_text
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.redaction import redacted
from fermion.typing import ArrowSchema, TableLike
from fermion_table.argument_checks import check_bool, check_optional_text, check_text
from fermion_table.catalog.names import Name, namespace_parts, quoted, table_name
from fermion_table.catalog.namespaces import Namespaces
from fermion_table.catalog.repair import repair_catalog
from fermion_table.catalog.snapshot_list import SnapshotList
from fermion_table.catalog.snapshots import CatalogSnapshots
from fermion_table.catalog.table_list import TableList
from fermion_table.catalog.tables import CreateMode, Tables
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.checks.repair import RepairResult
from fermion_table.commit.replacement import TableDefinition
from fermion_table.commit.request import CommitMetadata
from fermion_table.errors import TableNotFound
from fermion_table.expiry.drop import DroppedTable
from fermion_table.metadata.versions import Version
from fermion_table.moments import Moment, moment_of
from fermion_table.schema.from_arrow import PartitionBy
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import DEFAULT_ACCESS, Durability, StorageAccess
from fermion_table.table.staged import schema_and_rows
from fermion_table.table.table import Table

if TYPE_CHECKING:
    from fermion_table.catalog import transactions, view
    from fermion_table.catalog.transactions import CatalogTransaction
    from fermion_table.catalog.view import CatalogView
    from fermion_table.scanning.sql import SqlResult
else:  # who changes or reads one table at a time
    transactions = LoadedWhenAskedFor("fermion_table.catalog.transactions")
    view = LoadedWhenAskedFor("fermion_table.catalog.view")

Location = str | os.PathLike[str]


class Catalog:
    """The tables of a warehouse, by name: ``db.events``.

    There is no server: the list of tables is itself a table, in ``_catalog`` in the warehouse. A
    name is text, in which a part that holds a dot stands in backticks, or a sequence of its parts.
    A catalog pickles with its ``storage_options``, credentials too.

    Parameters
    ----------
    warehouse
        Use `Catalog.open`.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._names = TableList(warehouse)
        self._kept = SnapshotList(warehouse)
        self._tables = Tables(warehouse, self._names, self._kept)
        self._namespaces = Namespaces(warehouse, self._names)

    def __reduce__(self) -> tuple[type[Catalog], tuple[Warehouse]]:
        return type(self), (self._warehouse,)

    def __repr__(self) -> str:
        return f"<Catalog {location_text(self.location)}>"

    @classmethod
    def open(
        cls,
        warehouse: Location,
        *,
        storage_options: dict[str, Any] | None = None,
        durability: Durability = "full",
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> Catalog:
        """Open the catalog of a warehouse; nothing is read or made.

        Parameters
        ----------
        warehouse
            A directory, local or an fsspec URL. It need not exist: the first table makes it.
        storage_options
            For fsspec; of all tables.
        durability, access
            As for `Table.create` and `Table.open`.

        Raises
        ------
        UnsafeStorage, TypeError, InvalidArgumentError
        """
        return cls(
            Warehouse(
                warehouse, storage_options=storage_options, durability=durability, access=access
            )
        )

    @property
    def location(self) -> str:
        """The warehouse."""
        return self._warehouse.location

    @property
    def snapshots(self) -> CatalogSnapshots:
        """Versions of many tables: ``snapshots.create("q3")``, ``.list()``, ``.delete("q3")``."""
        return CatalogSnapshots(self._warehouse, self._names, self._tables, self._kept)

    def transaction(
        self,
        *,
        commit_user: str | None = None,
        commit_identifier: int | str | None = None,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
    ) -> CatalogTransaction:
        """Change several tables at once: all changes become visible together, or none.

        ``with catalog.transaction() as tx: tx.table("a").append(rows); tx.table("b").delete(...)``

        All that is done to one table becomes one snapshot. Nothing is visible before the end of
        the ``with`` block; an exception in it gives up. A writer that stops in the middle keeps
        others from committing to these tables for ten seconds, and never from reading them.

        Parameters
        ----------
        commit_user, commit_identifier
            The same pair is committed once.
        isolation
            ``snapshot``: what the tables of the transaction show never holds half of another one,
            and each table's changes are checked against those of others. What was read of a table
            that is not changed is not checked. ``serializable``: if another commit has changed any
            table of the transaction since that was opened, compactions aside, the transaction
            raises CommitConflict. Tables that it does not change get a snapshot without files.

        Raises
        ------
        TypeError, InvalidArgumentError
        """
        if isolation not in ("snapshot", "serializable"):
            raise InvalidArgumentError(
                f"isolation={isolation!r}: expected 'snapshot' or 'serializable'"
            )
        metadata = CommitMetadata(commit_user=commit_user, commit_identifier=commit_identifier)
        return transactions.CatalogTransaction(
            self._warehouse, self._tables, metadata, is_serializable=isolation == "serializable"
        )

    def read_at(self, time: Moment | None = None) -> CatalogView:
        """One consistent view of all tables in the list: never half of a transaction.

        The newest snapshot of every table is looked for twice.

        Parameters
        ----------
        time
            When: a date, a datetime (UTC if it has no zone) or ISO text. None: now. Tables that
            were not there, or whose snapshots of then have expired, are left out.

        Raises
        ------
        TypeError, InvalidArgumentError
        """
        moment = None if time is None else moment_of(time, "time")
        return view.view_at(self._warehouse, self._names, moment)

    def create_namespace(self, name: Name) -> None:
        """Make a namespace, and those above it. A table makes its namespace, too.

        Raises
        ------
        InvalidArgumentError
            There is one; or a table has this name; or it can't be the name of a directory.
        TypeError, CommitConflict, CommitStateUnknown
        """
        self._namespaces.create(namespace_parts(name, "name"))

    def drop_namespace(self, name: Name) -> None:
        """Drop an empty namespace.

        Raises
        ------
        InvalidArgumentError
            It holds tables, namespaces or files; tables that were dropped without purge count.
        TableNotFound
            There is no such namespace.
        TypeError, CommitConflict, CommitStateUnknown
        """
        self._namespaces.drop(namespace_parts(name, "name"))

    def namespaces(self) -> list[str]:
        """Every namespace, ascending."""
        return [quoted(parts) for parts in self._names.namespaces()]

    def create_table(
        self,
        name: Name,
        schema: ArrowSchema | TableSchema | TableLike | None = None,
        *,
        data: TableLike | None = None,
        partition_by: PartitionBy | None = None,
        primary_key: Sequence[str] | str | None = None,
        sort_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        mode: CreateMode = "error",
        message: str | None = None,
    ) -> Table:
        """Make a table, empty or with rows, and its namespace if there is none.

        Parameters
        ----------
        name
            Of the table.
        schema, data, partition_by, primary_key, sort_by, properties, message
            See `Table.create`: the schema, or rows that it is taken from, or both.
        mode
            Where a table exists: ``error``, ``ignore`` (open it; rows are not appended), or
            ``overwrite`` (it gets this schema and these rows and loses its own, as its next
            snapshot; earlier ones stay).

        Raises
        ------
        SchemaMismatch
            The rows do not fit the schema that was given apart; shows the difference.
        TableExists
            With mode ``error``; or another table lies in a directory above or below this one.
        CommitStateUnknown
            The table was made, or the reply was lost; whether it is in the list is not known. It
            opens by its name if it was made.
        CommitConflict
            Others create and drop this table all the time; with rows, another client created or
            dropped it while they were written.
        TableNotFound
            Another client dropped the table with its files before it was opened here.
        TypeError, InvalidArgumentError
        """
        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidArgumentError(f"mode={mode!r}: expected 'error', 'ignore' or 'overwrite'")
        schema, rows = schema_and_rows(
            schema, data, self._warehouse.root.location, self._warehouse.root.storage_options
        )
        definition = TableDefinition(
            schema=schema,
            partition_by=partition_by,
            primary_key=primary_key,
            sort_by=sort_by,
            properties=properties,
        )
        message = check_optional_text(message, "message")
        return self._tables.create(table_name(name), definition, rows, mode, message)

    def table(self, name: Name, *, version: Version | None = None, branch: str = MAIN) -> Table:
        """Open a table at its latest snapshot, or at a version.

        Parameters
        ----------
        name
            Of the table.
        version, branch
            See `Table.open`. A version may also be the name of a snapshot of the catalog: then this
            is the table that had the name in it, whatever has it now.

        Raises
        ------
        TableNotFound
            No table has this name, or the list has one that is not in its place any more.
        VersionNotFound, CorruptMetadata, TypeError, InvalidArgumentError
        """
        checked = table_name(name)
        if isinstance(version, str):
            kept = self.snapshots.open(version, checked)
            if kept is not None:
                return kept
        placed = self._tables.required(checked)
        try:
            return Table.at(placed.store, version=version, branch=branch)
        except TableNotFound as error:
            raise TableNotFound(
                f"{checked}: the list of tables names {redacted(placed.store.location)}, where no "
                "table lies any more; repair() takes such names out of the list"
            ) from error

    def sql(self, query: str) -> SqlResult:
        """Answer a query of SQL over tables of the catalog; DuckDB computes it.

        Of each table only the columns and the rows are read that the query needs.

        Parameters
        ----------
        query
            Such as ``"SELECT count(*) FROM db.events JOIN db.users USING (id)"``. Parts of names
            that are no plain words go in double quotes.

        Returns
        -------
        SqlResult
            Rows as those of a scan, of the tables as they are now.

        Raises
        ------
        TableNotFound
            Names the closest tables.
        TypeError, InvalidArgumentError
            See `Table.sql`.
        """
        from fermion_table.scanning.sql import SqlResult  # pyarrow.dataset is slow to import

        where = f"{redacted(self.location)}: sql"
        return SqlResult(query, lambda name: self.table(name).scan(), where=where)

    def table_exists(self, name: Name) -> bool:
        """Whether there is a table of this name."""
        return self._tables.exists(table_name(name))

    def tables(self, namespace: Name | None = None, *, pattern: str | None = None) -> list[str]:
        """The names of the tables in the list, ascending.

        A table that was put into a directory without the catalog opens by its name, and is listed
        after `repair`.

        Parameters
        ----------
        namespace
            Only tables in this namespace, not in those below it; None: all.
        pattern
            What the last part of the name is like: ``*`` is any text, ``?`` one character.

        Raises
        ------
        TableNotFound
            There is no such namespace.
        TypeError, InvalidArgumentError
        """
        wanted = None
        if namespace is not None:
            parts = namespace_parts(namespace)
            wanted = quoted(parts)
        like = None if pattern is None else check_text(pattern, "pattern")
        found = self._names.tables(wanted, like)
        if not found and namespace is not None:
            self._namespaces.require(parts)
        return found

    def rename_table(self, old: Name, new: Name) -> None:
        """Give a table another name, in any namespace; its files stay where they are.

        Raises
        ------
        TableNotFound
            There is no table of the old name.
        TableExists
            There is one of the new name.
        TypeError, InvalidArgumentError, CommitConflict, CommitStateUnknown
        """
        self._tables.rename(table_name(old, "old"), table_name(new, "new"))

    def drop_table(self, name: Name, *, purge: bool = False) -> DroppedTable | None:
        """Take a table out of the catalog, and with ``purge`` delete its files.

        Without it the files stay where they are: `register_table` brings the table back.

        Parameters
        ----------
        name
            Of the table.
        purge
            Delete the files too (see `fermion_table.drop_table`).

        Returns
        -------
        DroppedTable | None
            What was deleted; None without ``purge``.

        Raises
        ------
        TableNotFound
            There is none; or another client has dropped or renamed it just now.
        InvalidArgumentError
            With ``purge``: clones share its files, snapshots of the catalog hold it, other tables
            lie in its directory, or it is a list of the catalog's own. Nothing was dropped.
        OSError
            A file can't be deleted; the table is dropped.
        TypeError, CommitConflict, CommitStateUnknown
        """
        return self._tables.drop(table_name(name), purge=check_bool(purge, "purge"))

    def register_table(self, name: Name, path: Location) -> Table:
        """Give a name to a table that lies somewhere: made without the catalog, or dropped.

        Parameters
        ----------
        name
            Of the table.
        path
            Where it lies: a local path or a URL, in the warehouse or elsewhere.

        Raises
        ------
        TableNotFound
            There is no table.
        TableExists
            Another table has the name, or this one has another name.
        InvalidArgumentError
            A list that a catalog keeps of itself.
        TypeError, CommitConflict, CommitStateUnknown
        """
        checked, root = table_name(name), self._warehouse.root
        given = open_store(path, storage_options=root.storage_options)
        store = self._warehouse.store(self._warehouse.path_of(given.location))
        table = Table.at(store)
        self._tables.register(checked, given.location, table)
        return table

    def repair(self, *, dry_run: bool = False) -> RepairResult:
        """Make the list of tables true again, from the tables' own files.

        Tables and namespaces in the directories of the warehouse that are not in the list come in,
        names whose table is gone go, and the list itself is repaired or, if it is past that, made
        anew. Then tables have the names of their directories, and those registered from elsewhere
        are to be registered again. No table loses anything.

        Parameters
        ----------
        dry_run
            Only say what would be done.

        Returns
        -------
        RepairResult
            What was done, and what people have to decide.

        Raises
        ------
        OSError, CommitConflict, CommitStateUnknown, TypeError
        """
        dry_run = check_bool(dry_run, "dry_run")
        return repair_catalog(self._warehouse, self._names, self._kept, dry_run=dry_run)
