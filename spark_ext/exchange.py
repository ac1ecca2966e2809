"""Converts record batches between a table's Arrow types and those that Spark takes, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from fermion import engine
from spark_ext.errors import ConversionError

BARE_BATCH_ROWS = 1024 * 1024
"""Rows of a batch without columns."""

convert_batch = partial(engine.convert_batch, refusal=ConversionError)
convert_batches = partial(engine.convert_batches, refusal=ConversionError)
"""They raise `ConversionError` where a value does not fit."""


def bare_rows(rows: int) -> Iterator[pa.RecordBatch]:
    """A number of rows without columns, as batches."""
    for start in range(0, rows, BARE_BATCH_ROWS):
        yield engine.bare_batch(min(BARE_BATCH_ROWS, rows - start))
