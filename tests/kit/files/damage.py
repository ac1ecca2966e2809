"""Damaged files, and what a read of them gives: the same both ways that it can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fermion.errors import FermionError


def outcome(read: Callable[..., Any], *arguments: Any) -> Any:
    """What a read gives: its result, or the type and the words of its error."""
    try:
        return read(*arguments)
    except FermionError as error:
        return type(error), str(error)


def flipped_bits(
    data: bytes, offset: int, length: int, count: int
) -> Iterator[tuple[np.random.Generator, bytearray]]:
    """Copies with one bit of a range flipped, mostly near its start, and their random numbers."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        damaged = bytearray(data)
        at = offset + int(random.integers(0, min(length, 60 << seed % 11)))
        damaged[at] ^= 1 << int(random.integers(0, 8))
        yield random, damaged
