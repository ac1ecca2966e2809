"""Rows of a record batch by number, also for the types that Arrow's own ``take`` leaves out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def take_rows(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """Some rows of a batch; a copy.

    Parameters
    ----------
    rows
        ``int64``, shape (n,): row numbers in any order.
    """
    indices = pa.array(rows)
    arrays = [_take(column, indices, rows) for column in batch.columns]
    if not arrays:
        return batch.slice(0, len(rows))
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def filter_rows(batch: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    """The rows where ``mask``, ``bool`` of shape (num_rows,), is true."""
    if mask.all():
        return batch
    return take_rows(batch, np.flatnonzero(mask))


def _take(column: pa.Array, indices: pa.Array, rows: np.ndarray) -> pa.Array:
    try:
        return column.take(indices)
    except pa.ArrowNotImplementedError:  # views and run-end encoding
        if not len(rows):
            return column.slice(0, 0)
        starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
        stops = np.append(starts[1:], len(rows))
        parts = zip(rows[starts].tolist(), (stops - starts).tolist(), strict=True)
        return pa.concat_arrays([column.slice(start, length) for start, length in parts])
