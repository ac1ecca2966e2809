"""The rows of the list of catalog snapshots: one a snapshot, and one for each table in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from fermion_table.catalog.rows import TIME
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.schema import KIND_COLUMN

State = Literal["creating", "ready", "deleting"]
SNAPSHOT_KEY = ("snapshot", "namespace", "name")
SNAPSHOT_SCHEMA = pa.schema(
    [
        ("snapshot", pa.string()),
        ("namespace", pa.string()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("id", pa.string()),
        ("created", TIME),
        ("message", pa.string()),
        ("table_count", pa.int64()),
        ("table_uuid", pa.string()),
        ("path", pa.string()),
        ("snapshot_id", pa.int64()),
        ("hash", pa.string()),
    ]
)
"""The columns of the list. They are part of the format: see docs/catalog_format.md."""

SnapshotKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """A catalog snapshot, or a table in it.

    Attributes
    ----------
    namespace, name
        Of the table; empty in the snapshot's own row.
    state, id, created, message, table_count
        Of the snapshot, in its own row. The id tells it from others of the name.
    table_uuid, path, snapshot_id, hash
        Of the table: which it is, where it lies, and its snapshot, which is not known while the
        catalog snapshot is being created.
    """

    snapshot: str
    namespace: str = ""
    name: str = ""
    state: State | None = None
    id: str | None = None
    created: datetime | None = None
    message: str | None = None
    table_count: int | None = None
    table_uuid: str | None = None
    path: str | None = None
    snapshot_id: int | None = None
    hash: str | None = None

    @property
    def key(self) -> SnapshotKey:
        """Of the list."""
        return self.snapshot, self.namespace, self.name

    @property
    def is_table(self) -> bool:
        """Whether it is of a table."""
        return bool(self.name)


def snapshot_rows_of(data: pa.Table) -> list[SnapshotRow]:
    """Rows from Arrow.

    Raises
    ------
    CorruptMetadata
        A row without what a row of its kind must have.
    """
    rows = [SnapshotRow(**values) for values in data.select(SNAPSHOT_SCHEMA.names).to_pylist()]
    for row in rows:
        known = (row.snapshot_id is None) == (row.hash is None)
        is_right = row.path is not None and known if row.is_table else _is_head(row)
        if not is_right:
            raise CorruptMetadata(
                f"row {row.key} of the list of catalog snapshots", "a snapshot or a table", str(row)
            )
    return rows


def snapshot_changes(
    written: Iterable[SnapshotRow], removed: Iterable[SnapshotKey] = ()
) -> pa.RecordBatch:
    """What is written to the list: rows, and removals of keys, told apart by `KIND_COLUMN`."""
    rows: list[dict[str, Any]] = [{**asdict(row), KIND_COLUMN: "+I"} for row in written]
    for key in removed:
        rows.append({**dict(zip(SNAPSHOT_KEY, key, strict=True)), KIND_COLUMN: "-D"})
    return pa.RecordBatch.from_pylist(rows, SNAPSHOT_SCHEMA.append(pa.field(KIND_COLUMN, "string")))


def _is_head(row: SnapshotRow) -> bool:
    """Whether a row is a snapshot's own."""
    return row.state in ("creating", "ready", "deleting") and None not in (row.id, row.created)
