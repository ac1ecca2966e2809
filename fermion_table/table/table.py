"""The table: what a user holds. It remembers one snapshot, and moves on when it commits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from fermion.columns.arrow_input import record_batch_reader
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import (
    check_column,
    check_columns,
    check_kind,
    check_kinds,
    check_schema_mode,
    check_text,
    check_texts,
)
from fermion_table.commit.commit import create_table
from fermion_table.commit.committed_files import written_files
from fermion_table.commit.publisher import SchemaMerge
from fermion_table.commit.replacement import TableDefinition, replace_table
from fermion_table.commit.request import CommitMetadata, CommitOutcome, NewSchema, WrittenFiles
from fermion_table.errors import CorruptMetadata, TableExists
from fermion_table.metadata import history
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.metadata.versions import find_version, with_readable_version
from fermion_table.schema import changes as schema_update
from fermion_table.schema.from_arrow import PartitionBy
from fermion_table.schema.schema import Path, PathLike, TableSchema, encode_schema
from fermion_table.schema.update import SchemaUpdate
from fermion_table.storage.location import open_store, refuse_nested
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import DEFAULT_ACCESS, Durability, StorageAccess, in_time
from fermion_table.table.compaction import TableCompaction
from fermion_table.writing.data_writer import (
    DataWriter,
    WriterMessage,
    WriteSettings,
    check_batches,
    check_same_schema,
)

Location = str | os.PathLike[str]


class Table(TableCompaction):
    """A table at one of its snapshots.

    It sees the snapshot it was opened at until it commits itself or `refresh` is called; other
    writers' commits never change what it sees.

    Parameters
    ----------
    store, snapshot, branch
        Use `Table.open` and `Table.create`.
    """

    @classmethod
    def create(
        cls,
        path: Location,
        schema: pa.Schema | TableSchema,
        *,
        partition_by: PartitionBy | None = None,
        primary_key: Sequence[str] | str | None = None,
        sort_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: dict[str, Any] | None = None,
        mode: Literal["error", "ignore", "overwrite"] = "error",
        durability: Durability = "full",
        message: str | None = None,
    ) -> Table:
        """Make a table.

        Parameters
        ----------
        path
            A directory, local or an fsspec URL.
        schema
            Its columns; every field gets an id.
        partition_by
            What the rows of a data file have in common: columns, or functions of them such as
            ``"day(ts)"``, ``"bucket(16, id)"`` (see `transforms`). Filters on the columns prune.
        primary_key
            Columns that identify a row (recorded; not enforced yet).
        sort_by
            Columns that the rows of each data file are sorted by (not those of batches).
        properties
            The table's settings, such as ``target_file_size``.
        mode
            Where a table exists: ``error``, ``ignore`` (open it), or ``overwrite`` (it gets this
            schema and loses its rows, as its next snapshot; earlier ones stay).
        durability
            ``full``, or ``fast`` without synchronising to disk.

        Raises
        ------
        TableExists
            With mode ``error``; or another table lies in a directory above or below this one.
        TypeError, InvalidArgumentError
            Names the parameter that is wrong.
        """
        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidArgumentError(f"mode={mode!r}: expected 'error', 'ignore' or 'overwrite'")
        metadata = CommitMetadata(message=message)
        store = open_store(path, storage_options=storage_options, durability=durability)
        definition = TableDefinition(
            schema=schema,
            partition_by=partition_by,
            primary_key=primary_key,
            sort_by=sort_by,
            properties=properties,
        )
        made = definition.first_schema()
        if not history.table_exists(store):
            refuse_nested(store)
        try:
            first = NewSchema(made.id, encode_schema(made))
            return cls(store, create_table(store, first, metadata=metadata))
        except TableExists:
            if mode == "error":
                raise
            table = cls(store, history.latest(store))
            if mode == "overwrite":
                publisher, known = table._publisher, table.snapshot
                table._move_to(replace_table(publisher, known, definition, metadata=metadata))
            return table

    @classmethod
    def open(
        cls,
        path: Location,
        *,
        version: history.Version | None = None,
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
        with in_time(store):
            if version is None:
                try:
                    return cls(store, history.latest(store, branch=branch), branch=branch)
                except CorruptMetadata as error:
                    raise with_readable_version(store, branch, error) from error
            found, branch = find_version(store, version, branch=branch)
            return cls(store, found, branch=branch, version=None if version == branch else version)

    @classmethod
    def exists(cls, path: Location, *, storage_options: dict[str, Any] | None = None) -> bool:
        """Whether there is a table; raises StorageError where that can't be told."""
        return history.table_exists(open_store(path, storage_options=storage_options))

    def append(
        self,
        data: Any,
        *,
        schema_mode: Literal["merge"] | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        commit_user: str | None = None,
        commit_identifier: int | str | None = None,
    ) -> Snapshot:
        """Append rows from any Arrow producer, as one snapshot.

        No rows make no snapshot, unless a message, properties or an identity ask for one, or the
        data adds columns: the latest one comes back.

        Parameters
        ----------
        data
            Columns are matched by name and cast where no value changes; missing nullable ones
            are null.
        schema_mode
            ``merge`` adds the data's unknown columns to the schema in the same snapshot.
        message, properties
            For the history.
        commit_user, commit_identifier
            The same pair is appended once.

        Returns
        -------
        Snapshot
            The new one: what changed is in its ``deltas`` and ``totals``, the time it took and the
            races it lost in its ``effort``. So it is with everything that makes a snapshot.

        Raises
        ------
        SchemaMismatch
            Shows the difference field by field.
        InvalidArgumentError
            Also where this object was opened at a tag or an old snapshot, as with every change.
        CommitConflict, CommitStateUnknown
        """
        metadata = CommitMetadata(
            message=message,
            properties=properties,
            commit_user=commit_user,
            commit_identifier=commit_identifier,
        )
        self._check_writable()
        if check_schema_mode(schema_mode) is not None:
            return self._append_merging(data, metadata)
        self._refresh_for_append()
        publish = partial(self._commit_entries, metadata)
        return self._append_written(self.writer(), lambda writer: writer.write(data), publish)

    def _append_merging(self, data: Any, metadata: CommitMetadata) -> Snapshot:
        reader = record_batch_reader(data)
        merge = self.plan_merge(reader.schema)

        def publish(messages: Sequence[WriterMessage], outcome: CommitOutcome) -> Snapshot:
            entries = _entries_of(messages)
            return self._move_to(
                self._publisher.append_merging(merge, entries, metadata, outcome=outcome)
            )

        made = DataWriter(self._store, merge.schema, base_id=merge.base.id)
        return self._append_written(made, lambda writer: writer.write(reader), publish)

    def _append_written(
        self,
        writer: DataWriter,
        write: Callable[[DataWriter], None],
        publish: Callable[[Sequence[WriterMessage], CommitOutcome], Snapshot],
    ) -> Snapshot:
        """Write files and publish them; none is left where that fails or is interrupted."""
        outcome = CommitOutcome()
        with writer:
            try:
                write(writer)
                return publish(writer.prepare_commit(), outcome)
            except BaseException:
                if not outcome.may_be_published:
                    writer.abort()
                raise

    def plan_merge(self, data: pa.Schema) -> SchemaMerge:
        """The schema with the columns that some data adds, for `commit` to publish; for engines."""
        check_kind(data, pa.Schema, "data")
        self._check_writable()
        return self._publisher.plan_merge(self.refresh(), data)

    def append_batch(self, batch_id: int, data: Any, *, message: str | None = None) -> Snapshot:
        """Append one batch, to be found again by its id; a snapshot of its own."""
        return self.append_batches([(batch_id, data)], message=message)

    def append_batches(
        self,
        batches: Iterable[tuple[int, Any]],
        *,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        commit_user: str | None = None,
        commit_identifier: int | str | None = None,
    ) -> Snapshot:
        """Append batches, pairs of id and data, as one snapshot.

        A batch without rows is one too, and is found by its id; a partitioned table has no place
        for it. No batches at all make no snapshot (see `append`).
        """
        metadata = CommitMetadata(
            message=message,
            properties=properties,
            commit_user=commit_user,
            commit_identifier=commit_identifier,
        )
        self._check_writable()
        self._refresh_for_append()

        def write(writer: DataWriter) -> None:
            for batch_id, data in check_batches(batches):
                writer.append_batch(batch_id, data)

        return self._append_written(self.writer(), write, partial(self._commit_entries, metadata))

    def writer(self, *, settings: WriteSettings | None = None) -> DataWriter:
        """A writer of data files, for engines: its messages are given to `commit`."""
        return self.writer_factory(settings=settings)()

    def writer_factory(
        self, *, settings: WriteSettings | None = None, merge: SchemaMerge | None = None
    ) -> partial[DataWriter]:
        """A picklable function that makes a writer, for the tasks of engines.

        Parameters
        ----------
        merge
            Of `plan_merge`: its schema is written.
        """
        self._check_writable()
        return partial(
            DataWriter,
            self._store,
            self.schema if merge is None else check_kind(merge, SchemaMerge, "merge").schema,
            settings=settings,
            table_uuid=self._snapshot.table_uuid,
            base_id=self._snapshot.id,
            branch=self._branch,
        )

    def commit(
        self,
        messages: Iterable[WriterMessage],
        *,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        commit_user: str | None = None,
        commit_identifier: int | str | None = None,
        merge: SchemaMerge | None = None,
    ) -> Snapshot:
        """Append what writers made, as one snapshot; without files only if metadata asks for it.

        Parameters
        ----------
        merge
            Of `plan_merge`, where the writers wrote its schema: published with the files.

        Raises
        ------
        InvalidArgumentError
            A message is there twice, or was committed before; nothing was published.
        CommitConflict, CommitStateUnknown
        """
        metadata = CommitMetadata(
            message=message,
            properties=properties,
            commit_user=commit_user,
            commit_identifier=commit_identifier,
        )
        self._check_writable()
        listed = check_kinds(messages, WriterMessage, "messages")
        if merge is not None:
            check_kind(merge, SchemaMerge, "merge")
        handed_over = written_files(listed)
        if merge is None:
            return self._commit_entries(metadata, listed, handed_over=handed_over)
        entries = _entries_of(listed)
        return self._move_to(self._publisher.append_merging(merge, entries, metadata, handed_over))

    def _commit_entries(
        self,
        metadata: CommitMetadata,
        messages: Sequence[WriterMessage],
        outcome: CommitOutcome | None = None,
        handed_over: WrittenFiles | None = None,
    ) -> Snapshot:
        versions = {each.schema_id for each in messages} or {self.schema.id}
        if len(versions) > 1:
            raise InvalidArgumentError(f"messages of schemas {sorted(versions)}: expected one")
        for each in messages:
            if each.table_uuid and each.table_uuid != self._snapshot.table_uuid:
                raise InvalidArgumentError(f"{self.location}: a message of another table")
        (schema_id,) = versions
        if schema_id not in self._schemas:
            self.refresh()
        written = self._schemas[schema_id]
        for each in messages:
            check_same_schema(each, written, self._branch, self.location)
        entries = _entries_of(messages)
        began = time.monotonic()
        published = self._publisher.append(
            self._snapshot,
            written,
            entries,
            metadata,
            seen_at=self._seen_at,
            handed_over=handed_over,
            outcome=outcome,
        )
        # A commit with an identity may have been published long ago.
        return self._move_to(published, seen_at=began if metadata.commit_user is None else None)

    def update_schema(self, *, message: str | None = None) -> SchemaUpdate:
        """Several schema changes as one snapshot: ``with t.update_schema() as u: ...``."""
        self._check_writable()
        metadata = CommitMetadata(message=message)
        base = [self.refresh()]

        def has_nulls(schema: TableSchema, path: Path) -> bool:
            return self._has_nulls(base[0], schema, path)

        def exceeds(schema: TableSchema, path: Path, dtype: pa.DataType) -> bool:
            return self._exceeds(base[0], schema, path, dtype)

        def publish(changes: Sequence[schema_update.Change]) -> None:
            def changes_for(
                snapshot: Snapshot, current: TableSchema
            ) -> Sequence[schema_update.Change]:
                base[0] = snapshot
                return changes

            self._move_to(self._publisher.change_schema(self._snapshot, changes_for, metadata))

        return SchemaUpdate(self.schema, publish, has_nulls, exceeds)

    def add_columns(
        self,
        columns: Mapping[str, pa.DataType] | pa.Schema,
        *,
        defaults: Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """Add columns; rows written before hold their default, or null. No file is touched."""
        fields = columns
        if isinstance(columns, Mapping):
            check_texts(columns, "columns")
            for name, dtype in columns.items():
                check_kind(dtype, pa.DataType, f"columns[{name!r}]")
            fields = pa.schema(dict(columns))
        check_kind(fields, pa.Schema, "columns")
        with self.update_schema() as update:
            update.add_fields(fields, defaults=defaults)
        return self._snapshot

    def drop_columns(self, columns: Sequence[PathLike] | str) -> Snapshot:
        """Drop columns. No file is touched; a new column of the same name starts empty."""
        with self.update_schema() as update:
            listed = (columns,) if isinstance(columns, str) else check_columns(columns, "columns")
            for path in listed:
                update.drop_column(path)
        return self._snapshot

    def rename_column(self, old: PathLike, new: str) -> Snapshot:
        """Give a column another name. No file is touched."""
        with self.update_schema() as update:
            update.rename_column(check_column(old, "old"), check_text(new, "new"))
        return self._snapshot

    def alter_column(self, name: PathLike, **changes: Any) -> Snapshot:
        """Change a column's ``type``, ``nullable``, ``comment`` or (write) ``default``."""
        with self.update_schema() as update:
            update.alter_column(check_column(name, "name"), **changes)
        return self._snapshot

    def set_properties(self, updates: Mapping[str, str], *, remove: Sequence[str] = ()) -> Snapshot:
        """Change the table's settings."""
        with self.update_schema() as update:
            update.set_properties(updates, remove=remove)
        return self._snapshot


def _entries_of(messages: Iterable[WriterMessage]) -> list[Entry]:
    return [entry for message in messages for entry in message.entries]
