"""The pages of a flat column's chunk, planned with a few array operations and no object a page.

What the kernels over pages do not know (nulls, dictionaries that stripes share) has no plan here:
it is left to `column.read_columns`, which reads everything and knows what to say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fermion.columns.types import Node
from fermion.columns.values import BinaryValues, Values
from fermion.errors import FermionError
from fermion.io.checksum import PageChecks
from fermion.layout import ChunkFlag, EncodingId
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.pages.frame import root_encoding
from fermion.pages.pages import PageSlice, decode_dictionary
from fermion.reading.column import FetchedPages

_FIRST_PAGE_IS_DICT = int(ChunkFlag.FIRST_PAGE_IS_DICT)
_NOTHING = np.empty(0, np.uint8)
_NO_OFFSETS = np.empty(0, np.int64)
_OTHERS = int(ChunkFlag.DENSE_NO_NULL_SLOTS) | int(ChunkFlag.USES_GLOBAL_DICT)


class ChunkPages(NamedTuple):
    """The pages of a chunk without nulls.

    Attributes
    ----------
    has_dictionary
        Whether the first of ``ranges`` is the page of its dictionary.
    ranges
        ``int64``, shape (pages, 2): where they lie, that of the dictionary first if there is one.
    cuts
        ``int64``: slots before each page but the dictionary's, and the chunk's slots.
    """

    node: Node
    chunk: Chunk
    has_dictionary: bool
    ranges: np.ndarray
    cuts: np.ndarray

    def some(self, pages: np.ndarray) -> ChunkPages:
        """The same with the places of some pages alone, ``int64``, and that of the dictionary."""
        if len(pages) == len(self.cuts) - 1:
            return self
        places = np.concatenate(([0], pages + 1)) if self.has_dictionary else pages
        return self._replace(ranges=self.ranges[places])

    def fetched(self, pages: Sequence[memoryview]) -> FetchedPages:
        """All pages by where they lie."""
        return dict(zip(map(tuple, self.ranges.tolist()), pages, strict=True))

    def is_held(self, held: FetchedPages) -> bool:
        """Whether all pages are among those that are here already."""
        return bool(held) and all(map(held.__contains__, map(tuple, self.ranges.tolist())))


def chunk_pages(node: Node, block: ColumnBlock, stripe: int, slots: int) -> ChunkPages | None:
    """The pages of a column in a stripe of so many slots; None: it has to be read otherwise."""
    try:
        chunk = block.chunk(node.stream, stripe)
        is_known = not chunk.is_empty and not chunk.flags & _OTHERS
        if not is_known or block.chunk(node.validity, stripe).length:
            return None
        metas = block.pages(chunk)
    except FermionError:  # told by the way around, when it comes to this column
        return None
    if metas is None:
        return None
    skip = int(bool(chunk.flags & _FIRST_PAGE_IS_DICT))
    sizes, counts = metas["pageSize"].astype(np.int64), metas["rowCount"].astype(np.int64)
    cuts = np.zeros(len(metas) + 1 - skip, np.int64)
    counts[skip:].cumsum(out=cuts[1:])
    if cuts[-1] != slots or counts[:skip].any():
        return None
    ranges = np.empty((len(metas), 2), np.int64)
    ranges[:, 1] = sizes
    sizes.cumsum(out=ranges[:, 0])
    ranges[:, 0] += chunk.offset - sizes
    return ChunkPages(node, chunk, bool(skip), ranges, cuts)


def entries_of(
    plan: ChunkPages, pages: Sequence[memoryview], checks: PageChecks
) -> tuple[Values | None, Sequence[memoryview]] | None:
    """The chunk's dictionary if a page refers to it, and the other pages; None where it is damaged.

    Parameters
    ----------
    pages
        That of the dictionary first if there is one.
    """
    if not plan.has_dictionary:
        return None, pages
    first, others = pages[0], pages[1:]
    if all(root_encoding(page) != EncodingId.DICTIONARY for page in others):
        return None, others
    physical = plan.node.physical
    assert physical is not None
    entries = PageSlice(first, int(plan.ranges[0, 0]), None, 0, 0)
    try:
        return decode_dictionary(entries, physical, checks=checks), others
    except FermionError:  # told by the way around, which names the file
        return None


def dictionary_of(entries: Values | None) -> tuple[np.ndarray, np.ndarray]:
    """A dictionary as the kernels over pages take it: bytes, and ``int64`` offsets of strings."""
    if isinstance(entries, BinaryValues):
        return entries.data, entries.offsets
    if isinstance(entries, np.ndarray):
        return entries.view(np.uint8), _NO_OFFSETS
    return _NOTHING, _NO_OFFSETS
