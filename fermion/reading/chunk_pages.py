"""Pages of one stream that the kernels take many at a time, planned without an object a page.

What the kernels over pages do not know is not planned here, or not decoded: nulls, booleans,
dictionaries that stripes share, some encodings, damage. The general way (`column`) reads all of it,
and says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, Form, Node, PhysicalKind, PhysicalType, Values
from fermion.encodings.decoding import page_reader
from fermion.encodings.encoding import PageBuffer
from fermion.errors import FermionError
from fermion.exports import NamedTuple
from fermion.io.checksum import PageChecks
from fermion.layout import ChunkFlag, EncodingId
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.pages.frame import root_encoding
from fermion.pages.pages import PageSlice, decode_dictionary

if TYPE_CHECKING:
    from typing_extensions import Buffer  # no dependency of the installed package

Wanted = Any
"""Values that a filter asks for, as `kernels.wanted_numbers` and others make them."""

FetchedPages = dict[tuple[int, int], memoryview]
"""Bytes that are here already, by offset and length."""

BITS, STRINGS = ord("b"), ord("s")
"""Letters of a `Form`."""
PICKED_RUN_MAX = 64
"""Slots that lie in runs are longer named by their bounds: a list may claim any number of them."""
PICKED_SLOTS_MIN = 2
"""Of so many slots from the first wanted to the last of each page, one is wanted at most: then the
wanted ones are decoded alone."""
LONE_ROWS_MAX = 16
"""So few rows are picked wherever they are: the general way costs more than to decode them."""
_FIRST_PAGE_IS_DICT = int(ChunkFlag.FIRST_PAGE_IS_DICT)
_OTHERS = int(ChunkFlag.DENSE_NO_NULL_SLOTS) | int(ChunkFlag.USES_GLOBAL_DICT)
_NOTHING = np.empty(0, np.uint8)
_NO_OFFSETS = np.empty(0, np.int64)
_NO_BOUNDS = np.zeros(2, np.int64)


class StreamPages(NamedTuple):
    """Pages of one stream that were read, none of which leaves its null slots out.

    offsets: ``int64``: where each page lies in the file.
    counts: ``int64``: the slots that each page must hold.
    dictionary: What their DICTIONARY nodes refer to.
    """

    pages: Sequence[PageBuffer]
    offsets: np.ndarray
    counts: np.ndarray
    dictionary: Values | None
    checks: PageChecks

    def decode(
        self, form: Form, first: int, stop: int, out: np.ndarray, text: np.ndarray | None
    ) -> Buffer | None:
        """All slots of some pages; see `kernels.decode_pages`."""
        return kernels.decode_pages(
            list(self.pages[first:stop]),
            self.counts[first:stop],
            self.offsets[first:stop],
            self._form(*form),
            page_reader(self.checks),
            out.view(np.uint8),
            text,
        )

    def pick(self, picks: np.ndarray, cuts: np.ndarray, physical: PhysicalType) -> Values | None:
        """Some slots of all pages, as new arrays; None where that has to be done otherwise.

        picks, cuts: ``int64``: slots of the pages, ascending in each, end to end; and which of them
            belong to each page.
        """
        is_binary = physical.kind is PhysicalKind.BINARY
        out = np.zeros(cuts[-1] + 1, np.int64) if is_binary else np.empty(cuts[-1], physical.dtype)
        form = (STRINGS, 8) if is_binary else (ord(out.dtype.kind), out.itemsize)
        data = kernels.pick_pages(
            list(self.pages),
            self.counts,
            self.offsets,
            picks,
            cuts,
            self._form(*form),
            page_reader(self.checks),
            (out[1:] if is_binary else out).view(np.uint8),
        )
        if data is None or not is_binary:
            return None if data is None else out
        return BinaryValues(out, np.frombuffer(memoryview(data), np.uint8))

    def match(
        self,
        form: Form,
        first: int,
        stop: int,
        wanted: np.ndarray | Wanted | None,
        entries: np.ndarray,
        out: np.ndarray,
    ) -> bool:
        """Whether slots of some pages are wanted; see `kernels.match_pages`.

        wanted: Bounds or a set, as the kernel takes them; None: only codes of the dictionary can
            be.
        entries: ``uint8``: which entries of the dictionary are wanted.
        """
        bounds, values = (wanted, None) if isinstance(wanted, np.ndarray) else (_NO_BOUNDS, wanted)
        letter = STRINGS if wanted is None else form[0]
        return kernels.match_pages(
            list(self.pages[first:stop]),
            self.counts[first:stop],
            self.offsets[first:stop],
            kernels.PageTest(letter, form[1], bounds, entries, values),
            page_reader(self.checks),
            out,
        )

    def _form(self, letter: int, width: int) -> kernels.PageForm:
        """The values and the dictionary as the kernels take them."""
        if isinstance(self.dictionary, BinaryValues):
            return kernels.PageForm(letter, width, self.dictionary.data, self.dictionary.offsets)
        if isinstance(self.dictionary, np.ndarray):
            return kernels.PageForm(letter, width, self.dictionary.view(np.uint8), _NO_OFFSETS)
        return kernels.PageForm(letter, width, _NOTHING, _NO_OFFSETS)


class ChunkPages(NamedTuple):
    """Where the pages of a flat column's chunk without nulls lie, or some of them.

    has_dictionary: Whether the first of ``ranges`` is the page of its dictionary.
    ranges: ``int64``, shape (pages, 2): where they lie, that of the dictionary first if there is
        one.
    firsts, counts: ``int64``: slots of the chunk before each page but the dictionary's, and slots
        of each.
    picks, cuts: ``int64``: the slots wanted, counted within their pages, and which of them each
        page has; None: those wanted are not listed.
    """

    node: Node
    form: Form
    block: ColumnBlock
    chunk: Chunk
    has_dictionary: bool
    ranges: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray
    picks: np.ndarray | None = None
    cuts: np.ndarray | None = None

    def some(self, pages: np.ndarray) -> ChunkPages:
        """Some of the pages, ``int64``, ascending, with that of the dictionary."""
        if len(pages) == len(self.counts):
            return self
        places = np.concatenate(([0], pages + 1)) if self.has_dictionary else pages
        own = self.ranges[places], self.firsts[pages], self.counts[pages]
        return ChunkPages(*self[:5], *own)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the pages."""
        return int(self.ranges[:, 1].sum())

    def fetched(self, pages: Sequence[memoryview]) -> FetchedPages:
        """All pages by where they lie."""
        return dict(zip(map(tuple, self.ranges.tolist()), pages, strict=True))

    def among(self, held: FetchedPages) -> list[memoryview] | None:
        """The pages, if all of them are among those that are here already."""
        if not held:
            return None
        pages = [held.get((offset, length)) for offset, length in self.ranges.tolist()]
        return None if None in pages else pages  # type: ignore[return-value]

    def pick(self, wanted: np.ndarray) -> ChunkPages | None:
        """The pages that hold wanted slots; None where most slots between these are wanted too.

        wanted: ``int64``, ascending, at least one.
        """
        count = len(wanted)
        at = np.empty(len(self.firsts) + 1, np.int64)
        at[:-1], at[-1] = wanted.searchsorted(self.firsts), count
        touched = (at[1:] > at[:-1]).nonzero()[0]
        cuts = np.empty(len(touched) + 1, np.int64)
        cuts[:-1], cuts[-1] = at[touched], count
        first, last = cuts[:-1], cuts[1:]
        between = (wanted[last - 1] - wanted[first]).sum() + len(touched)
        if count > LONE_ROWS_MAX and PICKED_SLOTS_MIN * count > between:
            return None
        some = self.some(touched)
        picks = wanted - some.firsts.repeat(last - first)
        return ChunkPages(*some[:-2], picks, cuts)

    def open(self, pages: Sequence[memoryview], checks: PageChecks) -> StreamPages | None:
        """The pages with the dictionary, if one of them refers to it; None where it is damaged.

        pages: That of the dictionary first if there is one.
        """
        first, others = int(self.has_dictionary), pages
        dictionary = None
        if self.has_dictionary:
            others = pages[1:]
            if any(root_encoding(page) == EncodingId.DICTIONARY for page in others):
                assert self.node.physical is not None
                stored = PageSlice(pages[0], int(self.ranges[0, 0]), None, 0, 0)
                try:
                    dictionary = decode_dictionary(stored, self.node.physical, checks=checks)
                except FermionError:  # told by the general way, which names the file
                    return None
        offsets = np.ascontiguousarray(self.ranges[first:, 0])
        return StreamPages(others, offsets, self.counts, dictionary, checks)


def chunk_pages(
    node: Node, block: ColumnBlock | None, stripe: int, slots: int
) -> ChunkPages | None:
    """The pages of a column in a stripe of so many slots; None: it has to be read otherwise.

    block: The column's CMB; None: it is null in all rows.
    """
    form = node.form
    if form is None or form[0] == BITS or block is None:
        return None
    try:
        chunk = block.chunk(node.stream, stripe)
        is_known = not chunk.is_empty and not chunk.flags & _OTHERS
        if not is_known or block.chunk(node.validity, stripe).length:
            return None
        metas = block.pages(chunk)
    except FermionError:  # told by the general way, when it comes to this column
        return None
    if metas is None:
        return None
    skip = int(bool(chunk.flags & _FIRST_PAGE_IS_DICT))
    sizes, counts = metas["pageSize"].astype(np.int64), metas["rowCount"].astype(np.int64)
    ends = counts.cumsum()
    if ends[-1] != slots or counts[:skip].any():
        return None
    ranges = np.empty((len(metas), 2), np.int64)
    ranges[:, 1] = sizes
    sizes.cumsum(out=ranges[:, 0])
    ranges[:, 0] += chunk.offset - sizes
    counts = counts[skip:]
    return ChunkPages(node, form, block, chunk, bool(skip), ranges, ends[skip:] - counts, counts)
