"""The system column of batch mode: streams of batch ids, of batch lengths, of rows' positions."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fermion.columns.types import INT64, UINT32
from fermion.exports import dataclass
from fermion.layout import CHUNK_SLOTS_MAX, INT64_MAX, INT64_MIN, ChunkFlag, StreamType
from fermion.metadata.cmb import ChunkRecord
from fermion.metadata.file_info import BatchRange
from fermion.options import WriteOptions
from fermion.pages.cuts import cut_batches, cut_fixed
from fermion.pages.pages import EncodedStream, encode_chunk, encoded_stream

ID_STREAM, LENGTH_STREAM, POSITION_STREAM = 0, 1, 2


def stream_types(*, has_positions: bool) -> tuple[StreamType, ...]:
    """Types of the streams; the third is of files alone that have positions."""
    return (StreamType.BATCH_META,) * (3 if has_positions else 2)


def wrong_position(positions: np.ndarray, ends: np.ndarray) -> str | None:
    """What is wrong with positions of rows in their batches; None if nothing is.

    positions: Integers, shape (rows,).
    ends: ``int64``, shape (batches + 1,): rows up to each batch, from 0 on.
    """
    if not len(positions):
        return None
    low, high, rises = positions[0], positions[-1], positions[1:] > positions[:-1]
    if len(ends) > 2:
        low, high = positions.min(), positions.max()
        inner = ends[(ends > 0) & (ends < len(positions))]
        rises[inner - 1] = True  # from one batch to the next
    if not rises.all():
        row = int(rises.argmin()) + 1
        return (
            f"row {row}: expected a position in the batch above {positions[row - 1]}, "
            f"found {positions[row]}"
        )
    if low < 0 or high >= CHUNK_SLOTS_MAX:
        row = int(((positions < 0) | (positions >= CHUNK_SLOTS_MAX)).argmax())
        return (
            f"row {row}: expected a position in the batch from 0 to {CHUNK_SLOTS_MAX - 1}, "
            f"found {positions[row]}"
        )
    return None


@dataclass(slots=True)
class BatchLog:
    """Batches of the stripe being filled, and the range of all so far.

    ids, lengths: One a batch, in the order appended.
    next_id: The id that a batch without one gets: they count from 0 in each file.
    positions: Of the rows of each batch, ``uint32``; None where they count from 0.
    has_positions: Whether a batch so far, of any stripe, has others than those.
    """

    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    next_id: int = 0
    range: BatchRange | None = None
    last_id: int = INT64_MIN
    positions: list[np.ndarray | None] = field(default_factory=list)
    has_positions: bool = False

    def add(self, batch_id: int, length: int, positions: np.ndarray | None = None) -> None:
        """Note one batch; positions are what `wrong_position` finds nothing wrong with."""
        seen = self.range or BatchRange(batch_id, batch_id, 0, True)
        self.range = BatchRange(
            min(seen.min, batch_id),
            max(seen.max, batch_id),
            seen.count + 1,
            seen.sorted and batch_id >= self.last_id,
        )
        self.last_id = batch_id
        self.next_id = max(self.next_id, batch_id + 1)
        self.ids.append(batch_id)
        self.lengths.append(length)
        if positions is None or not length or positions[-1] == length - 1:
            self.positions.append(None)  # they ascend, so that the last one tells them all
        else:
            self.positions.append(positions.astype(np.uint32))
            self.has_positions = True

    def ends(self) -> np.ndarray:
        """Rows of the stripe up to the end of each batch: int64, shape (batches,)."""
        return np.cumsum(np.asarray(self.lengths, np.int64))

    def clear(self) -> None:
        """Start the next stripe."""
        self.ids, self.lengths, self.positions = [], [], []


def encode_batches(log: BatchLog, options: WriteOptions) -> list[EncodedStream]:
    """The three streams of one stripe; that of positions is empty where all count from 0."""
    id_values = np.asarray(log.ids, np.int64)
    length_values = np.asarray(log.lengths, np.uint32)
    cuts = cut_fixed(
        len(id_values), 8, page_bytes=options.page_bytes, page_rows_max=options.page_rows_max
    )
    mins = np.minimum.reduceat(id_values, cuts[:-1])
    maxs = np.maximum.reduceat(id_values, cuts[:-1])
    flags = ChunkFlag.HAS_MINMAX | ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT
    if (np.diff(id_values) >= 0).all():
        flags |= ChunkFlag.SORTED_ASC
    unknown = np.full(len(mins), INT64_MIN), np.full(len(mins), INT64_MAX)
    ids_chunk = encode_chunk(id_values, INT64, cuts, options=options)
    lengths_chunk = encode_chunk(length_values, UINT32, cuts, options=options)
    return [
        encoded_stream(
            ids_chunk,
            cuts,
            mins,
            maxs,
            minimum=min(log.ids),
            maximum=max(log.ids),
            flags=int(flags),
        ),
        encoded_stream(lengths_chunk, cuts, *unknown),
        _encode_positions(log, options),
    ]


def _encode_positions(log: BatchLog, options: WriteOptions) -> EncodedStream:
    if all(each is None for each in log.positions):
        return EncodedStream(ChunkRecord())
    values = np.concatenate(
        [
            np.arange(length, dtype=np.uint32) if each is None else each
            for each, length in zip(log.positions, log.lengths, strict=True)
        ]
    )
    ends = log.ends()
    cuts = cut_batches(
        ends,
        ends * values.itemsize,
        page_bytes=options.page_bytes,
        page_rows_max=options.page_rows_max,
    )
    pages = len(cuts) - 1
    unknown = np.full(pages, INT64_MIN), np.full(pages, INT64_MAX)
    return encoded_stream(encode_chunk(values, UINT32, cuts, options=options), cuts, *unknown)
