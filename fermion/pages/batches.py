"""The system column of batch mode: a stream of batch ids and one of batch lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fermion.columns.values import INT64, UINT32
from fermion.layout import INT64_MAX, INT64_MIN, ChunkFlag, StreamType
from fermion.metadata.file_info import BatchRange
from fermion.options import WriteOptions
from fermion.pages.cuts import cut_fixed
from fermion.pages.encoded import EncodedStream, encoded_stream
from fermion.pages.pages import encode_chunk

ID_STREAM, LENGTH_STREAM = 0, 1
STREAM_TYPES = (StreamType.BATCH_META, StreamType.BATCH_META)


@dataclass(slots=True)
class BatchLog:
    """Batches of the stripe being filled, and the range of all so far.

    Attributes
    ----------
    ids, lengths
        One a batch, in the order appended.
    next_id
        The id that a batch without one gets: they count from 0 in each file.
    """

    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    next_id: int = 0
    range: BatchRange | None = None
    last_id: int = INT64_MIN

    def add(self, batch_id: int, length: int) -> None:
        """Note one batch."""
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

    def ends(self) -> np.ndarray:
        """Rows of the stripe up to the end of each batch: int64, shape (batches,)."""
        return np.cumsum(np.asarray(self.lengths, np.int64))

    def clear(self) -> None:
        """Start the next stripe."""
        self.ids, self.lengths = [], []


def encode_batches(
    ids: Sequence[int], lengths: Sequence[int], options: WriteOptions
) -> list[EncodedStream]:
    """The two streams of one stripe."""
    id_values = np.asarray(ids, np.int64)
    length_values = np.asarray(lengths, np.uint32)
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
            ids_chunk, cuts, mins, maxs, minimum=min(ids), maximum=max(ids), flags=int(flags)
        ),
        encoded_stream(lengths_chunk, cuts, *unknown),
    ]
