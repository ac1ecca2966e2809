"""Counts what statistics leave of a file to read: stripes, pages and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fermion.columns.types import Node, NodeKind
from fermion.predicate import RowRanges
from fermion.reading.bounds import StripeBounds
from fermion.reading.index import FileIndex
from fermion.reading.projection import BoundFilter, Projected


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

    Parameters
    ----------
    bounds
        The statistics of the file.
    filter
        Without an expression it selects every row.
    columns
        Selected columns.
    wanted
        Stripes and the selected rows of each; None: all.
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
