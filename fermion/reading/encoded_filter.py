"""Filters tested on pages as they are encoded: rows that match, without an Arrow array.

A comparison is tested by the kernels: blocks of packed numbers whose base and width decide it are
not unpacked, runs are tested once, and of a dictionary the entries are, by the filter itself.
Strings and lists of values are tested page by page, next to the processor. Where a filter, a column
or a page is not known here (nulls, other encodings, damage), there is no answer: the column is then
decoded and the filter evaluated on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.arrow_buffers import booleans
from fermion.columns.ranges import RowRanges
from fermion.columns.types import Form
from fermion.encodings.decoding import decode_numbers
from fermion.io.compression import decompress
from fermion.layout import INT64_MAX, INT64_MIN, ChecksumKind
from fermion.pages.global_dictionary import entries_array
from fermion.predicate import Expression, Interval, evaluate, interval, members, text_range
from fermion.predicate.expression import And, Comparison, IsIn, Not, Or, StartsWith
from fermion.reading.chunk_pages import ChunkPages, chunk_pages, entries_of
from fermion.reading.column import FetchedPages
from fermion.reading.flat import known_form
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected
from fermion.reading.spread import run_by_size

PART_SLOTS = 128 * 1024
"""Slots that one thread tests at once."""
LEAVES_KNOWN_MAX = 16
"""Strings and lists of values that filters ask for, kept for the next stripe."""

_BITS, _STRINGS = ord("b"), ord("s")
_NOTHING = np.zeros(0, np.uint8)
_NO_BOUNDS = np.zeros(2, np.int64)
Wanted = Any
"""What `kernels.match_pages` takes."""


class FoundRows(NamedTuple):
    """What a filter says of rows of a stripe, and the pages that were read for it.

    Attributes
    ----------
    mask
        ``bool``, a row each.
    """

    mask: np.ndarray
    pages: FetchedPages


class _Unknown(Exception):
    """The filter has to be evaluated otherwise."""


class _Column(NamedTuple):
    """The pages of a column that hold some rows.

    Attributes
    ----------
    touched
        ``int64``: which pages of the chunk they are, ascending.
    entries
        The chunk's dictionary, under the name that the filter knows; None where no page refers to
        one.
    """

    plan: ChunkPages
    touched: np.ndarray
    pages: Sequence[memoryview]
    entries: pa.RecordBatch | None


class EncodedFilter:
    """Tests filters on the pages of a file.

    Parameters
    ----------
    index
        The open file.
    executor
        Tests parts of columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: Executor | None) -> None:
        self._index, self._executor = index, executor
        self._checks = index.footer.page_checks(index.options.verify_checksums)
        self._is_known = self._checks.kind in (ChecksumKind.NONE, ChecksumKind.CRC32C)
        self._asked: dict[int, tuple[Expression, Wanted | None, bool]] = {}  # by a leaf's id

    def find(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
    ) -> FoundRows | None:
        """Which of some rows (None: all) match; None where the filter has to be evaluated.

        Parameters
        ----------
        columns
            Those that the filter reads.
        """
        if not self._is_known or not self._index.source.source.is_local:
            return None
        plans = self._plans(columns, stripe)
        if plans is None or not _is_known(expression, plans):
            return None
        slots = int(self._index.stripe_rows[stripe])
        try:
            opened, fetched = self._fetch(plans, ranges)
            mask = self._mask(expression, opened, slots)
        except _Unknown:
            return None
        return FoundRows(mask if ranges is None else _selected(mask, ranges), fetched)

    def _plans(self, columns: Sequence[Projected], stripe: int) -> dict[str, ChunkPages] | None:
        """The pages of each column by name; None where one of them is not known here."""
        slots = int(self._index.stripe_rows[stripe])
        found: dict[str, ChunkPages] = {}
        for column in columns:
            form = None if column.tree is None else known_form(column.tree)
            if form is None or form[0] == _BITS or column.tree is None:
                return None
            (block,) = self._index.blocks([column.ordinal])
            plan = None if block is None else chunk_pages(column.tree, block, stripe, slots)
            if plan is None:
                return None
            found[column.field.name] = plan
        return found

    def _fetch(
        self, plans: Mapping[str, ChunkPages], ranges: RowRanges | None
    ) -> tuple[dict[str, _Column], FetchedPages]:
        """The pages that hold some rows (None: all) of each column."""
        touched = {name: _touched(plan.cuts, ranges) for name, plan in plans.items()}
        parts = {name: plan.some(touched[name]) for name, plan in plans.items()}
        if len(parts) == 1:
            (part,) = parts.values()
            views = iter(self._index.source.read_chunk(part.ranges) if len(part.ranges) else [])
        else:
            views = iter(self._index.source.read_views([part.ranges for part in parts.values()]))
        opened, fetched = {}, {}
        for name, part in parts.items():
            pages = [next(views) for _ in part.ranges]
            fetched.update(part.fetched(pages))
            found = entries_of(part, pages, self._checks)
            if found is None:
                raise _Unknown
            entries, others = found
            batch = None
            if entries is not None:
                array = entries_array(part.node, entries)
                batch = pa.RecordBatch.from_arrays([array], names=[name])
            opened[name] = _Column(part, touched[name], others, batch)
        return opened, fetched

    def _mask(
        self, expression: Expression, columns: Mapping[str, _Column], slots: int
    ) -> np.ndarray:
        """Whether rows of the stripe match: ``bool``; those that were not asked for may be either.

        Raises
        ------
        _Unknown
        """
        match expression:
            case And(operands=operands):
                masks = [self._mask(each, columns, slots) for each in _merged(operands, columns)]
                return reduce(np.logical_and, masks)
            case Or(operands=operands):
                return reduce(
                    np.logical_or, [self._mask(each, columns, slots) for each in operands]
                )
            case Not(operand=operand):
                return ~self._mask(operand, columns, slots)
            case _Within(leaves=leaves, within=within):
                return self._tested(columns[leaves[0].path[0]], leaves, within, slots)
            case _:
                column = columns[expression.path[0]]  # type: ignore[attr-defined]
                return self._tested(column, (expression,), _interval(expression, column), slots)

    def _tested(
        self,
        column: _Column,
        leaves: Sequence[Expression],
        within: Interval | None,
        slots: int,
    ) -> np.ndarray:
        """Which rows match all of some filters, which together ask for an interval (None: not)."""
        node = column.plan.node
        form = known_form(node)
        assert form is not None
        wanted, inverted = None, within is not None and within.is_inverted
        if within is None:
            wanted, inverted = self._wanted(leaves[0], node.type, form)
        entries = _NOTHING
        if column.entries is not None:
            flags = reduce(np.logical_and, [_evaluated(leaf, column.entries) for leaf in leaves])
            entries = (flags ^ inverted).view(np.uint8)
        bounds = _bounds(within, form)
        if bounds is None and wanted is None and column.entries is None:
            raise _Unknown
        out = np.zeros(slots, np.uint8)
        parts = _parts(column, PART_SLOTS if self._executor is not None else slots)
        sizes = [stop - first for first, stop in parts]
        test = partial(self._test, column, bounds, wanted, entries, out)
        if not all(run_by_size(self._executor, test, sizes, slots, *zip(*parts, strict=True))):
            raise _Unknown
        mask: np.ndarray = out.view(bool)
        return ~mask if inverted else mask

    def _wanted(
        self, leaf: Expression, dtype: pa.DataType, form: Form
    ) -> tuple[Wanted | None, bool]:
        """As `_wanted_of`, made once for all stripes."""
        known = self._asked.get(id(leaf))
        if known is None:
            while len(self._asked) >= LEAVES_KNOWN_MAX:
                self._asked.pop(next(iter(self._asked)), None)
            known = self._asked[id(leaf)] = (leaf, *_wanted_of(leaf, dtype, form))
        return known[1:]

    def _test(
        self,
        column: _Column,
        bounds: np.ndarray | None,
        wanted: Wanted | None,
        entries: np.ndarray,
        out: np.ndarray,
        first: int,
        stop: int,
    ) -> bool:
        """Test some of a column's pages, which follow each other; False: not known."""
        form = known_form(column.plan.node)
        assert form is not None
        pages = column.touched[first:stop]
        cuts = column.plan.cuts
        start = int(column.plan.has_dictionary) + first
        letter = _STRINGS if bounds is None and wanted is None else form[0]
        return kernels.match_pages(
            list(column.pages[first:stop]),
            cuts[pages + 1] - cuts[pages],
            letter,
            form[1],
            _NO_BOUNDS if bounds is None else bounds,
            entries,
            self._checks.kind is ChecksumKind.CRC32C,
            decode_numbers,
            _unzip,
            out[cuts[pages[0]] : cuts[pages[-1] + 1]],
            np.ascontiguousarray(column.plan.ranges[start : start + stop - first, 0]),
            self._checks.place_key,
            wanted,
        )


@dataclass(frozen=True, slots=True)
class _Within(Expression):
    """Comparisons of one column that together ask for an interval."""

    leaves: tuple[Comparison, ...]
    within: Interval


def _is_known(expression: Expression, columns: Mapping[str, ChunkPages]) -> bool:
    """Whether a filter is made of comparisons of these columns; their pages may still differ."""
    if isinstance(expression, (And, Or, Not)):
        return all(_is_known(child, columns) for child in expression.children())
    if not isinstance(expression, (Comparison, IsIn, StartsWith)):
        return False
    if len(expression.path) > 1 or expression.path[0] not in columns:
        return False
    if isinstance(expression, Comparison):
        return expression.value is not None
    return not isinstance(expression, IsIn) or None not in expression.values


def _merged(operands: Sequence[Expression], columns: Mapping[str, _Column]) -> Iterator[Expression]:
    """The operands of an AND, those of one column that ask for intervals made one."""
    merged: dict[str, _Within] = {}
    for operand in operands:
        within = None
        if isinstance(operand, Comparison):
            within = _interval(operand, columns[operand.path[0]])
        if within is None or within.is_inverted:
            yield operand
            continue
        assert isinstance(operand, Comparison)
        name = operand.path[0]
        known = merged.get(name)
        if known is not None:
            leaves, within = (*known.leaves, operand), known.within.intersect(within)
            merged[name] = _Within(leaves, within)
        else:
            merged[name] = _Within((operand,), within)
    yield from merged.values()


def _interval(expression: Expression, column: _Column) -> Interval | None:
    if not isinstance(expression, Comparison):
        return None
    return interval(expression, column.plan.node.type)


def _bounds(within: Interval | None, form: Form) -> np.ndarray | None:
    """The bounds of an interval as the kernels take them; None where no value can lie within.

    Wide integers are tested where pages hold them as 64-bit ones.
    """
    if within is None or within.is_empty:
        return None
    letter, width = form
    if letter == ord("f"):
        return np.array([within.low, within.high], np.float64)
    low, high = within.low, within.high
    if width > 8:
        low, high = max(low, INT64_MIN), min(high, INT64_MAX)
        if low > high:
            return None
    return np.array([low, high], np.uint64 if letter == ord("u") else np.int64)


def _wanted_of(leaf: Expression, dtype: pa.DataType, form: Form) -> tuple[Wanted | None, bool]:
    """What a filter asks for other than an interval of numbers, and whether all else matches; None
    where the kernels cannot be asked."""
    letter, width = form
    if letter == _STRINGS and isinstance(leaf, (Comparison, StartsWith)):
        limits = text_range(leaf, dtype)
        if limits is not None:
            return kernels.wanted_text_range(*limits), False
    found = members(leaf, dtype) if isinstance(leaf, (Comparison, IsIn)) else None
    if found is None:
        return None, False
    if letter == _STRINGS:
        return kernels.wanted_texts(found.values), found.is_inverted
    values = [int(each) for each in found.values]
    if width > 8:
        values = [each for each in values if INT64_MIN <= each <= INT64_MAX]
    if not values:
        return None, False
    kind = np.uint64 if letter == ord("u") else np.int64
    numbers = np.sort(np.array(values, kind))
    return kernels.wanted_numbers(numbers, min(width, 8)), found.is_inverted


def _evaluated(leaf: Expression, entries: pa.RecordBatch) -> np.ndarray:
    """Whether each entry of a dictionary matches: ``bool``.

    Raises
    ------
    _Unknown
        Entries that cannot be compared, such as decimals with more digits than their type.
    """
    try:
        return booleans(evaluate(leaf, entries)).unpack()
    except pa.ArrowException as error:
        raise _Unknown from error


def _touched(cuts: np.ndarray, ranges: RowRanges | None) -> np.ndarray:
    """The pages, ``int64``, that hold some rows (None: all)."""
    if ranges is None:
        return np.arange(len(cuts) - 1)
    before = ranges.starts.searchsorted(cuts[1:], side="left")
    after = ranges.stops.searchsorted(cuts[:-1], side="right")
    return np.flatnonzero((before > after) & (cuts[1:] > cuts[:-1]))


def _parts(column: _Column, slots_max: int) -> list[tuple[int, int]]:
    """Pages that follow each other in the file, as first and stop, of at most so many slots."""
    cuts, touched = column.plan.cuts, column.touched
    bounds = [0]
    for at in range(1, len(touched)):
        is_apart = touched[at] != touched[at - 1] + 1
        if is_apart or cuts[touched[at] + 1] - cuts[touched[bounds[-1]]] > slots_max:
            bounds.append(at)
    return list(pairwise([*bounds, len(touched)]))


def _selected(mask: np.ndarray, ranges: RowRanges) -> np.ndarray:
    """The mask of some rows of a stripe, out of that of all of them."""
    if len(ranges) == 1:
        return mask[ranges.starts[0] : ranges.stops[0]]
    return mask[ranges.to_indices()]


def _unzip(frame: memoryview, raw_length: int) -> bytes:
    return decompress(frame, raw_length, padded=True)
