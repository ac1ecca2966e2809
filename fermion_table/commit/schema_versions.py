"""New versions of a table's schema: what changes make of it, and their commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.commit.commit import Publisher
from fermion_table.commit.request import CommitMetadata, CommitRequest, stored_schema
from fermion_table.keys.key_changes import check_key_change, undecided_defaults, with_bucket_counts
from fermion_table.metadata.history import load_table_schema
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import now_ms
from fermion_table.scanning.live_values import LiveValues
from fermion_table.schema.changes import Change, apply_changes, merge_columns
from fermion_table.schema.field_widening import ranges_lost
from fermion_table.schema.schema import TableSchema, has_buckets
from fermion_table.schema.selection import BATCH_NAMES
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

    __repr__ = short_repr


def change_schema(
    publisher: Publisher, known: Snapshot, changes_for: ChangesFor, metadata: CommitMetadata
) -> Snapshot:
    """Publish a new schema version; the latest snapshot comes back if nothing changes."""

    def plan(base: Snapshot) -> CommitRequest | None:
        current = load_table_schema(publisher.store, base.schema)
        schema = evolved_schema(publisher.store, base, changes_for(base, current))
        if schema is None:
            return None
        return CommitRequest(
            kind="schema",
            metadata=metadata,
            base=base,
            schema=stored_schema(schema),
            depends_on=_depends_on(current, schema),
        )

    return publisher.publish(known, plan, metadata).snapshot


def changed_schema(
    store: AtomicStore, base: Snapshot, changes: Sequence[Change]
) -> TableSchema | None:
    """The next version of a snapshot's schema; None if the changes change nothing."""
    current = load_table_schema(store, base.schema)
    schema = apply_changes(current, changes, time_ms=now_ms())
    if schema is current:
        return None
    ancestors = (*current.ancestors, base.schema)
    return msgspec.structs.replace(schema, ancestors=ancestors)


def evolved_schema(
    store: AtomicStore, base: Snapshot, changes: Sequence[Change]
) -> TableSchema | None:
    """The same for changes under which rows stay: those that move keys are refused.

    Raises InvalidArgumentError: See `check_key_change`; or a new name of a column is that of a
        virtual one of batches, and there are some.
    """
    schema = changed_schema(store, base, changes)
    if schema is not None:
        current = load_table_schema(store, base.schema)
        check_key_change(
            current,
            schema,
            has_rows=bool(base.totals.files),
            has_retractions=LiveValues(store, base).take_back,
        )
        _check_batch_columns(store, base, current, schema)
        schema = with_bucket_counts(current, schema)
    return schema


def merged_schema(store: AtomicStore, base: Snapshot, data: pa.Schema) -> SchemaMerge:
    """What becomes of a snapshot's schema when some data adds its columns."""
    current = load_table_schema(store, base.schema)
    schema = evolved_schema(store, base, merge_columns(current, data))
    return SchemaMerge(base, schema or current, data)


def _check_batch_columns(
    store: AtomicStore, base: Snapshot, current: TableSchema, schema: TableSchema
) -> None:
    """Refuse new columns under the names of the virtual columns of batches, where there are any."""
    names = _batch_columns(current, schema)
    if names and any(_is_in_batches(entry) for entry in live_entries(store, base)):
        raise InvalidArgumentError(
            f"{store.location}: column {names[0]!r}: the name is that of a virtual column of "
            "batches, which this table has: batches could not be appended or looked up any more; "
            "choose another name"
        )


def _batch_columns(current: TableSchema, schema: TableSchema) -> list[str]:
    """The names of virtual columns of batches that columns get."""
    return [each for each in BATCH_NAMES if each in schema.by_name and each not in current.by_name]


def _is_in_batches(entry: Entry) -> bool:
    return entry.batch is not None


def _depends_on(old: TableSchema, new: TableSchema) -> Callable[[Entry], bool] | None:
    """Which files that others add meanwhile matter to a change of the schema."""
    if _requires_more(old, new):
        return lambda entry: True
    if _batch_columns(old, new):
        return _is_in_batches
    if has_buckets(new) and undecided_defaults(old, new):
        return lambda entry: entry.retractions > 0
    return None


def _requires_more(old: TableSchema, new: TableSchema) -> bool:
    """Whether a field that could be null must not be any more, or has a smaller range."""
    nullable = {each.id for top in old.fields for _, each in top.walk() if each.nullable}
    if any(True for _ in ranges_lost(old.fields, new.fields)):
        return True
    return any(
        not each.nullable and each.id in nullable for top in new.fields for _, each in top.walk()
    )
