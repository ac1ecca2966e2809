"""Checksums: CRC-32C of metadata, and of pages the kind that a file's settings name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

from fermion.exports import NamedTuple
from fermion.kernels import crc32c
from fermion.layout import ChecksumKind

__all__ = ["UNBOUND_CRC32C", "UNCHECKED", "PageChecks", "checksum", "crc32c"]


class PageChecks(NamedTuple):
    """How the pages of a file are checked.

    kind: Of their checksums; NONE: they are not checked.
    place_key: What the file's checksums are bound to their places with; 0: they are not.
    """

    kind: ChecksumKind
    place_key: int = 0

    @property
    def is_crc32c(self) -> bool:
        """Whether pages have the checksum that the kernels over pages verify."""
        return self.kind is ChecksumKind.CRC32C

    @property
    def is_in_kernels(self) -> bool:
        """Whether the kernels over pages verify all that is to be verified."""
        return self.kind is ChecksumKind.CRC32C or self.kind is ChecksumKind.NONE


UNBOUND_CRC32C = PageChecks(ChecksumKind.CRC32C)
UNCHECKED = PageChecks(ChecksumKind.NONE)


def _crc32(parts: Iterable[Any]) -> int:
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return found


def _crc32c(parts: Iterable[Any]) -> int:
    found = 0
    for part in parts:
        found = crc32c(part, found)
    return found


def _xxh3(parts: Iterable[Any]) -> int:
    # Only pages of this kind need the library.
    from xxhash import xxh3_64

    hashed = xxh3_64()
    for part in parts:
        hashed.update(part)
    found = hashed.intdigest()
    return (found >> 32) ^ (found & 0xFFFF_FFFF)


_FUNCTIONS: dict[ChecksumKind, Callable[[Iterable[Any]], int]] = {
    ChecksumKind.NONE: lambda parts: 0,
    ChecksumKind.CRC32: _crc32,
    ChecksumKind.CRC32C: _crc32c,
    ChecksumKind.XXH3: _xxh3,
}


def checksum(kind: ChecksumKind, *parts: Any) -> int:
    """The checksum of bytes that lie in several places, 32 bits; 0 for the kind ``NONE``.

    parts: Contiguous buffers, taken one after the other.
    """
    return _FUNCTIONS[kind](parts)
