"""Which pages of a stream hold given slots, and where in them. Pure: numbers in, numbers out.

Wanted slots are `RowRanges`; None stands for every slot of a chunk, however many those are.
"""

from __future__ import annotations

import numpy as np

from fermion.columns.ranges import RowRanges
from fermion.exports import dataclass
from fermion.layout import CHUNK_SLOTS_MAX, ChunkFlag
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.pages.global_dictionary import DictionaryRecord, dictionary_record

# Plain integers: operations on enum flags are slow where many columns are planned.
_FIRST_PAGE_IS_DICT = int(ChunkFlag.FIRST_PAGE_IS_DICT)
_DENSE_NO_NULL_SLOTS = int(ChunkFlag.DENSE_NO_NULL_SLOTS)
_USES_GLOBAL_DICT = int(ChunkFlag.USES_GLOBAL_DICT)


def times(ranges: RowRanges | None, factor: int) -> RowRanges | None:
    """The slots of a fixed-size list's child."""
    if ranges is None:
        return None
    return RowRanges.from_bounds(ranges.starts * factor, ranges.stops * factor)


@dataclass(frozen=True, slots=True)
class PageSpan:
    """A page to read and the slots wanted of it.

    offset, length: Where the page lies in the file.
    slots: Slots of the page; -1 where only the page's own header tells.
    start, stop: Wanted slots, counted within the page; stop -1 means to its end.
    first_slot: Slots of the chunk before this page.
    child_base, child_stop: For OFFSETS with more than one page: child slots before and up to the
        end of the page.
    """

    offset: int
    length: int
    slots: int
    start: int
    stop: int
    first_slot: int
    child_base: int = 0
    child_stop: int = -1

    @property
    def wanted(self) -> tuple[int, int]:
        """``start`` and ``stop``."""
        return self.start, self.stop


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The pages of one chunk that hold the wanted slots.

    dictionary: The place of the chunk's dictionary page, or of the global dictionary that it refers
        to; None where there is none, or none is needed.
    shared: What the CMB says of the global dictionary; None where the chunk refers to none.
    nulls_removed: Whether pages may leave their null slots out.
    """

    spans: tuple[PageSpan, ...]
    dictionary: tuple[int, int] | None = None
    nulls_removed: bool = False
    shared: DictionaryRecord | None = None


def plan_stream(
    block: ColumnBlock,
    chunk: Chunk,
    ranges: RowRanges | None,
    slots: int,
    *,
    from_page_start: bool = False,
) -> StreamPlan:
    """Choose the pages of a chunk that is not empty.

    slots: Slots of the chunk as far as the levels above tell; -1 where they do not yet.
    from_page_start: Whether each page is wanted from its first slot on (offsets add up from there).
    """
    has_dictionary = bool(chunk.flags & _FIRST_PAGE_IS_DICT)
    nulls_removed = bool(chunk.flags & _DENSE_NO_NULL_SLOTS)
    shared = dictionary_record(block, chunk) if chunk.flags & _USES_GLOBAL_DICT else None
    dictionary = None if shared is None else shared.place
    if has_dictionary and shared is not None:
        raise block.error(f"the chunk at {chunk.offset} has a dictionary and uses a global one too")
    metas = block.pages(chunk)
    if metas is None:
        if has_dictionary:
            raise block.error(f"the chunk at {chunk.offset} has a dictionary page and no other")
        start, stop = 0, -1
        if ranges is not None:
            if not ranges:
                return StreamPlan(())
            start, stop = int(ranges.starts[0]), int(ranges.stops[-1])
        span = PageSpan(chunk.offset, chunk.length, slots, 0 if from_page_start else start, stop, 0)
        return StreamPlan((span,), dictionary, nulls_removed, shared)
    sizes = metas["pageSize"].astype(np.int64)
    offsets = chunk.offset + np.cumsum(sizes) - sizes
    rows = metas["rowCount"].astype(np.int64)
    skip = int(has_dictionary)
    cuts = np.concatenate(([0], np.cumsum(rows[skip:])))
    if (slots >= 0 and cuts[-1] != slots) or (has_dictionary and rows[0]):
        raise block.error(
            f"pages of the chunk at {chunk.offset} hold {cuts[-1]} slots, expected {slots}"
        )
    lows, highs = metas["minVal"], metas["maxVal"]
    if from_page_start:
        _check_child_slots(block, chunk, lows[skip:], highs[skip:])
    spans = tuple(
        PageSpan(
            int(offsets[page + skip]),
            int(sizes[page + skip]),
            int(rows[page + skip]),
            0 if from_page_start else start,
            stop,
            int(cuts[page]),
            int(lows[page + skip]),
            int(highs[page + skip]),
        )
        for page, start, stop in _touched(cuts, ranges)
    )
    if not spans:
        return StreamPlan(spans, None, nulls_removed)
    if has_dictionary:
        dictionary = (chunk.offset, int(sizes[0]))
    return StreamPlan(spans, dictionary, nulls_removed, shared)


def validity_ranges(block: ColumnBlock, chunk: Chunk, ranges: RowRanges | None) -> RowRanges | None:
    """The slots whose validity is needed to read wanted slots of a leaf's chunk (None: all).

    Where pages leave their null slots out, those are all slots of the pages that are read.
    """
    if ranges is None or chunk.is_empty or not chunk.flags & _DENSE_NO_NULL_SLOTS:
        return ranges
    if block.pages(chunk) is None:
        return None
    cuts = block.page_cuts(chunk, -1)
    wanted = np.zeros(len(cuts) - 1, bool)
    wanted[[page for page, _, _ in _touched(cuts, ranges)]] = True
    return RowRanges.from_units(cuts, wanted)


def places_within(around: RowRanges | None, ranges: RowRanges) -> tuple[np.ndarray, np.ndarray]:
    """Where ranges lie among the slots of ``around`` (None: all slots) put end to end.

    Returns: ``int64``, shape (ranges,): stops exclusive. Each range must lie within one of
        ``around``.
    """
    if around is None:
        return ranges.starts, ranges.stops
    lengths = around.stops - around.starts
    at = np.searchsorted(around.starts, ranges.starts, side="right") - 1
    starts = (np.cumsum(lengths) - lengths - around.starts)[at] + ranges.starts
    return starts, starts + (ranges.stops - ranges.starts)


def _check_child_slots(
    block: ColumnBlock, chunk: Chunk, lows: np.ndarray, highs: np.ndarray
) -> None:
    """Check that the pages of an OFFSETS chunk take up their child slots one after the other."""
    follows = lows[0] == 0 and bool((lows[1:] == highs[:-1]).all())
    if not follows or (highs < lows).any() or highs[-1] > CHUNK_SLOTS_MAX:
        raise block.error(
            f"pages of the offsets at {chunk.offset}: expected child slots one after the other "
            f"up to {CHUNK_SLOTS_MAX} at most, found {lows.tolist()[:8]} to {highs.tolist()[:8]}"
        )


def _touched(cuts: np.ndarray, ranges: RowRanges | None) -> list[tuple[int, int, int]]:
    """(page, first wanted slot, one past the last) for each page with wanted slots."""
    if ranges is None:
        return [(page, 0, int(rows)) for page, rows in enumerate(np.diff(cuts).tolist()) if rows]
    low = np.searchsorted(ranges.stops, cuts[:-1], side="right")
    high = np.searchsorted(ranges.starts, cuts[1:], side="left")
    touched = []
    for page in np.flatnonzero(high > low).tolist():
        base = int(cuts[page])
        start = max(int(ranges.starts[low[page]]) - base, 0)
        stop = min(int(ranges.stops[high[page] - 1]), int(cuts[page + 1])) - base
        touched.append((page, start, stop))
    return touched


def positions(spans: tuple[PageSpan, ...], ranges: RowRanges) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted range lies in the spans' slots put end to end.

    Returns: ``int64``, shape (ranges,): stops exclusive; neighbours may touch.
    """
    firsts = np.array([span.first_slot + span.start for span in spans], np.int64)
    counts = np.array([span.stop - span.start for span in spans], np.int64)
    places = np.cumsum(counts) - counts
    at = np.searchsorted(firsts, ranges.starts, side="right") - 1
    # A range that runs over pages is contiguous in the spans: all slots between are wanted.
    starts = places[at] + ranges.starts - firsts[at]
    return starts, starts + (ranges.stops - ranges.starts)
