"""The list of catalog snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from fermion.predicate import col
from fermion.typing import FilterLike
from fermion_table.catalog.keyed_list import KeyedList
from fermion_table.catalog.names import SNAPSHOTS_PATH
from fermion_table.catalog.snapshot_rows import (
    SNAPSHOT_KEY,
    SNAPSHOT_SCHEMA,
    SnapshotKey,
    SnapshotRow,
    snapshot_changes,
    snapshot_rows_of,
)
from fermion_table.catalog.warehouse import Warehouse

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

        Parameters
        ----------
        decide
            What to write, given that row as it is, or none; called again where others come first.

        Raises
        ------
        CommitConflict, CommitStateUnknown
        """

        def made(data: pa.Table, is_new: bool) -> pa.RecordBatch:
            return snapshot_changes(*decide(snapshot_rows_of(data)))

        self._list.change([head.key], made, message)

    def _found(self, filter: FilterLike | None) -> list[SnapshotRow]:
        table = self._list.latest()
        return [] if table is None else snapshot_rows_of(table.scan(filter=filter).to_arrow())
