"""The column index table: u64 offsets of the CMBs, one more than there are columns.

Entry ``i`` is where the CMB of column ``i`` starts and entry ``i + 1`` where it ends; equal
neighbours mean a column that is null in every row and has no CMB. System columns follow the user's.

A file whose settings say NO_CIT has none: each CMB then stands behind ``u32 length, u32 0``, padded
to 8, with length 0 for a column that has no CMB, and finding one reads the whole CMB area.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fermion.errors import InvalidFileError
from fermion.footer import Footer
from fermion.layout import ALIGNMENT, CMB_LENGTH_MAX, align
from fermion.source import CountingSource
from fermion.tail import TailRegion

# From so many columns on, arrays are cheaper than a look-up each.
BULK_COLUMNS = 64

_PAIR = struct.Struct("<QQ")
_LENGTH = struct.Struct("<II")


def build_cit(cmb_offset: int, lengths: Sequence[int]) -> bytes:
    """The table for CMBs that lie end to end from ``cmb_offset`` on."""
    offsets = np.zeros(len(lengths) + 1, dtype="<u8")
    np.cumsum(np.asarray(lengths, dtype=np.uint64), out=offsets[1:])
    return (offsets + np.uint64(cmb_offset)).tobytes()


def build_unindexed(cmbs: Sequence[bytes]) -> bytes:
    """The CMB area of a file without a CIT."""
    out = bytearray()
    for cmb in cmbs:
        out += _LENGTH.pack(len(cmb), 0) + cmb
        out += bytes(align(len(out)) - len(out))
    return bytes(out)


class ColumnRanges(Protocol):
    """Finds CMBs by ordinal."""

    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        """Offset and length of each column's CMB; length 0 where there is none.

        ``int64``, shape (columns, 2).
        """

    def present(self) -> np.ndarray:
        """Whether each column has a CMB: bool, shape (user and system columns,)."""


class UnindexedColumns:
    """Looks up CMB ranges in a file without a CIT, by walking its CMB area once."""

    def __init__(self, source: CountingSource, footer: Footer, where: str) -> None:
        self._source, self._footer, self._where = source, footer, where
        self._found: np.ndarray | None = None

    def _walk(self) -> np.ndarray:
        footer = self._footer
        area = self._source.read(footer.cmb_offset, footer.cmb_length)
        found, at = [], 0
        for ordinal in range(footer.num_columns + footer.num_system_columns):
            if at + _LENGTH.size > len(area):
                raise self._error(ordinal, at, len(area))
            length, zero = _LENGTH.unpack_from(area, at)
            at += _LENGTH.size
            if zero or at + length > len(area):
                raise self._error(ordinal, at, len(area))
            found.append((footer.cmb_offset + at, length))
            at = align(at + length)
        if at != len(area):
            raise self._error(len(found), at, len(area))
        return np.array(found, np.int64).reshape(-1, 2)

    def _error(self, ordinal: int, at: int, length: int) -> InvalidFileError:
        return InvalidFileError(
            f"{self._where}: offset {self._footer.cmb_offset + at}: CMB area of {length} bytes: "
            f"column {ordinal} does not fit"
        )

    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        """See `ColumnRanges.ranges`."""
        if self._found is None:
            self._found = self._walk()
        return self._found[np.asarray(ordinals, np.int64)]

    def present(self) -> np.ndarray:
        """Whether each column has a CMB: bool, shape (user and system columns,)."""
        count = self._footer.num_columns + self._footer.num_system_columns
        return self.ranges(range(count))[:, 1] > 0


class ColumnIndexTable:
    """Looks up CMB ranges without reading the whole table."""

    def __init__(self, tail: TailRegion, footer: Footer, where: str) -> None:
        self._tail, self._footer, self._where = tail, footer, where

    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        """See `ColumnRanges.ranges`.

        Raises
        ------
        InvalidFileError
            For entries that fall, lie outside the CMB area, or are not multiples of 8.
        """
        if len(ordinals) > BULK_COLUMNS:
            return self._ranges_of_many(np.asarray(ordinals, np.int64))
        base = self._footer.cit_offset
        ranges = []
        for ordinal in map(int, ordinals):
            start, stop = _PAIR.unpack(self._tail.view(base + 8 * ordinal, 16))
            self._check(ordinal, start, stop)
            ranges.append((start, stop - start))
        return np.array(ranges, np.int64).reshape(-1, 2)

    def _ranges_of_many(self, ordinals: np.ndarray) -> np.ndarray:
        """The same by way of arrays: no call a column."""
        low, high = self._footer.cmb_offset, self._footer.tail_offset
        first, last = int(ordinals.min()), int(ordinals.max())
        data = self._tail.view(self._footer.cit_offset + 8 * first, 8 * (last - first + 2))
        table = np.frombuffer(data, "<u8")
        starts, stops = table[ordinals - first], table[ordinals - first + 1]
        wrong = (starts < low) | (stops < starts) | (stops > high)
        wrong |= (stops - starts > CMB_LENGTH_MAX) | (((starts | stops) & (ALIGNMENT - 1)) != 0)
        if wrong.any():
            place = int(np.argmax(wrong))
            self._check(int(ordinals[place]), int(starts[place]), int(stops[place]))
        return np.stack((starts, stops - starts), axis=1).astype(np.int64)

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
