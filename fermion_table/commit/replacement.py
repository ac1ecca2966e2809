"""Replacing a table: another schema and other rows, or none, as its next snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from fermion.display import short_repr
from fermion.exports import dataclass
from fermion_table.argument_checks import described
from fermion_table.commit.commit import Publisher, create_table
from fermion_table.commit.committed_files import delete_unpublished, paths_in
from fermion_table.commit.fit import restated
from fermion_table.commit.request import (
    CommitMetadata,
    CommitRequest,
    NewSchema,
    WrittenFiles,
    recorded,
    stored_schema,
)
from fermion_table.commit.schema_versions import changed_schema
from fermion_table.keys.key_changes import with_key
from fermion_table.metadata.history import load_table_schema, reader_features, table_exists
from fermion_table.metadata.manifest import Entry, paths_of
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import now_ms
from fermion_table.schema.from_arrow import PartitionBy, schema_from_arrow
from fermion_table.schema.schema import TableSchema, encode_schema
from fermion_table.storage.location import refuse_nested
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What `Table.create` is told about a table.

    schema, partition_by, primary_key, sort_by, properties: As for `Table.create`.
    """

    schema: pa.Schema | TableSchema
    partition_by: PartitionBy | None = None
    primary_key: Sequence[str] | str | None = None
    sort_by: Sequence[str] | str | None = None
    properties: Mapping[str, str] | None = None

    __repr__ = short_repr

    def first_schema(self, last_field_id: int = 0) -> TableSchema:
        """The table's schema, with field ids greater than the one given.

        Raises fermion.errors.InvalidArgumentError, fermion.errors.ColumnNotFoundError: A table of
            this definition can't be.
        Raises TypeError: Names the parameter that is of the wrong type.
        """
        given: object = self.schema
        arrow = given.to_arrow(field_ids=False) if isinstance(given, TableSchema) else given
        if not isinstance(arrow, pa.Schema):
            raise TypeError(f"schema: expected a pyarrow.Schema, found {described(arrow)}")
        plain = schema_from_arrow(
            arrow,
            partition_by=self.partition_by,
            primary_key=self.primary_key,
            sort_by=self.sort_by,
            properties=self.properties,
            last_field_id=last_field_id,
            time_ms=now_ms(),
        )
        return with_key(plain)


def create_defined(
    store: AtomicStore, definition: TableDefinition, *, metadata: CommitMetadata | None = None
) -> Snapshot:
    """Make the table of a definition.

    Raises TableExists: Here, or in a directory above or below.
    Raises CommitStateUnknown.
    """
    first = definition.first_schema()
    if not table_exists(store):
        refuse_nested(store)
    stored = NewSchema(first.id, encode_schema(first))
    return create_table(store, stored, metadata=metadata, reader_features=reader_features(first))


@dataclass(frozen=True, slots=True)
class NewRows:
    """Data files for a table that is to be replaced.

    base: The snapshot for which `replacing_schema` made their schema.
    entries: The files; stored already.
    written: Those that came in messages.
    """

    base: Snapshot
    schema: TableSchema
    entries: Sequence[Entry]
    written: WrittenFiles | None = None


def replacing_schema(
    publisher: Publisher, base: Snapshot, definition: TableDefinition
) -> TableSchema:
    """The schema version that replaces a snapshot's; no field id is used again."""

    def change(schema: TableSchema) -> TableSchema:
        return msgspec.structs.replace(
            definition.first_schema(schema.last_field_id),
            id=schema.id,
            ancestors=schema.ancestors,
            time_ms=schema.time_ms,
        )

    changed = changed_schema(publisher.store, base, [change])  # None: both are without columns
    return changed or load_table_schema(publisher.store, base.schema)


def replace_table(
    publisher: Publisher,
    known: Snapshot,
    definition: TableDefinition,
    *,
    metadata: CommitMetadata | None = None,
    rows: NewRows | None = None,
) -> Snapshot:
    """Give a table another schema and other rows, as one snapshot; earlier snapshots stay.

    Rows that other commits append meanwhile are replaced too.

    definition: Of the table from here on.
    rows: The new rows; None: none. Their files are deleted if they are proven not to be published.
    Raises CommitConflict, CommitStateUnknown.
    """
    metadata = metadata or CommitMetadata()
    entries = () if rows is None else rows.entries

    def plan(base: Snapshot) -> CommitRequest:
        if rows is not None and rows.base.hash == base.hash:
            schema, added = rows.schema, entries
        else:
            schema = replacing_schema(publisher, base, definition)
            added = entries
            if rows is not None:  # all of its field ids are new: none was known before
                where = publisher.store.location
                added = restated(rows.schema, schema, entries, last_known_id=0, where=where)
        return CommitRequest(
            kind="overwrite",
            added=recorded("overwrite", added),
            removed=live_entries(publisher.store, base),
            schema=stored_schema(schema) if schema.id != base.schema.id else None,
            base=base,
            metadata=metadata,
            reader_features=reader_features(schema),
            written=written,
            unsure=owned.paths | paths_in(written),
        )

    written = None if rows is None else rows.written
    owned = OwnedFiles(publisher.store)
    owned.take(path for entry in entries for path in paths_of(entry))
    try:
        published = publisher.publish(known, plan, metadata)
    except BaseException:  # an interrupt too
        delete_unpublished(owned, written, publisher.branch)
        raise
    kept = {path for entry in published.entries or () for path in paths_of(entry)}
    with contextlib.suppress(OSError):  # published is published; at worst orphans stay
        delete_unpublished(owned, written, publisher.branch, kept)
    return published.snapshot
