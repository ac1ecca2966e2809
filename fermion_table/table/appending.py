"""Methods of `Table` that append: rows, batches, and the files that writers of engines made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from fermion.columns.arrow_input import record_batch_reader
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_kind, check_kinds, check_schema_mode
from fermion_table.commit.committed_files import written_files
from fermion_table.commit.publisher import SchemaMerge
from fermion_table.commit.request import CommitMetadata, CommitOutcome, WrittenFiles
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.table.state import HasState, TableState
from fermion_table.writing.data_writer import (
    DataWriter,
    WriterMessage,
    WriteSettings,
    check_batches,
    check_same_schema,
)


def append(
    table: HasState,
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
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    state = table._state
    state.check_writable()
    if check_schema_mode(schema_mode) is not None:
        return _append_merging(state, data, metadata)
    state.refresh_for_append()
    return _append_written(
        writer(table), lambda files: files.write(data), partial(_commit_written, state, metadata)
    )


def append_batch(
    table: HasState, batch_id: int, data: Any, *, message: str | None = None
) -> Snapshot:
    """Append one batch, to be found again by its id; a snapshot of its own."""
    return append_batches(table, [(batch_id, data)], message=message)


def append_batches(
    table: HasState,
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
    state = table._state
    state.check_writable()
    state.refresh_for_append()

    def write(files: DataWriter) -> None:
        for batch_id, data in check_batches(batches):
            files.append_batch(batch_id, data)

    return _append_written(writer(table), write, partial(_commit_written, state, metadata))


def writer(table: HasState, *, settings: WriteSettings | None = None) -> DataWriter:
    """A writer of data files, for engines: its messages are given to `commit`."""
    return writer_factory(table, settings=settings)()


def writer_factory(
    table: HasState, *, settings: WriteSettings | None = None, merge: SchemaMerge | None = None
) -> partial[DataWriter]:
    """A picklable function that makes a writer, for the tasks of engines.

    Parameters
    ----------
    merge
        Of `plan_merge`: its schema is written.
    """
    state = table._state
    state.check_writable()
    return partial(
        DataWriter,
        state.store,
        state.schema if merge is None else check_kind(merge, SchemaMerge, "merge").schema,
        settings=settings,
        table_uuid=state.snapshot.table_uuid,
        base_id=state.snapshot.id,
        branch=state.branch,
    )


def plan_merge(table: HasState, data: pa.Schema) -> SchemaMerge:
    """The schema with the columns that some data adds, for `commit` to publish; for engines."""
    check_kind(data, pa.Schema, "data")
    state = table._state
    state.check_writable()
    return state.publisher.plan_merge(state.refresh(), data)


def commit(
    table: HasState,
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
    state = table._state
    state.check_writable()
    listed = check_kinds(messages, WriterMessage, "messages")
    if merge is not None:
        check_kind(merge, SchemaMerge, "merge")
    handed_over = written_files(listed)
    if merge is None:
        return _commit_written(state, metadata, listed, handed_over=handed_over)
    entries = _entries_of(listed)
    return state.move_to(state.publisher.append_merging(merge, entries, metadata, handed_over))


def _append_merging(state: TableState, data: Any, metadata: CommitMetadata) -> Snapshot:
    reader = record_batch_reader(data)
    merge = state.publisher.plan_merge(state.refresh(), reader.schema)

    def publish(messages: Sequence[WriterMessage], outcome: CommitOutcome) -> Snapshot:
        entries = _entries_of(messages)
        return state.move_to(
            state.publisher.append_merging(merge, entries, metadata, outcome=outcome)
        )

    files = DataWriter(state.store, merge.schema, base_id=merge.base.id)
    return _append_written(files, lambda files: files.write(reader), publish)


def _append_written(
    files: DataWriter,
    write: Callable[[DataWriter], None],
    publish: Callable[[Sequence[WriterMessage], CommitOutcome], Snapshot],
) -> Snapshot:
    """Write files and publish them; none is left where that fails or is interrupted."""
    outcome = CommitOutcome()
    with files:
        try:
            write(files)
            return publish(files.prepare_commit(), outcome)
        except BaseException:
            if not outcome.may_be_published:
                files.abort()
            raise


def _commit_written(
    state: TableState,
    metadata: CommitMetadata,
    messages: Sequence[WriterMessage],
    outcome: CommitOutcome | None = None,
    handed_over: WrittenFiles | None = None,
) -> Snapshot:
    """Publish files of one schema, once their messages are known to be this table's."""
    schema_ids = {message.schema_id for message in messages} or {state.schema.id}
    if len(schema_ids) > 1:
        raise InvalidArgumentError(f"messages of schemas {sorted(schema_ids)}: expected one")
    for message in messages:
        if message.table_uuid and message.table_uuid != state.snapshot.table_uuid:
            raise InvalidArgumentError(f"{state.location}: a message of another table")
    (schema_id,) = schema_ids
    if schema_id not in state.schemas:
        state.refresh()
    written = state.schemas[schema_id]
    for message in messages:
        check_same_schema(message, written, state.branch, state.location)
    entries = _entries_of(messages)
    began = time.monotonic()
    published = state.publisher.append(
        state.snapshot,
        written,
        entries,
        metadata,
        seen_at=state.seen_at,
        handed_over=handed_over,
        outcome=outcome,
    )
    # A commit with an identity may have been published long ago.
    return state.move_to(published, seen_at=began if metadata.commit_user is None else None)


def _entries_of(messages: Iterable[WriterMessage]) -> list[Entry]:
    return [entry for message in messages for entry in message.entries]
