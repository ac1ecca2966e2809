"""The table: what a user holds. It sees one snapshot, and another one after each commit.

`Table` lists the methods; those that read, write or maintain are functions of the modules beside
this one, which check arguments and call the folders below.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from fermion.display import html_facts, location_text
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, MethodsWhenAskedFor
from fermion.progress import ShowsProgress, showing
from fermion_table.argument_checks import check_optional_text
from fermion_table.errors import CorruptMetadata, TableExists
from fermion_table.metadata.history import latest, table_exists
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import Version, find_version, with_readable_version
from fermion_table.schema.schema import TableSchema, has_buckets
from fermion_table.storage.location import Location, open_store
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import (
    DEFAULT_ACCESS,
    AtomicStore,
    Durability,
    StorageAccess,
    access_of,
    in_time,
)
from fermion_table.table.state import TableState

if TYPE_CHECKING:
    from fermion.typing import ArrowSchema, TableLike
    from fermion_table.commit import clone, replacement, request
    from fermion_table.inspection import refs, tables
    from fermion_table.mirrors.registry import Mirrors
    from fermion_table.schema.from_arrow import PartitionBy
    from fermion_table.table import (
        appending,
        changes,
        column_changes,
        contents,
        maintaining,
        maintenance,
        merging_rows,
        reading,
        staged,
        versions,
    )
    from fermion_table.table.indexes import Indexes
else:  # each is loaded when it is first used: a program that reads never loads what commits
    clone, replacement, request, refs, tables, staged = map(
        LoadedWhenAskedFor,
        (
            "fermion_table.commit.clone",
            "fermion_table.commit.replacement",
            "fermion_table.commit.request",
            "fermion_table.inspection.refs",
            "fermion_table.inspection.tables",
            "fermion_table.table.staged",
        ),
    )
    appending = MethodsWhenAskedFor("fermion_table.table.appending")
    changes = MethodsWhenAskedFor("fermion_table.table.changes")
    column_changes = MethodsWhenAskedFor("fermion_table.table.column_changes")
    contents = MethodsWhenAskedFor("fermion_table.table.contents")
    maintaining = MethodsWhenAskedFor("fermion_table.table.maintaining")
    maintenance = MethodsWhenAskedFor("fermion_table.table.maintenance")
    merging_rows = MethodsWhenAskedFor("fermion_table.table.merging_rows")
    reading = MethodsWhenAskedFor("fermion_table.table.reading")
    versions = MethodsWhenAskedFor("fermion_table.table.versions")


class Table:
    """A table at one of its snapshots.

    It sees the snapshot it was opened at until it commits itself or `refresh` is called; other
    writers' commits never change what it sees.

    Wherever it takes a version, that is a snapshot id, a tag, a branch, ``"main~3"`` (three before
    the latest) or a datetime. It pickles with its snapshot and its ``storage_options``, credentials
    too.

    Parameters
    ----------
    store, snapshot, branch, version
        Use `Table.open` and `Table.create`.
    """

    def __init__(
        self,
        store: AtomicStore,
        snapshot: Snapshot,
        *,
        branch: str = MAIN,
        version: Version | None = None,
    ) -> None:
        self._state = TableState(store, snapshot, branch=branch, version=version)

    def __getstate__(self) -> dict[str, Any]:
        """A state of its own, so that a copy sees its own snapshot."""
        return {"_state": copy.copy(self._state)}

    def __repr__(self) -> str:
        totals = self.snapshot.totals
        stored = "stored " if has_buckets(self.schema) else ""
        return (
            f"<Table {location_text(self.location)}, snapshot {self.snapshot.id}: "
            f"{totals.live_rows:,} {stored}rows in {totals.files:,} files>"
        )

    def _repr_html_(self) -> str:
        totals = self.snapshot.totals
        facts = {
            "snapshot": str(self.snapshot.id),
            "branch": self._state.branch,
            "stored rows" if has_buckets(self.schema) else "rows": totals.live_rows,
            "files": totals.files,
            "bytes": totals.bytes,
            "columns": len(self.schema.fields),
        }
        title = f"Table {location_text(self.location)}"
        from fermion_table.inspection.table_page import head_html  # rarely asked for

        return html_facts(title, facts) + head_html(self.scan()) + self.schema._repr_html_()

    def __bool__(self) -> bool:
        """A table is true, whatever it holds."""
        return True

    __len__ = contents.no_length
    __arrow_c_stream__ = contents.arrow_c_stream

    @classmethod
    def create(
        cls,
        path: Location,
        schema: ArrowSchema | TableSchema | TableLike | None = None,
        *,
        data: TableLike | None = None,
        partition_by: PartitionBy | None = None,
        primary_key: Sequence[str] | str | None = None,
        sort_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: dict[str, Any] | None = None,
        mode: Literal["error", "ignore", "overwrite"] = "error",
        durability: Durability = "full",
        message: str | None = None,
        progress: ShowsProgress = None,
    ) -> Table:
        """Make a table, empty or with rows.

        Parameters
        ----------
        path
            A directory, local or an fsspec URL.
        schema
            Its columns; every field gets an id. Or rows, which its columns are taken from: an Arrow
            table or reader, a data frame, a list of dicts, files of other formats
            (``rows.parquet``, ``dir/*.csv``, a directory with Hive partitions), or what else
            `append` takes.
        data
            Its first rows, where the schema is given apart.
        partition_by
            What the rows of a data file have in common: columns, or functions of them such as
            ``"day(ts)"``, ``"bucket(16, id)"`` (see `transforms`). Filters on the columns prune.
        primary_key
            Columns that identify a row: of rows with the same key the table's merge engine makes
            one. They become NOT NULL.
        sort_by
            Columns that the rows of each data file are sorted by (not those of batches).
        properties
            The table's settings, such as ``target_file_size``.
        mode
            Where a table exists: ``error``, ``ignore`` (open it; rows are not appended), or
            ``overwrite`` (it gets this schema and these rows and loses its own, as its next
            snapshot; earlier ones stay).
        durability
            ``full``, or ``fast`` without fsync.
        progress
            As of `append`.

        Returns
        -------
        Table
            With rows it has two snapshots, its creation and their append; if writing the rows
            fails there is no table.

        Raises
        ------
        SchemaMismatch
            The rows do not fit the schema that was given apart; shows the difference.
        TableExists
            With mode ``error``; or another table lies in a directory above or below this one.
        TypeError, InvalidArgumentError
            Names the parameter that is wrong.
        """
        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidArgumentError(f"mode={mode!r}: expected 'error', 'ignore' or 'overwrite'")
        metadata, shown = request.CommitMetadata(message=message), showing(progress)
        schema, rows = staged.schema_and_rows(schema, data, path, storage_options)
        replaces_by_rows = rows is not None and mode == "overwrite"
        store = open_store(path, storage_options=storage_options, durability=durability)
        definition = replacement.TableDefinition(
            schema=schema,
            partition_by=partition_by,
            primary_key=primary_key,
            sort_by=sort_by,
            properties=properties,
        )
        try:
            if rows is None:
                return cls(store, replacement.create_defined(store, definition, metadata=metadata))
            with shown:
                created = staged.create_with_rows(
                    store, definition, rows, metadata, replaces=replaces_by_rows
                )
            return cls(store, created)
        except TableExists:
            if mode == "error" or replaces_by_rows or not table_exists(store):
                raise
            table = cls(store, latest(store))
            if mode == "overwrite":
                state = table._state
                state.move_to(
                    replacement.replace_table(
                        state.publisher, state.snapshot, definition, metadata=metadata
                    )
                )
            return table

    @classmethod
    def open(
        cls,
        path: Location,
        *,
        version: Version | None = None,
        branch: str = MAIN,
        storage_options: dict[str, Any] | None = None,
        durability: Durability = "full",
        access: StorageAccess = DEFAULT_ACCESS,
    ) -> Table:
        """Open a table at its latest snapshot, or at a version.

        Parameters
        ----------
        version
            A snapshot id, a tag, a branch, ``"main~3"``, or a time (see `scan`). Of these only a
            branch can be written to; for the others make one with ``branches.create``.
        branch
            Which history to read and write, unless the version names a branch itself.
        access
            For roles with few rights, and other exceptions.

        Raises
        ------
        TableNotFound, VersionNotFound, TypeError
        CorruptMetadata
            The newest snapshot can't be read; says which one still opens with ``version``.
        StorageError
            The storage failed: which snapshot is the latest is not known.
        """
        store = open_store(
            path, storage_options=storage_options, durability=durability, access=access
        )
        return cls.at(store, version=version, branch=branch)

    @classmethod
    def at(cls, store: AtomicStore, *, version: Version | None = None, branch: str = MAIN) -> Table:
        """The table of a store, as `open` opens it; for engines."""
        with in_time(store):
            if version is None:
                try:
                    return cls(store, latest(store, branch=branch), branch=branch)
                except CorruptMetadata as error:
                    raise with_readable_version(store, branch, error) from error
            snapshot, branch = find_version(store, version, branch=branch)
            opened_at = None if version == branch else version
            return cls(store, snapshot, branch=branch, version=opened_at)

    @classmethod
    def exists(cls, path: Location, *, storage_options: dict[str, Any] | None = None) -> bool:
        """Whether there is a table; raises StorageError if the storage does not answer."""
        return table_exists(open_store(path, storage_options=storage_options))

    def clone(
        self,
        path: Location,
        *,
        version: Version | None = None,
        storage_options: dict[str, Any] | None = None,
        durability: Durability = "full",
        message: str | None = None,
    ) -> Self:
        """Create a table that shares the data files of a version of this one.

        No data is copied: the clone reads this table's files where they are, and a tag here keeps
        them. That tag, ``clone-...``, goes when the clone is dropped (`drop_table`); delete it
        yourself if the clone goes otherwise. Until then this table can't be dropped.

        Parameters
        ----------
        path
            Where the clone lies; there must be no table yet.
        version
            What to clone; None: the snapshot that this object sees.
        storage_options
            Of the clone; None takes this table's. They have to open this table's files too.

        Raises
        ------
        TableExists, VersionNotFound
        """
        message = check_optional_text(message, "message")
        snapshot, _ = self._state.find(version, "version")
        options = self.store.storage_options if storage_options is None else storage_options
        access = access_of(self.store)
        target = open_store(path, storage_options=options, durability=durability, access=access)
        return type(self)(target, clone.clone_table(self.store, snapshot, target, message=message))

    @property
    def location(self) -> str:
        """Where the table lies."""
        return self._state.location

    @property
    def store(self) -> AtomicStore:
        """The table's objects; for engines."""
        return self._state.store

    @property
    def branch(self) -> str:
        """The branch that this object reads and writes."""
        return self._state.branch

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that this object sees."""
        return self._state.snapshot

    @property
    def schema(self) -> TableSchema:
        """The schema of `snapshot`."""
        return self._state.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in their order."""
        return self.schema.names

    @property
    def primary_key(self) -> list[str]:
        """The names of the columns of the primary key; none if there is no key."""
        return [self.schema.by_id[number].name for number in self.schema.primary_key]

    @property
    def partition_by(self) -> list[str]:
        """What the table is partitioned by, as `create` takes it: ``"city"``, ``"day(at)"``."""
        return [field.text(self.schema) for field in self.schema.partition_by]

    @property
    def properties(self) -> dict[str, str]:
        """The table's settings; a copy."""
        return dict(self.schema.properties)

    @property
    def tags(self) -> refs.Tags:
        """Names for snapshots: ``tags.create(name)``, ``.delete(name)``, ``.list()``."""
        return refs.Tags(self.store, self.snapshot, self.branch)

    @property
    def consumers(self) -> refs.Consumers:
        """Programs that follow the table: ``consumers.record(name)``, ``.delete(name)``."""
        return refs.Consumers(self.store, self.snapshot, self.branch)

    @property
    def branches(self) -> refs.Branches:
        """The branches: ``branches.create(name)``, ``.fast_forward(name)``, ..."""
        return refs.Branches(self.store, self.snapshot, self.branch, self._state.follow_branch)

    @property
    def mirrors(self) -> Mirrors:
        """Copies that other engines read: ``mirrors.create("delta", location)``, ``.publish()``."""
        from fermion_table.mirrors.registry import Mirrors  # rarely asked for

        return Mirrors(self.store, self.branch, self.set_properties)

    @property
    def indexes(self) -> Indexes:
        """Indexes of columns: ``indexes.create("mail")``, ``.list()``, ``.drop("mail")``."""
        from fermion_table.table.indexes import Indexes  # rarely asked for

        return Indexes(self._state)

    @property
    def inspect(self) -> tables.Inspection:
        """Metadata as Arrow tables: ``inspect.files()``, ``.snapshots()``, ``.refs()``, ..."""
        return tables.Inspection(self.store, self.snapshot, self.branch)

    def refresh(self) -> Snapshot:
        """Move to the latest snapshot of the branch; then a table opened at a version can write."""
        return self._state.refresh()

    # The table as data: the rows that it sees.
    head = contents.head
    count = contents.count
    sample = contents.sample
    describe = contents.describe
    to_arrow = contents.to_arrow
    to_pandas = contents.to_pandas
    to_polars = contents.to_polars
    to_duckdb = contents.to_duckdb
    sql = contents.sql

    # Read: rows, and what changed them.
    scan = reading.scan
    lookup = reading.lookup
    rows_at = reading.rows_at
    lookup_batch = reading.lookup_batch
    scan_changes = reading.scan_changes
    schemas = reading.schemas
    snapshots = reading.snapshots
    history = reading.history
    history_html = reading.history_html
    show = reading.show

    # Append; engines write files in many tasks, and commit them at once.
    append = appending.append
    add_files = appending.add_files
    upsert = appending.upsert
    delete_keys = appending.delete_keys
    append_batch = appending.append_batch
    append_batches = appending.append_batches
    writer = appending.writer
    writer_factory = appending.writer_factory
    plan_merge = appending.plan_merge
    commit = appending.commit

    # Change rows.
    overwrite = changes.overwrite
    delete = changes.delete
    update = changes.update
    merge = merging_rows.merge
    transaction = changes.transaction
    commit_found = changes.commit_found

    # Change the schema and the settings.
    update_schema = column_changes.update_schema
    add_columns = column_changes.add_columns
    drop_columns = column_changes.drop_columns
    rename_column = column_changes.rename_column
    alter_column = column_changes.alter_column
    add_columns_with = column_changes.add_columns_with
    fill_columns = column_changes.fill_columns
    set_properties = column_changes.set_properties

    # Find, compare and restore versions.
    find_commit = versions.find_commit
    diff = versions.diff
    restore = versions.restore
    undo = versions.undo

    # Maintain.
    maintain = maintaining.maintain
    compact = maintenance.compact
    plan_compaction = maintenance.plan_compaction
    commit_compaction = maintenance.commit_compaction
    expire_snapshots = maintenance.expire_snapshots
    remove_orphan_files = maintenance.remove_orphan_files
    verify = maintenance.verify
    repair = maintenance.repair
