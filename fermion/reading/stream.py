"""The slots wanted of one stream, out of the pages that were planned and fetched for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, repeat

import numpy as np

from fermion.columns import slots as rearrange
from fermion.columns import validity
from fermion.columns.ranges import RowRanges
from fermion.columns.types import Bits, PhysicalKind, PhysicalType, Values, slice_values
from fermion.columns.validity import Validity
from fermion.errors import InvalidFileError
from fermion.exports import dataclass
from fermion.forks import ThreadPool
from fermion.io.checksum import PageChecks
from fermion.layout import EncodingId
from fermion.pages.frame import root_encoding
from fermion.pages.global_dictionary import GlobalDictionaries
from fermion.pages.pages import PageSlice, decode_codes, decode_dictionary, decode_pages
from fermion.reading.chunk_pages import PICKED_RUN_MAX, PICKED_SLOTS_MIN, StreamPages
from fermion.reading.plan import PageSpan, StreamPlan, places_within, positions

_SLOTS_MAX = 0xFFFF_FFFF

ErrorMaker = Callable[[str], InvalidFileError]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What decoding needs to know of the file."""

    checks: PageChecks
    where: str
    dictionaries: GlobalDictionaries


@dataclass(frozen=True, slots=True)
class PageValidity:
    """Which slots of whole DATA pages are valid, for pages that leave their null slots out.

    validity: Of the slots ``around``, put end to end.
    around: All slots of the pages that are read; None: all of the chunk's.
    error: Makes errors that name the file and the column.
    """

    validity: Validity
    around: RowRanges | None
    error: ErrorMaker

    def of_page(self, span: PageSpan) -> Validity:
        """The validity of one page's slots.

        Raises InvalidFileError: The VALIDITY stream has fewer slots than the page.
        """
        if not isinstance(self.validity, Bits) or span.slots < 0:
            return self.validity
        first, last = span.first_slot, span.first_slot + span.slots
        slots = RowRanges(np.array([first]), np.array([last]))
        (start,), (stop,) = (each.tolist() for each in places_within(self.around, slots))
        if not 0 <= start <= stop <= len(self.validity):
            raise self.error(f"slots {first} to {last} of the page at {span.offset} lack validity")
        found = slice_values(self.validity, start, stop)
        assert isinstance(found, Bits)
        return found

    def of_slots(self, ranges: RowRanges | None) -> Validity:
        """The validity of the slots wanted (None: all)."""
        if ranges is None or ranges is self.around:
            return self.validity
        starts, stops = places_within(self.around, ranges)
        slots = len(self.validity) if isinstance(self.validity, Bits) else None
        if slots is not None and len(stops) and int(stops.max()) > slots:
            raise self.error(f"expected validity of {stops.max()} slots, found {slots}")
        return validity.select(self.validity, starts, stops, ranges.total)


@dataclass(frozen=True, slots=True)
class FetchedStream:
    """The pages of one stream.

    buffers: Their bytes, those of the dictionary first where the plan says where it is.
    error: Makes errors that name the file and the column.
    executor: Decodes pages side by side; None on its own threads.
    """

    plan: StreamPlan
    buffers: Sequence[memoryview]
    physical: PhysicalType
    options: DecodeOptions
    error: ErrorMaker
    executor: ThreadPool | None = None

    def spans(self, slots: int) -> tuple[PageSpan, ...]:
        """The pages; ``slots`` is the chunk's number of slots, -1 where that is not known yet."""
        return tuple(_closed(span, slots) for span in self.plan.spans)

    def decode(self, slots: int, valid: PageValidity | None = None) -> Values:
        """The slots of all pages from the first wanted to the last wanted of each."""
        return self._decoded(*self._slices(slots, valid))

    def _picked(self, slots: int, picks: Sequence[np.ndarray]) -> Values:
        """For each page some slots."""
        slices, dictionary = self._slices(slots, None, picks)
        options = self.options
        if isinstance(dictionary, PageSlice):
            dictionary = self._entries(slices, dictionary)
        values = _picked(slices, self.physical, dictionary, options.checks)
        return self._decoded(slices, dictionary) if values is None else values

    def _entries(self, slices: Sequence[PageSlice], dictionary: PageSlice) -> Values | None:
        """The chunk's dictionary, where a page refers to it."""
        if all(root_encoding(page.buffer) != EncodingId.DICTIONARY for page in slices):
            return None
        options = self.options
        return decode_dictionary(
            dictionary, self.physical, checks=options.checks, where=options.where
        )

    def _decoded(
        self, slices: Sequence[PageSlice], dictionary: PageSlice | Values | None
    ) -> Values:
        options = self.options
        return decode_pages(
            slices,
            self.physical,
            dictionary=dictionary,
            checks=options.checks,
            where=options.where,
            executor=self.executor,
        )

    def values(
        self, ranges: RowRanges | None, slots: int, valid: PageValidity | None = None
    ) -> Values:
        """The slots wanted (None: all).

        Raises InvalidFileError: The pages hold fewer or more slots than they should.
        """
        if ranges is not None and (picks := self._picks(ranges, slots)) is not None:
            return self._picked(slots, picks)
        values = self.decode(slots, valid)
        if ranges is None:
            if 0 <= slots != len(values):
                raise self.error(f"expected {slots} slots, found {len(values)}")
            return values
        if not self.plan.spans:
            return values
        starts, stops = self._positions(ranges, slots, len(values))
        if len(starts) == 1 and ranges.total == len(values):
            return values
        return rearrange.select_values(values, starts, stops, ranges.total)

    def _picks(self, ranges: RowRanges, slots: int) -> list[np.ndarray] | None:
        """The wanted slots of each page; None where they are better decoded with those between."""
        plan = self.plan
        if not plan.spans or plan.nulls_removed or self.physical.kind is PhysicalKind.BITS:
            return None
        spans = self.spans(slots)
        between = sum([span.stop - span.start for span in spans])
        if ranges.total * PICKED_SLOTS_MIN > between:
            return None
        if ranges.total > PICKED_RUN_MAX * len(ranges.starts):
            return None
        wanted = ranges.to_indices()
        firsts = np.array([span.first_slot for span in spans], np.int64)
        cuts = wanted.searchsorted(np.append(firsts, firsts[-1] + spans[-1].stop)).tolist()
        return [
            wanted[low:high] - span.first_slot
            for span, (low, high) in zip(spans, pairwise(cuts), strict=True)
        ]

    def codes(
        self, ranges: RowRanges | None, slots: int, valid: PageValidity | None = None
    ) -> tuple[np.ndarray, Values] | None:
        """Codes of the slots wanted and the dictionary; None where some page has no codes."""
        slices, dictionary = self._slices(slots, valid)
        options = self.options
        coded = decode_codes(
            slices, self.physical, dictionary=dictionary, checks=options.checks, where=options.where
        )
        if coded is None or ranges is None or not self.plan.spans:
            return coded
        starts, stops = self._positions(ranges, slots, len(coded[0]))
        codes = rearrange.select_values(coded[0], starts, stops, ranges.total)
        assert isinstance(codes, np.ndarray)
        return codes, coded[1]

    def _positions(
        self, ranges: RowRanges, slots: int, found: int
    ) -> tuple[np.ndarray, np.ndarray]:
        starts, stops = positions(self.spans(slots), ranges)
        if len(stops) and int(stops.max()) > found:
            raise self.error(f"expected slots up to {stops.max()}, found {found}")
        return starts, stops

    def _slices(
        self, slots: int, valid: PageValidity | None, picks: Sequence[np.ndarray] | None = None
    ) -> tuple[list[PageSlice], PageSlice | Values | None]:
        dictionary: PageSlice | Values | None = None
        buffers, shared = self.buffers, self.plan.shared
        if self.plan.dictionary is not None:
            first, buffers = buffers[0], buffers[1:]
            if shared is None:
                dictionary = PageSlice(first, self.plan.dictionary[0], None, 0, 0)
            else:
                self.options.dictionaries.add(shared, first, self.physical)
        if shared is not None:
            dictionary = self.options.dictionaries.entries(shared, self.physical)
        slices = [
            PageSlice(
                buffer,
                span.offset,
                span.slots if span.slots >= 0 else None,
                span.start,
                span.stop,
                None if valid is None else valid.of_page(span),
                own,
            )
            for span, buffer, own in zip(
                self.spans(slots), buffers, picks or repeat(None, len(buffers)), strict=True
            )
        ]
        return slices, dictionary


def _picked(
    slices: Sequence[PageSlice],
    physical: PhysicalType,
    dictionary: Values | None,
    checks: PageChecks,
) -> Values | None:
    """The slots picked of each page, by the kernels; None where they do not know the pages."""
    picks = [page.picks for page in slices if page.picks is not None]
    counts = [page.slot_count for page in slices if page.slot_count is not None]
    if not checks.is_in_kernels or len(counts) < len(slices) or max(counts) > _SLOTS_MAX:
        return None
    if any(page.stop > count for page, count in zip(slices, counts, strict=True)):
        return None  # metadata may say anything, of which the general way tells
    cuts = np.zeros(len(picks) + 1, np.int64)
    np.cumsum([len(own) for own in picks], out=cuts[1:])
    pages = StreamPages(
        [page.buffer for page in slices],
        np.array([page.offset for page in slices], np.int64),
        np.array(counts, np.int64),
        dictionary,
        checks,
    )
    return pages.pick(np.concatenate(picks), cuts, physical)


def _closed(span: PageSpan, slots: int) -> PageSpan:
    """A span whose slot count the levels above know by now."""
    if span.slots >= 0 and span.stop >= 0:
        return span
    count = span.slots if span.slots >= 0 else slots
    return replace(span, slots=count, stop=span.stop if span.stop >= 0 else count)
