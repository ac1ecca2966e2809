"""Several changes of rows as one snapshot: made to a draft at once, published together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

import msgspec

from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_kind, check_kinds
from fermion_table.changes.assignments import Assignment
from fermion_table.changes.draft import Draft, FindingCache
from fermion_table.changes.row_changes import (
    Addition,
    Deletion,
    MergingAddition,
    Replacement,
    RowChange,
    Update,
    check_overwrite,
)
from fermion_table.commit.commit import commit
from fermion_table.commit.committed_files import unpublished, written_files
from fermion_table.commit.conflict import Partitions, Redo
from fermion_table.commit.fit import misfit
from fermion_table.commit.publisher import Publisher, SchemaMerge, stored_schema
from fermion_table.commit.request import CommitMetadata, CommitOutcome, CommitRequest, WrittenFiles
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import added_entries
from fermion_table.metadata.schema_store import load_table_schema
from fermion_table.metadata.snapshot import Kind, SchemaReference, Snapshot
from fermion_table.storage.pending_files import PendingFiles
from fermion_table.writing.data_writer import (
    DataWriter,
    WriterMessage,
    check_batches,
    check_same_schema,
)


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
        Called with the new snapshot.
    """

    def __init__(
        self,
        publisher: Publisher,
        base: Snapshot,
        *,
        metadata: CommitMetadata | None = None,
        published: Callable[[Snapshot], object] | None = None,
    ) -> None:
        self._publisher = publisher
        self._metadata = metadata or CommitMetadata()
        self._published = published
        self._changes: list[RowChange] = []
        self._cache = FindingCache()
        self._files = PendingFiles(publisher.store, self)
        self._handed_over: WrittenFiles | None = None
        self._given: set[str] = set()
        self._draft = self._draft_of(base)
        self._is_over = False

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would commit, or delete, the same files."""
        raise TypeError(
            "a Transaction can't be pickled or copied: write with Table.writer() elsewhere, and "
            "give its messages to append_written() here"
        )

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if error is None:
            self.commit()
        else:
            self.abort()

    def append(self, data: Any) -> None:
        """Add rows from any Arrow producer; they are matched to the table's columns by name."""
        self._add(self._write(data))

    def append_batches(self, batches: Iterable[tuple[int, Any]]) -> None:
        """Add batches, pairs of id and data."""
        with self._writer() as writer:
            for batch_id, data in check_batches(batches):
                writer.append_batch(batch_id, data)
            self._add(writer.prepare_commit()[0].entries)

    def delete(self, filter: Any) -> None:
        """Delete the rows that a filter selects."""
        self._make(Deletion(filter))

    def update(self, filter: Any, assignments: Mapping[str, Assignment]) -> None:
        """Set columns of the rows that a filter selects (see `Table.update`)."""
        self._make(Update(filter, assignments))

    def overwrite(self, data: Any, *, filter: Any = None, dynamic: bool = False) -> None:
        """Put rows in the place of others (see `Table.overwrite`)."""
        self._check_overwrite(filter, dynamic)
        entries = self._write(data)
        self._replace(entries, filter, dynamic)
        self._add(entries)

    def append_written(self, messages: Iterable[WriterMessage]) -> None:
        """Add the files of writers (`Table.writer`); for engines."""
        self._add_written(check_kinds(messages, WriterMessage, "messages"))

    def overwrite_written(
        self,
        messages: Iterable[WriterMessage],
        *,
        filter: Any = None,
        dynamic: bool = False,
        merge: SchemaMerge | None = None,
    ) -> None:
        """Put the files of writers in the place of rows (see `Table.overwrite`); for engines.

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
        self._files.release()
        snapshot, has_published = self._commit()
        with contextlib.suppress(OSError):  # published is published; at worst orphans stay
            keep: set[str] = set()
            if has_published and (self._files.paths or self._given):
                for entry in added_entries(self._publisher.store, snapshot):
                    keep.update(_paths_of(entry))
            self._clean(keep)
        if self._published is not None:
            self._published(snapshot)
        return snapshot

    def abort(self) -> None:
        """Give up; files that were written are deleted."""
        self._enter()
        self._is_over = True
        self._clean(frozenset())

    def _commit(self) -> tuple[Snapshot, bool]:
        """The snapshot, and whether it holds the changes (else there were none to make)."""
        if self._changes_nothing(self._draft):
            return self._draft.base, False
        store, branch, outcome = self._publisher.store, self._publisher.branch, CommitOutcome()
        try:
            request = self._request()
            return commit(store, request, branch=branch, redo=self._redo, outcome=outcome), True
        except _NothingToDo as done:
            return done.base, False
        except BaseException:
            if not outcome.may_be_published:
                self._clean(frozenset())
            raise

    def _redo(self, base: Snapshot, verdict: Redo) -> CommitRequest:
        """All changes again, on a newer snapshot."""
        draft = self._draft_of(base)
        for change in self._changes:
            change.apply(draft)
        self._draft = draft
        if self._changes_nothing(draft):
            raise _NothingToDo(base)
        return self._request()

    def _request(self) -> CommitRequest:
        draft, changes = self._draft, list(self._changes)
        added, removed = draft.changes()
        kind = kind_of(changes)
        metadata = self._metadata
        if metadata.message is None:
            metadata = replace(metadata, message=_described(changes))

        def depends_on(entry: Entry) -> bool:
            return any(change.concerns(entry, draft) for change in changes)

        return CommitRequest(
            kind=kind,
            added=added,
            removed=removed,
            base=draft.base,
            scope=_scope_of(changes),
            schema=stored_schema(draft.new_schema),
            depends_on=None if kind == "append" else depends_on,
            accepts_schema=self._misfit if kind == "append" else None,
            metadata=metadata,
            written=self._handed_over,
        )

    def _misfit(self, reference: SchemaReference) -> str | None:
        """Why the new files can't live under a later schema."""
        schema = load_table_schema(self._publisher.store, reference)
        return misfit(self._draft.schema, schema, list(self._draft.added.values()))

    def _draft_of(self, base: Snapshot) -> Draft:
        return Draft(self._publisher.store, base, self._cache, self._files.paths)

    def _make(self, change: RowChange) -> None:
        self._enter()
        change.apply(self._draft)
        self._changes.append(change)

    def _check_overwrite(self, filter: Any, dynamic: bool) -> None:
        where = self._publisher.store.location
        check_overwrite(self._draft.schema, filter, dynamic, where=where)

    def _replace(self, entries: Iterable[Entry], filter: Any, dynamic: bool) -> None:
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
        self._handed_over = written_files(messages).and_also(self._handed_over)
        self._given.update(entry.path for each in messages for entry in each.entries)
        uuid, where = self._draft.base.table_uuid, self._publisher.store.location
        for each in messages:
            if each.table_uuid and each.table_uuid != uuid:
                raise InvalidArgumentError(f"{where}: a message of another table")
            if merge is None:
                schema = self._draft.schemas[each.schema_id]
                check_same_schema(each, schema, self._publisher.branch, where)
                self._make(Addition(each.entries, schema))
        if merge is not None:
            entries = tuple(entry for each in messages for entry in each.entries)
            self._make(MergingAddition(entries, merge, self._publisher))

    def _writer(self) -> DataWriter:
        self._enter()
        return self._draft.writer()

    def _write(self, data: Any) -> tuple[Entry, ...]:
        with self._writer() as writer:
            writer.write(data)
            (message,) = writer.prepare_commit()
        return message.entries

    def _enter(self) -> None:
        if self._is_over:
            raise InvalidArgumentError("the transaction is over: begin another one")

    def _changes_nothing(self, draft: Draft) -> bool:
        """Whether deletes and updates found no row, and appends had none to add."""
        silent: set[Kind] = {"delete", "upsert"}
        if not self._metadata.asks_for_snapshot:
            silent.add("append")
        return draft.is_empty and all(change.kind in silent for change in self._changes)

    def _clean(self, keep: AbstractSet[str]) -> None:
        """Delete files that were written, but for some, and for those that others committed."""
        self._files.delete(keep)
        files = self._given - keep
        self._given.clear()
        if not files or self._handed_over is None:
            return
        store, branch = self._publisher.store, self._publisher.branch
        given = msgspec.structs.replace(self._handed_over, files=self._handed_over.files & files)
        for path in unpublished(store, given, branch):
            with contextlib.suppress(OSError):  # an orphan then
                store.delete(path)


class _NothingToDo(Exception):
    """Another commit has left nothing to change."""

    def __init__(self, base: Snapshot) -> None:
        super().__init__()
        self.base = base


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


def _described(changes: Iterable[RowChange]) -> str | None:
    """The changes in words; None if there is nothing to say."""
    return "; ".join(filter(None, (change.describe() for change in changes))) or None


def _scope_of(changes: Iterable[RowChange]) -> Partitions | None:
    """The partitions that all changes together look at; None: all."""
    scope: Partitions = frozenset()
    for change in changes:
        if change.scope is None:
            return None
        scope |= change.scope
    return scope


def _paths_of(entry: Entry) -> set[str]:
    vector = entry.deletion_vector
    return {entry.path} if vector is None else {entry.path, vector.path}
