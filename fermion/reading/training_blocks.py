"""An open file as a source of rows for training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.columns.rows import one_batch
from fermion.display import location_text
from fermion.training.blocks import BLOCK_ROWS, BlockRows, TrainingUnits


class FileBlocks:
    """The rows of one file. Its parts are the stripes.

    Parameters
    ----------
    file
        A `FermionFile`, which stays open as long as it is read.
    columns, filter
        As of `FermionFile.read`. Rows that the filter does not select are left out when read.
    """

    def __init__(self, file: Any, columns: Any, filter: Any) -> None:
        self._file, self._columns, self._filter = file, columns, filter
        self.schema = file.read(columns, rows=(0, 0)).schema
        file.find(filter, rows=(0, 0))  # a filter that is wrong is an error now
        self.slots = np.asarray(file.stripe_rows, np.int64)
        self._starts = np.cumsum(self.slots) - self.slots

    @property
    def identity(self) -> dict[str, Any]:
        """As of `BlockSource`."""
        identity = {"file": self._file.file_id or location_text(self._file.index.where)}
        return identity if self._filter is None else {**identity, "filter": str(self._filter)}

    def read(self, part: int, start: int, stop: int) -> BlockRows:
        """As of `BlockSource`."""
        first = int(self._starts[part]) + start
        rows = RowRanges.from_bounds([first], [first + stop - start])
        if self._filter is None:
            return BlockRows(self._batch(rows))
        found = self._file.find(self._filter, rows=rows)
        if found == rows:
            return BlockRows(self._batch(rows))
        return BlockRows(self._batch(found), found.to_indices() - first)

    def _batch(self, rows: RowRanges) -> pa.RecordBatch:
        return one_batch(
            list(self._file.iter_batches(self._columns, rows=rows, batch_size=BLOCK_ROWS))
            or [pa.RecordBatch.from_pylist([], self.schema)]
        )

    def count(self) -> int:
        """As of `BlockSource`."""
        return self._file.count(self._filter)

    def units(self) -> TrainingUnits:
        """As of `BlockSource`."""
        ids, rows = self._file.batches()
        of_stripe = np.searchsorted(self._starts, np.cumsum(rows) - rows, "right")
        cuts = np.searchsorted(of_stripe, np.arange(2, len(self._starts) + 1))
        return TrainingUnits.of_batches(
            list(zip(np.split(ids, cuts), np.split(rows, cuts), strict=True))
        )

    def bytes_read(self) -> int:
        """As of `BlockSource`."""
        return self._file.io_stats.bytes_requested
