"""Memory that is used again: fresh pages of it cost more than what is read into them."""

from __future__ import annotations

import mmap
import sys

import numpy as np

from fermion.forks import Lock, process

KEPT_BYTES_MIN = 256 * 1024
"""Smaller pieces the allocator keeps by itself."""
KEPT_BYTES_MAX = 32 * 1024 * 1024
_GRAIN = 1024 * 1024
# Of a piece that nobody uses: the list, the loop's variable, and the argument of the call itself.
_UNUSED_REFERENCES = 3


class KeptMemory:
    """Pieces of memory, each lent to one borrower at a time; safe to share between threads.

    A piece is free again when no array, view or Arrow buffer of it is left, which its reference
    count tells: nothing has to be given back. A forked process starts with none: what threads of
    its parent had borrowed would never be free again.
    """

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []
        self._lock, self._made_in = Lock(), process()

    def borrow(self, size: int) -> np.ndarray:
        """Memory of ``size`` bytes, with anything in it: ``uint8``, writable."""
        if size < KEPT_BYTES_MIN:
            return np.empty(size, np.uint8)
        with self._lock.get():
            if self._made_in is not process():
                self._pieces, self._made_in = [], process()
            for piece in self._pieces:
                if len(piece) >= size and sys.getrefcount(piece) == _UNUSED_REFERENCES:
                    return piece[:size]
            # Not of the allocator, which could not return what lies below to the system.
            pages = mmap.mmap(
                -1, -(-size // _GRAIN) * _GRAIN, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
            piece = np.frombuffer(pages, np.uint8)
            if len(piece) + sum(map(len, self._pieces)) <= KEPT_BYTES_MAX:
                self._pieces.append(piece)
            return piece[:size]

    def clear(self) -> None:
        """Keep nothing any more; what is lent stays with its borrowers."""
        with self._lock.get():
            self._pieces.clear()
