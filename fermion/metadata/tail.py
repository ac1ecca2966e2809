"""The tail region of an open file: read on demand in 64 KiB blocks, each verified once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fermion.errors import ChecksumError, InvalidFileError
from fermion.io.checksum import crc32c
from fermion.io.source import CountingSource
from fermion.layout import TAIL_BLOCK_BYTES
from fermion.metadata.footer import Footer, SectionDirectory

AT_ONCE_BYTES_MAX = 4 * 2**20
"""A region of a remote file up to this size is read whole when some of it is missing."""


class TailRegion:
    """Bytes between the end of the CMB area and the section directory.

    Parameters
    ----------
    source
        Where missing blocks come from.
    footer, directory
        Say where the region lies and what its blocks' checksums are.
    prefetched, prefetched_offset
        Bytes from the end of the file that are there already.
    """

    def __init__(
        self,
        source: CountingSource,
        footer: Footer,
        directory: SectionDirectory,
        prefetched: memoryview,
        prefetched_offset: int,
    ) -> None:
        self._source = source
        self._start = footer.tail_offset
        self._length = footer.sections_offset - footer.tail_offset
        self._checksums = directory.block_checksums
        self._buffer = np.empty(self._length, np.uint8)
        self._bytes = self._buffer.data
        self._loaded = bytearray(len(self._checksums))
        self._verified = bytearray(len(self._checksums))
        self._keep(prefetched, prefetched_offset)

    def _keep(self, data: memoryview, offset: int) -> None:
        begin = max(offset - self._start, 0)
        first = -(-begin // TAIL_BLOCK_BYTES)
        if first < len(self._checksums):
            at = first * TAIL_BLOCK_BYTES
            source_at = self._start + at - offset
            self._bytes[at:] = data[source_at : source_at + self._length - at]
            self._loaded[first:] = b"\1" * (len(self._checksums) - first)

    def view(self, offset: int, length: int) -> memoryview:
        """``length`` verified bytes from ``offset`` (in the file) on; a view.

        Raises
        ------
        ChecksumError, TruncatedFileError, InvalidFileError
        """
        begin = offset - self._start
        if begin < 0 or length < 0 or begin + length > self._length:
            raise InvalidFileError(
                f"{self._source.source.name}: range {offset}+{length} lies outside the tail region"
            )
        if length:
            first, last = begin // TAIL_BLOCK_BYTES, (begin + length - 1) // TAIL_BLOCK_BYTES
            if self._verified.find(0, first, last + 1) >= 0:
                self._load(first, last + 1)
        return self._bytes[begin : begin + length]

    def section_view(self, offset: int) -> Callable[[int, int], memoryview]:
        """`view`, with offsets counted from the start of a section."""
        return lambda start, length: self.view(offset + start, length)

    def _load(self, first: int, stop: int) -> None:
        missing = [block for block in range(first, stop) if not self._loaded[block]]
        if missing and not self._source.source.is_local and self._length <= AT_ONCE_BYTES_MAX:
            # One request more beats several of them, one after the other.
            missing = [block for block, loaded in enumerate(self._loaded) if not loaded]
        if missing:
            self._read(missing[0], missing[-1] + 1)
        wrong = [block for block in range(first, stop) if not self._is_right(block)]
        if not wrong:
            return
        self._read(wrong[0], wrong[-1] + 1, again=True)
        for block in wrong:
            if not self._is_right(block):
                raise self._error(block)

    def _read(self, first: int, stop: int, *, again: bool = False) -> None:
        at, end = first * TAIL_BLOCK_BYTES, min(stop * TAIL_BLOCK_BYTES, self._length)
        place = self._start + at, end - at
        if again:
            (data,) = self._source.read_many([place], again=True)
        else:
            data = self._source.read(*place)
        for block in range(first, stop):
            if not self._verified[block]:  # views of the others were given out
                own = slice(block * TAIL_BLOCK_BYTES, min((block + 1) * TAIL_BLOCK_BYTES, end))
                self._bytes[own] = data[own.start - at : own.stop - at]
                self._loaded[block] = 1

    def _crc(self, block: int) -> int:
        at = block * TAIL_BLOCK_BYTES
        return crc32c(self._bytes[at : min(at + TAIL_BLOCK_BYTES, self._length)])

    def _is_right(self, block: int) -> bool:
        if not self._verified[block] and self._crc(block) == self._checksums[block]:
            self._verified[block] = 1
        return bool(self._verified[block])

    def _error(self, block: int) -> ChecksumError:
        return ChecksumError(
            f"{self._source.source.name}: offset {self._start + block * TAIL_BLOCK_BYTES}: "
            f"checksum of a metadata block: expected {self._checksums[block]:#010x}, "
            f"found {self._crc(block):#010x}"
        )

    def verify_all(self) -> None:
        """Read and verify every block."""
        if self._checksums:
            self._load(0, len(self._checksums))
