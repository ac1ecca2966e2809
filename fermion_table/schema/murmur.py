"""Murmur3 (x86, 32 bits, seed 0), over whole arrays: what ``bucket`` partitions rows by.

Integers are hashed as 8 bytes, little-endian, so that widening a column moves no row. Byte strings
are hashed one by one, each distinct one once.
"""

from __future__ import annotations

from collections.abc import Iterable

import mmh3
import numpy as np

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_LENGTH = np.uint32(8)


def hash_integers(values: np.ndarray) -> np.ndarray:
    """The hash of each number.

    Parameters
    ----------
    values
        ``int64`` or ``uint64``, shape (n,).

    Returns
    -------
    np.ndarray
        ``uint32``, shape (n,).
    """
    words = values.view(np.uint64)
    state = np.zeros(len(words), np.uint32)
    with np.errstate(over="ignore"):
        for shift in (0, 32):
            word = (words >> np.uint64(shift)).astype(np.uint32) * _C1
            state ^= _rotated(word, 15) * _C2
            state = _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= _LENGTH
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def hash_texts(values: Iterable[bytes]) -> np.ndarray:
    """The hash of each byte string: ``uint32``, shape (n,)."""
    return np.array([mmh3.hash(value, signed=False) for value in values], np.uint32)


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
