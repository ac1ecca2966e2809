"""Validity of slots: what a VALIDITY stream holds, and what can be done with it.

A validity is ``None`` where every slot is valid (or there are none), ``False`` where every slot
is null, and `Bits` (1 = valid, from bit 0) where both occur.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fermion import kernels
from fermion.columns.types import Bits

Validity = Bits | None | bool


def settled(bits: Bits) -> Validity:
    """The same validity in its shortest form."""
    valid = bits.count()
    if valid == bits.length:
        return None
    return bits if valid else False


def to_flags(validity: Validity, slots: int) -> np.ndarray:
    """The validity as a boolean array, shape (slots,); a copy."""
    if isinstance(validity, Bits):
        return validity.unpack()
    return np.full(slots, validity is None)


def intersect(left: Validity, right: Validity) -> Validity:
    """Where both are valid."""
    if left is None or right is False:
        return right
    if right is None or left is False:
        return left
    assert isinstance(left, Bits)
    assert isinstance(right, Bits)
    size = (left.length + 7) // 8
    return settled(Bits(left.data[:size] & right.data[:size], left.length))


def first_missing(validity: Validity, needed: Validity, slots: int) -> int | None:
    """The first slot that is needed but null; None where there is none."""
    if validity is None or needed is False:
        return None
    missing = to_flags(needed, slots) & ~to_flags(validity, slots)
    at = int(np.argmax(missing)) if slots else 0
    return at if slots and missing[at] else None


def repeat(validity: Validity, times: int) -> Validity:
    """Each slot's validity ``times`` times in a row."""
    if not isinstance(validity, Bits):
        return validity
    return Bits.pack(np.repeat(validity.unpack(), times))


def concatenate(parts: Sequence[tuple[Validity, int]]) -> Validity:
    """The validity of all parts, given as (validity, slots), in order."""
    parts = [(validity, slots) for validity, slots in parts if slots]
    if all(validity is None for validity, _ in parts):
        return None
    if all(validity is False for validity, _ in parts):
        return False
    total = sum(slots for _, slots in parts)
    out = np.zeros((total + 7) // 8, np.uint8)
    at = 0
    for validity, slots in parts:
        if validity is not False:
            data = validity.data if isinstance(validity, Bits) else _ones(slots)
            kernels.copy_bits(data, 0, out, at, slots)
        at += slots
    return Bits(out, total)


def select(validity: Validity, starts: np.ndarray, stops: np.ndarray, total: int) -> Validity:
    """The validity of the slots in the ranges ``starts`` to ``stops``, ``total`` slots in all."""
    if total == 0:
        return None
    if not isinstance(validity, Bits):
        return validity
    out = np.zeros((total + 7) // 8, np.uint8)
    kernels.gather_ranges_bits(validity.data, starts, stops, out)
    return settled(Bits(out, total))


def _ones(slots: int) -> np.ndarray:
    return np.full((slots + 7) // 8, 0xFF, np.uint8)
