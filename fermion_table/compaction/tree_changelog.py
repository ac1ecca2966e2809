"""What the compaction of a tree changes for readers of changelog files, and how it is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np
import pyarrow as pa

from fermion.engine import one_batch
from fermion.exports import dataclass
from fermion_table.change_feed.keyed_changes import (
    AFTER,
    BEFORE,
    DELETE,
    INSERT,
    KeyedChanges,
    distinct_keys,
)
from fermion_table.change_feed.recorded_interval import settled_files, state_of
from fermion_table.merging.change_types import CHANGE_TYPES
from fermion_table.merging.primary_key import PrimaryKey, required_key
from fermion_table.metadata.bucket_counts import bucket_count
from fermion_table.metadata.manifest import Entry, KnownBlobs
from fermion_table.metadata.snapshot import Delta, Producer, Snapshot
from fermion_table.scanning.scan import FileScan
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.changelog_writer import ChangelogWriter, Changes
from fermion_table.writing.incoming_rows import partition_of


@dataclass(frozen=True, slots=True)
class PlannedOn:
    """What the compaction of trees is planned on.

    snapshot: Whose live files are compacted.
    schema, schemas: The table's, and those that the files were written with, by id.
    """

    store: AtomicStore
    key: PrimaryKey
    snapshot: Snapshot
    schema: TableSchema
    schemas: Mapping[int, TableSchema]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChangelog:
    """The state of a tree before and after a compaction settles all of its rows. Picklable.

    snapshot: That the compaction was planned on, without files.
    schema, schemas: The table's, and those that the files were written with.
    settled, fresh: The files that the changelog tells of before, and those that it tells of from
        then on.
    keeps_equal: Whether rows that did not change are recorded as updates.
    """

    store: AtomicStore
    snapshot: Snapshot
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    settled: tuple[Entry, ...]
    fresh: tuple[Entry, ...]
    bucket: int
    keeps_equal: bool

    def record(self, writer: ChangelogWriter) -> list[Entry]:
        """Write the changes; entries of the changelog files."""
        changes = self._changes()
        first = next(changes, None)
        if first is None:
            return []
        entry = self.fresh[0]
        return writer.write(
            partition_of(first[0], self.schema, entry.partition),
            self.bucket,
            chain([first], changes),
            total_buckets=bucket_count(entry, self.schemas),
        )

    @property
    def known_blobs(self) -> KnownBlobs | None:
        """The blob files that the changes refer to; None: they have values, which are compared."""
        if not (self.keeps_equal and self.schema.blob_columns):
            return None
        files = (*self.settled, *self.fresh)
        return KnownBlobs({each.name: each for entry in files for each in entry.blob_files})

    def _changes(self) -> Iterator[Changes]:
        """The rows before and after, of the keys in the files that become settled."""
        key = required_key(self.schema, self.store.location, "a changelog")
        keyed = KeyedChanges(
            self.store,
            self.schemas,
            self.schema,
            None,
            None,
            merges_level0=True,
            blobs="bytes" if self.known_blobs is None else "references",
        )
        before = state_of(self.snapshot, self.settled, "before")
        after = state_of(self.snapshot, (*self.settled, *self.fresh), "after")
        for keys in distinct_keys(self._keys(key), key):
            found = keyed.between(before, after, keys, keeps_equal=self.keeps_equal)
            rows = _in_order(found)
            if rows is not None:
                yield rows

    def _keys(self, key: PrimaryKey) -> Iterator[pa.RecordBatch]:
        return FileScan(
            store=self.store,
            snapshot=self.snapshot,
            schemas=self.schemas,
            table_schema=self.schema,
            columns=tuple((name,) for name in key.names),
            threads=1,
            files=self.fresh,
        ).to_batches()


def tree_changelog(
    table: PlannedOn, entries: Sequence[Entry], *, takes_all: bool
) -> tuple[Producer | None, TreeChangelog | None]:
    """What records the changes of a compaction of a tree, and what it has to record.

    entries: All files of the tree.
    takes_all: Whether the compaction takes all runs, to the top level. It takes those of level 0
        always.
    """
    key, snapshot, schema = table.key, table.snapshot, table.schema
    producer = key.options.changelog_producer
    if producer not in ("lookup", "full_compaction"):
        return None, None
    settled, fresh = settled_files(entries, producer)
    if not fresh or not (takes_all or producer == "lookup"):
        return producer, None
    ids = {schema.id, snapshot.schema.id, *(entry.schema_id for entry in entries)}
    bare = msgspec.structs.replace(snapshot, manifests=(), tail=(), delta=Delta(), changelog=None)
    changelog = TreeChangelog(
        store=table.store,
        snapshot=bare,
        schema=schema,
        schemas={number: table.schemas[number] for number in ids},
        settled=tuple(msgspec.structs.replace(entry, stats={}) for entry in settled),
        fresh=tuple(msgspec.structs.replace(entry, stats={}) for entry in fresh),
        bucket=entries[0].bucket or 0,
        keeps_equal=not key.options.row_deduplicate and key.engine.rows_change,
    )
    return producer, changelog


def _in_order(found: Iterable[tuple[str, pa.RecordBatch]]) -> Changes | None:
    """Changes of some keys in one batch, the two rows of an update next to each other."""
    parts: dict[str, list[pa.RecordBatch]] = {}
    for change, rows in found:
        parts.setdefault(change, []).append(rows)
    if not parts:
        return None
    names = (DELETE, BEFORE, AFTER, INSERT)
    counts = [sum(rows.num_rows for rows in parts.get(name, ())) for name in names]
    starts = np.cumsum([0, *counts])
    order = np.arange(starts[-1])
    updates = slice(starts[1], starts[3])
    order[updates] = order[updates].reshape(2, -1).T.ravel()
    kinds = np.repeat([CHANGE_TYPES[name] for name in names], counts).astype(np.int8)
    rows = one_batch([rows for name in names for rows in parts.get(name, ())])
    return rows.take(pa.array(order)), kinds[order]
