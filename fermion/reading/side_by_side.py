"""Stripes of a local file read side by side, where few rows of each are wanted.

A thread that reads a stripe alone plans its pages while another decodes, and starts no threads for
columns. Stripes of which many rows are wanted are read one after the other, their columns side by
side: that needs the memory of one of them only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.forks import ThreadPool
from fermion.predicate import Expression
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected
from fermion.reading.stripe import DENSE_FRACTION, Chosen, StripeReader

STRIPES_MIN = 4
"""So many stripes are worth a thread each, however many threads there are."""
STRIPE_ROWS_MIN = 16 * 1024
"""Smaller stripes are read before another thread has begun."""

T = TypeVar("T")
_Pieces = Sequence[tuple[int, RowRanges | None]]


class SideBySide:
    """Reads a few rows of many stripes.

    Parameters
    ----------
    index
        The open file.
    stripes
        Reads its stripes.
    executor
        Its threads read a stripe each; None: there are none.
    """

    def __init__(
        self, index: FileIndex, stripes: StripeReader, executor: ThreadPool | None
    ) -> None:
        self._index, self._stripes, self._executor = index, stripes, executor

    def filtered(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        columns: Sequence[Projected],
        pieces: _Pieces,
    ) -> Iterator[pa.RecordBatch]:
        """Rows that a filter selects: a batch for each stripe that has any.

        Parameters
        ----------
        pieces
            Stripes, and which of their rows to read (None: all).
        """

        def choose(reader: StripeReader, stripe: int, within: RowRanges | None) -> Chosen:
            return reader.choose(expression, filter_columns, columns, stripe, within)

        for batch in self._each(choose, pieces):
            if batch is not None:
                yield batch

    def numbered(
        self, columns: Sequence[Projected], pieces: Sequence[tuple[int, RowRanges]]
    ) -> Iterator[pa.RecordBatch]:
        """Some rows of stripes: a batch for each."""

        def choose(_: StripeReader, stripe: int, rows: RowRanges | None) -> Chosen:
            assert rows is not None
            return Chosen(rows.total, lambda reader: reader.batch(columns, stripe, rows))

        for batch in self._each(choose, pieces):
            assert batch is not None
            yield batch

    def _each(
        self,
        choose: Callable[[StripeReader, int, RowRanges | None], Chosen],
        pieces: _Pieces,
    ) -> Iterator[pa.RecordBatch | None]:
        executor = self._executor
        if executor is None or not self._is_worth(executor.threads, pieces):
            for stripe, rows in pieces:
                yield choose(self._stripes, stripe, rows).read(self._stripes)
            return
        alone = self._stripes.alone()

        def begin(stripe: int, rows: RowRanges | None) -> Callable[[], pa.RecordBatch | None]:
            chosen = choose(alone, stripe, rows)
            if chosen.rows > DENSE_FRACTION * int(self._index.stripe_rows[stripe]):
                return partial(chosen.read, self._stripes)
            batch = chosen.read(alone)
            return lambda: batch

        tasks = [partial(begin, *piece) for piece in pieces]
        for finish in _in_turn(executor, tasks):
            yield finish()

    def _is_worth(self, threads: int, pieces: _Pieces) -> bool:
        rows = [int(self._index.stripe_rows[stripe]) for stripe, _ in pieces]
        return (
            self._index.source.source.is_local
            and len(pieces) >= min(threads, STRIPES_MIN)
            and max(rows) >= STRIPE_ROWS_MIN
        )


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
            future.cancel()
        wait(under_way)
