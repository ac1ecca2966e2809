"""Reads changelog files: rows with what happened to them, as they were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fermion.engine import filter_batch_rows, one_batch
from fermion.options import BlobForm
from fermion_table.change_feed.keyed_changes import AskedColumns
from fermion_table.merge_engines.key_groups import DELETE, INSERT, UPDATE_BEFORE
from fermion_table.merging.change_types import CHANGE_NAMES
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Producer, Snapshot
from fermion_table.planning.filters import TableFilter, selected
from fermion_table.planning.plan import splits_of
from fermion_table.reading.run_reader import key_filter
from fermion_table.reading.split_reader import SplitReader
from fermion_table.scanning.scan import FileScan
from fermion_table.schema.schema import KIND_COLUMN, PathLike, TableSchema
from fermion_table.schema.selection import ROW_KIND
from fermion_table.storage.store import AtomicStore


class RecordedChanges:
    """Reads the changelog files of a primary-key table.

    snapshot: Under whose schema rows are read.
    blobs: What comes of columns of blobs.
    """

    def __init__(
        self,
        store: AtomicStore,
        snapshot: Snapshot,
        schemas: Mapping[int, TableSchema],
        key: PrimaryKey,
        columns: Sequence[PathLike] | None,
        filter: TableFilter | None,
        blobs: BlobForm,
    ) -> None:
        self._blobs = blobs
        self._store, self._snapshot, self._schemas = store, snapshot, schemas
        self._schema = schemas[snapshot.schema.id]
        self._key, self._filter = key, filter
        fields = self._schema.fields
        self._asked = AskedColumns(store, self._schema, columns, filter, blobs, fields, key.names)

    def read(
        self, entries: Iterable[Entry], producer: Producer, without: pa.Array | None = None
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """The changes in some files, in their order: what each is, and the rows.

        producer: What has recorded them. Of all but ``input`` an update one of whose rows the
            filter does not select is a deletion or an insertion.
        without: Keys whose changes are left out (`PrimaryKey.keys`).
        """
        scan = FileScan(
            store=self._store,
            snapshot=self._snapshot,
            schemas=self._schemas,
            table_schema=self._schema,
            columns=self._asked.read,
            filter=key_filter(self._filter, self._key),
            files=tuple(entries),
            blobs=self._blobs,
        )
        reader = scan.reader
        kinds = replace(reader.request, fields=(*reader.request.fields, ROW_KIND), metadata=None)
        reader = SplitReader(kinds, io=reader.io, guard=reader.guard)
        for split in splits_of(scan.entries[0], self._store):
            batches = reader.read_file(replace(split, retractions=max(split.retractions, 1)))
            for batch in batches if producer == "input" else _whole_updates(batches):
                changes, rows = self._chosen(batch, producer, without)
                if rows.num_rows:
                    yield changes, self._asked.of(rows)

    def _chosen(
        self, batch: pa.RecordBatch, producer: Producer, without: pa.Array | None
    ) -> tuple[pa.Array, pa.RecordBatch]:
        """The changes that the query asks for."""
        kinds = batch.column(KIND_COLUMN).to_numpy()
        rows = batch.remove_column(batch.schema.get_field_index(KIND_COLUMN))
        kept = np.ones(rows.num_rows, bool)
        if without is not None and len(without):
            found = pc.is_in(self._key.keys(rows), value_set=without)
            kept &= ~found.to_numpy(zero_copy_only=False)
        if self._filter is not None:
            is_selected = selected(self._filter.expression, rows)
            if producer != "input":
                kinds = _split_updates(kinds, is_selected)
            kept &= is_selected
        names = pa.array(CHANGE_NAMES).take(pa.array(kinds[kept]))
        return names, filter_batch_rows(rows, kept)


def _split_updates(kinds: np.ndarray, is_selected: np.ndarray) -> np.ndarray:
    """The kinds of rows of which a filter selects some; the rows of an update are neighbours."""
    found = kinds.copy()
    places = np.flatnonzero(kinds[:-1] == UPDATE_BEFORE)
    before, after = is_selected[places], is_selected[places + 1]
    found[places[before & ~after]] = DELETE
    found[places[after & ~before] + 1] = INSERT
    return found


def _whole_updates(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that none of the pairs of rows of an update is cut by."""
    left: pa.RecordBatch | None = None
    for batch in batches:
        whole = batch if left is None else one_batch([left, batch])
        left = None
        if whole.column(KIND_COLUMN)[-1].as_py() == UPDATE_BEFORE:
            left = whole.slice(whole.num_rows - 1)
            whole = whole.slice(0, whole.num_rows - 1)
        if whole.num_rows:
            yield whole
    if left is not None:
        yield left
