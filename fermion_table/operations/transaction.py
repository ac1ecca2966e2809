"""Several changes of rows as one snapshot: made to a draft at once, published together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Literal, NoReturn, Self

import pyarrow as pa

from fermion.engine import is_in_memory, record_batch_reader
from fermion.errors import InvalidArgumentError
from fermion.typing import FilterLike, KeysLike, TableLike
from fermion_table.argument_checks import check_kind, check_kinds
from fermion_table.commit.commit import Published, Publisher
from fermion_table.commit.committed_files import delete_unpublished, paths_in, written_files
from fermion_table.commit.conflict import Partitions
from fermion_table.commit.fit import misfit
from fermion_table.commit.request import (
    CommitMetadata,
    CommitRequest,
    WrittenFiles,
    numbered_in_order,
    recorded,
    stored_schema,
)
from fermion_table.commit.schema_versions import SchemaMerge, merged_schema
from fermion_table.errors import CommitConflict, UnreadableMetadata
from fermion_table.merging.primary_key import required_key
from fermion_table.metadata.history import load_table_schema
from fermion_table.metadata.manifest import Entry, paths_of
from fermion_table.metadata.snapshot import COLUMN_FILES, Kind, Snapshot
from fermion_table.operations.assignments import Assignment
from fermion_table.operations.draft import Draft, FindingCache, Replaced
from fermion_table.operations.merge import Merge, MergeBuilder, MergeResult
from fermion_table.operations.merge_matching import MergeCounts
from fermion_table.operations.row_changes import (
    Addition,
    Deletion,
    Replacement,
    RowChange,
    Update,
    addition_of,
    check_overwrite,
)
from fermion_table.schema.schema import KIND_COLUMN, SchemaReference
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.copied_files import copied_files
from fermion_table.writing.data_files import DataFiles
from fermion_table.writing.data_writer import check_batches
from fermion_table.writing.debezium import changes_in
from fermion_table.writing.deletions import deletions
from fermion_table.writing.incoming_rows import with_options
from fermion_table.writing.make_writer import TableWriter, write_changes
from fermion_table.writing.writer_message import WriterMessage, WriteSettings, check_same_schema


class Transaction:
    """Changes that become visible together, or not at all.

    Each one is made at once, and sees what those before it made; nothing is visible to others
    before the end of the ``with`` block (or `commit`). When another commit comes first, all are
    made again on top of it, if what they rest on may have changed. An exception in the block, an
    interrupt too, gives up: nothing is published, and no file is left. So does a transaction that
    is forgotten before its end.

    Parameters
    ----------
    publisher
        Of the branch.
    base
        The snapshot that the changes are decided on.
    metadata
        For the history.
    published
        Called with the new snapshot, and when that was known to be the latest (or None).
    seen_at
        When, by ``time.monotonic``, `base` was known to be the latest; None: not known.
    """

    def __init__(
        self,
        publisher: Publisher,
        base: Snapshot,
        *,
        metadata: CommitMetadata | None = None,
        published: Callable[[Snapshot, float | None], object] | None = None,
        seen_at: float | None = None,
    ) -> None:
        self._publisher = publisher
        self._metadata = metadata or CommitMetadata()
        self._published = published
        self._changes: list[RowChange] = []
        self._cache = FindingCache()
        self._files = OwnedFiles(publisher.store)
        self._handed_over: WrittenFiles | None = None
        self._offered: set[str] = set()
        self._draft = self._draft_of(base)
        self._applied = 0
        self._seen_at = seen_at
        self._owns_messages = True
        self._is_over = False
        self._is_earlier = False

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would commit, or delete, the same files."""
        raise TypeError(
            "a Transaction can't be pickled or copied: write with Table.writer() elsewhere, and "
            "give its messages to append_written() here"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if self._is_over:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def append(self, data: TableLike) -> None:
        """Add rows from any Arrow producer; they are matched to the table's columns by name."""
        self._add(self._write(data))

    def upsert(
        self,
        data: TableLike,
        *,
        change_type: str | None = None,
        format: Literal["debezium"] | None = None,
    ) -> None:
        """Add rows to a table with a primary key (see `Table.upsert`)."""
        self._enter()
        required_key(self._draft.schema, self._publisher.store.location, "upsert")
        data = self._readable(data)
        data, change_type = changes_in(data, change_type, format, self._draft.schema)
        self._add(self._write(data, change_type))

    def delete_keys(self, keys: KeysLike) -> None:
        """Delete the rows of keys, without looking for them (see `Table.delete_keys`)."""
        self._enter()
        where = self._publisher.store.location
        key = required_key(self._draft.schema, where, "delete_keys")
        rows = deletions(self._draft.schema, key, keys)
        self._add(self._write(rows, KIND_COLUMN))

    def append_batches(self, batches: Iterable[tuple[int, TableLike]]) -> None:
        """Add batches, pairs of id and data."""
        with self._writer() as writer:
            pairs: Iterable[tuple[Any, Any]] = check_batches(batches)
            stays = isinstance(batches, (list, tuple))
            if stays:
                pairs = list(pairs)
                stays = all(is_in_memory(data) for _, data in pairs)
            for batch_id, data in pairs:
                writer.append_batch(batch_id, data, copy=not stays)
            self._add(writer.prepare_commit()[0].entries)

    def delete(self, filter: FilterLike) -> None:
        """Delete the rows that a filter selects."""
        self._make(Deletion(filter))

    def update(self, filter: FilterLike, assignments: Mapping[str, Assignment]) -> None:
        """Set columns of the rows that a filter selects (see `Table.update`)."""
        self._make(Update(filter, assignments))

    def merge(self, source: TableLike, on: Any) -> MergeBuilder:
        """Merge rows of a source when the builder is executed (see `Table.merge`)."""
        self._enter()
        source = self._readable(source)
        return MergeBuilder(source, on, self._draft.schema, self._merge)

    def overwrite(
        self, data: TableLike, *, filter: FilterLike | None = None, dynamic: bool = False
    ) -> None:
        """Replace rows by new ones (see `Table.overwrite`)."""
        self._check_overwrite(filter, dynamic)
        entries = self._write(data, replaced=self._draft.replaced(filter))
        self._replace(entries, filter, dynamic)
        self._add(entries)

    def append_written(self, messages: Iterable[WriterMessage]) -> None:
        """Add the files of writers (`Table.writer`); for engines."""
        self._add_written(check_kinds(messages, WriterMessage, "messages"))

    def overwrite_written(
        self,
        messages: Iterable[WriterMessage],
        *,
        filter: FilterLike | None = None,
        dynamic: bool = False,
        merge: SchemaMerge | None = None,
    ) -> None:
        """Replace rows by the files of writers (see `Table.overwrite`); for engines.

        Parameters
        ----------
        merge
            Of `Table.plan_merge`, where the writers wrote its schema: becomes the table's.
        """
        self._check_overwrite(filter, dynamic)
        written = check_kinds(messages, WriterMessage, "messages")
        if merge is not None:
            check_kind(merge, SchemaMerge, "merge")
        self._replace([entry for each in written for entry in each.entries], filter, dynamic)
        self._add_written(written, merge)

    def commit(self) -> Snapshot:
        """Publish everything as one snapshot.

        Returns
        -------
        Snapshot
            The new one; the latest one if deletes and updates found no row, and appends had none
            (see `Table.append`).

        Raises
        ------
        CommitConflict, CommitStateUnknown
        """
        self._enter()
        self._is_over = True
        try:
            published = self._publish(self._publisher)
        except BaseException as error:
            self._lost(error)
            raise
        return self._won(published)

    def _publish(self, publisher: Publisher) -> Published:
        """Publish everything, to the branch of the table."""
        return publisher.publish(
            self._draft.base,
            self._plan,
            self._metadata,
            looks=bool(self._changes) and kind_of(self._changes) == "append",
            seen_at=self._seen_at,
        )

    def _lost(self, error: BaseException) -> None:
        """Delete the files, as nothing was published, or may have been."""
        if isinstance(error, (CommitConflict, UnreadableMetadata)):
            self._files.take(self._offered)
        self._give_up()

    def _won(self, published: Published) -> Snapshot:
        """Leave what was published; its snapshot."""
        self._is_earlier = published.is_earlier
        if published.entries is not None:
            kept = {path for entry in published.entries for path in paths_of(entry)}
            with contextlib.suppress(OSError):  # published is published; at worst orphans stay
                self._files.take(self._offered - kept)
                self._give_up(kept)
        if self._published is not None:
            self._published(published.snapshot, published.seen_at)
        return published.snapshot

    def abort(self) -> None:
        """Discard the transaction; its files are deleted."""
        self._enter()
        self._is_over = True
        self._give_up()

    def _plan(self, base: Snapshot) -> CommitRequest | None:
        """All changes on a snapshot; None if they change nothing there."""
        if base.hash != self._draft.base.hash or self._applied < len(self._changes):
            draft = self._draft_of(base)
            for change in self._changes:
                change.apply(draft)
            self._draft, self._applied = draft, len(self._changes)
        return None if self._changes_nothing(self._draft) else self._request()

    def _request(self) -> CommitRequest:
        draft, changes = self._draft, list(self._changes)
        added, removed = draft.changes()
        kind = kind_of(changes)
        metadata = self._metadata
        if metadata.message is None:
            described = "; ".join(filter(None, (change.describe() for change in changes)))
            metadata = replace(metadata, message=described or None)

        def depends_on(entry: Entry) -> bool:
            return any(change.concerns(entry, draft) for change in changes)

        return CommitRequest(
            kind=kind,
            added=recorded(kind, added),
            removed=removed,
            base=draft.base,
            scope=_scope_of(changes),
            schema=stored_schema(draft.new_schema),
            depends_on=None if kind == "append" else depends_on,
            relied_on=frozenset(draft.relied_on),
            accepts_schema=self._misfit if kind == "append" else None,
            metadata=metadata,
            written=self._handed_over,
            unsure=self._files.paths | paths_in(self._handed_over),
            reader_features=(
                *draft.reader_features,
                *([COLUMN_FILES] * any(each.column_files for each in added)),
            ),
        )

    def _misfit(self, reference: SchemaReference) -> str | None:
        """Why the new files can't live under a later schema."""
        schema = load_table_schema(self._publisher.store, reference)
        for change in self._changes:
            if isinstance(change, Addition):
                reason = misfit(change.schema, schema, change.entries)
                if reason is not None:
                    return reason
        return None

    def _draft_of(self, base: Snapshot) -> Draft:
        return Draft(self._publisher.store, base, self._cache, self._files)

    def _make(self, change: RowChange) -> None:
        self._enter()
        try:
            change.apply(self._draft)
        except BaseException:  # what it did until then is no change of this transaction
            self._draft = self._draft_of(self._draft.base)
            for each in self._changes:
                each.apply(self._draft)
            raise
        self._changes.append(change)
        self._applied += 1

    def _check_overwrite(self, filter: FilterLike | None, dynamic: bool) -> None:
        where = self._publisher.store.location
        check_overwrite(self._draft.schema, filter, dynamic, where=where)

    def _merge(self, change: Merge) -> MergeResult:
        self._make(change)
        return MergeResult(None, change.counts)

    def _replace(self, entries: Iterable[Entry], filter: FilterLike | None, dynamic: bool) -> None:
        """Take away the rows in whose place new files come."""
        if dynamic:
            self._make(Replacement(frozenset(entry.partition for entry in entries)))
        elif filter is not None:
            self._make(Deletion(filter, "overwrite"))
        else:
            self._make(Replacement())

    def _add(self, entries: Iterable[Entry]) -> None:
        self._make(Addition(tuple(entries), self._draft.schema))

    def _add_written(
        self, messages: Sequence[WriterMessage], merge: SchemaMerge | None = None
    ) -> None:
        for addition in self._additions(messages, merge):
            self._make(addition)

    def _additions(
        self, messages: Sequence[WriterMessage], merge: SchemaMerge | None = None
    ) -> list[RowChange]:
        """What adds the files of messages, which belong to the transaction from here on.

        Those of `commit_written` do so when the commit has succeeded, or has certainly lost.
        """
        handed_over = written_files(messages)
        everything = handed_over.and_also(self._handed_over)
        uuid, where = self._draft.base.table_uuid, self._publisher.store.location
        additions: list[RowChange] = []
        for message in messages:
            if message.table_uuid and message.table_uuid != uuid:
                raise InvalidArgumentError(f"{where}: a message of another table")
            if merge is None:
                schema = self._draft.schemas[message.schema_id]
                check_same_schema(message, schema, self._publisher.branch, where)
                additions.append(Addition(message.entries, schema))
        if merge is not None:
            entries = tuple(numbered_in_order(message.entries for message in messages))
            additions.append(addition_of(entries, merge, self._publisher))
        self._handed_over = everything
        if self._owns_messages:
            self._files.take(handed_over.paths)
        else:
            self._offered |= handed_over.paths
        return additions

    def _writer(self, replaced: Replaced = False) -> TableWriter:
        self._enter()
        return self._draft.writer(replaced=replaced)

    def _readable(self, data: TableLike) -> TableLike:
        """Rows; of files on the table's storage, read with its options."""
        store = self._publisher.store
        rows: TableLike = with_options(data, store.location, store.storage_options)
        return rows

    def _write(
        self, data: TableLike, change_type: str | None = None, *, replaced: Replaced = False
    ) -> tuple[Entry, ...]:
        data = self._readable(data)
        with self._writer(replaced) as writer:
            write_changes(writer, data, change_type, copy=not is_in_memory(data))
            (message,) = writer.prepare_commit()
        return message.entries

    def _enter(self) -> None:
        if self._is_over:
            raise InvalidArgumentError("the transaction is finished: begin a new one")

    def _changes_nothing(self, draft: Draft) -> bool:
        """Whether deletes and updates found no row, and appends had none to add."""
        silent: set[Kind] = {"delete", "upsert"}
        if not self._metadata.asks_for_snapshot:
            silent.add("append")
        return draft.is_empty and all(change.kind in silent for change in self._changes)

    def _give_up(self, keep: AbstractSet[str] = frozenset()) -> None:
        """Delete what the transaction owns, but for some files, and for what others committed."""
        delete_unpublished(self._files, self._handed_over, self._publisher.branch, keep)


class Statement(Transaction):
    """A transaction of one call: it publishes with what it does, or takes nothing but one change.

    The methods that commit raise what `Transaction.commit` raises.
    """

    def append_merging(self, data: TableLike, change_type: str | None = None) -> None:
        """Add rows, and the columns that the table lacks.

        change_type: See `Table.upsert`: that column of the data is not added.
        Raises SchemaMismatch: The columns do not fit the table's.
        """
        self._enter()
        data = self._readable(data)
        reader = record_batch_reader(data)
        columns = [field for field in reader.schema if field.name != change_type]
        merge = merged_schema(self._publisher.store, self._draft.base, pa.schema(columns))
        with self._draft.writer(schema=merge.schema) as writer:
            write_changes(writer, reader, change_type, copy=not is_in_memory(data))
            (message,) = writer.prepare_commit()
        self._make(addition_of(message.entries, merge, self._publisher))

    def add_files(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        """Copy files of others into the table, and add them (see `Table.add_files`)."""
        self._enter()
        store, schema = self._publisher.store, self._draft.schema
        files = DataFiles(self._files, schema, WriteSettings())
        self._add(copied_files(paths, store, schema, files))

    def commit_written(
        self, messages: Sequence[WriterMessage], merge: SchemaMerge | None = None
    ) -> Snapshot:
        """Publish the files of writers (`Table.commit`).

        Where that fails they stay, to be committed again, unless the commit has certainly lost.

        merge: See `overwrite_written`.
        Raises InvalidArgumentError: A message is there twice, or was committed before; nothing was
            published.
        """
        self._owns_messages = False
        versions = {message.schema_id for message in messages}
        if merge is None and len(versions) > 1:
            raise InvalidArgumentError(f"messages of schemas {sorted(versions)}: expected one")
        additions = self._additions(messages, merge)
        # Applied by `commit` alone, which knows an earlier try that may not fit the table any more.
        self._changes += additions or [Addition((), self._draft.schema)]
        return self.commit()

    def commit_change(self, change: RowChange) -> Snapshot:
        """Publish one change."""
        with self:
            self._make(change)
            return self.commit()

    def commit_merge(self, change: Merge) -> MergeResult:
        """Publish a merge.

        Raises InvalidArgumentError, SchemaMismatch.
        """
        snapshot = self.commit_change(change)
        counts = MergeCounts() if self._is_earlier else change.counts
        return MergeResult(snapshot, counts)

    def commit_found(self, rows: RowChange, messages: Sequence[WriterMessage]) -> Snapshot:
        """Publish rows that an engine has found and written again (`Table.commit_found`).

        Where that fails the files of the messages are deleted, unless they may be published.

        Raises InvalidArgumentError: See `FoundRows.apply`; or a message is there twice, or was
            committed before.
        """
        with self:
            additions = self._additions(messages)
            self._make(rows)
            for addition in additions:
                if isinstance(addition, Addition):  # of a deletion by key: that is no upsert
                    addition = replace(addition, kind=rows.kind)
                self._make(addition)
            return self.commit()


def kind_of(changes: Iterable[RowChange]) -> Kind:
    """What a commit of some changes is called.

    Rows that go while others come are an ``upsert``, unless an overwrite is among them: what came
    matters to other deletes then.
    """
    kinds: set[Kind] = {change.kind for change in changes}
    if "overwrite" in kinds:
        return "overwrite"
    if kinds == {"delete"}:
        return "delete"
    return "append" if kinds <= {"append"} else "upsert"


def _scope_of(changes: Iterable[RowChange]) -> Partitions | None:
    """The partitions that all changes together look at; None: all."""
    scope: Partitions = frozenset()
    for change in changes:
        if change.scope is None:
            return None
        scope |= change.scope
    return scope
