"""What an append, a schema change or a compaction publishes, in terms of `commit`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from fermion_table.commit.commit import commit
from fermion_table.commit.committed_files import delete_unpublished
from fermion_table.commit.conflict import Redo
from fermion_table.commit.fit import misfit, restated
from fermion_table.commit.identities import committed_before
from fermion_table.commit.request import (
    CommitMetadata,
    CommitOutcome,
    CommitRequest,
    NewSchema,
    WrittenFiles,
)
from fermion_table.errors import CommitConflict, UnreadableMetadata
from fermion_table.metadata.history import latest
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import added_entries
from fermion_table.metadata.schema_store import load_table_schema, version_of
from fermion_table.metadata.snapshot import SchemaReference, Snapshot
from fermion_table.moments import now_ms
from fermion_table.options import CommitOptions
from fermion_table.schema.changes import Change, apply_changes, merge_columns
from fermion_table.schema.field_widening import ranges_lost
from fermion_table.schema.schema import TableSchema, encode_schema
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import AtomicStore

ChangesFor = Callable[[Snapshot, TableSchema], Sequence[Change]]
"""The changes to make to a snapshot's schema."""


@dataclass(frozen=True, slots=True)
class SchemaMerge:
    """A schema that some data adds columns to, not published yet. Picklable.

    Attributes
    ----------
    base
        The snapshot it was made from.
    schema
        For `DataWriter`; that of the base if nothing is added.
    data
        What the columns come from.
    """

    base: Snapshot
    schema: TableSchema
    data: pa.Schema


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes to one branch of a table.

    Parameters
    ----------
    store, branch
        Where.
    """

    store: AtomicStore
    branch: str = MAIN

    def latest(self, known: Snapshot, *, seen_at: float | None = None) -> Snapshot:
        """The newest snapshot of the table that `known` belongs to.

        Parameters
        ----------
        seen_at
            When, by ``time.monotonic``, `known` was the newest. Soon after, an empty slot behind
            it says that it still is: slots outlive their data by much longer.
        """
        fresh = self.branch == MAIN and is_fresh(seen_at)
        if fresh and not self.store.exists(snapshot_path(known.id + 1)):
            return known
        newest = latest(self.store, branch=self.branch, start=known.id)
        if newest.table_uuid != known.table_uuid:
            raise CommitConflict(
                f"{self.store.location}: the table was replaced by another one; open it again",
                theirs=f"create (table {newest.table_uuid})",
            )
        return newest

    def append(
        self,
        known: Snapshot,
        written: TableSchema,
        entries: Sequence[Entry],
        metadata: CommitMetadata,
        *,
        seen_at: float | None = None,
        handed_over: WrittenFiles | None = None,
        outcome: CommitOutcome | None = None,
    ) -> Snapshot:
        """Publish new files; without any, and nothing to record, the latest snapshot comes back.

        Parameters
        ----------
        known
            A snapshot of the table.
        written
            The schema of the files.
        entries
            The files; deleted if they are proven not to be published.
        seen_at
            When, by ``time.monotonic``, `known` was the newest, if that is known.
        handed_over
            Those of the files that came in messages.
        outcome
            See `commit`.

        Raises
        ------
        InvalidArgumentError
            A file was committed before.
        CommitConflict
            The files do not fit the table's schema any more.
        """

        def reason(reference: SchemaReference) -> str | None:
            return misfit(written, load_table_schema(self.store, reference), entries)

        if not is_fresh(seen_at):
            known, seen_at = self.latest(known), time.monotonic()
        base = known
        if not entries and not metadata.asks_for_snapshot:
            return base
        why = reason(base.schema) if base.schema.id != written.id else None
        if why is not None:
            request = replace(CommitRequest(kind="append", metadata=metadata), written=handed_over)
            earlier = self._earlier(base, request)
            if earlier is not None:
                return earlier
            self._delete(request, entries)
            raise CommitConflict(
                f"{self.store.location}: append can't follow snapshot {base.id}: {why}",
                mine="append",
                theirs=f"schema {base.schema.id}",
            )
        return self.publish(
            replace(
                CommitRequest(kind="append", metadata=metadata),
                base=base,
                base_seen_at=seen_at,
                accepts_schema=reason,
                added=entries,
                written=handed_over,
            ),
            entries,
            outcome=outcome,
        )

    def plan_merge(self, base: Snapshot, data: pa.Schema) -> SchemaMerge:
        """What becomes of a snapshot's schema when some data adds its columns."""
        current = load_table_schema(self.store, base.schema)
        schema = self.changed_schema(base, merge_columns(current, data))
        return SchemaMerge(base, schema or current, data)

    def append_merging(
        self,
        merge: SchemaMerge,
        entries: Sequence[Entry],
        metadata: CommitMetadata,
        handed_over: WrittenFiles | None = None,
        *,
        outcome: CommitOutcome | None = None,
    ) -> Snapshot:
        """Publish new files together with the columns that they add to the schema."""
        base, written = merge.base, merge.schema
        known = load_table_schema(self.store, base.schema)
        if written.id == known.id:
            return self.append(
                base, written, entries, metadata, handed_over=handed_over, outcome=outcome
            )
        changes = merge_columns(known, merge.data)

        def redo(newer: Snapshot, verdict: Redo) -> CommitRequest:
            schema = self.changed_schema(newer, changes)
            current = schema or load_table_schema(self.store, newer.schema)
            again = restated(written, current, entries, last_known_id=known.last_field_id)
            return made(newer, schema, again)

        def made(on: Snapshot, schema: TableSchema | None, added: Sequence[Entry]) -> CommitRequest:
            return replace(
                CommitRequest(kind="append", metadata=metadata),
                base=on,
                schema=stored_schema(schema),
                added=added,
                written=handed_over,
            )

        return self.publish(made(base, written, entries), entries, redo, outcome)

    def change_schema(
        self, known: Snapshot, changes_for: ChangesFor, metadata: CommitMetadata
    ) -> Snapshot:
        """Publish a new schema version; the latest snapshot comes back if nothing changes."""

        def request_on(base: Snapshot) -> CommitRequest | None:
            current = load_table_schema(self.store, base.schema)
            schema = self.changed_schema(base, changes_for(base, current))
            if schema is None:
                return None
            return replace(
                CommitRequest(kind="schema", metadata=metadata),
                base=base,
                schema=stored_schema(schema),
                depends_on=_always if _requires_more(current, schema) else None,
            )

        def redo(base: Snapshot, verdict: Redo) -> CommitRequest:
            request = request_on(base)
            if request is None:
                raise _NothingToDo(base)
            return request

        base = self.latest(known)
        first = request_on(base)
        if first is None:
            return base
        try:
            return commit(self.store, first, branch=self.branch, redo=redo)
        except _NothingToDo as done:
            return done.base

    def changed_schema(self, base: Snapshot, changes: Sequence[Change]) -> TableSchema | None:
        """The next version of a snapshot's schema; None if the changes change nothing."""
        current = load_table_schema(self.store, base.schema)
        schema = apply_changes(current, changes, time_ms=now_ms())
        if schema is current:
            return None
        ancestors = (*current.ancestors, version_of(base.schema))
        return msgspec.structs.replace(schema, ancestors=ancestors)

    def publish(
        self,
        request: CommitRequest,
        entries: Sequence[Entry],
        redo: Callable[[Snapshot, Redo], CommitRequest] | None = None,
        outcome: CommitOutcome | None = None,
    ) -> Snapshot:
        """Commit a request with new files, and delete these if they are proven not to be published.

        Raises
        ------
        CommitConflict, CommitStateUnknown
        """
        try:
            snapshot = commit(self.store, request, branch=self.branch, redo=redo, outcome=outcome)
        except (CommitConflict, UnreadableMetadata):  # proven: nothing was published
            self._delete(request, entries)
            raise
        if request.metadata.identity is not None and entries:
            mine = {entry.file for entry in entries}
            with contextlib.suppress(OSError):  # published is published; at worst orphans stay
                if mine.isdisjoint(each.file for each in added_entries(self.store, snapshot)):
                    self._delete(request, entries)  # an earlier try of the same commit is there
        return snapshot

    def _delete(self, request: CommitRequest, entries: Sequence[Entry]) -> None:
        """Delete files that this commit has not published, but for those that others have."""
        delete_unpublished(self.store, entries, request.written, self.branch)

    def _earlier(self, base: Snapshot, request: CommitRequest) -> Snapshot | None:
        """The snapshot of an earlier try of the same commit."""
        identity = request.metadata.identity
        if identity is None:
            return None
        return committed_before(self.store, base, *identity, branch=self.branch)


def is_fresh(seen_at: float | None) -> bool:
    """Whether a snapshot was the newest so lately that its successors can't have expired."""
    return seen_at is not None and time.monotonic() - seen_at < CommitOptions().fence_s


class _NothingToDo(Exception):
    """Another commit has made the same change."""

    def __init__(self, base: Snapshot) -> None:
        super().__init__()
        self.base = base


def stored_schema(schema: TableSchema | None) -> NewSchema | None:
    """A schema version as a commit takes it."""
    return None if schema is None else NewSchema(schema.id, encode_schema(schema))


def _always(entry: Entry) -> bool:
    return True


def _requires_more(old: TableSchema, new: TableSchema) -> bool:
    """Whether a field that could be null must not be any more, or has a smaller range."""
    nullable = {each.id for top in old.fields for _, each in top.walk() if each.nullable}
    if any(True for _ in ranges_lost(old.fields, new.fields)):
        return True
    return any(
        not each.nullable and each.id in nullable for top in new.fields for _, each in top.walk()
    )
