"""What an append, a schema change or a compaction publishes, in terms of `commit`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_identifier, check_optional_text, check_text_map
from fermion_table.commit.commit import commit
from fermion_table.commit.committed_files import delete_unpublished
from fermion_table.commit.conflict import Redo
from fermion_table.commit.identities import committed_before
from fermion_table.commit.request import CommitOutcome, CommitRequest, NewSchema, WrittenFiles
from fermion_table.errors import CommitConflict, UnreadableMetadata
from fermion_table.metadata.history import latest
from fermion_table.metadata.manifest import Entry, field_id_runs
from fermion_table.metadata.manifest_store import added_entries
from fermion_table.metadata.schema_store import load_table_schema, version_of
from fermion_table.metadata.snapshot import SchemaReference, Snapshot
from fermion_table.options import CommitOptions
from fermion_table.schema.changes import Change, apply_changes, merge_columns
from fermion_table.schema.field_widening import narrowed, ranges_lost
from fermion_table.schema.schema import Field, TableSchema, encode_schema
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import AtomicStore

ChangesFor = Callable[[Snapshot, TableSchema], Sequence[Change]]
"""The changes to make to a snapshot's schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWords:
    """What the caller says about a commit, checked.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the parameter that metadata could not hold.
    """

    message: str | None = None
    properties: Mapping[str, str] | None = None
    commit_user: str | None = None
    commit_identifier: int | str | None = None
    began: float = field(default_factory=time.monotonic)
    """When, by ``time.monotonic``, the operation was called."""

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "message": check_optional_text(self.message, "message"),
            "properties": check_text_map(self.properties, "properties"),
            "commit_user": check_optional_text(self.commit_user, "commit_user"),
            "commit_identifier": check_identifier(self.commit_identifier, "commit_identifier"),
        }
        if (self.commit_user is None) != (self.commit_identifier is None):
            raise InvalidArgumentError("commit_user and commit_identifier come together")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def ask_for_snapshot(self) -> bool:
        """Whether they are to be in the history even where nothing changes."""
        return bool(self.properties) or self.message is not None or self.commit_user is not None


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
        words: CommitWords,
        *,
        seen_at: float | None = None,
        handed_over: WrittenFiles | None = None,
        outcome: CommitOutcome | None = None,
    ) -> Snapshot:
        """Publish new files; without any, and without words, the latest snapshot comes back.

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
        if not entries and not words.ask_for_snapshot:
            return base
        why = reason(base.schema) if base.schema.id != written.id else None
        if why is not None:
            request = replace(_request("append", words), written=handed_over)
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
                _request("append", words),
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
        words: CommitWords,
        handed_over: WrittenFiles | None = None,
        *,
        outcome: CommitOutcome | None = None,
    ) -> Snapshot:
        """Publish new files together with the columns that they add to the schema."""
        base, written = merge.base, merge.schema
        known = load_table_schema(self.store, base.schema)
        if written.id == known.id:
            return self.append(
                base, written, entries, words, handed_over=handed_over, outcome=outcome
            )
        changes = merge_columns(known, merge.data)

        def redo(newer: Snapshot, verdict: Redo) -> CommitRequest:
            schema = self.changed_schema(newer, changes)
            current = schema or load_table_schema(self.store, newer.schema)
            again = restated(written, current, entries, last_known_id=known.last_field_id)
            return made(newer, schema, again)

        def made(on: Snapshot, schema: TableSchema | None, added: Sequence[Entry]) -> CommitRequest:
            return replace(
                _request("append", words),
                base=on,
                schema=stored_schema(schema),
                added=added,
                written=handed_over,
            )

        return self.publish(made(base, written, entries), entries, redo, outcome)

    def change_schema(
        self, known: Snapshot, changes_for: ChangesFor, words: CommitWords
    ) -> Snapshot:
        """Publish a new schema version; the latest snapshot comes back if nothing changes."""

        def request_on(base: Snapshot) -> CommitRequest | None:
            current = load_table_schema(self.store, base.schema)
            schema = self.changed_schema(base, changes_for(base, current))
            if schema is None:
                return None
            return replace(
                _request("schema", words),
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
        schema = apply_changes(current, changes, time_ms=time.time_ns() // 1_000_000)
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
        if request.is_identified and entries:
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
        user, identifier = request.commit_user, request.commit_identifier
        if user is None or identifier is None:
            return None
        return committed_before(self.store, base, user, identifier, branch=self.branch)


def is_fresh(seen_at: float | None) -> bool:
    """Whether a snapshot was the newest so lately that its successors can't have expired."""
    return seen_at is not None and time.monotonic() - seen_at < CommitOptions().fence_s


class _NothingToDo(Exception):
    """Another commit has made the same change."""

    def __init__(self, base: Snapshot) -> None:
        super().__init__()
        self.base = base


def _request(kind: str, words: CommitWords) -> CommitRequest:
    return CommitRequest(
        kind=kind,  # type: ignore[arg-type]
        message=words.message,
        properties=words.properties,
        commit_user=words.commit_user,
        commit_identifier=words.commit_identifier,
        began=words.began,
    )


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


def misfit(written: TableSchema, schema: TableSchema, entries: Sequence[Entry]) -> str | None:
    """Why files written with one version can't live under a later one; None if they can."""
    if written.partition_by != schema.partition_by:
        return "the table is partitioned otherwise now"
    replaced = _replaced_field(written, schema)
    if replaced is not None:
        return f"column {replaced!r} was dropped, and another one of its name was added"
    if not {each.id for each in written.fields}.intersection(each.id for each in schema.fields):
        return "none of its columns is left"
    for path, before, now in narrowed(written.fields, schema.fields):
        if not all(_is_all_null(entry, before.id) for entry in entries):
            return (
                f"column {'.'.join(path)!r} is {now.type} now, and the new files hold {before.type}"
            )
    for path, before, now in ranges_lost(written.fields, schema.fields):
        if not all(_fits(entry, before, now.type) for entry in entries):
            return (
                f"column {'.'.join(path)!r} is {now.type} now, and the new files may hold values "
                "out of its range"
            )
    nullable = {each.id: each.nullable for top in written.fields for _, each in top.walk()}
    for top in schema.fields:
        for path, each in top.walk():
            if each.nullable:
                continue
            name = ".".join(path)
            if each.id not in nullable:
                if len(path) == 1 and each.stored_initial_default is None:
                    return f"column {name!r} was added as NOT NULL without a default"
            elif nullable[each.id] and not all(_has_no_null(entry, each.id) for entry in entries):
                return f"column {name!r} is NOT NULL now, and the new files may hold nulls"
    return None


def _replaced_field(written: TableSchema, schema: TableSchema) -> str | None:
    """A field that is gone, and whose name another one has now at the same place; None without.

    Identity is the field id: values written for one would not be values of the other.
    """
    ids = {each.id for top in schema.fields for _, each in top.walk()}
    new: dict[tuple[int, str], int] = {}
    for parent, each in _with_parents(schema):
        new[parent, each.name] = each.id
    for parent, each in _with_parents(written):
        if each.id not in ids and (parent, each.name) in new:
            return ".".join(written.paths[each.id])
    return None


def _with_parents(schema: TableSchema) -> Iterator[tuple[int, Field]]:
    """Every field with the id of the one above it; 0 for columns."""
    rest = [(0, each) for each in schema.fields]
    while rest:
        parent, each = rest.pop()
        yield parent, each
        rest += [(each.id, child) for child in each.children]


def _has_no_null(entry: Entry, field_id: int) -> bool:
    statistics = entry.stats.get(field_id)
    return entry.rows == 0 or (statistics is not None and statistics.null_count == 0)


def _is_all_null(entry: Entry, field_id: int) -> bool:
    statistics = entry.stats.get(field_id)
    return entry.rows == 0 or (statistics is not None and statistics.null_count == entry.rows)


def _fits(entry: Entry, field: Field, dtype: pa.DataType) -> bool:
    """Whether the bounds of a file prove that a type can hold all values of a field."""
    if _is_all_null(entry, field.id):
        return True
    statistics = entry.stats.get(field.id)
    if statistics is None or statistics.min is None or statistics.max is None:
        return False
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    target = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    try:
        bounds = pa.array([statistics.min, statistics.max], pa.int64())
        if pa.types.is_date32(plain):
            bounds = bounds.cast(pa.int32())
        bounds.cast(plain).cast(target)
    except pa.ArrowException:
        return False
    return True


def restated(
    written: TableSchema, schema: TableSchema, entries: Sequence[Entry], *, last_known_id: int
) -> list[Entry]:
    """Entries of files written with one version, as if written with another.

    Another commit took the version that the files were written with. Files are read by the names
    that their schema version gives to ids: equal names and types are needed, and equal ids of
    the fields that were there before; those that the files add get the other version's ids.

    Parameters
    ----------
    last_known_id
        The greatest field id of the version that both were made from.

    Raises
    ------
    CommitConflict
        A column of the files is not in the other version, or is another one or of another type
        there.
    """
    ids: dict[int, int] = {}
    for top in written.fields:
        match = schema.by_name.get(top.name)
        pairs: list[tuple[int, int]] = []
        if match is not None and match.type.equals(top.type):
            both = zip(top.walk(), match.walk(), strict=True)
            pairs = [(mine.id, theirs.id) for (_, mine), (_, theirs) in both]
        if not pairs or any(mine != theirs and mine <= last_known_id for mine, theirs in pairs):
            raise CommitConflict(
                f"append: column {top.name!r} was changed by another commit; try again",
                mine="append",
                theirs=f"schema {schema.id}",
            )
        ids.update(pairs)
    known = written.by_name
    for top in schema.fields:
        if top.name not in known and top.stored_initial_default is not None:
            raise CommitConflict(
                f"append: column {top.name!r}, which has a default, was added by another commit; "
                "try again",
                mine="append",
                theirs=f"schema {schema.id}",
            )
    present = [top.id for top in written.fields]
    return [
        msgspec.structs.replace(
            entry,
            schema_id=schema.id,
            columns=field_id_runs(ids[each] for each in present if entry.has_column(each)),
            stats={ids[each]: statistics for each, statistics in entry.stats.items()},
        )
        for entry in entries
    ]
