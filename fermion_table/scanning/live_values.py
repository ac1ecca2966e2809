"""Whether the rows of a snapshot hold values that a change of the schema would make invalid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fermion import col
from fermion_table.metadata.schema_store import SchemaVersions
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.filters import table_filter
from fermion_table.scanning.scan import Scan
from fermion_table.schema.field_widening import beyond
from fermion_table.schema.schema import Path, TableSchema
from fermion_table.storage.store import AtomicStore


@dataclass(slots=True)
class LiveValues:
    """The values of the rows that a snapshot has.

    Attributes
    ----------
    store
        Of the table.
    snapshot
        May be replaced by a later one, when a commit is retried.
    """

    store: AtomicStore
    snapshot: Snapshot

    def have_nulls(self, schema: TableSchema, path: Path) -> bool:
        """Whether a live row is null at a path of a schema that may not be published yet."""
        return self._any_row(schema, path, lambda stored: col(*stored).is_null())

    def exceed(self, schema: TableSchema, path: Path, dtype: pa.DataType) -> bool:
        """Whether a live row's value there, or in it, is out of the range of a type of time.

        Of values inside lists and maps only tables without rows prove anything.
        """
        if schema.find(path).children:
            return self._any_row(schema, path, lambda stored: True)
        return self._any_row(schema, path, lambda stored: beyond(stored, dtype))

    def _any_row(self, schema: TableSchema, path: Path, select: Callable[[Path], Any]) -> bool:
        """Whether a live row is selected by a filter on a path as the snapshot has it."""
        field = schema.find(path)
        schemas = SchemaVersions(self.store, self.snapshot)
        stored = schemas.current.paths.get(field.id)
        if stored is None:
            return False  # added in the same update, with a default
        where = self.store.location
        scan = Scan(
            store=self.store,
            snapshot=self.snapshot,
            schemas=schemas,
            table_schema=schemas.current,
            columns=(),
            filter=table_filter(select(stored), schemas.current, where=where),
            limit=1,
            merges_level0=True,
        )
        return scan.count() > 0
