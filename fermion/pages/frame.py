"""The frame of a page: header, checksum and codec around an encoding tree, both directions.

====== ==== ========== ==================================================================
offset size name       meaning
====== ==== ========== ==================================================================
0      1    version    1
1      1    codec      `Codec` of the payload
2      2    encoding   encoding of the tree's root
4      4    numSlots   slots, null ones included; for a dictionary page, its entries
8      4    rawLength  bytes of the tree (before the codec, without padding)
12     4    crc        over bytes 0 to 11 and all bytes from 16 to the page's end, XOR the place
16     ...  payload    the tree, through the codec; zero padding to a multiple of 8, or of 64
====== ==== ========== ==================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from fermion.encodings.encoding import Buffer, PageBuffer
from fermion.errors import (
    ChecksumError,
    InvalidFileError,
    UnsupportedEncodingError,
    UnsupportedVersionError,
)
from fermion.exports import NamedTuple
from fermion.io.checksum import PageChecks
from fermion.io.checksum import checksum as checksum_of
from fermion.io.compression import unpack
from fermion.kernels import bind_checksum, bind_checksums, place_of
from fermion.layout import PAGE_HEADER, PAGE_VERSION, ChecksumKind, Codec

HEADER_SIZE = PAGE_HEADER.itemsize
CHECKSUM_KINDS = {
    "none": ChecksumKind.NONE,
    "crc32": ChecksumKind.CRC32,
    "crc32c": ChecksumKind.CRC32C,
    "xxh3": ChecksumKind.XXH3,
}

_HEADER_START = struct.Struct("<BBHII")
_CRC = struct.Struct("<I")
_CRC_OFFSET = 12


class Frame(NamedTuple):
    """A page without its frame.

    buffer, start: Where the encoding tree lies.
    """

    codec: Codec
    encoding: int
    slots: int
    raw_length: int
    buffer: PageBuffer
    start: int


def root_encoding(page: PageBuffer) -> int:
    """The encoding of a page's root."""
    return int.from_bytes(page[2:4], "little")


def seal_page(
    parts: Sequence[Buffer],
    kind: ChecksumKind,
    codec: Codec,
    encoding: int,
    slots: int,
    raw_length: int,
) -> bytearray:
    """A page of a payload given in parts, together a multiple of 8 bytes.

    Its checksum is not bound to a place yet: see `bind_page`.
    """
    start = _HEADER_START.pack(PAGE_VERSION, codec, encoding, slots, raw_length)
    return bytearray().join((start, _CRC.pack(checksum_of(kind, start, *parts)), *parts))


def bind_page(page: bytearray, place_key: int, offset: int) -> None:
    """Bind a page that has a checksum to its offset in the file; done once for each page."""
    bind_checksum(page, _CRC_OFFSET, place_key, offset)


def bind_pages(pages: bytearray, place_key: int, starts: np.ndarray, shift: int) -> None:
    """Bind many pages, which have checksums, to their offsets in the file; see `bind_page`.

    starts: ``int64``: where in ``pages`` those to be bound start.
    shift: What is added to that for their offset in the file.
    """
    bind_checksums(pages, starts + _CRC_OFFSET, place_key, starts + shift)


def page_checksums(page: PageBuffer, checks: PageChecks, offset: int) -> tuple[int, int]:
    """The checksum that a page has and the one it must have; the page has a whole header.

    offset: Where in the file the page lies.
    """
    (stored,) = _CRC.unpack_from(page, _CRC_OFFSET)
    found = checksum_of(checks.kind, page[:_CRC_OFFSET], page[HEADER_SIZE:])
    return stored, found ^ place_of(checks.place_key, offset)


def open_page(buffer: PageBuffer, checks: PageChecks, offset: int, raw_length_max: int) -> Frame:
    """Verify a page's checksum, then its header, and undo the codec.

    checks: How pages of the file are checked.
    offset: Where in the file the page lies.
    raw_length_max: Bytes that the tree may have once the codec is undone.
    Raises ChecksumError, InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        raise InvalidFileError(f"expected a page of at least {HEADER_SIZE} bytes, found {size}")
    if checks.kind is not ChecksumKind.NONE:
        stored, found = page_checksums(buffer, checks, offset)
        if found != stored:
            raise ChecksumError(f"checksum: stored {stored:#010x}, computed {found:#010x}")
    version, codec, encoding, slots, raw_length = _HEADER_START.unpack_from(buffer, 0)
    if version != PAGE_VERSION:
        raise UnsupportedVersionError(f"page version: expected {PAGE_VERSION}, found {version}")
    if codec == Codec.NONE:
        if raw_length > size - HEADER_SIZE:
            raise InvalidFileError(
                f"raw length: expected at most {size - HEADER_SIZE}, found {raw_length}"
            )
        return Frame(Codec.NONE, encoding, slots, raw_length, buffer, HEADER_SIZE)
    if codec in (Codec.ZSTD, Codec.LZ4):
        if raw_length > raw_length_max:
            raise InvalidFileError(
                f"raw length: expected at most {raw_length_max}, found {raw_length}"
            )
        tree = unpack(codec, memoryview(buffer)[HEADER_SIZE:], raw_length, padded=True)
        return Frame(Codec(codec), encoding, slots, raw_length, tree, 0)
    raise UnsupportedEncodingError(f"codec id {codec} is not known to this reader")
