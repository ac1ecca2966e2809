"""Columns of a stripe that are neighbours in the file, encoded: by the kernel, or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fermion.pages.encoded import EncodedStream
from fermion.writing.column import EncodedColumn
from fermion.writing.log import Chunk


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Neighbours among the columns of a stripe, encoded.

    Attributes
    ----------
    ordinals
        ``int64``, shape (n,): the columns, in the order of their data.
    pages, chunks
        Of those that the kernel encoded; see `EncodedFlat`.
    others
        The others, by ordinal.
    """

    ordinals: np.ndarray
    pages: bytearray
    chunks: np.ndarray
    others: dict[int, EncodedColumn] = field(default_factory=dict)

    def left(self) -> np.ndarray:
        """The columns that the kernel left: ``int64``."""
        return self.ordinals[~self._is_flat()]

    def _is_flat(self) -> np.ndarray:
        return self.chunks[:, Chunk.VALIDITY_BYTES] + self.chunks[:, Chunk.DATA_BYTES] > 0

    def runs(self) -> Iterator[slice | int]:
        """The columns in order: places of neighbours that the kernel encoded, or an ordinal."""
        at = 0
        for place in [*np.flatnonzero(~self._is_flat()).tolist(), len(self.ordinals)]:
            if at < place:
                yield slice(at, place)
            if place < len(self.ordinals):
                yield int(self.ordinals[place])
            at = place + 1

    @property
    def size(self) -> int:
        """Bytes of the pages."""
        return len(self.pages) + sum(page_bytes(column.streams) for column in self.others.values())


def page_bytes(streams: Sequence[EncodedStream]) -> int:
    """Bytes of the pages of some streams."""
    return sum(len(page) for stream in streams for page in stream.pages)
