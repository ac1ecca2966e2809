"""The kernels that bind checksums to places, in Python: what the compiled ones must agree with."""

from __future__ import annotations

import numpy as np

_MASK = 0xFFFF_FFFF_FFFF_FFFF


def place_of(key: int, offset: int) -> int:
    """The finalizer of splitmix64, folded to 32 bits."""
    if key == 0:
        return 0
    mixed = (key + offset * 0x9E37_79B9_7F4A_7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    mixed ^= mixed >> 31
    return (mixed ^ (mixed >> 32)) & 0xFFFF_FFFF


def bind_checksum(data: bytearray | memoryview, at: int, key: int, offset: int) -> None:
    """Four bytes through an integer and back."""
    if not 0 <= at <= len(data) - 4:
        raise ValueError(f"a checksum at {at} is outside of {len(data)} bytes")
    bound = int.from_bytes(data[at : at + 4], "little") ^ place_of(key, offset)
    data[at : at + 4] = bound.to_bytes(4, "little")


def bind_checksums(
    data: bytearray | memoryview, places: np.ndarray, key: int, offsets: np.ndarray
) -> None:
    """One after the other, once all lie within the bytes."""
    if len(offsets) != len(places):
        raise ValueError(f"offsets has {len(offsets)} elements, expected {len(places)}")
    for at in places.tolist():
        if not 0 <= at <= len(data) - 4:
            raise ValueError(f"a checksum at {at} is outside of {len(data)} bytes")
    for at, offset in zip(places.tolist(), offsets.tolist(), strict=True):
        bind_checksum(data, at, key, offset)
