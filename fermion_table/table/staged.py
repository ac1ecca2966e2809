"""A table whose definition and first rows become visible together: a new one, or a replacement.

For engines that create or replace a table from a query. Nothing is visible, and nothing of an
existing table changes, before `StagedTable.commit`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from fermion.display import short_repr
from fermion.engine import is_in_memory, record_batch_reader
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.typing import TableLike
from fermion_table.argument_checks import check_kind, check_kinds, described
from fermion_table.commit.commit import Publisher
from fermion_table.commit.committed_files import delete_unpublished, written_files
from fermion_table.commit.replacement import (
    NewRows,
    TableDefinition,
    create_defined,
    replace_table,
    replacing_schema,
)
from fermion_table.commit.request import CommitMetadata, numbered_in_order
from fermion_table.errors import CommitStateUnknown, TableExists, TableNotFound
from fermion_table.expiry.drop import drop_table, remove_empty_folders
from fermion_table.metadata.history import latest, table_exists
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.from_arrow import PartitionBy
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.location import Location, open_store, refuse_nested
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore, is_done_when_interrupted
from fermion_table.table.appending import appending
from fermion_table.table.inline_compaction import finished
from fermion_table.table.state import TableState
from fermion_table.writing.incoming_rows import with_options
from fermion_table.writing.make_writer import TableWriter, make_writer
from fermion_table.writing.writer_message import WriterMessage, WriteSettings

StageMode = Literal["create", "replace", "create_or_replace"]


def stage_table(
    path: Location,
    schema: Any,
    *,
    mode: StageMode = "create",
    partition_by: PartitionBy | None = None,
    primary_key: Sequence[str] | str | None = None,
    sort_by: Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> StagedTable:
    """Plan a table that is created, or that replaces another one, together with its rows.

    Parameters
    ----------
    path, schema, partition_by, primary_key, sort_by, properties, storage_options
        As for `Table.create`.
    mode
        ``create`` a table where none is, ``replace`` the one that is there, or
        ``create_or_replace``.

    Raises
    ------
    InvalidArgumentError, fermion.errors.ColumnNotFoundError
        A table of this definition can't be.
    TableExists
        Mode ``create``, and there is a table; or another one lies in a directory above or below.
    TableNotFound
        Mode ``replace``, and there is none.
    """
    if mode not in ("create", "replace", "create_or_replace"):
        raise InvalidArgumentError(
            f"mode={mode!r}: expected 'create', 'replace' or 'create_or_replace'"
        )
    store = open_store(path, storage_options=storage_options)
    definition = TableDefinition(
        schema=schema,
        partition_by=partition_by,
        primary_key=primary_key,
        sort_by=sort_by,
        properties=properties,
    )
    return stage_defined(store, definition, mode)


def stage_defined(
    store: AtomicStore,
    definition: TableDefinition,
    mode: StageMode,
    creation_properties: Mapping[str, str] | None = None,
) -> StagedTable:
    """The same for a store and a definition; raises as `stage_table`."""
    first = definition.first_schema()
    if not table_exists(store):
        if mode == "replace":
            raise TableNotFound(f"{store.location}: no table here to replace")
        refuse_nested(store)
        return StagedTable(store, definition, None, first, creation_properties)
    if mode == "create":
        raise TableExists(f"{store.location}: a table exists here already")
    base = latest(store)
    return StagedTable(
        store, definition, base, replacing_schema(Publisher(store), base, definition)
    )


def create_with_rows(
    store: AtomicStore,
    definition: TableDefinition,
    data: TableLike,
    metadata: CommitMetadata,
    *,
    replaces: bool = False,
    creation_properties: Mapping[str, str] | None = None,
) -> Snapshot:
    """Create a table with its first rows; after an error nothing of either is left.

    data: Any Arrow producer.
    metadata: For the history.
    replaces: Whether a table that is there already is replaced.
    creation_properties: Of the snapshot that creates a new table.
    Raises SchemaMismatch, InvalidArgumentError, TableExists, CommitConflict, CommitStateUnknown:
        And what reading the data raises.
    """
    mode: StageMode = "create_or_replace" if replaces else "create"
    staged = stage_defined(store, definition, mode, creation_properties)
    try:
        with staged.writer() as writer:
            writer.write(data, copy=not is_in_memory(data))
            messages = writer.prepare_commit()
    except BaseException:  # an interrupt too
        staged.discard()
        raise
    return staged._publish(messages, metadata)


def schema_and_rows(
    schema: Any, data: Any, location: Any, storage_options: dict[str, Any] | None
) -> tuple[Any, Any]:
    """The schema of a new table and its first rows, None for none.

    schema: A schema, None, or rows: any Arrow producer, which the schema is taken from. What pandas
        says there of an index is left out: it does not hold for rows that come later.
    data: Rows beside a schema, or None.
    location, storage_options: Of the table: files on its storage are read with its options.
    Raises TypeError: Names the parameter.
    """
    schema, data = (with_options(item, location, storage_options) for item in (schema, data))
    if isinstance(schema, pa.Schema | TableSchema):
        return schema, data
    if schema is not None and data is not None:
        raise TypeError(f"schema: expected a pyarrow.Schema beside data, found {described(schema)}")
    name, given = ("schema", schema) if data is None else ("data", data)
    try:
        rows: Any = record_batch_reader(given)
    except InvalidArgumentError as error:
        reason = str(error).removeprefix("data: ")
        if isinstance(given, str | os.PathLike):  # of the right type
            raise InvalidArgumentError(f"{name}: {reason}") from error
        wanted = "a pyarrow.Schema, or rows" if data is None else "rows"
        raise TypeError(f"{name}: expected {wanted} to take the schema from: {reason}") from error
    if is_in_memory(given):
        rows = rows.read_all()
    metadata = {key: each for key, each in (rows.schema.metadata or {}).items() if key != b"pandas"}
    return rows.schema.with_metadata(metadata or None), rows


@dataclass(frozen=True, slots=True)
class StagedTable:
    """The definition of a table that is not published yet. Picklable. Created by `stage_table`.

    Attributes
    ----------
    store
        Of the table.
    definition
        As given.
    base
        The snapshot that it replaces; None for a new table.
    schema
        What data files are written with.
    creation_properties
        Of the snapshot that creates a new table.
    """

    store: AtomicStore
    definition: TableDefinition
    base: Snapshot | None
    schema: TableSchema
    creation_properties: Mapping[str, str] | None = None

    __repr__ = short_repr

    def writer(self, *, settings: WriteSettings | None = None) -> TableWriter:
        """A writer of data files: its messages are given to `commit`."""
        return self.writer_factory(settings=settings)()

    def writer_factory(self, *, settings: WriteSettings | None = None) -> partial[TableWriter]:
        """A picklable function that makes a writer, for the tasks of engines."""
        if settings is not None:
            check_kind(settings, WriteSettings, "settings")
        return partial(
            make_writer,
            self.store,
            self.schema,
            settings=settings,
            table_uuid="" if self.base is None else self.base.table_uuid,
            base_id=None if self.base is None else self.base.id,
        )

    def commit(
        self,
        messages: Iterable[WriterMessage] = (),
        *,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        commit_user: str | None = None,
        commit_identifier: int | str | None = None,
    ) -> Snapshot:
        """Publish definition and rows.

        A replacement is one snapshot, of kind ``overwrite``; the history before it stays. A new
        table has its creation (snapshot 0) and, if there are rows, properties or an identity, an
        append.

        Parameters
        ----------
        messages
            Of writers.
        message, properties
            For the history.
        commit_user, commit_identifier
            The same pair is committed once.

        Raises
        ------
        TableExists
            Another writer has made a table meanwhile.
        TableNotFound
            The table to replace is gone.
        CommitConflict
            The table to replace was replaced by another one meanwhile.
        CommitStateUnknown
            Whether it was published can't be told; nothing was deleted. After any other error
            nothing is published, and the files of the messages are deleted.
        """
        written = check_kinds(messages, WriterMessage, "messages")
        metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
        return self._publish(written, metadata)

    def _publish(self, written: Sequence[WriterMessage], metadata: CommitMetadata) -> Snapshot:
        """The same, by a commit that is described already."""
        entries = numbered_in_order(each.entries for each in written)
        if self.base is None:
            return self._create(written, entries, metadata)
        rows = NewRows(self.base, self.schema, entries, written_files(written))
        publisher = Publisher(self.store)
        return replace_table(publisher, self.base, self.definition, metadata=metadata, rows=rows)

    def discard(self, messages: Iterable[WriterMessage] = ()) -> None:
        """Discard the table: delete the files of its writers, and empty directories.

        Not after `commit`, which deletes what it did not publish.
        """
        self._delete(check_kinds(messages, WriterMessage, "messages"))
        if self.base is None and not table_exists(self.store):
            remove_empty_folders(self.store)

    def _create(
        self, messages: Sequence[WriterMessage], entries: Sequence[Entry], metadata: CommitMetadata
    ) -> Snapshot:
        try:
            created = create_defined(
                self.store,
                self.definition,
                metadata=CommitMetadata(
                    message=metadata.message, properties=self.creation_properties
                ),
            )
        except CommitStateUnknown:
            raise
        except BaseException:  # an interrupt too: no commit has named the files yet
            self._delete(messages)
            raise
        asks = metadata.commit_user or metadata.properties or metadata.properties_after
        if not entries and not asks:
            return created
        state = TableState(self.store, created)
        try:
            appending(state, metadata).commit_written(messages)
            return finished(state)
        except CommitStateUnknown:
            raise
        except BaseException as error:
            if isinstance(error, Exception) or is_done_when_interrupted(self.store):
                self._take_back(created)
            raise

    def _delete(self, messages: Sequence[WriterMessage]) -> None:
        """Delete what writers made, but for what has been committed."""
        written, owned = written_files(messages), OwnedFiles(self.store)
        owned.take(written.paths)
        delete_unpublished(owned, written, MAIN)

    def _take_back(self, created: Snapshot) -> None:
        """Remove a table that was created a moment ago, unless somebody has used it since."""
        with contextlib.suppress(OSError, TableNotFound, InvalidArgumentError):
            if latest(self.store).hash == created.hash:
                location, options = self.store.location, self.store.storage_options
                drop_table(location, storage_options=options)
