"""The column index table: u64 offsets of the CMBs, one more than there are columns.

Entry ``i`` is where the CMB of column ``i`` starts and entry ``i + 1`` where it ends; equal
neighbours mean a column that is null in every row and has no CMB. System columns follow the user's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from fermion.errors import InvalidFileError
from fermion.footer import Footer
from fermion.layout import ALIGNMENT, CMB_LENGTH_MAX
from fermion.tail import TailRegion

_PAIR = struct.Struct("<QQ")


def build_cit(cmb_offset: int, lengths: Sequence[int]) -> bytes:
    """The table for CMBs that lie end to end from ``cmb_offset`` on."""
    offsets = np.zeros(len(lengths) + 1, dtype="<u8")
    np.cumsum(np.asarray(lengths, dtype=np.uint64), out=offsets[1:])
    return (offsets + np.uint64(cmb_offset)).tobytes()


class ColumnIndexTable:
    """Looks up CMB ranges without reading the whole table."""

    def __init__(self, tail: TailRegion, footer: Footer, where: str) -> None:
        self._tail, self._footer, self._where = tail, footer, where

    def ranges(self, ordinals: Sequence[int]) -> list[tuple[int, int]]:
        """(offset, length) of each column's CMB; length 0 where there is none.

        Raises
        ------
        InvalidFileError
            For entries that fall, lie outside the CMB area, or are not multiples of 8.
        """
        base = self._footer.cit_offset
        ranges = []
        for ordinal in ordinals:
            start, stop = _PAIR.unpack(self._tail.view(base + 8 * ordinal, 16))
            self._check(ordinal, start, stop)
            ranges.append((start, stop - start))
        return ranges

    def _check(self, ordinal: int, start: int, stop: int) -> None:
        low, high = self._footer.cmb_offset, self._footer.tail_offset
        inside = low <= start <= stop <= high and stop - start <= CMB_LENGTH_MAX
        if not inside or start % ALIGNMENT or stop % ALIGNMENT:
            raise InvalidFileError(
                f"{self._where}: offset {self._footer.cit_offset + 8 * ordinal}: CIT: CMB of "
                f"column {ordinal} at {start} to {stop}, CMB area {low} to {high}"
            )

    def present(self) -> np.ndarray:
        """Whether each column has a CMB: bool, shape (user and system columns,)."""
        table = self._tail.view(self._footer.cit_offset, self._footer.cit_length)
        return np.diff(np.frombuffer(table, "<u8")) != 0
