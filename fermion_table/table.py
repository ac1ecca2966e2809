"""The table: what a user holds. It remembers one snapshot, and moves on when it commits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import msgspec
import pyarrow as pa

import fermion
from fermion import col
from fermion.arrow_input import record_batch_reader
from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import history, schema_update
from fermion_table.arrow_schema import schema_from_arrow
from fermion_table.column_selection import BATCH_ID
from fermion_table.commit import create_table
from fermion_table.commit_request import NewSchema
from fermion_table.data_writer import DataWriter, WriterMessage, WriteSettings
from fermion_table.errors import TableExists
from fermion_table.filters import TableFilter, both, table_filter
from fermion_table.location import open_store
from fermion_table.manifest import Entry
from fermion_table.paths import MAIN
from fermion_table.properties import parse_properties
from fermion_table.publishing import CommitWords, Publisher
from fermion_table.scan import Scan
from fermion_table.schema import Path, PathLike, TableSchema, encode_schema
from fermion_table.schema_builder import SchemaUpdate
from fermion_table.schema_store import SchemaVersions
from fermion_table.snapshot import Snapshot
from fermion_table.storage import AtomicStore, Durability
from fermion_table.verify import VerifyReport, verify

Location = str | os.PathLike[str]


class Table:
    """A table at one of its snapshots.

    It sees the snapshot it was opened at until it commits itself or `refresh` is called; other
    writers' commits never change what it sees.

    Parameters
    ----------
    store, snapshot, branch
        Use `Table.open` and `Table.create`.
    """

    def __init__(self, store: AtomicStore, snapshot: Snapshot, *, branch: str = MAIN) -> None:
        self._store = store
        self._branch = branch
        self._publisher = Publisher(store, branch)
        self._move_to(snapshot)

    @classmethod
    def create(
        cls,
        path: Location,
        schema: pa.Schema | TableSchema,
        *,
        partition_by: Sequence[str] | str | None = None,
        primary_key: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: dict[str, Any] | None = None,
        mode: Literal["error", "ignore"] = "error",
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
            Columns whose values the rows of a data file have in common.
        primary_key
            Columns that identify a row (recorded; not enforced yet).
        properties
            The table's settings, such as ``target_file_size``.
        mode
            Where a table exists: ``error``, or ``ignore`` (open it).
        durability
            ``full``, or ``fast`` without synchronising to disk.

        Raises
        ------
        TableExists
        """
        if mode not in ("error", "ignore"):
            raise InvalidArgumentError(f"mode={mode!r}: expected 'error' or 'ignore'")
        store = open_store(path, storage_options=storage_options, durability=durability)
        made = _first_schema(schema, partition_by, primary_key, properties)
        try:
            first = NewSchema(made.id, encode_schema(made))
            return cls(store, create_table(store, first, message=message))
        except TableExists:
            if mode == "error":
                raise
            return cls(store, history.latest(store))

    @classmethod
    def open(
        cls,
        path: Location,
        *,
        version: history.Version | None = None,
        branch: str = MAIN,
        storage_options: dict[str, Any] | None = None,
        durability: Durability = "full",
    ) -> Table:
        """Open a table at its latest snapshot, or at a version.

        Parameters
        ----------
        version
            A snapshot id, ``"main~3"``, or a datetime.

        Raises
        ------
        TableNotFound, VersionNotFound
        """
        store = open_store(path, storage_options=storage_options, durability=durability)
        if version is None:
            return cls(store, history.latest(store, branch=branch), branch=branch)
        return cls(store, history.resolve_version(store, version, branch=branch), branch=branch)

    @classmethod
    def exists(cls, path: Location, *, storage_options: dict[str, Any] | None = None) -> bool:
        """Whether there is a table."""
        return history.table_exists(open_store(path, storage_options=storage_options))

    def __repr__(self) -> str:
        return (
            f"<Table {self.location!r}, snapshot {self.snapshot.id}: "
            f"{self.snapshot.totals.rows:,} rows in {self.snapshot.totals.files:,} files>"
        )

    @property
    def location(self) -> str:
        """Where the table lies."""
        return self._store.location

    @property
    def store(self) -> AtomicStore:
        """The table's objects; for engines."""
        return self._store

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that this object sees."""
        return self._snapshot

    @property
    def schema(self) -> TableSchema:
        """The schema of `snapshot`."""
        return self._schemas.current

    @property
    def properties(self) -> dict[str, str]:
        """The table's settings; a copy."""
        return dict(self.schema.properties)

    def _move_to(self, snapshot: Snapshot) -> Snapshot:
        self._snapshot = snapshot
        self._schemas = SchemaVersions(self._store, snapshot)
        return snapshot

    def refresh(self) -> Snapshot:
        """Move to the latest snapshot."""
        return self._move_to(self._publisher.latest(self._snapshot))

    def schemas(self) -> list[TableSchema]:
        """Every version of the schema up to this snapshot's, oldest first."""
        return [self._schemas[number] for number in self._schemas]

    def snapshots(self) -> list[Snapshot]:
        """Every snapshot up to this one that has not expired, oldest first."""
        walked = history.walk(self._store, self._snapshot, branch=self._branch)
        return list(walked)[::-1]

    def history(self) -> list[dict[str, Any]]:
        """What happened, newest first: a row for each snapshot."""
        return [_history_row(snapshot) for snapshot in reversed(self.snapshots())]

    def scan(
        self,
        *,
        columns: Sequence[PathLike] | None = None,
        filter: Any = None,
        snapshot_id: int | None = None,
        as_of: datetime | str | None = None,
        branch: str | None = None,
        batch_id: int | Iterable[int] | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> Scan:
        """Ask for rows; nothing is read before the scan is asked for a result.

        Parameters
        ----------
        columns
            Names, names joined by dots, or sequences of names; ``batch_id`` and
            ``index_in_batch`` for files in batch mode. None: every column.
        filter
            Anything that `fermion` takes as a filter. The result is exact.
        snapshot_id, as_of, branch
            Another snapshot, with its own schema: by id, by time (the latest then), or the
            latest of a branch.
        batch_id
            Only rows of this batch, or of these.
        limit
            At most so many rows.
        threads
            For reading files side by side; None takes the number of processors.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError, VersionNotFound
        """
        snapshot = self._version(snapshot_id, as_of, branch)
        same = snapshot is self._snapshot
        schemas = self._schemas if same else SchemaVersions(self._store, snapshot)
        schema = schemas.current
        chosen = table_filter(filter, schema, where=self.location)
        if batch_id is not None:
            chosen = both(chosen, _batch_filter(batch_id, schema, self.location))
        return Scan(
            store=self._store,
            snapshot=snapshot,
            schemas=schemas,
            table_schema=schema,
            columns=None if columns is None else _column_list(columns),
            filter=chosen,
            limit=limit,
            threads=threads,
        )

    def _version(
        self, snapshot_id: int | None, as_of: datetime | str | None, branch: str | None
    ) -> Snapshot:
        named = [each for each in (snapshot_id, as_of) if each is not None]
        if len(named) > 1:
            raise InvalidArgumentError("snapshot_id and as_of: expected one of them")
        where = branch or self._branch
        if snapshot_id is not None:
            if where == self._branch and snapshot_id == self._snapshot.id:
                return self._snapshot
            return history.load_snapshot(self._store, snapshot_id, branch=where)
        if as_of is not None:
            moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
            return history.snapshot_at(self._store, moment, branch=where)
        if where != self._branch:
            return history.latest(self._store, branch=where)
        return self._snapshot

    def lookup_batch(self, batch_id: int, *, columns: Sequence[PathLike] | None = None) -> pa.Table:
        """All rows of a batch, in their order; none if there is no such batch."""
        return self.scan(batch_id=batch_id, columns=columns).to_arrow()

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

        Raises
        ------
        SchemaMismatch
            Shows the difference field by field.
        CommitConflict, CommitStateUnknown
        """
        words = CommitWords(
            message=message,
            properties=properties or {},
            commit_user=commit_user,
            commit_identifier=commit_identifier,
        )
        if schema_mode not in (None, "merge"):
            raise InvalidArgumentError(f"schema_mode={schema_mode!r}: expected None or 'merge'")
        if schema_mode == "merge":
            return self._append_merging(data, words)
        with self.writer() as writer:
            writer.write(data)
            return self._commit_entries(writer.prepare_commit(), words)

    def _append_merging(self, data: Any, words: CommitWords) -> Snapshot:
        reader = record_batch_reader(data)
        base = self.refresh()
        changes = schema_update.merge_columns(self.schema, reader.schema)
        schema = self._publisher.changed_schema(base, changes)
        with DataWriter(self._store, schema or self.schema) as writer:
            writer.write(reader)
            messages = writer.prepare_commit()
        if schema is None:
            return self._commit_entries(messages, words)
        entries = _entries_of(messages)
        return self._move_to(self._publisher.append_merging(base, schema, entries, changes, words))

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
        """Append batches, pairs of id and data, as one snapshot."""
        words = CommitWords(
            message=message,
            properties=properties or {},
            commit_user=commit_user,
            commit_identifier=commit_identifier,
        )
        with self.writer() as writer:
            for batch_id, data in batches:
                writer.append_batch(batch_id, data)
            return self._commit_entries(writer.prepare_commit(), words)

    def writer(self, *, settings: WriteSettings | None = None) -> DataWriter:
        """A writer of data files, for engines: its messages are given to `commit`."""
        uuid = self._snapshot.table_uuid
        return DataWriter(self._store, self.schema, settings=settings, table_uuid=uuid)

    def commit(
        self,
        messages: Iterable[WriterMessage],
        *,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        commit_user: str | None = None,
        commit_identifier: int | str | None = None,
    ) -> Snapshot:
        """Append what writers made, as one snapshot.

        Raises
        ------
        CommitConflict, CommitStateUnknown
        """
        words = CommitWords(
            message=message,
            properties=properties or {},
            commit_user=commit_user,
            commit_identifier=commit_identifier,
        )
        return self._commit_entries(list(messages), words)

    def _commit_entries(self, messages: Sequence[WriterMessage], words: CommitWords) -> Snapshot:
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
        entries = _entries_of(messages)
        return self._move_to(self._publisher.append(self._snapshot, written, entries, words))

    def update_schema(self, *, message: str | None = None) -> SchemaUpdate:
        """Several schema changes as one snapshot: ``with t.update_schema() as u: ...``."""
        base = [self.refresh()]

        def has_nulls(schema: TableSchema, path: Path) -> bool:
            return self._has_nulls(base[0], schema, path)

        def publish(changes: Sequence[schema_update.Change]) -> None:
            def changes_for(
                snapshot: Snapshot, current: TableSchema
            ) -> Sequence[schema_update.Change]:
                base[0] = snapshot
                return changes

            words = CommitWords(message=message)
            self._move_to(self._publisher.change_schema(self._snapshot, changes_for, words))

        return SchemaUpdate(self.schema, publish, has_nulls)

    def _has_nulls(self, snapshot: Snapshot, schema: TableSchema, path: Path) -> bool:
        """Whether a live row is null at a path of a schema that may not be published yet."""
        field = schema.find(path)
        schemas = SchemaVersions(self._store, snapshot)
        known = schemas.current.paths.get(field.id)
        if known is None:
            return False  # added in the same update, with a default
        null = table_filter(col(*known).is_null(), schemas.current, where=self.location)
        scan = Scan(
            store=self._store,
            snapshot=snapshot,
            schemas=schemas,
            table_schema=schemas.current,
            columns=(),
            filter=null,
            limit=1,
        )
        return scan.count() > 0

    def add_columns(
        self,
        columns: Mapping[str, pa.DataType] | pa.Schema,
        *,
        defaults: Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """Add columns; rows written before hold their default, or null. No file is touched."""
        fields = pa.schema(dict(columns)) if isinstance(columns, Mapping) else columns
        with self.update_schema() as update:
            for field in fields:
                default = (defaults or {}).get(field.name)
                update.add_field((field.name,), field, default=default)
        return self._snapshot

    def drop_columns(self, columns: Sequence[PathLike] | str) -> Snapshot:
        """Drop columns. No file is touched; a new column of the same name starts empty."""
        with self.update_schema() as update:
            for path in [columns] if isinstance(columns, str) else columns:
                update.drop_column(path)
        return self._snapshot

    def rename_column(self, old: PathLike, new: str) -> Snapshot:
        """Give a column another name. No file is touched."""
        with self.update_schema() as update:
            update.rename_column(old, new)
        return self._snapshot

    def alter_column(self, name: PathLike, **changes: Any) -> Snapshot:
        """Change a column's ``type``, ``nullable``, ``comment`` or (write) ``default``."""
        with self.update_schema() as update:
            update.alter_column(name, **changes)
        return self._snapshot

    def set_properties(self, updates: Mapping[str, str], *, remove: Sequence[str] = ()) -> Snapshot:
        """Change the table's settings."""
        with self.update_schema() as update:
            update.set_properties(updates, remove=remove)
        return self._snapshot

    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check the whole history: hashes, parents, files; with ``data`` every checksum."""
        check = partial(_check_file, self._store) if data else None
        return verify(self._store, branch=self._branch, check_file=check)


def _first_schema(
    schema: pa.Schema | TableSchema,
    partition_by: Sequence[str] | str | None,
    primary_key: Sequence[str] | str | None,
    properties: Mapping[str, str] | None,
) -> TableSchema:
    arrow = schema.to_arrow(field_ids=False) if isinstance(schema, TableSchema) else schema
    parse_properties(properties or {})
    return schema_from_arrow(
        arrow,
        partition_by=partition_by,
        primary_key=primary_key,
        properties=properties,
        time_ms=time.time_ns() // 1_000_000,
    )


def _column_list(columns: Sequence[PathLike]) -> tuple[PathLike, ...]:
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns={columns!r}: expected a list of names")
    return tuple(columns)


def _batch_filter(
    batch_id: int | Iterable[int], schema: TableSchema, where: str
) -> TableFilter | None:
    if BATCH_ID.name in schema.by_name:
        raise InvalidArgumentError(
            f"{where}: column {BATCH_ID.name!r} hides the batch ids; filter by it instead"
        )
    ids = [batch_id] if isinstance(batch_id, int) else list(batch_id)
    return table_filter(col(BATCH_ID.name).isin(ids), schema, where=where)


def _entries_of(messages: Iterable[WriterMessage]) -> list[Entry]:
    return [entry for message in messages for entry in message.entries]


def _history_row(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "time": datetime.fromtimestamp(snapshot.time_ms / 1000, UTC),
        "kind": snapshot.kind,
        "author": snapshot.author,
        "message": snapshot.message,
        "schema_id": snapshot.schema.id,
        **msgspec.structs.asdict(snapshot.deltas),
        "files": snapshot.totals.files,
        "rows": snapshot.totals.rows,
    }


def _check_file(store: AtomicStore, entry: Entry) -> list[str]:
    """What is wrong with a data file, in words."""
    try:
        with fermion.open(store.locate(entry.path), storage_options=store.storage_options) as file:
            if file.num_rows != entry.rows:
                return [f"{file.num_rows} rows, the entry says {entry.rows}"]
            return [str(problem) for problem in file.verify().problems]
    except (FermionError, OSError) as error:
        return [str(error)]
