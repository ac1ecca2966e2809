"""Methods of `Table` that write without reading: rows, batches, keys, files of engines' writers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import pyarrow as pa

from fermion.arguments import several
from fermion.progress import ShowsProgress, showing
from fermion.typing import FilterLike, KeysLike, TableLike
from fermion_table.argument_checks import check_bool, check_kind, check_kinds, check_schema_mode
from fermion_table.commit.request import CommitMetadata
from fermion_table.commit.schema_versions import SchemaMerge, merged_schema
from fermion_table.merging.primary_key import required_key
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.operations.draft import Draft, FindingCache
from fermion_table.operations.transaction import Statement
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.table.inline_compaction import finished
from fermion_table.table.state import HasState, TableState
from fermion_table.writing.debezium import changes_in
from fermion_table.writing.incoming_rows import with_options
from fermion_table.writing.make_writer import TableWriter, make_writer
from fermion_table.writing.writer_message import WriterMessage, WriteSettings


def append(
    self: HasState,
    data: TableLike,
    *,
    schema_mode: Literal["merge"] | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    progress: ShowsProgress = None,
) -> Snapshot:
    """Append rows from any Arrow producer, as one snapshot.

    Where the table has a primary key, each row replaces or joins the one of its key (see
    `upsert`).

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
    progress
        True shows a bar of the rows that are written, False none; a function is called with the
        rows done and all rows (0: not known). None: a bar where a terminal or notebook watches.

    Returns
    -------
    Snapshot
        The new one: what changed is in its ``deltas`` and ``totals``, the time it took and its
        retries in its ``effort``. So it is with everything that makes a snapshot.

    Raises
    ------
    SchemaMismatch
        Shows the difference field by field.
    InvalidArgumentError
        Also where this object was opened at a tag or an old snapshot, as with every change.
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    with showing(progress):
        return append_as(self, data, metadata, schema_mode)


def append_as(
    self: HasState,
    data: TableLike,
    metadata: CommitMetadata,
    schema_mode: Literal["merge"] | None = None,
) -> Snapshot:
    """Append rows by a commit that is described already; raises as `append`."""
    state = self._state
    state.check_writable()
    merges = check_schema_mode(schema_mode) is not None
    state.refresh_for_append()
    with appending(state, metadata) as transaction:
        if merges:
            transaction.append_merging(data)
        else:
            transaction.append(data)
    return finished(state)


def add_files(
    self: HasState,
    files: Sequence[str | os.PathLike[str]],
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Add Fermion files as they are, as one snapshot: all of them or none.

    They are verified and copied into the table, without being decoded: the originals stay, and
    belong to whom they belonged. Files with batches keep them.

    Parameters
    ----------
    files
        Paths or URLs (opened with the table's ``storage_options``), each once.
    message, properties, commit_user, commit_identifier
        See `append`.

    Raises
    ------
    SchemaMismatch
        A file has other columns, types or an other order of columns than the table, or allows nulls
        where the table does not. `append` takes ``fermion.open(path)`` and converts.
    InvalidArgumentError
        The table has a primary key; a file comes twice, is damaged, has rows of several partitions,
        or rows that are not sorted as the table's are. Names the file.
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    paths = several(files, "files", "a list of paths")
    state = self._state
    state.check_writable()
    state.refresh_for_append()
    with appending(state, metadata) as transaction:
        transaction.add_files(list(paths))
    return finished(state)


def append_batch(
    self: HasState, batch_id: int, data: TableLike, *, message: str | None = None
) -> Snapshot:
    """Append one batch, which can be looked up by its id, as one snapshot."""
    return append_batches(self, [(batch_id, data)], message=message)


def append_batches(
    self: HasState,
    batches: Iterable[tuple[int, TableLike]],
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
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    state = self._state
    state.check_writable()
    state.refresh_for_append()
    with appending(state, metadata) as transaction:
        transaction.append_batches(batches)
    return finished(state)


def writer(self: HasState, *, settings: WriteSettings | None = None) -> TableWriter:
    """A writer of data files, for engines: its messages are given to `commit`.

    Of a table with a primary key it is a `KeyWriter`, which takes change types.
    """
    return writer_factory(self, settings=settings)()


def writer_factory(
    self: HasState,
    *,
    settings: WriteSettings | None = None,
    merge: SchemaMerge | None = None,
    overwrites: bool = False,
    filter: FilterLike | None = None,
) -> partial[TableWriter]:
    """A picklable function that makes a writer, for the tasks of engines.

    Parameters
    ----------
    merge
        Of `plan_merge`: its schema is written.
    overwrites, filter
        Whether the files are for an overwrite, and of which rows (see `Table.overwrite`): then
        partitions that it replaces get as many buckets as the property ``bucket`` says.
    """
    state = self._state
    state.check_writable()
    overwrites = check_bool(overwrites, "overwrites")
    draft = Draft(state.store, state.snapshot, FindingCache(), OwnedFiles(state.store))
    replaced = draft.replaced(filter) if overwrites else False
    if settings is not None:
        check_kind(settings, WriteSettings, "settings")
    return partial(
        make_writer,
        state.store,
        state.schema if merge is None else check_kind(merge, SchemaMerge, "merge").schema,
        settings=settings,
        table_uuid=state.snapshot.table_uuid,
        base_id=state.snapshot.id,
        branch=state.branch,
        bucket_counts=draft.bucket_counts(replaced),
    )


def plan_merge(self: HasState, data: pa.Schema) -> SchemaMerge:
    """Plan a schema with the new columns of some data, which `commit` publishes; for engines."""
    check_kind(data, pa.Schema, "data")
    state = self._state
    state.check_writable()
    return merged_schema(state.publisher.store, state.refresh(), data)


def commit(
    self: HasState,
    messages: Iterable[WriterMessage],
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    merge: SchemaMerge | None = None,
) -> Snapshot:
    """Append the files of writers, as one snapshot.

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
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    state = self._state
    state.check_writable()
    listed = check_kinds(messages, WriterMessage, "messages")
    if merge is not None:
        check_kind(merge, SchemaMerge, "merge")
    if merge is None and any(written.schema_id not in state.schemas for written in listed):
        state.refresh()
    appending(state, metadata).commit_written(listed, merge)
    return finished(state)


def appending(state: TableState, metadata: CommitMetadata) -> Statement:
    """A transaction for one append, which checks itself whether the snapshot is the latest."""
    return state.statement(metadata, state.move_to, seen_at=state.seen_at)


def upsert(
    self: HasState,
    data: TableLike,
    *,
    change_type: str | None = None,
    format: Literal["debezium"] | None = None,
    schema_mode: Literal["merge"] | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    progress: ShowsProgress = None,
) -> Snapshot:
    """Insert rows, or replace those that have their keys, as one snapshot.

    Nothing is read: rows of one key are merged when they are read, and by compaction. So upserts
    never conflict with each other. On a table with a primary key `append` does the same.

    Parameters
    ----------
    data
        Columns are matched by name and cast where no value changes; missing nullable ones
        are null. The last row of a key is the newest.
    change_type
        The column of the data that says what each row is: ``insert``, ``update_preimage``,
        ``update_postimage`` or ``delete``, or ``+I``, ``-U``, ``+U``, ``-D``. It is not stored.
        None: all rows are insertions.
    format
        ``debezium``: the data are changes as Debezium gives them, whose column ``op`` (or
        ``change_type``) is ``c``, ``r``, ``u`` or ``d``. The row is in the structs ``before`` and
        ``after``, also within a struct ``payload``, or in columns beside ``op``. Tombstones are
        left out.
    schema_mode
        ``merge`` adds the data's unknown columns to the schema in the same snapshot.
    message, properties, commit_user, commit_identifier, progress
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if there are no rows (see `append`).

    Raises
    ------
    SchemaMismatch
        The data does not fit the table's schema, or a value of the key is null.
    InvalidArgumentError
        The table has no primary key by which rows are merged; or an unknown change type, or one
        that the table's merge engine does not take.
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    state = self._state
    state.check_writable()
    merges = check_schema_mode(schema_mode) is not None
    state.refresh_for_append()
    required_key(state.schema, state.store.location, "upsert")
    data = with_options(data, state.store.location, state.store.storage_options)
    data, change_type = changes_in(data, change_type, format, state.schema)
    with showing(progress), appending(state, metadata) as transaction:
        if merges:
            transaction.append_merging(data, change_type)
        else:
            transaction.upsert(data, change_type=change_type)
    return finished(state)


def delete_keys(
    self: HasState,
    keys: KeysLike,
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
) -> Snapshot:
    """Delete the rows of keys, as one snapshot.

    Nothing is read: whether there is a row of a key does not matter. Other columns of the
    deletions are null, or 0, empty or false where they must not be null.

    Parameters
    ----------
    keys
        Arrow data, a data frame or a dictionary with the key's columns; of a key of one column
        also an array or a list of values; of any key a list of tuples in the key's order, or of
        dictionaries. Where sequence fields order the rows of a key, their values are needed too,
        in tuples after those of the key.
    message, properties, commit_user, commit_identifier
        See `append`.

    Returns
    -------
    Snapshot
        The new one; the latest one if there are no keys.

    Raises
    ------
    TypeError
        Neither Arrow data nor a list of keys.
    InvalidArgumentError
        The table has no primary key by which rows are merged, or a merge engine that deletes no
        rows by their keys; or a column of the key is missing, or has a null or another value that
        does not fit.
    CommitConflict, CommitStateUnknown
    """
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    state = self._state
    state.check_writable()
    state.refresh_for_append()
    with appending(state, metadata) as transaction:
        transaction.delete_keys(keys)
    return finished(state)
