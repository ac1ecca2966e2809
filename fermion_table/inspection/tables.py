"""A table's metadata as Arrow tables: ``table.inspect.files()`` and its like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fermion.display import short_repr
from fermion.exports import dataclass
from fermion_table.inspection.entry_columns import partition_column, statistics_column
from fermion_table.inspection.refs import Branches
from fermion_table.metadata.bucket_counts import bucket_count
from fermion_table.metadata.consumers import list_consumers
from fermion_table.metadata.history import SchemaVersions, parent_of, walk
from fermion_table.metadata.manifest import Entry, ManifestReference, reference_to
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import list_tags
from fermion_table.metadata.snapshot import Snapshot, SnapshotReference, Totals
from fermion_table.schema.difference import schema_changes
from fermion_table.schema.schema import TableSchema, describe_field
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore

TIME = pa.timestamp("ms", "UTC")

SNAPSHOTS = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("parent_id", pa.int64()),
        ("branch", pa.string()),
        ("kind", pa.string()),
        ("committed_at", TIME),
        ("author", pa.string()),
        ("message", pa.string()),
        ("schema_id", pa.int64()),
        ("files_added", pa.int64()),
        ("rows_added", pa.int64()),
        ("bytes_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("rows_removed", pa.int64()),
        ("bytes_removed", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("total_files", pa.int64()),
        ("total_rows", pa.int64()),
        ("total_rows_deleted", pa.int64()),
        ("total_bytes", pa.int64()),
        ("manifests", pa.int64()),
        ("tail_entries", pa.int64()),
        ("commit_user", pa.string()),
        ("commit_identifier", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("hash", pa.string()),
    ]
)
HISTORY = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("branch", pa.string()),
        ("committed_at", TIME),
        ("kind", pa.string()),
        ("author", pa.string()),
        ("message", pa.string()),
        ("rows", pa.int64()),
        ("rows_change", pa.int64()),
        ("files", pa.int64()),
        ("files_change", pa.int64()),
    ]
)
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("is_external", pa.bool_()),
        ("rows", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("bytes", pa.int64()),
        ("schema_id", pa.int64()),
        ("bucket", pa.int64()),
        ("total_buckets", pa.int64()),
        ("level", pa.int64()),
        ("retractions", pa.int64()),
        ("sequence_number", pa.int64()),
        ("row_id_base", pa.int64()),
        ("added_snapshot", pa.int64()),
        ("batch_id_min", pa.int64()),
        ("batch_id_max", pa.int64()),
        ("batches", pa.int64()),
        ("deletion_vector", pa.string()),
        ("source", pa.string()),
        ("created_at", TIME),
        ("column_files", pa.int64()),
        ("column_bytes", pa.int64()),
    ]
)
MANIFESTS = pa.schema(
    [
        ("path", pa.string()),
        ("kind", pa.string()),
        ("size", pa.int64()),
        ("entries", pa.int64()),
        ("entries_dead", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("added_snapshot_min", pa.int64()),
        ("added_snapshot_max", pa.int64()),
        ("sequence_min", pa.int64()),
        ("sequence_max", pa.int64()),
        ("batch_id_min", pa.int64()),
        ("batch_id_max", pa.int64()),
    ]
)
PARTITIONS = pa.schema(
    [
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("bytes", pa.int64()),
        ("last_added_snapshot", pa.int64()),
        ("last_created_at", TIME),
    ]
)
SCHEMAS = pa.schema(
    [
        ("schema_id", pa.int64()),
        ("is_current", pa.bool_()),
        ("created_at", TIME),
        ("columns", pa.int64()),
        ("fields", pa.list_(pa.string())),
        ("changes", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)
CONSUMERS = pa.schema(
    [
        ("name", pa.string()),
        ("snapshot_id", pa.int64()),
        ("branch", pa.string()),
        ("updated_at", TIME),
    ]
)

REFERENCES = pa.schema(
    [
        ("name", pa.string()),
        ("type", pa.string()),
        ("snapshot_id", pa.int64()),
        ("parent", pa.string()),
        ("left_after", pa.int64()),
        ("created_at", TIME),
        ("expires_at", TIME),
        ("message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a table's metadata says, as Arrow tables.

    Parameters
    ----------
    store
        Of the table.
    snapshot, branch
        What the table object sees.
    """

    store: AtomicStore
    snapshot: Snapshot
    branch: str

    __repr__ = short_repr

    def snapshots(self) -> pa.Table:
        """Every snapshot up to this one that has not expired, oldest first."""
        rows = [_snapshot_row(each, parent_of(self.store, each)) for each in self._walked()]
        return pa.Table.from_pylist(rows[::-1], schema=SNAPSHOTS)

    def history(self) -> pa.Table:
        """The history in brief, newest first: author, operation, time, and totals."""
        return pa.Table.from_pylist(
            [_history_row(snapshot) for snapshot in self._walked()], schema=HISTORY
        )

    def files(self) -> pa.Table:
        """The data files in the order in which their rows are read.

        ``partition`` and ``statistics`` are structs of the partition fields and of the columns
        whose bounds are kept; strings longer than a few bytes have bounds that are not exact.
        """
        entries, schemas = self._entries(), SchemaVersions(self.store, self.snapshot)
        columns = _columns([_file_row(entry, schemas) for entry in entries], FILES)
        values = [entry.partition for entry in entries]
        columns |= partition_column("partition", values, schemas.current)
        columns |= statistics_column(entries, schemas)
        return pa.table(columns)

    def manifests(self) -> pa.Table:
        """The manifests, and the inline entries of the snapshot (kind ``tail``)."""
        references = list(self.snapshot.manifests)
        rows = [_manifest_row(reference) for reference in references]
        if self.snapshot.tail:
            path = snapshot_path(self.snapshot.id, self.snapshot.branch)
            references.append(reference_to(self.snapshot.tail, path=path, hash="", size=0))
            rows.append(_manifest_row(references[-1]) | {"kind": "tail", "size": None})
        ranges = [reference.partition for reference in references]
        columns = _columns(rows, MANIFESTS)
        schema = SchemaVersions(self.store, self.snapshot).current
        columns |= partition_column("partition_min", [span.min for span in ranges], schema)
        columns |= partition_column("partition_max", [span.max for span in ranges], schema)
        return pa.table(columns)

    def partitions(self) -> pa.Table:
        """The partitions with their live files and rows; one row for a table without partitions."""
        groups: dict[tuple[Any, ...], list[Entry]] = {}
        for entry in self._entries():
            groups.setdefault(entry.partition, []).append(entry)
        schema = SchemaVersions(self.store, self.snapshot).current
        columns = partition_column("partition", list(groups), schema)
        columns |= _columns([_partition_row(entries) for entries in groups.values()], PARTITIONS)
        return pa.table(columns)

    def schemas(self) -> pa.Table:
        """Every version of the schema up to this snapshot's, oldest first, with what changed."""
        rows = []
        before: TableSchema | None = None
        versions = SchemaVersions(self.store, self.snapshot)
        for schema in versions.values():
            changes = [] if before is None else schema_changes(before, schema)
            rows.append(
                {
                    "schema_id": schema.id,
                    "is_current": schema.id == versions.current.id,
                    "created_at": schema.time_ms,
                    "columns": len(schema.fields),
                    "fields": [describe_field(field).strip() for field in schema.fields],
                    "changes": [str(change) for change in changes],
                    "properties": schema.properties,
                }
            )
            before = schema
        return pa.Table.from_pylist(rows, schema=SCHEMAS)

    def refs(self) -> pa.Table:
        """Branches, main first, and tags."""
        heads = Branches(self.store, self.snapshot, self.branch).list()
        rows: list[dict[str, Any]] = [
            {
                "name": head.name,
                "type": "branch",
                "snapshot_id": head.snapshot_id,
                "parent": head.parent,
                "left_after": head.left_after,
                "created_at": head.created,
                "message": head.message,
            }
            for head in heads
        ]
        rows += [
            {
                "name": tag.name,
                "type": "tag",
                "snapshot_id": tag.snapshot_id,
                "created_at": tag.created_ms,
                "expires_at": tag.expires_ms,
                "message": tag.message,
            }
            for tag in list_tags(self.store)
        ]
        return pa.Table.from_pylist(rows, schema=REFERENCES)

    def consumers(self) -> pa.Table:
        """Programs that follow the table, and up to which snapshot they have read it."""
        rows = [
            {
                "name": consumer.name,
                "snapshot_id": consumer.snapshot_id,
                "branch": consumer.branch,
                "updated_at": consumer.updated_ms,
            }
            for consumer in list_consumers(self.store)
        ]
        return pa.Table.from_pylist(rows, schema=CONSUMERS)

    def _walked(self) -> Iterable[Snapshot]:
        return walk(self.store, self.snapshot, branch=self.branch)

    def _entries(self) -> list[Entry]:
        return live_entries(self.store, self.snapshot)


def _snapshot_row(snapshot: Snapshot, parent: SnapshotReference | None) -> dict[str, Any]:
    deltas, totals = snapshot.deltas, snapshot.totals
    identifier = snapshot.commit_identifier
    return {
        "snapshot_id": snapshot.id,
        "parent_id": parent.id if parent is not None else None,
        "branch": snapshot.branch,
        "kind": snapshot.kind,
        "committed_at": snapshot.time_ms,
        "author": snapshot.author,
        "message": snapshot.message,
        "schema_id": snapshot.schema.id,
        **{name: getattr(deltas, name) for name in deltas.__struct_fields__},
        "total_files": totals.files,
        "total_rows": totals.live_rows,
        "total_rows_deleted": totals.rows_deleted,
        "total_bytes": totals.bytes,
        "manifests": len(snapshot.manifests),
        "tail_entries": len(snapshot.tail),
        "commit_user": snapshot.commit_user,
        "commit_identifier": None if identifier is None else str(identifier),
        "properties": snapshot.properties,
        "hash": snapshot.hash,
    }


def _history_row(snapshot: Snapshot) -> dict[str, Any]:
    deltas, totals = snapshot.deltas, snapshot.totals
    return {
        "snapshot_id": snapshot.id,
        "branch": snapshot.branch,
        "committed_at": snapshot.time_ms,
        "kind": snapshot.kind,
        "author": snapshot.author,
        "message": snapshot.message,
        "rows": totals.live_rows,
        "rows_change": deltas.rows_added - deltas.rows_removed - deltas.rows_deleted,
        "files": totals.files,
        "files_change": deltas.files_added - deltas.files_removed,
    }


def _file_row(entry: Entry, schemas: SchemaVersions) -> dict[str, Any]:
    batch = entry.batch
    return {
        "path": entry.file,
        "is_external": entry.external_path is not None,
        "rows": entry.live_rows,
        "rows_deleted": entry.delete_rows,
        "bytes": entry.size,
        "schema_id": entry.schema_id,
        "bucket": entry.bucket,
        "total_buckets": None if entry.bucket is None else bucket_count(entry, schemas),
        "level": entry.level,
        "retractions": entry.retractions,
        "sequence_number": entry.sequence_number,
        "row_id_base": entry.row_id_base,
        "added_snapshot": entry.added_snapshot,
        **_range("batch_id", None if batch is None else (batch.min, batch.max)),
        "batches": None if batch is None else batch.count,
        "deletion_vector": entry.deletion_vector.path if entry.deletion_vector else None,
        "source": entry.source,
        "created_at": entry.created_ms,
        "column_files": len(entry.column_files),
        "column_bytes": entry.bytes - entry.size,
    }


def _manifest_row(reference: ManifestReference) -> dict[str, Any]:
    return {
        "path": reference.path,
        "kind": reference.kind,
        "size": reference.size,
        "entries": reference.entries,
        "entries_dead": len(reference.dead),
        "rows": reference.rows,
        "bytes": reference.bytes,
        **_range("added_snapshot", reference.added_snapshot),
        **_range("sequence", reference.sequence),
        **_range("batch_id", reference.batch_id),
    }


def _partition_row(entries: Sequence[Entry]) -> dict[str, Any]:
    totals = Totals.of(entries)
    return {
        **msgspec.structs.asdict(totals),
        "rows": totals.live_rows,
        "last_added_snapshot": max(entry.added_snapshot or 0 for entry in entries),
        "last_created_at": max(entry.created_ms for entry in entries),
    }


def _range(name: str, bounds: tuple[int, int] | None) -> dict[str, int | None]:
    low, high = bounds or (None, None)
    return {f"{name}_min": low, f"{name}_max": high}


def _columns(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> dict[str, pa.Array]:
    return {
        field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema
    }
