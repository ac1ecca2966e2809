"""Whether the rows of a snapshot hold values that a change of the schema would make invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import col
from fermion.exports import dataclass
from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.merging.fold import says_nothing
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.filters import selected, table_filter
from fermion_table.planning.plan import splits_of
from fermion_table.reading.whole_rows import column_reader
from fermion_table.scanning.scan import Scan
from fermion_table.schema.field_widening import beyond
from fermion_table.schema.schema import KIND_COLUMN, Field, Path, TableSchema
from fermion_table.schema.selection import ROW_KIND
from fermion_table.storage.store import AtomicStore
from fermion_table.trees.visible_rows import picks_rows


@dataclass(slots=True)
class LiveValues:
    """The values of the rows that a snapshot has.

    snapshot: May be replaced by a later one, when a commit is retried.
    """

    store: AtomicStore
    snapshot: Snapshot

    def have_nulls(self, schema: TableSchema, path: Path) -> bool:
        """Whether a live row is null at a path of a schema that may not be published yet.

        Also a stored one that a compaction may have to write again as it is.
        """
        if self._any_row(schema, path, lambda stored: col(*stored).is_null()):
            return True
        return self._have_nulls_apart(schema, path)

    def take_back(self) -> bool:
        """Whether a stored row takes values back, other than by removing the row of its key."""
        schemas = SchemaVersions(self.store, self.snapshot)
        key = primary_key_of(schemas.current)
        files = [entry for entry in live_entries(self.store, self.snapshot) if entry.retractions]
        if key is None or not key.options.remove_record_on_delete:
            return bool(files)
        kinds = (kinds for kinds, _ in self._stored(schemas, files))
        return any((is_retraction(each) & ~says_nothing(key, each)).any() for each in kinds)

    def _have_nulls_apart(self, schema: TableSchema, path: Path) -> bool:
        """The same of stored rows, where rows of a key may be left apart: some take values back."""
        schemas = SchemaVersions(self.store, self.snapshot)
        key = primary_key_of(schemas.current)
        stored = schemas.current.paths.get(schema.find(path).id)
        if key is None or stored is None:
            return False
        is_sequence = stored[0] in key.options.sequence_fields
        if picks_rows(key) and not is_sequence:
            return False
        files = live_entries(self.store, self.snapshot)
        if not any(entry.retractions or entry.keys_repeated for entry in files):
            return False
        where = self.store.location
        chosen = table_filter(col(*stored).is_null(), schemas.current, where=where)
        assert chosen is not None
        return any(
            (selected(chosen.expression, rows) & (is_sequence | ~says_nothing(key, kinds))).any()
            for kinds, rows in self._stored(schemas, files, schemas.current.by_name[stored[0]])
        )

    def _stored(
        self, schemas: SchemaVersions, files: Iterable[Entry], *columns: Field
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows of files as they are stored: their kinds, and some columns."""
        fields, listed = (*columns, ROW_KIND), list(files)
        reader = column_reader(listed, self.store, fields, fields, schemas)
        for split in splits_of(listed, self.store):
            for batch in reader.read_file(split):
                yield batch.column(KIND_COLUMN).to_numpy(), batch

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
