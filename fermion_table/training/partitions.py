"""Rows shared out by key into local files, so that a join holds one part of them at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import take_batch_rows
from fermion_table.schema.matching import matching
from fermion_table.schema.transforms import bucket

PARTITION_BYTES = 128 * 1024**2
"""Of the rows that a partition holds, roughly, of labels and of all sources."""
PARTITIONS_MAX = 128
TEXT_BYTES = 32
"""What a value of a type without a fixed width is taken for."""


def partition_count(sides: Iterable[tuple[pa.Schema, int]]) -> int:
    """Into how many partitions rows are shared, so that one of them has about `PARTITION_BYTES`.

    sides: Columns and rows of labels and of each source.
    """
    size = sum(rows * row_bytes(schema) for schema, rows in sides)
    return min(max(-(-size // PARTITION_BYTES), 1), PARTITIONS_MAX)


def row_bytes(schema: pa.Schema) -> int:
    """What a row is taken for."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> int:
    if pat.is_fixed_size_list(kind):
        return kind.list_size * _width(kind.value_type)
    try:
        return -(-kind.bit_width // 8)
    except ValueError:  # no fixed width
        return TEXT_BYTES


class Partitions:
    """Rows of one side, in a file for each partition.

    directory: Where the files lie; whoever made it removes it.
    name: Of the side.
    count: Of partitions.
    """

    def __init__(self, directory: str, name: str, count: int, schema: pa.Schema) -> None:
        self._paths = [Path(directory) / f"{name}-{number}.arrow" for number in range(count)]
        self._schema = schema

    def write(self, batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> None:
        """Share rows out by their keys: those of one key go to one partition."""
        with ExitStack() as stack:
            writers = []
            for path in self._paths:
                sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                writers.append(stack.enter_context(pa.ipc.new_stream(sink, self._schema)))
            for batch in batches:
                if len(writers) == 1:
                    writers[0].write_batch(batch)
                    continue
                numbers = _numbers(batch, keys, len(writers))
                order = np.argsort(numbers, kind="stable")
                cuts = np.searchsorted(numbers[order], np.arange(len(writers) + 1)).tolist()
                for number, writer in enumerate(writers):
                    rows = order[cuts[number] : cuts[number + 1]]
                    if len(rows):
                        writer.write_batch(take_batch_rows(batch, rows))

    def read(self, number: int) -> pa.Table:
        """The rows of a partition: views of the mapped file, whose name is removed."""
        path = self._paths[number]
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_stream(source).read_all()
        path.unlink()
        return table


def _numbers(batch: pa.RecordBatch, keys: Sequence[str], count: int) -> np.ndarray:
    """The partition of each row; rows with nulls in keys, which match nothing, go anywhere."""
    numbers = np.zeros(batch.num_rows, np.int64)
    for key in keys:
        column = matching(batch.column(key))
        if pat.is_boolean(column.type):
            column = column.cast(pa.uint8())
        elif pat.is_floating(column.type):
            column = column.cast(pa.float64()).view(pa.int64())
        buckets = bucket(count, key).values(column).fill_null(0)
        numbers = (numbers * 31 + buckets.to_numpy(zero_copy_only=False)) % count
    return numbers
