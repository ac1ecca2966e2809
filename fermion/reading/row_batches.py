"""Rows of a file as record batches: a stripe or a window of one at a time, filtered or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.arguments import integer
from fermion.columns.ranges import RowRanges, join_near
from fermion.columns.rows import Matches
from fermion.errors import InvalidArgumentError
from fermion.forks import ThreadPool
from fermion.io.read_ahead import read_ahead
from fermion.predicate import Expression
from fermion.reading.bounds import PrunedRows
from fermion.reading.column import FetchedPages
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected
from fermion.reading.side_by_side import SideBySide
from fermion.reading.stripe import DENSE_FRACTION, JOIN_ROWS, StripeReader

WINDOW_ROWS = 131_072
SPAN_BYTES = 16 * 1024 * 1024
"""Values of a filter's columns that are held at once, for one window or several."""
SPARSE_FRACTION = 1 / 16
"""Of the rows of a span: if no more match they are read together, at most a window of them."""
SPARSE_BYTES_MAX = 32 * 1024 * 1024
"""Stored bytes of a stripe's columns; those of more are read a window at a time in any case."""
BLOCK_BYTES = 16 * 1024 * 1024
"""Pages of a remote file that are fetched together, for one window or several."""
# Of a remote file: one is decoded while the next is fetched.
STRIPES_AT_ONCE = 2

Rows = tuple[int, int] | RowRanges
"""Rows by number: (start, stop), stop exclusive, or any set."""


def _bounds(rows: Any) -> tuple[int, int]:
    if not isinstance(rows, (tuple, list)) or len(rows) != 2:
        raise TypeError(f"rows={rows!r}: expected (start, stop) or a RowRanges")
    return integer(rows[0], "rows[0]"), integer(rows[1], "rows[1]")


class RowBatches:
    """Reads rows of one file.

    Parameters
    ----------
    index
        The open file.
    stripes
        Reads its stripes.
    executor
        Reads stripes side by side; None: one after the other.
    """

    def __init__(
        self, index: FileIndex, stripes: StripeReader, executor: ThreadPool | None
    ) -> None:
        self._index, self._stripes = index, stripes
        self._side_by_side = SideBySide(index, stripes, executor)

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

    def stripes(
        self,
        columns: Sequence[Projected],
        expression: Expression | None,
        filter_columns: Sequence[Projected],
        rows: RowRanges | None,
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows that a filter selects: a batch for each stripe that has any.

        Parameters
        ----------
        expression, filter_columns
            The filter, and the columns that it reads; None: all rows.
        rows
            To read; None: all.
        """
        pieces = self.by_stripe(rows)
        if expression is None and not self._index.source.source.is_local:
            tasks = [
                partial(self._stripes.selected, columns, stripe, ranges)
                for stripe, ranges in pieces
            ]
            yield from read_ahead(tasks, STRIPES_AT_ONCE)
            return
        if expression is not None:
            yield from self._side_by_side.filtered(
                expression, filter_columns, columns, list(pieces)
            )
            return
        for stripe, ranges in pieces:
            yield self._stripes.selected(columns, stripe, ranges)

    def numbered(self, columns: Sequence[Projected], rows: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Some columns of rows by number, ``int64``, ascending: a batch for each stripe."""
        starts = self._index.stripe_starts
        cuts = rows.searchsorted(starts).tolist()
        pieces = [
            (stripe, RowRanges.from_listed(rows[low:high] - starts[stripe]))
            for stripe, (low, high) in enumerate(itertools.pairwise(cuts))
            if low < high
        ]
        return self._side_by_side.numbered(columns, pieces)

    def windows(
        self,
        columns: Sequence[Projected],
        expression: Expression | None,
        filter_columns: Sequence[Projected],
        rows: RowRanges | None,
    ) -> Iterator[pa.RecordBatch]:
        """The same with a batch for each window of rows, of which one is in memory at a time."""
        for stripe, ranges in self.by_stripe(rows):
            reader = _WindowReader(
                self._stripes, columns, expression, filter_columns, stripe, ranges
            )
            total = int(self._index.stripe_rows[stripe])
            if reader.is_empty:
                continue
            if total <= WINDOW_ROWS:
                batch = reader.read(None)
                if batch is not None:
                    yield batch
                continue
            yield from self._windows(reader, total)

    def _windows(self, reader: _WindowReader, total: int) -> Iterator[pa.RecordBatch]:
        local = self._index.source.source.is_local
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
        columns: Sequence[Projected],
        expression: Expression | None,
        filter_columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
    ) -> None:
        self._stripes, self._stripe, self._ranges = stripes, stripe, ranges
        self._columns, self._filter_columns = columns, filter_columns
        self._expression = expression
        self._pruned: PrunedRows | None = None
        if expression is not None:
            self._pruned = stripes.bounds.prune(expression, filter_columns, stripe)
        self._kept: FetchedPages | None = None
        self._block_stop = 0  # up to which pages of columns beside the filter's are not fetched
        self._row_bytes = 0.0  # of those columns, stored

    @property
    def is_empty(self) -> bool:
        """Whether statistics leave no row."""
        return self._pruned is not None and not self._pruned.may_match

    def block_rows(self, total: int) -> int:
        """Rows of the windows whose pages are fetched together, of so many of the stripe."""
        filtered = self._stripes.stored_bytes(self._filter_columns, self._stripe)
        stored = self._stripes.stored_bytes([*self._columns, *self._filter_columns], self._stripe)
        self._row_bytes = (stored - filtered) / total
        windows = max(BLOCK_BYTES * total // (WINDOW_ROWS * max(stored, 1)), 1)
        return min(windows * WINDOW_ROWS, total)

    def begin_block(self, start: int, stop: int) -> None:
        """Fetch what is sure to be needed of some rows, and forget what was fetched before."""
        self._kept, self._block_stop = {}, 0
        wanted = self._wanted(start, stop)
        pruned = self._pruned
        if pruned is None or (pruned.may_match & wanted) == (pruned.must_match & wanted):
            self._fetch(self._columns, wanted)
        else:
            self._fetch(self._filter_columns, wanted)
            self._block_stop = stop

    def span_rows(self) -> int:
        """Rows of the windows whose matches are looked for together."""
        if self._expression is None or self._kept is not None:
            return WINDOW_ROWS
        kinds = [column.field.type for column in self._filter_columns]
        if not all(map(pat.is_primitive, kinds)):
            return WINDOW_ROWS
        bits = sum(kind.bit_width for kind in kinds)
        windows = 8 * SPAN_BYTES // (WINDOW_ROWS * max(bits, 1))
        return WINDOW_ROWS * min(max(windows, 1), int(1 / SPARSE_FRACTION))

    def read_span(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows of some windows: together where few match, else of one after the other."""
        matches = self._matches(start, stop) if stop - start > WINDOW_ROWS else None
        if matches is not None and matches.is_sparse(SPARSE_FRACTION) and self._is_narrow:
            batch = self._matched(matches)
            if batch is not None:
                yield batch
            return
        for first in range(start, stop, WINDOW_ROWS):
            last = min(first + WINDOW_ROWS, stop)
            if matches is None:
                batch = self.read((first, last))
            else:
                batch = self._matched(matches.within(first, last))
            if batch is not None:
                yield batch

    @cached_property
    def _is_narrow(self) -> bool:
        """Whether a stripe's pages are few enough for one match in each to decode them all."""
        stored = self._stripes.stored_bytes(self._columns, self._stripe)
        return stored <= SPARSE_BYTES_MAX

    def _matches(self, start: int, stop: int) -> Matches | None:
        """Which rows of a span match; None where statistics say it."""
        assert self._expression is not None
        assert self._pruned is not None
        wanted = self._wanted(start, stop)
        may, must = self._pruned
        wanted_may = may & wanted
        if wanted_may == must & wanted:
            return None
        around = may & join_near(wanted, JOIN_ROWS)
        return self._stripes.matches(
            self._expression, self._filter_columns, self._stripe, wanted_may, around
        )

    def _matched(self, matches: Matches) -> pa.RecordBatch | None:
        return self._stripes.matched(self._columns, self._filter_columns, self._stripe, matches)

    def read(self, window: tuple[int, int] | None) -> pa.RecordBatch | None:
        """The rows of a window (None: of the stripe); None where there are none."""
        wanted = self._ranges if window is None else self._wanted(*window)
        if self._expression is None:
            if wanted is not None and not wanted:
                return None
            return self._stripes.selected(self._columns, self._stripe, wanted, self._kept)
        before = self._kept_bytes()
        batch = self._stripes.filtered(
            self._expression,
            self._filter_columns,
            self._columns,
            self._stripe,
            wanted,
            pruned=self._pruned,
            kept=self._kept,
        )
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
        return window if self._ranges is None else window & self._ranges

    def _fetch(self, columns: Sequence[Projected], rows: RowRanges) -> None:
        assert self._kept is not None
        if self._pruned is not None:
            rows = rows & self._pruned.may_match
        if rows:
            self._stripes.fetch(columns, self._stripe, rows, self._kept)
