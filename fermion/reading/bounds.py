"""Prunes rows by statistics: bounds of chunks and pages, Bloom filters; counts what they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.columns.types import Node, NodeKind, Order
from fermion.exports import LoadedWhenAskedFor, NamedTuple, dataclass
from fermion.forks import cached_property
from fermion.layout import ALL_NULL_LENGTH, INT64_MAX, INT64_MIN, ChunkFlag, DescType, ExtTag
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.metadata.file_info import BATCH_ID
from fermion.predicate import Bounds, ranges_that_match, ranges_that_may_match
from fermion.reading.batches import BatchLookup
from fermion.reading.index import FileIndex
from fermion.reading.projection import BoundFilter, Projected
from fermion.statistics.bounds import EXACT_FLAGS, may_lie_within, page_flags, page_null_counts

if TYPE_CHECKING:
    from fermion.statistics import bloom
else:
    bloom = LoadedWhenAskedFor("fermion.statistics.bloom")


class PrunedRows(NamedTuple):
    """Rows of a stripe, as far as statistics tell.

    may_match: Rows that statistics do not rule out.
    must_match: Those of them that match for certain.
    """

    may_match: RowRanges
    must_match: RowRanges


class _Unit(NamedTuple):
    """What is known of a chunk without its pages."""

    minimum: int
    maximum: int
    nulls: int
    flags: int


_UNKNOWN = _Unit(INT64_MIN, INT64_MAX, -1, 0)


class _Leaf(NamedTuple):
    """What a path of a filter means in a file.

    block: None: the column is null in every row.
    hidden: Whether values may lie under nulls of structs above.
    """

    node: Node
    block: ColumnBlock | None
    hidden: bool

    def unit(self, stripe: int, rows: int) -> _Unit | None:
        """Its chunk in a stripe; None where nothing is known."""
        node, block = self.node, self.block
        if node.kind is not NodeKind.LEAF:
            return None
        if block is not None:
            chunk = block.chunk(node.stream, stripe)
            if not chunk.is_empty:
                nulls = -1 if self.hidden else chunk.null_count
                return _Unit(chunk.minimum, chunk.maximum, nulls, chunk.flags)
            if self.hidden or block.chunk(node.validity, stripe).length != ALL_NULL_LENGTH:
                return None
        return _Unit(INT64_MAX, INT64_MIN, rows, EXACT_FLAGS)


class StripeBounds:
    """The statistics of an open file, stripe by stripe; reads metadata and Bloom filters only."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        # By what is in the file: where the chunk is, and the tag of the record.
        self._blooms: dict[tuple[int, ExtTag], bloom.BloomFilters] = {}
        self._stripes_known: tuple[BoundFilter, np.ndarray] | None = None

    @cached_property
    def batches(self) -> BatchLookup:
        """The batches of a file in batch mode."""
        return BatchLookup(self._index, checks=self._index.page_checks)

    def prune(self, filter: BoundFilter, stripe: int) -> PrunedRows:
        """The rows of a stripe that may match a filter, and those that must."""
        rows = int(self._index.stripe_rows[stripe])
        if filter.expression is None:
            return PrunedRows(RowRanges.all(rows), RowRanges.all(rows))
        if not self._index.options.use_statistics:
            return PrunedRows(RowRanges.all(rows), RowRanges.empty())
        if not self.stripes_that_may_match(filter)[stripe]:
            return PrunedRows(RowRanges.empty(), RowRanges.empty())
        by_name = {column.field.name: column for column in filter.columns}

        def lookup(path: tuple[str, ...]) -> Bounds | None:
            column = by_name.get(path[0])
            return self._bounds(column, path, stripe, rows) if column is not None else None

        return PrunedRows(*ranges_that_match(filter.expression, lookup, rows))

    def stripes_that_may_match(self, filter: BoundFilter) -> np.ndarray:
        """Which stripes may have rows that a filter selects, by those of chunks alone: ``bool``.

        The pages of the others need not be looked at.
        """
        known = self._stripes_known
        if known is None or known[0] is not filter:
            known = self._stripes_known = filter, self._stripes_asked(filter)
        return known[1]

    def _stripes_asked(self, filter: BoundFilter) -> np.ndarray:
        stripe_rows = self._index.stripe_rows.tolist()
        decides = len(stripe_rows) > 1 and self._index.options.use_statistics
        if filter.expression is None or not decides:
            return np.ones(len(stripe_rows), bool)
        by_name = {column.field.name: column for column in filter.columns}
        boundaries = np.cumsum([0, *stripe_rows])

        def lookup(path: tuple[str, ...]) -> Bounds | None:
            column = by_name.get(path[0])
            if column is None or column.node is None:
                return None
            leaf = self._leaf(column.node, column.ordinal, path)
            units = [leaf.unit(stripe, rows) for stripe, rows in enumerate(stripe_rows)]
            return _bounds_of(leaf.node, boundaries, [unit or _UNKNOWN for unit in units])

        ranges = ranges_that_may_match(filter.expression, lookup, int(boundaries[-1]))
        return ranges.in_units(boundaries)

    def _leaf(self, node: Node, ordinal: int, path: tuple[str, ...]) -> _Leaf:
        (block,) = self._index.blocks([ordinal])
        hidden = False
        for name in path[1:]:
            if block is not None:
                hidden |= block.desc_type(node.validity) is not DescType.USE_DEFAULT
            node = next(child for child in node.children if child.name == name)
        return _Leaf(node, block, hidden)

    def _bounds(
        self, column: Projected, path: tuple[str, ...], stripe: int, rows: int
    ) -> Bounds | None:
        """The bounds of what a path of a filter means; None where nothing is known."""
        if column.node is None:
            return self._batch_bounds(path[0], stripe)
        leaf = self._leaf(column.node, column.ordinal, path)
        unit, node, block = leaf.unit(stripe, rows), leaf.node, leaf.block
        if unit is None:
            return None
        chunk = None if block is None else block.chunk(node.stream, stripe)
        if block is None or chunk is None or chunk.is_empty:
            return _bounds_of(node, np.array([0, rows]), [unit])
        bounds = _page_bounds(block, chunk, node, rows, unit)
        may_contain = self._may_contain(block, chunk, node, len(bounds.min))
        return replace(bounds, may_contain=may_contain)

    def _may_contain(
        self, block: ColumnBlock, chunk: Chunk, node: Node, pages: int
    ) -> Callable[[Sequence[Any]], np.ndarray] | None:
        """The chunk's bounds in full and Bloom filters, which are read at the first call.

        None where it has none of them.
        """
        if not chunk.extension_offset:
            return None
        records = block.extension(chunk)
        tags = [tag for tag in (ExtTag.BLOOM, ExtTag.PAGE_BLOOM) if tag in records]
        bounded = node.order is Order.BYTES and ExtTag.LONG_MIN in records
        if not tags and not bounded:
            return None

        def may_contain(raws: Sequence[Any]) -> np.ndarray:
            inside: np.ndarray = np.full((len(raws), 1), True)
            if bounded:
                inside[:, 0] = [may_lie_within(records, raw) for raw in raws]
            for tag in tags:
                if inside.any():
                    filters = self._bloom_filters(chunk, tag, records[tag])
                    inside = inside & filters.may_contain(raws, node.storage)
            # Where pages are not told apart, what is in one of them is in the chunk.
            return inside if inside.shape[1] == pages else np.any(inside, axis=1)

        return may_contain

    def _bloom_filters(self, chunk: Chunk, tag: ExtTag, record: bytes) -> bloom.BloomFilters:
        filters = self._blooms.get((chunk.offset, tag))
        if filters is None:
            index, blocks = self._index, None
            stop = index.footer.cmb_offset
            if tag is ExtTag.PAGE_BLOOM:
                *place, crc, blocks = bloom.parse_page_bloom_record(
                    record, chunk.num_data_pages, stop, index.where
                )
            else:
                *place, crc = bloom.parse_bloom_record(record, stop, index.where)
            filters = bloom.read_filters(
                index.source, (place[0], place[1]), crc, index.where, blocks
            )
            self._blooms[chunk.offset, tag] = filters
        return filters

    def _batch_bounds(self, name: str, stripe: int) -> Bounds | None:
        """Those of the virtual column of batch ids: a batch is a page with one value."""
        if name != BATCH_ID:
            return None
        ids, ends = self.batches.stripe(stripe)
        return Bounds(
            boundaries=ends,
            min=ids,
            max=ids,
            null_count=np.zeros(len(ids), np.int64),
            flags=np.full(len(ids), EXACT_FLAGS, np.uint32),
            type=pa.int64(),
        )


def _page_bounds(block: ColumnBlock, chunk: Chunk, node: Node, rows: int, unit: _Unit) -> Bounds:
    """Those of the chunk's pages; of the chunk where pages have none."""
    pages = block.data_pages(chunk)
    if pages is None or not chunk.flags & ChunkFlag.HAS_MINMAX:
        return _bounds_of(node, np.array([0, rows]), [unit])
    minima, maxima = pages["minVal"].astype(np.int64), pages["maxVal"].astype(np.int64)
    return Bounds(
        boundaries=block.page_cuts(chunk, rows),
        min=minima,
        max=maxima,
        null_count=_null_counts(block, chunk, len(pages), unit.nulls),
        flags=page_flags(ChunkFlag(chunk.flags), chunk.minimum, chunk.maximum, minima, maxima),
        type=node.storage,
    )


def _null_counts(block: ColumnBlock, chunk: Chunk, pages: int, nulls: int) -> np.ndarray:
    """Nulls of each page, -1 where that is not known; ``nulls`` are those of the chunk."""
    counts = None
    if nulls > 0 and chunk.extension_offset:
        counts = page_null_counts(block.extension(chunk), pages, block.where)
    return np.full(pages, 0 if nulls == 0 else -1, np.int64) if counts is None else counts


def _bounds_of(node: Node, boundaries: np.ndarray, units: Sequence[_Unit]) -> Bounds:
    """Those of chunks that follow each other, as far as is known without their pages."""
    return Bounds(
        boundaries=boundaries,
        min=np.array([unit.minimum for unit in units], np.int64),
        max=np.array([unit.maximum for unit in units], np.int64),
        null_count=np.array([unit.nulls for unit in units], np.int64),
        flags=np.array([unit.flags for unit in units], np.uint32),
        type=node.storage,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePruning:
    """Counts before and after.

    Attributes
    ----------
    stripes, stripes_kept
        Of the file; those with rows that may match.
    pages, pages_kept
        Of the values of the columns asked for and filtered by, outside lists and maps; those that
        hold rows that may match.
    rows, rows_kept, rows_certain
        Of the file; rows that may match; those of them that statistics prove to match.
    """

    stripes: int
    stripes_kept: int
    pages: int
    pages_kept: int
    rows: int
    rows_kept: int
    rows_certain: int


def prune_file(
    index: FileIndex,
    bounds: StripeBounds,
    filter: BoundFilter,
    columns: Sequence[Projected],
    wanted: Sequence[tuple[int, RowRanges | None]],
) -> FilePruning:
    """Prune by statistics, stripe by stripe; reads metadata only.

    bounds: The statistics of the file.
    filter: Without an expression it selects every row.
    wanted: Stripes and the selected rows of each; None: all.
    """
    read = {column.ordinal: column for column in (*columns, *filter.columns) if column.node}
    stripes = pages = pages_kept = rows_kept = certain = 0
    rows_wanted = dict(wanted)
    for stripe, total in enumerate(index.stripe_rows.tolist()):
        may, must = RowRanges.empty(), RowRanges.empty()
        if stripe in rows_wanted:
            may, must = bounds.prune(filter, stripe)
            within = rows_wanted[stripe]
            if within is not None:
                may, must = may & within, must & within
        stripes += bool(may)
        rows_kept += may.total
        certain += must.total
        for column in read.values():
            for boundaries in _page_boundaries(index, column, stripe, total):
                pages += len(boundaries) - 1
                pages_kept += _touched(boundaries, may)
    return FilePruning(
        stripes=len(index.stripe_rows),
        stripes_kept=stripes,
        pages=pages,
        pages_kept=pages_kept,
        rows=int(index.stripe_rows.sum()),
        rows_kept=rows_kept,
        rows_certain=certain,
    )


def _page_boundaries(
    index: FileIndex, column: Projected, stripe: int, rows: int
) -> list[np.ndarray]:
    """Of each stream of values outside lists: the rows where its pages begin, and the end."""
    (block,) = index.blocks([column.ordinal])
    if block is None or column.node is None:
        return []
    chunks = [block.chunk(leaf.stream, stripe) for leaf in _flat_leaves(column.node)]
    return [block.page_cuts(chunk, rows) for chunk in chunks if not chunk.is_empty]


def _flat_leaves(node: Node) -> list[Node]:
    if node.kind is NodeKind.LEAF:
        return [node]
    if node.kind is NodeKind.LIST:
        return []
    return [leaf for child in node.children for leaf in _flat_leaves(child)]


def _touched(boundaries: np.ndarray, ranges: RowRanges) -> int:
    """How many of the pieces between boundaries some ranges touch."""
    if not ranges:
        return 0
    first = np.searchsorted(ranges.stops, boundaries[:-1], side="right")
    inside = first < len(ranges.starts)
    starts = ranges.starts[np.minimum(first, len(ranges.starts) - 1)]
    return int((inside & (starts < boundaries[1:])).sum())
