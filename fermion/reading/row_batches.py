"""Rows of a file as record batches: a stripe or a window of one at a time, filtered or not.

Of local files of which few rows of many stripes are wanted, each thread reads a stripe: it plans
its pages while another decodes, and starts no threads for columns. Stripes of which many rows are
wanted are read one after the other, their columns side by side: that needs the memory of one of
them only.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.arguments import integer
from fermion.columns.ranges import RowRanges, join_near
from fermion.columns.rows import Matches
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.forks import ThreadPool, cached_property
from fermion.reading.chunk_pages import FetchedPages
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected
from fermion.reading.stripe import (
    DENSE_FRACTION,
    JOIN_ROWS,
    Chosen,
    Query,
    StripeFilter,
    StripeReader,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from fermion.io import read_ahead as ahead
else:  # for files that are not local
    ahead = LoadedWhenAskedFor("fermion.io.read_ahead")

WINDOW_ROWS = 131_072
HELD_BYTES, HELD_BATCHES = 32 * 1024 * 1024, 4
"""What windows hold in Arrow: so many bytes, and so many of the caller's batches. Two windows are
there at once, the one that the caller has and the next one; with a filter, beside a span of its
columns, a third, of the rows that match."""
PAGES_BYTES = 4 * 1024 * 1024
"""Of those, for pages while they are decoded."""
SPAN_BYTES = 8 * 1024 * 1024
"""Values of a filter's columns that are held at once, for one window or several."""
SPARSE_FRACTION = 1 / 16
"""Of the rows of a span: if no more match they are read together, at most a window of them."""
SPARSE_BYTES_MAX = 32 * 1024 * 1024
"""Stored bytes of a stripe's columns; those of more are read a window at a time in any case."""
BLOCK_BYTES = 16 * 1024 * 1024
"""Pages of a remote file that are fetched together, for one window or several."""
# Of a remote file: one is decoded while the next is fetched.
STRIPES_AT_ONCE = 2

STRIPES_MIN = 4
"""So many stripes are worth a thread each, however many threads there are."""
STRIPE_ROWS_MIN = 16 * 1024
"""Smaller stripes are read before another thread has begun."""
CHUNKS_MIN = 64
"""Columns times stripes: fewer take longer on threads of their own, which start and wait for
Python's lock."""

Rows = tuple[int, int] | RowRanges
"""Rows by number: (start, stop), stop exclusive, or any set."""

T = TypeVar("T")
_Pieces = Sequence[tuple[int, RowRanges | None]]
"""Stripes, and the rows of each to read; None: all."""


def _bounds(rows: Any) -> tuple[int, int]:
    if not isinstance(rows, (tuple, list)) or len(rows) != 2:
        raise TypeError(f"rows={rows!r}: expected (start, stop) or a RowRanges")
    return integer(rows[0], "rows[0]"), integer(rows[1], "rows[1]")


class RowBatches:
    """Reads rows of one file.

    executor: Reads stripes side by side; None: one after the other.
    """

    def __init__(
        self, index: FileIndex, stripes: StripeReader, executor: ThreadPool | None
    ) -> None:
        self._index, self._stripes, self._executor = index, stripes, executor

    def wanted(self, rows: Rows) -> RowRanges:
        """A set of rows, checked to lie within the file."""
        total = self._index.footer.num_rows
        if isinstance(rows, RowRanges):
            start, stop = (int(rows.starts[0]), int(rows.stops[-1])) if rows else (0, 0)
        else:
            start, stop = _bounds(rows)
        if not 0 <= start <= stop <= total:
            raise InvalidArgumentError(
                f"{self._index.where}: rows {start} to {stop}: expected 0 <= start <= stop <= "
                f"{total}"
            )
        return rows if isinstance(rows, RowRanges) else RowRanges.from_bounds([start], [stop])

    def by_stripe(self, rows: RowRanges | None) -> Iterator[tuple[int, RowRanges | None]]:
        """The stripes that hold some of the rows, each with its own ones; None: all."""
        if rows is None:
            yield from ((stripe, None) for stripe in range(self._index.footer.num_stripes))
            return
        starts = self._index.stripe_starts.tolist()
        for stripe, (low, high) in enumerate(itertools.pairwise(starts)):
            inside = rows.clip(low, high)
            if inside:
                yield stripe, None if inside.total == high - low else inside.shift(-low)

    def stripes(self, query: Query) -> Iterator[pa.RecordBatch]:
        """The rows of a query: a batch for each stripe that has any."""
        pieces, columns = self.by_stripe(query.rows), query.columns
        if query.filter.expression is not None:

            def choose(reader: StripeReader, stripe: int, rows: RowRanges | None) -> Chosen:
                return StripeFilter(reader, stripe, query.filter, columns).choose(rows)

            may_match = self._stripes.bounds.stripes_that_may_match(query.filter)
            left = [piece for piece in pieces if may_match[piece[0]]]
            batches = self._side_by_side(choose, left, len(columns))
            yield from (batch for batch in batches if batch is not None)
            return
        if self._index.is_local:
            for stripe, rows in pieces:
                yield self._stripes.selected(columns, stripe, rows)
            return
        tasks = [partial(self._stripes.selected, columns, *piece) for piece in pieces]
        yield from ahead.read_ahead(tasks, STRIPES_AT_ONCE)

    def numbered(self, columns: Sequence[Projected], rows: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Some columns of rows by number, ``int64``, ascending: a batch for each stripe."""
        starts = self._index.stripe_starts
        cuts = rows.searchsorted(starts).tolist()
        pieces = [
            (stripe, RowRanges.from_listed(rows[low:high] - starts[stripe]))
            for stripe, (low, high) in enumerate(itertools.pairwise(cuts))
            if low < high
        ]

        def choose(_: StripeReader, stripe: int, rows: RowRanges | None) -> Chosen:
            total = 0 if rows is None else rows.total
            return Chosen(total, lambda reader: reader.batch(columns, stripe, rows))

        for batch in self._side_by_side(choose, pieces, len(columns)):
            assert batch is not None
            yield batch

    def _side_by_side(
        self,
        choose: Callable[[StripeReader, int, RowRanges | None], Chosen],
        pieces: _Pieces,
        columns: int,
    ) -> Iterator[pa.RecordBatch | None]:
        """What is chosen of each stripe; on threads where few rows of many stripes are."""
        executor = self._executor
        if executor is None or not self._is_worth(executor.threads, pieces, columns):
            for stripe, rows in pieces:
                yield choose(self._stripes, stripe, rows).read(self._stripes)
            return
        alone = self._stripes.alone()

        def begin(stripe: int, rows: RowRanges | None) -> Callable[[], pa.RecordBatch | None]:
            chosen = choose(alone, stripe, rows)
            if chosen.rows > DENSE_FRACTION * self._stripes.rows(stripe):
                return partial(chosen.read, self._stripes)
            batch = chosen.read(alone)
            return lambda: batch

        tasks = [partial(begin, *piece) for piece in pieces]
        for finish in _in_turn(executor, tasks):
            yield finish()

    def _is_worth(self, threads: int, pieces: _Pieces, columns: int) -> bool:
        rows = [self._stripes.rows(stripe) for stripe, _ in pieces]
        is_many = len(pieces) >= max(min(threads, STRIPES_MIN), CHUNKS_MIN / max(columns, 1))
        return self._index.is_local and is_many and max(rows) >= STRIPE_ROWS_MIN

    def windows(self, query: Query, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a query: a batch for each window, of which one is in memory at a time.

        batch_rows: Of the caller's batches; a window holds at least one of them, as long as that is
            no more than `WINDOW_ROWS`.
        """
        for stripe, rows in self.by_stripe(query.rows):
            reader = _WindowReader(self._stripes, query, stripe, rows, batch_rows)
            total = self._stripes.rows(stripe)
            if reader.is_empty:
                continue
            if total <= reader.window_rows:
                batch = reader.read(None)
                if batch is not None:
                    yield batch
                continue
            yield from self._windows(reader, total)

    def _windows(self, reader: _WindowReader, total: int) -> Iterator[pa.RecordBatch]:
        local = self._index.is_local
        step = total if local else reader.block_rows(total)
        for first in range(0, total, step):
            last = min(first + step, total)
            if not local:
                reader.begin_block(first, last)
            for start in range(first, last, span := reader.span_rows()):
                yield from reader.read_span(start, min(start + span, last))


class _WindowReader:
    """Reads windows of one stripe. Of remote files pages are fetched for a block of windows."""

    def __init__(
        self,
        stripes: StripeReader,
        query: Query,
        stripe: int,
        rows: RowRanges | None,
        batch_rows: int,
    ) -> None:
        self._stripes, self._stripe, self._rows = stripes, stripe, rows
        self._columns, self._filter_columns = query.columns, query.filter.columns
        self._batch_rows = min(batch_rows, WINDOW_ROWS)
        self._filter: StripeFilter | None = None
        if query.filter.expression is not None:
            self._filter = StripeFilter(stripes, stripe, query.filter, query.columns)
        self._kept: FetchedPages | None = None
        self._block_stop = 0  # up to which pages of columns beside the filter's are not fetched
        self._row_bytes = 0.0  # of those columns, stored

    @property
    def is_empty(self) -> bool:
        """Whether statistics leave no row."""
        return self._filter is not None and not self._filter.pruned.may_match

    @cached_property
    def window_rows(self) -> int:
        """Rows of a window: whole batches of the caller, as many as may be held."""
        total, batch = self._stripes.rows(self._stripe), self._batch_rows
        if total <= batch:
            return batch
        bytes_in_arrow = self._stripes.arrow_bytes(self._columns, self._stripe)
        held = HELD_BYTES + HELD_BATCHES * (bytes_in_arrow * batch // total) - PAGES_BYTES
        bytes_max = held // 2 if self._filter is None else (held - SPAN_BYTES) // 3
        rows = min(bytes_max * total // max(bytes_in_arrow, 1), WINDOW_ROWS)
        return max(rows - rows % batch, batch)

    def block_rows(self, total: int) -> int:
        """Rows of the windows whose pages are fetched together, of so many of the stripe."""
        filtered = self._stripes.stored_bytes(self._filter_columns, self._stripe)
        stored = self._stripes.stored_bytes([*self._columns, *self._filter_columns], self._stripe)
        self._row_bytes = (stored - filtered) / total
        windows = max(BLOCK_BYTES * total // (self.window_rows * max(stored, 1)), 1)
        return min(windows * self.window_rows, total)

    def begin_block(self, start: int, stop: int) -> None:
        """Fetch what is sure to be needed of some rows, and forget what was fetched before."""
        self._kept, self._block_stop = {}, 0
        wanted = self._wanted(start, stop)
        if self._filter is not None:
            self._filter.kept = self._kept
        if self._filter is None or self._is_decided(wanted):
            self._fetch(self._columns, wanted)
        else:
            self._fetch(self._filter_columns, wanted)
            self._block_stop = stop

    def _is_decided(self, wanted: RowRanges) -> bool:
        """Whether statistics say which of some rows match."""
        assert self._filter is not None
        may, must = self._filter.pruned
        return may & wanted == must & wanted

    def span_rows(self) -> int:
        """Rows of the windows whose matches are looked for together."""
        if self._filter is None or self._kept is not None:
            return self.window_rows
        kinds = [column.field.type for column in self._filter_columns]
        if not all(map(pat.is_primitive, kinds)):
            return self.window_rows
        bits = sum(kind.bit_width for kind in kinds)
        windows = 8 * SPAN_BYTES // (self.window_rows * max(bits, 1))
        return self.window_rows * min(max(windows, 1), int(1 / SPARSE_FRACTION))

    def read_span(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows of some windows: together where few match, else of one after the other."""
        matches = self._matches(start, stop) if stop - start > self.window_rows else None
        spans = [(start, stop)]
        if matches is None or not (matches.is_sparse(SPARSE_FRACTION) and self._is_narrow):
            firsts = range(start, stop, self.window_rows)
            spans = [(first, min(first + self.window_rows, stop)) for first in firsts]
        for span in spans:
            if matches is None or self._filter is None:
                batch = self.read(span)
            else:
                batch = self._filter.matched(matches.within(*span))
            if batch is not None:
                yield batch

    @cached_property
    def _is_narrow(self) -> bool:
        """Whether a stripe's pages are few enough for one match in each to decode them all."""
        stored = self._stripes.stored_bytes(self._columns, self._stripe)
        return stored <= SPARSE_BYTES_MAX

    def _matches(self, start: int, stop: int) -> Matches | None:
        """Which rows of a span match; None where statistics say it."""
        wanted = self._wanted(start, stop)
        if self._filter is None or self._is_decided(wanted):
            return None
        may = self._filter.pruned.may_match
        return self._filter.matches(may & wanted, may & join_near(wanted, JOIN_ROWS))

    def read(self, window: tuple[int, int] | None) -> pa.RecordBatch | None:
        """The rows of a window (None: of the stripe); None where there are none."""
        wanted = self._rows if window is None else self._wanted(*window)
        if self._filter is None:
            if wanted is not None and not wanted:
                return None
            return self._stripes.selected(self._columns, self._stripe, wanted, self._kept)
        before = self._kept_bytes()
        batch = self._filter.read(wanted)
        if batch is not None and window is not None and window[1] < self._block_stop:
            self._look_ahead(self._kept_bytes() - before, *window)
        return batch

    def _kept_bytes(self) -> int:
        return sum(map(len, self._kept.values())) if self._kept else 0

    def _look_ahead(self, fetched: int, start: int, stop: int) -> None:
        """Where rows of a window needed many of its pages, expect so of the rest of its block."""
        if fetched > DENSE_FRACTION * self._row_bytes * (stop - start):
            self._fetch(self._columns, self._wanted(stop, self._block_stop))
            self._block_stop = 0

    def _wanted(self, start: int, stop: int) -> RowRanges:
        window = RowRanges.from_bounds([start], [stop])
        return window if self._rows is None else window & self._rows

    def _fetch(self, columns: Sequence[Projected], rows: RowRanges) -> None:
        assert self._kept is not None
        if self._filter is not None:
            rows = rows & self._filter.pruned.may_match
        if rows:
            self._stripes.fetch(columns, self._stripe, rows, self._kept)


def _in_turn(executor: ThreadPool, tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
    """What tasks return, in order; no more than the threads have to do are under way."""
    under_way: deque[Future[T]] = deque()
    try:
        for task in tasks:
            under_way.append(executor.submit(task))
            if len(under_way) > executor.threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:  # after an error
            if not future.cancel():
                future.exception()
