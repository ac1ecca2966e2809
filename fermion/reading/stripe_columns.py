"""Columns of one stripe as Arrow arrays, each read in the way that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from copy import copy

import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.columns.types import Node
from fermion.pages.global_dictionary import GlobalDictionaries
from fermion.reading.batches import BatchLookup
from fermion.reading.column import ColumnTask, FetchedPages, read_columns
from fermion.reading.flat import FlatColumns
from fermion.reading.index import FileIndex
from fermion.reading.picked import PickedColumns
from fermion.reading.projection import Projected
from fermion.reading.stream import DecodeOptions
from fermion.reading.whole import WholeColumns

RUN_ROWS_MIN = 32 * 1024
"""So many rows without gaps are read as all rows of a stripe are: the pages around them whole."""


class StripeColumns:
    """Reads columns of the stripes of a file.

    Parameters
    ----------
    index
        The open file.
    batches
        The batches of its rows.
    executor
        Decodes columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, batches: BatchLookup, executor: Executor | None) -> None:
        self._index, self._batches = index, batches
        checks = index.footer.page_checks(index.options.verify_checksums)
        self._dictionaries = GlobalDictionaries(index.where)
        self._decode = DecodeOptions(checks, index.where, self._dictionaries)
        self._use(executor)

    def _use(self, executor: Executor | None) -> None:
        self._executor, index = executor, self._index
        self._flat = FlatColumns(index, executor)
        self._picked = PickedColumns(index, executor)
        self._all = WholeColumns(index, executor)

    def alone(self) -> StripeColumns:
        """The same, its dictionaries shared, for one thread among others."""
        columns = copy(self)
        columns._use(None)
        return columns

    def arrays(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None = None,
        held: FetchedPages | None = None,
    ) -> list[pa.Array]:
        """Some rows (None: all) of some columns, in the columns' order.

        Parameters
        ----------
        kept
            Pages that are here already, to which those that are fetched are added; None: none are
            kept.
        held
            Pages that are here already; none are added.
        """
        return self.arrays_or_batch(columns, stripe, ranges, kept, None, held)[0]

    def arrays_or_batch(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None,
        schema: pa.Schema | None,
        held: FetchedPages | None = None,
    ) -> tuple[list[pa.Array], pa.RecordBatch | None]:
        """The arrays, or a batch of this schema where it comes as one."""
        stored = [column for column in columns if column.tree is not None]
        flat: list[pa.Array | None] = [None] * len(stored)
        pages: FetchedPages = {} if kept is None else kept
        if kept is None and True not in [column.as_dictionary for column in stored]:
            trees = [(column.ordinal, column.tree) for column in stored if column.tree]
            whole = schema if len(stored) == len(columns) else None
            flat, pages, batch = self._flat.read(trees, stripe, ranges, whole)
            if batch is not None:
                return [], batch
            self._take(trees, stripe, ranges, flat, pages, held)
            pages.update(held or {})
        others = [column for column, array in zip(stored, flat, strict=True) if array is None]
        keep = kept is not None
        decoded = iter(self._read(others, stripe, ranges, pages, keep=keep) if others else ())
        arrays = iter([next(decoded) if array is None else array for array in flat])
        return [
            self._shared(column, next(arrays))
            if column.tree is not None
            else self._batches.column(column.field.name, stripe, ranges)
            for column in columns
        ], None

    def _take(
        self,
        trees: Sequence[tuple[int, Node]],
        stripe: int,
        ranges: RowRanges | None,
        found: list[pa.Array | None],
        pages: FetchedPages,
        held: FetchedPages | None,
    ) -> None:
        """Read all rows, or a few, of columns that are not found yet; adds to what is found and
        fetched."""
        missing = [place for place, array in enumerate(found) if array is None]
        if not missing:
            return
        columns = [trees[each] for each in missing]
        if ranges is None:
            arrays, fetched = self._all.arrays(columns, stripe)
        elif held is None and len(ranges) == 1 and ranges.total >= RUN_ROWS_MIN:
            arrays, fetched = self._all.arrays(columns, stripe, next(iter(ranges)))
        else:
            arrays, fetched = self._picked.arrays(columns, stripe, ranges, held)
        pages.update(fetched)
        for place, array in zip(missing, arrays, strict=True):
            found[place] = array

    def fetch(
        self, columns: Sequence[Projected], stripe: int, ranges: RowRanges, kept: FetchedPages
    ) -> None:
        """Fetch pages that hold some rows of columns, together; of lists only the outer offsets."""
        stored = [column for column in columns if column.tree is not None]
        tasks = self._tasks(stored, stripe, ranges)
        missing = {page for task in tasks for page in task.plan()}.difference(kept)
        kept.update(zip(missing, self._index.source.read_many(list(missing)), strict=True))

    def stored_bytes(self, columns: Sequence[Projected], stripe: int) -> int:
        """Bytes of the pages of some columns of a stripe."""
        stored = [column for column in columns if column.tree is not None]
        tasks = self._tasks(stored, stripe, None)
        return sum(length for _, length in {page for task in tasks for page in task.plan()})

    def _read(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        pages: FetchedPages,
        *,
        keep: bool,
    ) -> list[pa.Array]:
        tasks = self._tasks(columns, stripe, ranges)
        arrays = read_columns(self._index.source, tasks, self._executor, pages, keep=keep)
        return [
            self._index.restored(task.node, column.ordinal, stripe, array)
            for task, column, array in zip(tasks, columns, arrays, strict=True)
        ]

    def _tasks(
        self, columns: Sequence[Projected], stripe: int, ranges: RowRanges | None
    ) -> list[ColumnTask]:
        rows = int(self._index.stripe_rows[stripe])
        blocks = self._index.blocks(column.ordinal for column in columns)
        return [
            ColumnTask(
                node,
                block,
                stripe,
                rows,
                ranges,
                self._decode,
                as_dictionary=column.as_dictionary,
            )
            for column, block in zip(columns, blocks, strict=True)
            if (node := column.node) is not None
        ]

    def _shared(self, column: Projected, array: pa.Array) -> pa.Array:
        """A column's array, with the dictionary that all its batches share where it has one."""
        record, dictionaries = column.shared, self._dictionaries
        if record is None or (node := column.node) is None or node.physical is None:
            return array
        if not dictionaries.knows(record, node.physical):  # all is null so far
            physical = node.physical
            self._index.source.read_checked(
                [record.place], lambda data: dictionaries.add(record, data[0], physical)
            )
        shared, wanted = dictionaries.share(array, record, node), column.field.type
        if shared.type == wanted:
            return shared
        indices = shared.indices.cast(wanted.index_type)
        return pa.DictionaryArray.from_arrays(indices, shared.dictionary, ordered=wanted.ordered)
