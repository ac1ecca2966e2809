"""Columns of the same rows that several files hold, put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Streams of the same rows as one, with the columns of the first, then of the second, ...

    Batches end where one of any stream does; columns have no names. All streams end together, or
    the shortest one ends it.
    """
    left: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        for place, stream in enumerate(streams):
            batch = left[place]
            while batch is None or not batch.num_rows:
                batch = next(stream, None)
                if batch is None:
                    return
            left[place] = batch
        batches = [batch for batch in left if batch is not None]
        rows = min(batch.num_rows for batch in batches)
        arrays = [column for batch in batches for column in batch.slice(0, rows).columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[""] * len(arrays))
        left = [batch.slice(rows) for batch in batches]
