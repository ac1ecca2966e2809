"""Rows of a file as record batches: a stripe or a window of one at a time, filtered or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from fermion.arguments import integer
from fermion.errors import InvalidArgumentError
from fermion.file_index import FileIndex
from fermion.predicate import Expression
from fermion.predicate.ranges import RowRanges
from fermion.projection import Projected
from fermion.read_ahead import read_ahead
from fermion.stripe_reader import StripeReader

WINDOW_ROWS = 131_072
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
    """

    def __init__(self, index: FileIndex, stripes: StripeReader) -> None:
        self._index, self._stripes = index, stripes

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
            To look at; None: all.
        """
        every = self.by_stripe(rows)
        if expression is None and not self._index.source.source.is_local:
            tasks = [partial(self._stripes.selected, columns, *each) for each in every]
            yield from read_ahead(tasks, STRIPES_AT_ONCE)
            return
        for stripe, ranges in every:
            if expression is None:
                yield self._stripes.selected(columns, stripe, ranges)
            else:
                found = self._stripes.filtered(expression, filter_columns, columns, stripe, ranges)
                if found is not None:
                    yield found

    def windows(
        self,
        columns: Sequence[Projected],
        expression: Expression | None,
        filter_columns: Sequence[Projected],
        rows: RowRanges | None,
    ) -> Iterator[pa.RecordBatch]:
        """The same with a batch for each window of rows, of which one is in memory at a time."""
        for stripe, ranges in self.by_stripe(rows):
            if expression is None:
                yield from self._windows(columns, stripe, ranges)
            else:
                found = self._stripes.filtered(expression, filter_columns, columns, stripe, ranges)
                if found is not None:
                    yield found

    def _windows(
        self, columns: Sequence[Projected], stripe: int, ranges: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        total = int(self._index.stripe_rows[stripe])
        if total <= WINDOW_ROWS or not self._index.source.source.is_local:
            yield self._stripes.selected(columns, stripe, ranges)
            return
        for start in range(0, total, WINDOW_ROWS):
            window = RowRanges.from_bounds([start], [min(start + WINDOW_ROWS, total)])
            wanted = window if ranges is None else window & ranges
            if wanted:
                yield self._stripes.selected(columns, stripe, wanted)
