"""The kernels that bind checksums to places, in Python: what the compiled ones must agree with."""

from __future__ import annotations

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
