"""Batches of a file in batch mode: which rows have an id, and the two virtual columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fermion.columns.arrow_buffers import array_of
from fermion.columns.ranges import RowRanges
from fermion.columns.types import INT64, UINT32, PhysicalType
from fermion.errors import InvalidFileError
from fermion.io.checksum import PageChecks
from fermion.metadata.cmb import ColumnBlock
from fermion.metadata.file_info import BATCH_ID
from fermion.pages.batches import ID_STREAM, LENGTH_STREAM, POSITION_STREAM, wrong_position
from fermion.pages.global_dictionary import GlobalDictionaries
from fermion.reading.index import FileIndex
from fermion.reading.plan import plan_stream
from fermion.reading.stream import DecodeOptions, FetchedStream


class BatchLookup:
    """The batch streams of one file, decoded stripe by stripe and kept."""

    def __init__(self, index: FileIndex, *, checks: PageChecks) -> None:
        self._index = index
        self._options = DecodeOptions(checks, index.where, GlobalDictionaries(index.where))
        self._stripes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._positions: dict[int, np.ndarray] = {}

    def _block(self) -> ColumnBlock:
        (block,) = self._index.blocks([self._index.footer.num_columns])
        if block is None:
            raise InvalidFileError(f"{self._index.where}: batch mode without a batch column")
        return block

    def stripe(self, stripe: int) -> tuple[np.ndarray, np.ndarray]:
        """Batches of a stripe.

        Returns ids: ``int64``, shape (batches,).
        Returns ends: ``int64``, shape (batches + 1,): rows of the stripe up to each batch, from 0
            on.
        """
        known = self._stripes.get(stripe)
        if known is None:
            block = self._block()
            ids = self._stream(block, ID_STREAM, stripe, INT64)
            lengths = self._stream(block, LENGTH_STREAM, stripe, UINT32)
            if len(ids) != len(lengths):  # before more memory is taken for a made-up count
                raise block.error(
                    f"stripe {stripe}: {len(ids)} batch ids, but {len(lengths)} batch lengths"
                )
            ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
            rows = int(self._index.stripe_rows[stripe])
            if ends[-1] != rows:
                raise block.error(
                    f"stripe {stripe}: batches of {ends[-1]} rows, expected {rows} rows"
                )
            known = self._stripes[stripe] = ids, ends
        return known

    def positions(self, stripe: int) -> np.ndarray:
        """The position of each row of a stripe in its batch: integers, shape (rows,)."""
        known = self._positions.get(stripe)
        if known is not None:
            return known
        _, ends = self.stripe(stripe)
        rows, block = int(ends[-1]), self._block()
        if not self._index.footer.has_positions or block.chunk(POSITION_STREAM, stripe).is_empty:
            return np.arange(rows) - np.repeat(ends[:-1], np.diff(ends))
        found = self._stream(block, POSITION_STREAM, stripe, UINT32, rows)
        wrong = wrong_position(found, ends)
        if wrong is not None:
            raise block.error(f"stripe {stripe}, {wrong}")
        self._positions[stripe] = found
        return found

    def _stream(
        self, block: ColumnBlock, stream: int, stripe: int, physical: PhysicalType, slots: int = -1
    ) -> np.ndarray:
        """The values of a stream; ``slots`` is their number, -1 where that is not known yet."""
        chunk = block.chunk(stream, stripe)
        if chunk.is_empty:
            return np.zeros(0, physical.dtype)
        plan = plan_stream(block, chunk, None, slots)
        places = [(span.offset, span.length) for span in plan.spans]
        if plan.dictionary is not None:
            places.insert(0, plan.dictionary)
        values = self._index.source.read_checked(
            places,
            lambda pages: FetchedStream(plan, pages, physical, self._options, block.error).decode(
                slots
            ),
        )
        assert isinstance(values, np.ndarray)
        return values

    def rows_of(self, batch_id: int) -> list[tuple[int, RowRanges]]:
        """(stripe, row ranges in it) of every batch with this id; stripes are pruned by bounds."""
        found = []
        block = self._block()
        for stripe in range(self._index.footer.num_stripes):
            chunk = block.chunk(ID_STREAM, stripe)
            if chunk.is_empty or not chunk.minimum <= batch_id <= chunk.maximum:
                continue
            ids, ends = self.stripe(stripe)
            matches = np.flatnonzero(ids == batch_id)
            if len(matches):
                found.append((stripe, RowRanges.from_bounds(ends[matches], ends[matches + 1])))
        return found

    def column(self, name: str, stripe: int, ranges: RowRanges | None) -> pa.Array:
        """A virtual column over some rows of a stripe: int64."""
        if name == BATCH_ID:
            ids, ends = self.stripe(stripe)
            values = np.repeat(ids, np.diff(ends))
        else:
            values = self.positions(stripe)
        if ranges is not None:
            values = values[ranges.to_indices()]
        return array_of(values, pa.int64())
