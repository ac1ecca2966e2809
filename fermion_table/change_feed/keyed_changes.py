"""What a change of files does to the rows of a primary-key table, told for the keys in those files.

A key is looked up before and after. That says exactly what became of it, whatever a file holds: a
row that is written again as it was, or deleted where there was none, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fermion.engine import array_of, filter_batch_rows
from fermion.exports import LoadedWhenAskedFor
from fermion.options import BlobForm
from fermion_table.change_feed.row_difference import pick_rows, row_codes
from fermion_table.lookup.lookup import Lookups
from fermion_table.merging.change_types import CHANGE_NAMES
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.planning.filters import TableFilter, selected
from fermion_table.scanning.scan import Scan
from fermion_table.schema.conversion import convert_batch, plan_reading
from fermion_table.schema.key_encoding import decode_keys
from fermion_table.schema.schema import Field, PathLike, TableSchema, field_to_arrow
from fermion_table.schema.selection import FIRST_KEY, map_keys, queryable_fields, select_columns
from fermion_table.storage.store import AtomicStore
from fermion_table.trees.seen_keys import distinct, keys_of

if TYPE_CHECKING:
    from fermion_table.schema import blob_columns
else:  # few tables have blobs
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")

KEYS_AT_ONCE = 16_384
"""Keys that are looked up together: their rows, before and after, are in memory."""
INSERT, BEFORE, AFTER, DELETE = CHANGE_NAMES


class AskedColumns:
    """The columns that a query asks for, made of rows with whole columns and parts of them.

    columns, filter: As of a scan.
    blobs: What comes of columns of blobs.
    fields: The columns that there are.
    beside: Names of columns that are read, too.
    """

    def __init__(
        self,
        store: AtomicStore,
        schema: TableSchema,
        columns: Sequence[PathLike] | None,
        filter: TableFilter | None,
        blobs: BlobForm,
        fields: Sequence[Field],
        beside: Iterable[str] = (),
    ) -> None:
        where = store.location
        keys = map_keys(schema, columns or (), where=where)
        asked = select_columns(schema, columns, where=where, keys=keys)
        named = {*beside, *(field.name for field in asked)}
        named.update(path[0] for path in (filter.paths if filter is not None else ()))
        whole = [field for field in fields if field.name in named]
        whole += [field for field in asked if field.id <= FIRST_KEY]
        self.read: tuple[PathLike, ...] = tuple(
            (field.name,) if field.id > 0 else field.name for field in whole
        )
        self._shown = pa.schema([field_to_arrow(field, field_ids=False) for field in asked])
        self._conversions = plan_reading(asked, whole)
        if blobs != "bytes":
            self._conversions, self._shown = blob_columns.wanted_rows(
                self._conversions, self._shown, blobs, store.storage_options
            )

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the columns that are read, as the query wants them."""
        return convert_batch(self._conversions, rows, self._shown)


class KeyedChanges:
    """Compares states of a table, key by key.

    schemas: Those of its files, by id.
    schema: What rows are read under.
    columns, filter: As of a scan. Both states are compared as if other rows and columns did not
        exist.
    merges_level0: Whether level 0 counts whatever `deletion_vectors.merge_on_read` says.
    blobs: What comes of columns of blobs; but for bytes, they are equal where they lie in the same
        place.
    """

    def __init__(
        self,
        store: AtomicStore,
        schemas: Mapping[int, TableSchema],
        schema: TableSchema,
        columns: Sequence[PathLike] | None,
        filter: TableFilter | None,
        *,
        merges_level0: bool = False,
        blobs: BlobForm = "bytes",
    ) -> None:
        self._store, self._schemas, self._schema = store, schemas, schema
        self._filter = filter
        self._merges_level0 = merges_level0
        self._blobs = blobs
        fields = queryable_fields(schema)
        self._asked = AskedColumns(store, schema, columns, filter, blobs, fields)
        self._lookups = Lookups()

    def scan(self, snapshot: Snapshot) -> Scan:
        """What reads the rows of a state."""
        return Scan(
            store=self._store,
            snapshot=snapshot,
            schemas=self._schemas,
            table_schema=self._schema,
            columns=self._asked.read,
            merges_level0=self._merges_level0,
            blobs=self._blobs,
        )

    def between(
        self,
        before: Snapshot,
        after: Snapshot,
        keys: pa.RecordBatch,
        *,
        keeps_equal: bool = False,
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of some keys that two states do not have in common, and what became of them.

        Rows that went come first. Of updates the rows before and after are in the same order.

        before, after: Snapshots of tables of the same primary key.
        keys: The key's columns; no key twice.
        keeps_equal: Whether rows that the states have in common are updates, too.
        """
        old, old_keys = self._rows(before, keys)
        new, new_keys = self._rows(after, keys)
        _, old_shared, new_shared = np.intersect1d(
            old_keys, new_keys, assume_unique=True, return_indices=True
        )
        kept_old, kept_new = pick_rows(old, old_shared), pick_rows(new, new_shared)
        if keeps_equal:
            changed = np.arange(len(old_shared))
        else:
            codes = row_codes([*kept_old, *kept_new])
            changed = np.flatnonzero(codes[: len(old_shared)] != codes[len(old_shared) :])
        for change, batches, rows in (
            (DELETE, old, np.setdiff1d(np.arange(len(old_keys)), old_shared)),
            (BEFORE, old, old_shared[changed]),
            (AFTER, new, new_shared[changed]),
            (INSERT, new, np.setdiff1d(np.arange(len(new_keys)), new_shared)),
        ):
            for batch in pick_rows(batches, rows):
                yield change, batch

    def _rows(
        self, snapshot: Snapshot, keys: pa.RecordBatch
    ) -> tuple[list[pa.RecordBatch], np.ndarray]:
        """The rows of some keys in their order, and the places of their keys."""
        table, places = self._lookups.find_with_places(self.scan(snapshot), keys)
        batches: list[pa.RecordBatch] = []
        masks = [np.zeros(0, bool)]
        for batch in table.to_batches():
            mask = np.ones(batch.num_rows, bool)
            if self._filter is not None:
                mask = selected(self._filter.expression, batch)
            kept = filter_batch_rows(batch, mask)
            batches.append(self._asked.of(kept))
            masks.append(mask)
        return batches, places[np.concatenate(masks)]


def distinct_keys(batches: Iterable[pa.RecordBatch], key: PrimaryKey) -> Iterator[pa.RecordBatch]:
    """The distinct keys of rows in the order of keys, `KEYS_AT_ONCE` a batch.

    batches: The key's columns.
    """
    columns, keys = [], []
    for batch in batches:
        keys.append(key.keys(batch))
        columns.append(batch.column(key.names[0]))
    if not keys:
        return
    encoded = pa.chunked_array(keys).combine_chunks()
    first, _ = distinct(keys_of(encoded))
    for start in range(0, len(first), KEYS_AT_ONCE):
        places = array_of(first[start : start + KEYS_AT_ONCE], pa.int64())
        if key.is_direct:
            arrays = [pa.chunked_array(columns).take(places).combine_chunks()]
        else:
            arrays = decode_keys(encoded.take(places), key.types)
        yield pa.RecordBatch.from_arrays(arrays, names=list(key.names))
