"""Rows of one stripe: prune, read what a filter needs, then only the rows that survive it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.columns.arrow_buffers import booleans
from fermion.columns.ranges import RowRanges, join_near
from fermion.columns.rows import Matches, filter_rows
from fermion.columns.types import Node, NodeKind, Order
from fermion.errors import InvalidFileError
from fermion.layout import ALL_NULL_LENGTH, INT64_MAX, INT64_MIN, ChunkFlag, DescType, ExtTag
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.metadata.file_info import BATCH_ID
from fermion.pages.global_dictionary import GlobalDictionaries
from fermion.predicate import (
    Bounds,
    Expression,
    evaluate,
    ranges_that_may_match,
    ranges_that_must_match,
)
from fermion.reading.batches import BatchLookup
from fermion.reading.column import ColumnTask, FetchedPages, read_columns
from fermion.reading.flat import FlatColumns
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected, result_schema
from fermion.reading.stream import DecodeOptions
from fermion.statistics.bloom import (
    BloomFilters,
    parse_bloom_record,
    parse_page_bloom_record,
    read_filters,
)
from fermion.statistics.bounds import page_flags
from fermion.statistics.details import may_lie_within, page_null_counts

DENSE_FRACTION = 0.25
JOIN_ROWS = 512
EXACT = ChunkFlag.HAS_MINMAX | ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT | ChunkFlag.NAN_KNOWN


class StripeReader:
    """Reads columns of a file stripe by stripe.

    Parameters
    ----------
    index
        The open file.
    executor
        Decodes columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: Executor | None) -> None:
        self._index, self._executor = index, executor
        checks = index.footer.page_checks(index.options.verify_checksums)
        self._flat = FlatColumns(index, executor)
        # By what is in the file: where the chunk is, and the tag of the record.
        self._blooms: dict[tuple[int, ExtTag], BloomFilters] = {}
        self._dictionaries = GlobalDictionaries(index.where)
        self._decode = DecodeOptions(checks, index.where, self._dictionaries)
        self.batches = BatchLookup(index, checks=checks)

    def arrays(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None = None,
    ) -> list[pa.Array]:
        """Some rows (None: all) of some columns, in the columns' order.

        Parameters
        ----------
        kept
            Pages that are here already, to which those that are fetched are added; None: none are
            kept.
        """
        stored = [column for column in columns if column.tree is not None]
        found: list[pa.Array | None] = [None] * len(stored)
        pages: FetchedPages = {} if kept is None else kept
        if kept is None and ranges is None and not any(column.as_dictionary for column in stored):
            found, pages = self._flat.arrays(
                [(column.ordinal, column.tree) for column in stored if column.tree], stripe
            )
        rest = [column for column, array in zip(stored, found, strict=True) if array is None]
        keep = kept is not None
        others = iter(self._read(rest, stripe, ranges, pages, keep=keep) if rest else ())
        arrays = iter([next(others) if array is None else array for array in found])
        return [
            self._shared(column, next(arrays))
            if column.tree is not None
            else self.batches.column(column.field.name, stripe, ranges)
            for column in columns
        ]

    def fetch(
        self, columns: Sequence[Projected], stripe: int, ranges: RowRanges, kept: FetchedPages
    ) -> None:
        """Fetch pages that hold some rows of columns, together; of lists only the outer offsets."""
        stored = [column for column in columns if column.tree is not None]
        tasks = self._tasks(stored, stripe, ranges)
        missing = {each for task in tasks for each in task.plan()}.difference(kept)
        kept.update(zip(missing, self._index.source.read_many(list(missing)), strict=True))

    def stored_bytes(self, columns: Sequence[Projected], stripe: int) -> int:
        """Bytes of the pages of some columns of a stripe."""
        stored = [column for column in columns if column.tree is not None]
        tasks = self._tasks(stored, stripe, None)
        return sum(length for _, length in {each for task in tasks for each in task.plan()})

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
        record, known = column.shared, self._dictionaries
        if record is None or (node := column.node) is None or node.physical is None:
            return array
        if not known.knows(record, node.physical):  # all is null so far
            physical = node.physical
            self._index.source.read_checked(
                [record.place], lambda data: known.add(record, data[0], physical)
            )
        found, wanted = known.share(array, record, node), column.field.type
        if found.type == wanted:
            return found
        indices = found.indices.cast(wanted.index_type)
        return pa.DictionaryArray.from_arrays(indices, found.dictionary, ordered=wanted.ordered)

    def batch(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch:
        """The same as a record batch, which knows its length without any column."""
        if not columns:
            rows = int(self._index.stripe_rows[stripe]) if ranges is None else ranges.total
            return empty_columns(rows)
        arrays = self.arrays(columns, stripe, ranges, kept)
        return pa.RecordBatch.from_arrays(arrays, schema=result_schema(columns))

    def selected(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch:
        """The same where rows may be missing here and there: small gaps are read and left out."""
        joined = ranges and join_near(ranges, JOIN_ROWS)
        if ranges and joined and ranges.total <= joined.total * DENSE_FRACTION:
            return self.batch(columns, stripe, ranges, kept)
        batch = self.batch(columns, stripe, joined and self._whole(joined, stripe), kept)
        if ranges is None or joined is None or joined.total == ranges.total:
            return batch
        if not columns:
            return empty_columns(ranges.total)
        arrays = _filtered(columns, batch.columns, _inside(ranges, joined))
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def settle(
        self, expression: Expression, columns: Sequence[Projected], stripe: int
    ) -> tuple[RowRanges, RowRanges]:
        """What statistics say: rows of a stripe that may match, and those of them that must."""
        rows = int(self._index.stripe_rows[stripe])
        if not self._index.options.use_statistics:
            return RowRanges.all(rows), RowRanges.empty()
        by_name = {column.field.name: column for column in columns}

        def lookup(path: tuple[str, ...]) -> Bounds | None:
            column = by_name.get(path[0])
            return self._bounds(column, path, stripe, rows) if column is not None else None

        may = ranges_that_may_match(expression, lookup, rows)
        return may, ranges_that_must_match(expression, lookup, rows) if may else may

    def find(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        within: RowRanges | None = None,
    ) -> RowRanges:
        """Which rows of a stripe match; reads only rows that statistics leave in question."""
        rows = int(self._index.stripe_rows[stripe])
        may, must = self.settle(expression, columns, stripe)
        asked = may & must.complement(rows)
        if within is not None:
            asked = asked & join_near(within, JOIN_ROWS)
        mask = self._mask(expression, columns, stripe, asked)[0]
        found = must | RowRanges.from_indices(asked.to_indices()[mask])
        return found if within is None else found & within

    def _bounds(
        self, column: Projected, path: tuple[str, ...], stripe: int, rows: int
    ) -> Bounds | None:
        if column.node is None:
            return self._batch_bounds(path[0], stripe)
        (block,) = self._index.blocks([column.ordinal])
        node, hidden = column.node, False
        for name in path[1:]:
            if block is not None:
                hidden |= block.desc_type(node.validity) is not DescType.USE_DEFAULT
            node = _child(node, name)
        if node.kind is not NodeKind.LEAF:
            return None
        if block is None:
            return _unit_bounds(node, rows, INT64_MAX, INT64_MIN, rows, EXACT)
        chunk = block.chunk(node.stream, stripe)
        if chunk.is_empty:
            validity = block.chunk(node.validity, stripe)
            if hidden or validity.length != ALL_NULL_LENGTH:
                return None
            return _unit_bounds(node, rows, INT64_MAX, INT64_MIN, rows, EXACT)
        nulls = -1 if hidden else chunk.null_count
        found = self._page_bounds(block, chunk, node, rows, nulls)
        ask = self._may_contain(block, chunk, node, len(found.min))
        return replace(found, may_contain=ask)

    def _page_bounds(
        self, block: ColumnBlock, chunk: Chunk, node: Node, rows: int, nulls: int
    ) -> Bounds:
        pages = block.pages(chunk)
        if pages is None or not chunk.flags & ChunkFlag.HAS_MINMAX:
            return _unit_bounds(node, rows, chunk.minimum, chunk.maximum, nulls, chunk.flags)
        pages = pages[1:] if chunk.flags & ChunkFlag.FIRST_PAGE_IS_DICT else pages
        boundaries = np.concatenate(([0], np.cumsum(pages["rowCount"], dtype=np.int64)))
        lows, highs = pages["minVal"].astype(np.int64), pages["maxVal"].astype(np.int64)
        return Bounds(
            boundaries=boundaries,
            min=lows,
            max=highs,
            null_count=_null_counts(block, chunk, len(pages), nulls),
            flags=page_flags(ChunkFlag(chunk.flags), chunk.minimum, chunk.maximum, lows, highs),
            type=node.storage,
        )

    def _may_contain(
        self, block: ColumnBlock, chunk: Chunk, node: Node, units: int
    ) -> Callable[[Sequence[Any]], np.ndarray] | None:
        """The chunk's bounds in full and bloom filters, which are read when they are first asked.

        None where it has none of them.
        """
        if not chunk.extension_offset:
            return None
        records = block.extension(chunk)
        tags = [tag for tag in (ExtTag.BLOOM, ExtTag.PAGE_BLOOM) if tag in records]
        bounded = node.order is Order.BYTES and ExtTag.LONG_MIN in records
        if not tags and not bounded:
            return None

        def ask(raws: Sequence[Any]) -> np.ndarray:
            inside: np.ndarray = np.full((len(raws), 1), True)
            if bounded:
                inside[:, 0] = [may_lie_within(records, raw) for raw in raws]
            for tag in tags:
                if inside.any():
                    filters = self._bloom_filters(chunk, tag, records[tag])
                    inside = inside & filters.may_contain(raws, node.storage)
            # Where pages are not told apart, what is in one of them is in the chunk.
            return inside if inside.shape[1] == units else np.any(inside, axis=1)

        return ask

    def _bloom_filters(self, chunk: Chunk, tag: ExtTag, record: bytes) -> BloomFilters:
        filters = self._blooms.get((chunk.offset, tag))
        if filters is None:
            index, blocks = self._index, None
            stop = index.footer.cmb_offset
            if tag is ExtTag.PAGE_BLOOM:
                *place, crc, blocks = parse_page_bloom_record(
                    record, chunk.num_data_pages, stop, index.where
                )
            else:
                *place, crc = parse_bloom_record(record, stop, index.where)
            filters = read_filters(index.source, (place[0], place[1]), crc, index.where, blocks)
            self._blooms[chunk.offset, tag] = filters
        return filters

    def _batch_bounds(self, name: str, stripe: int) -> Bounds | None:
        if name != BATCH_ID:
            return None
        ids, ends = self.batches.stripe(stripe)
        return Bounds(
            boundaries=ends,
            min=ids,
            max=ids,
            null_count=np.zeros(len(ids), np.int64),
            flags=np.full(len(ids), EXACT, np.uint32),
            type=pa.int64(),
        )

    def _mask(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges,
        kept: FetchedPages | None = None,
    ) -> tuple[np.ndarray, list[pa.Array]]:
        """Which of some rows match: bool, shape (rows,); and the filter's columns over them."""
        if not ranges:
            return np.zeros(0, bool), []
        batch = self.batch(columns, stripe, self._whole(ranges, stripe), kept)
        try:
            mask = pc.fill_null(evaluate(expression, batch), False)
        except pa.ArrowException as error:  # such as decimals with more digits than their type
            raise InvalidFileError(
                f"{self._index.where}: stripe {stripe}: values that cannot be compared: {error}"
            ) from error
        return booleans(mask).unpack(), batch.columns

    def _whole(self, ranges: RowRanges, stripe: int) -> RowRanges | None:
        return None if ranges.total == int(self._index.stripe_rows[stripe]) else ranges

    def filtered(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        columns: Sequence[Projected],
        stripe: int,
        within: RowRanges | None = None,
        *,
        settled: tuple[RowRanges, RowRanges] | None = None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch | None:
        """The rows of a stripe that a filter selects; None where there are none.

        Parameters
        ----------
        within
            Rows of the stripe to look at; None: all.
        settled
            What `settle` says; None: ask it.
        kept
            See `arrays`.
        """
        may, must = settled or self.settle(expression, filter_columns, stripe)
        asked, certain = (may, must) if within is None else (may & within, must & within)
        if asked == certain:
            return (
                self.selected(columns, stripe, self._whole(asked, stripe), kept) if asked else None
            )
        if within is not None:
            may = may & join_near(within, JOIN_ROWS)
        found = self.matches(expression, filter_columns, stripe, asked, may, kept)
        return self.matched(columns, filter_columns, stripe, found, kept)

    def matches(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        stripe: int,
        asked: RowRanges,
        around: RowRanges,
        kept: FetchedPages | None = None,
    ) -> Matches:
        """Which of the rows that are asked for match; ``around`` holds them, and is read."""
        mask, read = self._mask(expression, filter_columns, stripe, around, kept)
        if asked.total < around.total:
            mask = mask & _inside(asked, around)
        return Matches(around, mask, read)

    def matched(
        self,
        columns: Sequence[Projected],
        filter_columns: Sequence[Projected],
        stripe: int,
        found: Matches,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch | None:
        """The rows that match, as a filter's columns found them; None where there are none."""
        mask = found.mask
        if not mask.any():
            return None
        candidates = self._whole(found.around, stripe)
        have = {
            column.ordinal if column.node is not None else column.field.name: array
            for column, array in zip(filter_columns, found.arrays, strict=True)
        }
        keys = [each.ordinal if each.node is not None else each.field.name for each in columns]
        reusable = [
            key in have and have[key].type == column.field.type and column.shared is None
            for key, column in zip(keys, columns, strict=True)
        ]
        others = [column for column, known in zip(columns, reusable, strict=True) if not known]
        rest = iter(self._survivors(others, stripe, mask, candidates, kept) if others else ())
        arrays = [
            filter_rows(have[key], mask, column.node) if known else next(rest)
            for key, known, column in zip(keys, reusable, columns, strict=True)
        ]
        if not columns:
            return empty_columns(int(np.count_nonzero(mask)))
        schema = pa.schema([column.field for column in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _survivors(
        self,
        columns: Sequence[Projected],
        stripe: int,
        mask: np.ndarray,
        candidates: RowRanges | None,
        kept: FetchedPages | None,
    ) -> list[pa.Array]:
        """Columns the filter did not read: only the selected rows, unless they are many."""
        if np.count_nonzero(mask) > DENSE_FRACTION * len(mask):
            return _filtered(columns, self.arrays(columns, stripe, candidates, kept), mask)
        wanted = np.flatnonzero(mask)
        if candidates is not None and len(candidates) == 1:
            wanted = wanted + candidates.starts[0]
        elif candidates is not None:
            wanted = candidates.to_indices()[wanted]
        return self.arrays(columns, stripe, RowRanges.from_indices(wanted), kept)


def _inside(rows: RowRanges, of: RowRanges) -> np.ndarray:
    """Which rows of a set are in a subset: ``bool``, shape (of.total,)."""
    low, high = int(of.starts[0]), int(of.stops[-1])
    found: np.ndarray = rows.shift(-low).to_mask(high - low)[of.shift(-low).to_indices()]
    return found


def _filtered(
    columns: Sequence[Projected], arrays: Sequence[pa.Array], mask: np.ndarray
) -> list[pa.Array]:
    return [
        filter_rows(array, mask, column.node) for array, column in zip(arrays, columns, strict=True)
    ]


def _child(node: Node, name: str) -> Node:
    return next(child for child in node.children if child.name == name)


def _null_counts(block: ColumnBlock, chunk: Chunk, pages: int, nulls: int) -> np.ndarray:
    """Nulls of each page, -1 where that is not known; ``nulls`` are those of the chunk."""
    counts = None
    if nulls > 0 and chunk.extension_offset:
        counts = page_null_counts(block.extension(chunk), pages, block.where)
    return np.full(pages, 0 if nulls == 0 else -1, np.int64) if counts is None else counts


def _unit_bounds(node: Node, rows: int, low: int, high: int, nulls: int, flags: int) -> Bounds:
    return Bounds(
        boundaries=np.array([0, rows], np.int64),
        min=np.array([low], np.int64),
        max=np.array([high], np.int64),
        null_count=np.array([nulls], np.int64),
        flags=np.array([flags], np.uint32),
        type=node.storage,
    )


def empty_columns(rows: int) -> pa.RecordBatch:
    """A record batch without columns that has so many rows."""
    struct = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(struct)
