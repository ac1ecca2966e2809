"""Writes rows of primary-key tables: blind, as sorted runs of level 0.

Rows wait in a buffer of their tree, the partition and bucket that their key belongs to. When the
pool of buffers is full the largest one is flushed: its rows are sorted, those of one key folded,
and written as one sorted run. Nothing is visible before a commit names the files.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from fermion.arguments import flag
from fermion.engine import BatchCopier, filter_batch_rows, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.typing import TableLike
from fermion_table.argument_checks import check_kind
from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.merging.fold import check_retractions, check_values
from fermion_table.merging.primary_key import PrimaryKey, required_key
from fermion_table.metadata.bucket_counts import BucketCounts
from fermion_table.metadata.manifest import Entry, KnownBlobs
from fermion_table.schema.properties import parse_properties
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.widening import shares_memory
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.buffer_pool import Buffer, BufferPool, Tree
from fermion_table.writing.changelog_writer import ChangelogWriter
from fermion_table.writing.incoming_rows import IncomingRows, partition_columns, split_batch
from fermion_table.writing.run_folding import sorted_run, split_kinds
from fermion_table.writing.tree_writer import TreeWriter, with_kinds
from fermion_table.writing.writer_message import OwningWriter, WriteSettings

SHARE_MAX = 4
"""A batch with more than the pool's bytes divided by this is added in parts."""


class KeyWriter(OwningWriter):
    """Writes Arrow data to the files of a primary-key table.

    As a context manager it deletes what it wrote unless the block reaches `prepare_commit`. So it
    does when it is forgotten before.

    Parameters
    ----------
    store, schema, settings, table_uuid, base_id, branch, owned
        As of `DataWriter`.
    known_blobs
        See `DataFiles`.
    bucket_counts
        Numbers of buckets of partitions that have another one than the table's settings say (see
        `metadata.bucket_counts`).

    Raises
    ------
    InvalidArgumentError
        The table has no primary key by which rows are merged.
    """

    def __init__(
        self,
        store: AtomicStore,
        schema: TableSchema,
        *,
        settings: WriteSettings | None = None,
        table_uuid: str = "",
        base_id: int | None = None,
        branch: str = MAIN,
        owned: OwnedFiles | None = None,
        bucket_counts: BucketCounts | None = None,
        known_blobs: KnownBlobs | None = None,
    ) -> None:
        if settings is not None:
            check_kind(settings, WriteSettings, "settings")
        settings = settings or WriteSettings()
        key = required_key(schema, store.location, "KeyWriter")
        super().__init__(store, schema, table_uuid, base_id, branch, owned)
        self._key = key
        is_logged = key.options.changelog_producer == "input"
        carries = known_blobs is not None
        if is_logged and schema.blob_columns and not carries:  # to those that are written
            known_blobs = KnownBlobs({})
        trees = TreeWriter(self._owned, schema, key, settings=settings, known_blobs=known_blobs)
        self._incoming = IncomingRows(
            schema,
            fills_defaults=key.engine.fills_defaults,
            arrow=trees.files.arrow if carries else schema.to_arrow(),
        )
        self._partitions = partition_columns(schema)
        changes = None
        if is_logged:
            changes = ChangelogWriter(
                self._owned, schema, settings=settings, known_blobs=known_blobs
            )
        self._counts: BucketCounts = bucket_counts or {}
        self._runs = _Runs(trees, key, self._counts, changes, self._entries)
        size = parse_properties(schema.properties).write_buffer_bytes
        self._pool = settings.buffer_pool or BufferPool(size)
        self._buffers: dict[Tree, Buffer] = {}
        self._copier = BatchCopier(self._incoming.arrow)
        self._shares_memory = any(shares_memory(field.type) for field in self._incoming.arrow)

    def write(self, data: TableLike, change_type: str | None = None, *, copy: bool = True) -> None:
        """Add rows from any Arrow producer: each replaces or joins the row of its key.

        Parameters
        ----------
        data
            Columns are matched by name and cast where no value changes; missing nullable ones
            are null.
        change_type
            The column of the data that says what each row is: ``insert``, ``update_preimage``,
            ``update_postimage`` or ``delete``, or ``+I``, ``-U``, ``+U``, ``-D``. None: all rows
            are insertions.
        copy
            Rows that wait to be sorted are copied, so that the caller, or the producer's next
            batch, may change the memory. False: nobody changes it before `prepare_commit`.

        Raises
        ------
        SchemaMismatch
            The data does not fit the table's schema, field by field; or one value does not.
        InvalidArgumentError
            A change type of another name, or one that the merge engine does not take.
        """
        copy = flag(copy, "copy")
        self._enter()
        options = self._key.options
        for rows, kinds in self._incoming.changes(data, change_type):
            if kinds is not None and options.ignore_delete:
                kept = ~is_retraction(kinds)
                rows, kinds = filter_batch_rows(rows, kept), None
            elif kinds is not None:
                check_retractions(self._key, kinds)
            check_values(self._key, rows)
            for some in self._parts(rows, kinds):
                row_bytes = some.nbytes / some.num_rows if self._shares_memory else None
                for tree, part in self._split(some):
                    if copy and (part is some or self._shares_memory):  # else taken of it
                        part = self._copier.copy(part)
                    self._add(tree, part, row_bytes)

    def append_batch(
        self, batch_id: int, data: TableLike, *, copy: bool = True, positions: Any = None
    ) -> NoReturn:
        """Refuse: rows of a primary-key table are sorted by key, not stored in batches.

        Raises
        ------
        InvalidArgumentError
        """
        raise InvalidArgumentError(
            "a table with a primary key has no batches: its rows are sorted and merged by key; "
            "expected write(data)"
        )

    def _finish(self) -> None:
        self._runs.check()
        self._pool.flush(list(self._buffers.values()))
        self._runs.check()

    def _forget(self) -> None:
        self._pool.discard(self._buffers.values())

    def _enter(self) -> None:
        if self._finished:
            raise InvalidArgumentError("the writer is finished: create a new one")
        self._runs.check()

    def _add(self, tree: Tree, rows: pa.RecordBatch, row_bytes: float | None) -> None:
        buffer = self._buffers.get(tree)
        if buffer is None:
            buffer = self._buffers[tree] = Buffer(weakref.ref(self._runs), tree)
        size = None if row_bytes is None else int(row_bytes * rows.num_rows)
        self._pool.add(buffer, rows, size)

    def _parts(self, rows: pa.RecordBatch, kinds: np.ndarray | None) -> Iterator[pa.RecordBatch]:
        """A batch with a column of kinds where it has any, in parts that fit into the pool."""
        if kinds is not None:
            rows = with_kinds(rows, kinds)
        count = -(-rows.nbytes * SHARE_MAX // self._pool.bytes_max)
        step = max(1, -(-rows.num_rows // max(1, count)))
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[Tree, pa.RecordBatch]]:
        """The rows of each tree in their order."""
        for partition, part in split_batch(rows, self._partitions):
            count = self._counts.get(partition.values, self._key.options.bucket)
            if count == 1:
                yield Tree(partition, 0), part
                continue
            buckets = self._key.buckets(part, count)
            order = np.argsort(buckets, kind="stable")
            cuts = np.flatnonzero(np.diff(buckets[order])) + 1
            if not len(cuts):
                yield Tree(partition, int(buckets[0])), part
                continue
            for numbers in np.split(order, cuts):
                tree = Tree(partition, int(buckets[numbers[0]]))
                yield tree, take_batch_rows(part, numbers)


class _Runs:
    """Writes the rows of buffers as sorted runs, of each tree one after the other.

    bucket_counts: See `KeyWriter`.
    changes: Writes the rows as they came; None: nothing does.
    entries: Of the files that are written are appended to it.
    """

    def __init__(
        self,
        trees: TreeWriter,
        key: PrimaryKey,
        bucket_counts: BucketCounts,
        changes: ChangelogWriter | None,
        entries: list[Entry],
    ) -> None:
        self._entries = entries
        self._trees = trees
        self._changes = changes
        self._key = key
        self._counts = bucket_counts
        self._next: dict[Tree, int] = {}
        self._failure: BaseException | None = None

    def flush(self, tree: Tree, batches: list[pa.RecordBatch]) -> None:
        """Write rows of a tree as its next newer run."""
        if self._changes is not None:  # both refer to the same values
            batches = self._trees.files.with_blobs_written(batches)
        try:
            has_kinds, run = sorted_run(batches, self._key)
        except pa.ArrowInvalid:  # too much text for one array, or too many values in dictionaries
            if len(batches) == 1:
                raise
            half = len(batches) // 2
            self.flush(tree, batches[:half])
            self.flush(tree, batches[half:])
            return
        number = self._next.get(tree, 0)
        self._next[tree] = number + 1
        if self._changes is not None:
            given = map(split_kinds, batches)
            self._entries += self._changes.write(
                tree.partition,
                tree.bucket,
                given,
                sequence_offset=number,
                total_buckets=self._counts.get(tree.partition.values),
            )
        self._entries += self._trees.write_run(
            tree.partition,
            tree.bucket,
            0,
            run,
            has_kinds=has_kinds,
            sequence_offset=number,
            total_buckets=self._counts.get(tree.partition.values),
        )

    def fail(self, error: BaseException) -> None:
        """Learn that rows were lost: nothing can be committed any more."""
        self._failure = error

    def check(self) -> None:
        """Refuse to go on after a failure."""
        if self._failure is not None:
            raise InvalidArgumentError(
                f"the writer has failed, its rows can't be committed: {self._failure}"
            ) from self._failure
