"""The list of catalog snapshots: a row for each, and for each table in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from fermion.exports import dataclass
from fermion.predicate import col
from fermion.typing import FilterLike
from fermion_table.catalog.keyed_list import KeyedList
from fermion_table.catalog.names import SNAPSHOTS_PATH
from fermion_table.catalog.rows import TIME
from fermion_table.catalog.warehouse import Warehouse
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

    namespace, name: Of the table; empty in the snapshot's own row.
    state, id, created, message, table_count: Of the snapshot, in its own row. The id tells it from
        others of the name.
    table_uuid, path, snapshot_id, hash: Of the table: which it is, where it lies, and its snapshot,
        which is not known while the catalog snapshot is being created.
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

    Raises CorruptMetadata: A row without what a row of its kind must have.
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


Changed = tuple[Iterable[SnapshotRow], Iterable[SnapshotKey]]
"""Rows to write, and keys whose rows go."""


class SnapshotList:
    """The snapshots of a catalog, and the tables in them."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._list = KeyedList(warehouse.store(SNAPSHOTS_PATH), SNAPSHOT_SCHEMA, SNAPSHOT_KEY)

    def heads(self) -> list[SnapshotRow]:
        """The row of every snapshot, by name."""
        found = self._found(col("name") == "")
        return sorted(found, key=lambda row: row.key)

    def of(self, name: str) -> list[SnapshotRow]:
        """The rows of a snapshot and of its tables; none if it does not exist."""
        return self._found(col("snapshot") == name)

    def find(self, key: SnapshotKey) -> SnapshotRow | None:
        """A row, None if there is none."""
        found = snapshot_rows_of(self._list.find([key]))
        return found[0] if found else None

    def holding(self, table_uuid: str) -> list[str]:
        """The names of the snapshots that hold a table, ascending."""
        return sorted({row.snapshot for row in self._found(col("table_uuid") == table_uuid)})

    def change(
        self,
        head: SnapshotRow,
        decide: Callable[[Sequence[SnapshotRow]], Changed],
        message: str,
    ) -> None:
        """Change a snapshot and its tables, as one commit, or none if nothing changes.

        decide: What to write, given that row as it is, or none; called again where others come
            first.
        Raises CommitConflict, CommitStateUnknown.
        """

        def made(data: pa.Table, is_new: bool) -> pa.RecordBatch:
            return snapshot_changes(*decide(snapshot_rows_of(data)))

        self._list.change([head.key], made, message)

    def _found(self, filter: FilterLike | None) -> list[SnapshotRow]:
        table = self._list.latest()
        return [] if table is None else snapshot_rows_of(table.scan(filter=filter).to_arrow())
