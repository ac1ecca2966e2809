"""A table's metadata as Arrow tables: ``table.inspect.files()`` and its like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
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
from fermion_table.metadata.manifest import Entry, reference_to
from fermion_table.metadata.manifest_store import listed_manifests, live_entries
from fermion_table.metadata.references import list_tags
from fermion_table.metadata.snapshot import Deltas, Snapshot, Totals
from fermion_table.schema.difference import schema_changes
from fermion_table.schema.schema import TableSchema, describe_field
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore

INT, TEXT, TIME = pa.int64(), pa.string(), pa.timestamp("ms", "UTC")
MAP = pa.map_(pa.string(), pa.string())


class _Columns:
    """Columns of which each object of a kind makes one row: name, type, and where values come from.

    That is an attribute of the object, or a function of it; None: the caller has them.
    """

    def __init__(self, *columns: tuple[str, pa.DataType, str | Callable[[Any], Any] | None]):
        self.schema = pa.schema([column[:2] for column in columns])
        self._sources = [
            attrgetter(each) if isinstance(each, str) else each for *_, each in columns
        ]

    def of(self, objects: Sequence[Any], **values: Sequence[Any]) -> dict[str, pa.Array]:
        """The columns, by name; `values` are those that the caller has."""
        found = {}
        for field, source in zip(self.schema, self._sources, strict=True):
            column = values[field.name] if source is None else [source(each) for each in objects]
            found[field.name] = pa.array(column, field.type)
        return found


_SNAPSHOTS = _Columns(
    ("snapshot_id", INT, "id"),
    ("parent_id", INT, None),
    ("branch", TEXT, "branch"),
    ("kind", TEXT, "kind"),
    ("committed_at", TIME, "time_ms"),
    ("author", TEXT, "author"),
    ("message", TEXT, "message"),
    ("schema_id", INT, "schema.id"),
    *((name, INT, f"deltas.{name}") for name in Deltas.__struct_fields__),
    ("total_files", INT, "totals.files"),
    ("total_rows", INT, "totals.live_rows"),
    ("total_rows_deleted", INT, "totals.rows_deleted"),
    ("total_bytes", INT, "totals.bytes"),
    ("manifests", INT, lambda snapshot: len(snapshot.manifests)),
    ("tail_entries", INT, lambda snapshot: len(snapshot.tail)),
    ("commit_user", TEXT, "commit_user"),
    ("commit_identifier", TEXT, lambda snapshot: _text(snapshot.commit_identifier)),
    ("properties", MAP, "properties"),
    ("hash", TEXT, "hash"),
)
_HISTORY = _Columns(
    ("snapshot_id", INT, "id"),
    ("branch", TEXT, "branch"),
    ("committed_at", TIME, "time_ms"),
    ("kind", TEXT, "kind"),
    ("author", TEXT, "author"),
    ("message", TEXT, "message"),
    ("rows", INT, "totals.live_rows"),
    ("rows_change", INT, lambda snapshot: _rows_change(snapshot.deltas)),
    ("files", INT, "totals.files"),
    ("files_change", INT, lambda each: each.deltas.files_added - each.deltas.files_removed),
)
_FILES = _Columns(
    ("path", TEXT, "file"),
    ("is_external", pa.bool_(), lambda entry: entry.external_path is not None),
    ("rows", INT, "live_rows"),
    ("rows_deleted", INT, "delete_rows"),
    ("bytes", INT, "size"),
    ("schema_id", INT, "schema_id"),
    ("bucket", INT, "bucket"),
    ("total_buckets", INT, None),
    ("level", INT, "level"),
    ("retractions", INT, "retractions"),
    ("sequence_number", INT, "sequence_number"),
    ("row_id_base", INT, "row_id_base"),
    ("added_snapshot", INT, "added_snapshot"),
    ("batch_id_min", INT, lambda entry: entry.batch and entry.batch.min),
    ("batch_id_max", INT, lambda entry: entry.batch and entry.batch.max),
    ("batches", INT, lambda entry: entry.batch and entry.batch.count),
    ("deletion_vector", TEXT, lambda entry: entry.deletion_vector and entry.deletion_vector.path),
    ("source", TEXT, "source"),
    ("created_at", TIME, "created_ms"),
    ("column_files", INT, lambda entry: len(entry.column_files)),
    ("column_bytes", INT, lambda entry: entry.bytes - entry.size),
)
_MANIFESTS = _Columns(
    ("path", TEXT, "path"),
    ("kind", TEXT, None),
    ("size", INT, None),
    ("entries", INT, "entries"),
    ("entries_dead", INT, lambda reference: len(reference.dead)),
    ("rows", INT, "rows"),
    ("bytes", INT, "bytes"),
    ("added_snapshot_min", INT, lambda each: each.added_snapshot and each.added_snapshot[0]),
    ("added_snapshot_max", INT, lambda each: each.added_snapshot and each.added_snapshot[1]),
    ("sequence_min", INT, lambda each: each.sequence and each.sequence[0]),
    ("sequence_max", INT, lambda each: each.sequence and each.sequence[1]),
    ("batch_id_min", INT, lambda each: each.batch_id and each.batch_id[0]),
    ("batch_id_max", INT, lambda each: each.batch_id and each.batch_id[1]),
)
SNAPSHOTS, HISTORY, FILES = _SNAPSHOTS.schema, _HISTORY.schema, _FILES.schema
PARTITIONS = pa.schema(
    [
        ("files", INT),
        ("rows", INT),
        ("rows_deleted", INT),
        ("bytes", INT),
        ("last_added_snapshot", INT),
        ("last_created_at", TIME),
    ]
)
SCHEMAS = pa.schema(
    [
        ("schema_id", INT),
        ("is_current", pa.bool_()),
        ("created_at", TIME),
        ("columns", INT),
        ("fields", pa.list_(pa.string())),
        ("changes", pa.list_(pa.string())),
        ("properties", MAP),
    ]
)
_CONSUMERS = _Columns(
    ("name", TEXT, "name"),
    ("snapshot_id", INT, "snapshot_id"),
    ("branch", TEXT, "branch"),
    ("updated_at", TIME, "updated_ms"),
)

REFERENCES = pa.schema(
    [
        ("name", TEXT),
        ("type", TEXT),
        ("snapshot_id", INT),
        ("parent", TEXT),
        ("left_after", INT),
        ("created_at", TIME),
        ("expires_at", TIME),
        ("message", TEXT),
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
        snapshots = list(self._walked())[::-1]
        parents = [parent_of(self.store, snapshot) for snapshot in snapshots]
        ids = [None if parent is None else parent.id for parent in parents]
        return pa.table(_SNAPSHOTS.of(snapshots, parent_id=ids))

    def history(self) -> pa.Table:
        """The history in brief, newest first: author, operation, time, and totals."""
        return pa.table(_HISTORY.of(list(self._walked())))

    def files(self) -> pa.Table:
        """The data files in the order in which their rows are read.

        ``partition`` and ``statistics`` are structs of the partition fields and of the columns
        whose bounds are kept; strings longer than a few bytes have bounds that are not exact.
        """
        entries, schemas = self._entries(), SchemaVersions(self.store, self.snapshot)
        buckets = [
            None if entry.bucket is None else bucket_count(entry, schemas) for entry in entries
        ]
        columns = _FILES.of(entries, total_buckets=buckets)
        values = [entry.partition for entry in entries]
        columns |= partition_column("partition", values, schemas.current)
        columns |= statistics_column(entries, schemas)
        return pa.table(columns)

    def manifests(self) -> pa.Table:
        """The manifests, and the inline entries of the snapshot (kind ``tail``)."""
        references = list(listed_manifests(self.store, self.snapshot.manifests))
        kinds: list[str] = [reference.kind for reference in references]
        sizes: list[int | None] = [reference.size for reference in references]
        if self.snapshot.tail:
            path = snapshot_path(self.snapshot.id, self.snapshot.branch)
            references.append(reference_to(self.snapshot.tail, path=path, hash="", size=0))
            kinds, sizes = [*kinds, "tail"], [*sizes, None]
        ranges = [reference.partition for reference in references]
        columns = _MANIFESTS.of(references, kind=kinds, size=sizes)
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
        rows = [_partition_row(entries) for entries in groups.values()]
        found = pa.Table.from_pylist(rows, schema=PARTITIONS)
        return pa.table(columns | dict(zip(found.column_names, found.columns, strict=True)))

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
        return pa.table(_CONSUMERS.of(list_consumers(self.store)))

    def _walked(self) -> Iterable[Snapshot]:
        return walk(self.store, self.snapshot, branch=self.branch)

    def _entries(self) -> list[Entry]:
        return live_entries(self.store, self.snapshot)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _rows_change(deltas: Deltas) -> int:
    return deltas.rows_added - deltas.rows_removed - deltas.rows_deleted


def _partition_row(entries: Sequence[Entry]) -> dict[str, Any]:
    totals = Totals.of(entries)
    return {
        **msgspec.structs.asdict(totals),
        "rows": totals.live_rows,
        "last_added_snapshot": max(entry.added_snapshot or 0 for entry in entries),
        "last_created_at": max(entry.created_ms for entry in entries),
    }
