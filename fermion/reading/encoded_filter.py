"""Filters tested on pages as they are encoded: rows that match, without an Arrow array.

A comparison is tested by the kernels: blocks of packed numbers whose base and width decide it are
not unpacked, runs are tested once, and of a dictionary the entries are, by the filter itself.
Strings and lists of values are tested page by page, next to the processor. Where a filter, a column
or a page is not known here (nulls, other encodings, damage), there is no answer: the column is then
decoded and the filter evaluated on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.bounded_cache import BoundedCache
from fermion.columns.arrow_buffers import booleans
from fermion.columns.ranges import RowRanges
from fermion.columns.types import Form, Node
from fermion.exports import NamedTuple, dataclass
from fermion.forks import ThreadPool
from fermion.layout import INT64_MAX, INT64_MIN
from fermion.pages.global_dictionary import entries_array
from fermion.predicate import Expression, Interval, evaluate, interval, members, text_range
from fermion.predicate.expression import And, Comparison, IsIn, Not, Or, StartsWith
from fermion.reading.chunk_pages import STRINGS, ChunkPages, FetchedPages, StreamPages, chunk_pages
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected
from fermion.reading.strategy import run_by_size

PART_SLOTS = 128 * 1024
"""Slots that one thread tests at once."""
LEAVES_KNOWN_MAX = 16
"""Strings and lists of values that filters ask for, kept for the next stripe."""

_NOTHING = np.zeros(0, np.uint8)
Wanted = np.ndarray | Any
"""Bounds or values, as `kernels.match_pages` takes them."""


class FilterResult(NamedTuple):
    """What a filter says of rows of a stripe, and the pages that were read for it.

    mask: ``bool``, a row each.
    """

    mask: np.ndarray
    pages: FetchedPages


class _Unknown(Exception):
    """The filter has to be evaluated otherwise."""


class _Column(NamedTuple):
    """The pages of a column that hold some rows.

    entries: The chunk's dictionary, under the name that the filter knows; None where no page refers
        to one.
    """

    plan: ChunkPages
    pages: StreamPages
    entries: pa.RecordBatch | None

    def parts(self, slots_max: int) -> list[tuple[int, int]]:
        """Pages that follow each other, as first and stop, of at most so many slots."""
        starts = self.plan.firsts.tolist()
        stops = (self.plan.firsts + self.plan.counts).tolist()
        bounds = [0]
        for at in range(1, len(starts)):
            if starts[at] != stops[at - 1] or stops[at] - starts[bounds[-1]] > slots_max:
                bounds.append(at)
        return list(pairwise([*bounds, len(starts)]))


class EncodedFilter:
    """Tests filters on the pages of a file."""

    def __init__(self, index: FileIndex) -> None:
        self._index, self._checks = index, index.page_checks
        self._asked = BoundedCache(LEAVES_KNOWN_MAX)  # by a leaf's id

    def find(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        rows: RowRanges | None,
        executor: ThreadPool | None,
    ) -> FilterResult | None:
        """Which of some rows (None: all) match; None where the filter has to be evaluated.

        columns: Those that the filter reads.
        executor: Tests parts of columns side by side; None: one after the other.
        """
        if not self._checks.is_in_kernels or not self._index.is_local:
            return None
        plans = self._plans(columns, stripe)
        if plans is None or not _is_known(expression, plans):
            return None
        slots = int(self._index.stripe_rows[stripe])
        try:
            opened, fetched = self._fetch(plans, rows)
            mask = _Test(opened, slots, executor, self._wanted).mask(expression)
        except _Unknown:
            return None
        return FilterResult(mask if rows is None else _selected(mask, rows), fetched)

    def _plans(self, columns: Sequence[Projected], stripe: int) -> dict[str, ChunkPages] | None:
        """The pages of each column by name; None where one of them is not known here."""
        slots = int(self._index.stripe_rows[stripe])
        plans: dict[str, ChunkPages] = {}
        for column in columns:
            node = column.tree
            if node is None or node.form is None:
                return None
            (block,) = self._index.blocks([column.ordinal])
            plan = chunk_pages(node, block, stripe, slots)
            if plan is None:
                return None
            plans[column.field.name] = plan
        return plans

    def _fetch(
        self, plans: Mapping[str, ChunkPages], rows: RowRanges | None
    ) -> tuple[dict[str, _Column], FetchedPages]:
        """The pages that hold some rows (None: all) of each column."""
        parts = {name: plan.some(_touched(plan, rows)) for name, plan in plans.items()}
        if len(parts) == 1:
            (part,) = parts.values()
            views = iter(self._index.source.read_chunk(part.ranges) if len(part.ranges) else [])
        else:
            views = iter(self._index.source.read_views([part.ranges for part in parts.values()]))
        opened, fetched = {}, {}
        for name, part in parts.items():
            stored = [next(views) for _ in part.ranges]
            fetched.update(part.fetched(stored))
            pages = part.open(stored, self._checks)
            if pages is None:
                raise _Unknown
            batch = None
            if pages.dictionary is not None:
                array = entries_array(part.node, pages.dictionary)
                batch = pa.RecordBatch.from_arrays([array], names=[name])
            opened[name] = _Column(part, pages, batch)
        return opened, fetched

    def _wanted(self, leaf: Expression, node: Node) -> tuple[Wanted | None, bool]:
        """As `_wanted_of`, made once for all stripes."""
        known: tuple[Expression, Wanted | None, bool] | None = self._asked.get(id(leaf))
        if known is None:
            known = (leaf, *_wanted_of(leaf, node))
            self._asked.put(id(leaf), known)
        return known[1:]


class _Test(NamedTuple):
    """A filter's test of the rows of one stripe.

    slots: Rows of the stripe.
    wanted: What a leaf asks for other than an interval: see `_wanted_of`.
    """

    columns: Mapping[str, _Column]
    slots: int
    executor: ThreadPool | None
    wanted: Callable[[Expression, Node], tuple[Wanted | None, bool]]

    def mask(self, expression: Expression) -> np.ndarray:
        """Whether rows of the stripe match: ``bool``; those that were not asked for may be either.

        Raises _Unknown.
        """
        match expression:
            case And(operands=operands):
                return reduce(np.logical_and, map(self.mask, _merged(operands, self.columns)))
            case Or(operands=operands):
                return reduce(np.logical_or, map(self.mask, operands))
            case Not(operand=operand):
                return ~self.mask(operand)
            case _Within(leaves=leaves, within=within):
                return self._tested(self.columns[leaves[0].path[0]], leaves, within)
            case _:
                column = self.columns[expression.path[0]]  # type: ignore[attr-defined]
                return self._tested(column, (expression,), _interval(expression, column))

    def _tested(
        self, column: _Column, leaves: Sequence[Expression], within: Interval | None
    ) -> np.ndarray:
        """Which rows match all of some filters, which together ask for an interval (None: not)."""
        wanted: Wanted | None = None
        inverted = within is not None and within.is_inverted
        if within is None:
            wanted, inverted = self.wanted(leaves[0], column.plan.node)
        else:
            wanted = _bounds(within, column.plan.form)
        entries = _NOTHING
        if column.entries is not None:
            flags = reduce(np.logical_and, [_evaluated(leaf, column.entries) for leaf in leaves])
            entries = (flags ^ inverted).view(np.uint8)
        elif wanted is None:
            raise _Unknown
        out = np.zeros(self.slots, np.uint8)
        parts = column.parts(self.slots if self.executor is None else PART_SLOTS)
        lengths = column.plan.ranges[-len(column.plan.counts) :, 1]
        sizes = [int(lengths[first:stop].sum()) for first, stop in parts]
        test = partial(_test, column, wanted, entries, out)
        if not all(run_by_size(self.executor, test, sizes, 0, *zip(*parts, strict=True))):
            raise _Unknown
        mask: np.ndarray = out.view(bool)
        return ~mask if inverted else mask


def _test(
    column: _Column, wanted: Wanted | None, entries: np.ndarray, out: np.ndarray, *part: int
) -> bool:
    """Test some of a column's pages, which follow each other; False: not known."""
    first, stop = part
    plan = column.plan
    own = out[plan.firsts[first] : plan.firsts[stop - 1] + plan.counts[stop - 1]]
    return column.pages.match(plan.form, first, stop, wanted, entries, own)


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


def _bounds(within: Interval, form: Form) -> np.ndarray | None:
    """The bounds of an interval as the kernels take them; None where no value can lie within.

    Wide integers are tested where pages hold them as 64-bit ones.
    """
    if within.is_empty:
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


def _wanted_of(leaf: Expression, node: Node) -> tuple[Wanted | None, bool]:
    """What a filter asks for other than an interval of numbers, and whether all else matches; None
    where the kernels cannot be asked."""
    assert node.form is not None
    letter, width = node.form
    if letter == STRINGS and isinstance(leaf, (Comparison, StartsWith)):
        limits = text_range(leaf, node.type)
        if limits is not None:
            return kernels.wanted_text_range(*limits), False
    values = members(leaf, node.type) if isinstance(leaf, (Comparison, IsIn)) else None
    if values is None:
        return None, False
    if letter == STRINGS:
        return kernels.wanted_texts(values.values), values.is_inverted
    numbers = [int(value) for value in values.values]
    if width > 8:
        numbers = [value for value in numbers if INT64_MIN <= value <= INT64_MAX]
    if not numbers:
        return None, False
    kind = np.uint64 if letter == ord("u") else np.int64
    wanted = kernels.wanted_numbers(np.sort(np.array(numbers, kind)), min(width, 8))
    return wanted, values.is_inverted


def _evaluated(leaf: Expression, entries: pa.RecordBatch) -> np.ndarray:
    """Whether each entry of a dictionary matches: ``bool``.

    Raises _Unknown: Entries that cannot be compared, such as decimals with more digits than their
        type.
    """
    try:
        return booleans(evaluate(leaf, entries)).unpack()
    except pa.ArrowException as error:
        raise _Unknown from error


def _touched(plan: ChunkPages, rows: RowRanges | None) -> np.ndarray:
    """The pages, ``int64``, that hold some rows (None: all)."""
    if rows is None:
        return np.arange(len(plan.counts))
    before = rows.starts.searchsorted(plan.firsts + plan.counts, side="left")
    after = rows.stops.searchsorted(plan.firsts, side="right")
    return np.flatnonzero((before > after) & (plan.counts > 0))


def _selected(mask: np.ndarray, rows: RowRanges) -> np.ndarray:
    """The mask of some rows of a stripe, out of that of all of them."""
    if len(rows) == 1:
        return mask[rows.starts[0] : rows.stops[0]]
    return mask[rows.to_indices()]
