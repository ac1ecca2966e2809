"""Rows on their way to files: kept until there are enough to be sorted, within bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from fermion_table.schema.sorting import RowOrder, sorted_rows
from fermion_table.writing.partition import Partition


class WriteBuffer:
    """Collects the rows of partitions, and gives them back sorted.

    Parameters
    ----------
    order
        How rows are sorted.
    bytes_max
        Arrow bytes kept; sorting needs as much again.
    """

    def __init__(self, order: RowOrder, bytes_max: int) -> None:
        self._order = order
        self._bytes_max = bytes_max
        self._rows: dict[Partition, list[pa.RecordBatch]] = {}
        self.bytes = 0

    def add(self, partition: Partition, rows: pa.RecordBatch) -> None:
        """Keep rows of a partition."""
        self._rows.setdefault(partition, []).append(rows)
        self.bytes += rows.nbytes

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more."""
        return self.bytes >= self._bytes_max

    def drain(self) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """All rows, each partition's together and sorted; they are forgotten one by one."""
        while self._rows:
            partition = next(iter(self._rows))
            batches = self._rows.pop(partition)
            self.bytes -= sum(batch.nbytes for batch in batches)
            yield partition, sorted_rows(batches, self._order)
