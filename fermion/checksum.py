"""Checksums: CRC-32C of metadata, and of pages the kind that a file's settings name."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from fermion.kernels import crc32c
from fermion.layout import ChecksumKind

__all__ = ["checksum", "crc32c"]


def _none(data: Any, seed: int) -> int:
    return 0


_FUNCTIONS: dict[ChecksumKind, Callable[[Any, int], int]] = {
    ChecksumKind.NONE: _none,
    ChecksumKind.CRC32: zlib.crc32,
    ChecksumKind.CRC32C: crc32c,
}


def checksum(kind: ChecksumKind, data: Any, seed: int = 0) -> int:
    """The checksum of a buffer, 32 bits; 0 for the kind ``NONE``.

    Parameters
    ----------
    kind
        Which checksum.
    data
        Any contiguous buffer.
    seed
        The checksum of the bytes before these, so that parts can be fed one by one.
    """
    return _FUNCTIONS[kind](data, seed)
