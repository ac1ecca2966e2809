"""The kernel that writes names, in Python: what the compiled one must agree with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def write_names(
    names: Sequence[bytes], ordinals: np.ndarray, interval: int
) -> tuple[bytearray, np.ndarray]:
    """Name by name, each as what differs from the one before."""
    if len(ordinals) != len(names):
        raise ValueError(f"ordinals has {len(ordinals)} elements, expected {len(names)}")
    if interval < 1:
        raise ValueError(f"interval is {interval}, expected 1 or more")
    entries = bytearray()
    restarts: list[int] = []
    previous = b""
    for place, (name, ordinal) in enumerate(zip(names, ordinals.tolist(), strict=True)):
        if not isinstance(name, bytes) or ordinal < 0:
            raise ValueError(f"name {place}: expected bytes and an ordinal, found {name!r}")
        if place % interval == 0:
            restarts.append(len(entries))
            previous = b""
        shared = _shared_prefix(previous, name)
        rest = len(name) - shared
        entries.append(min(shared, 15) << 4 | min(rest, 15))
        for count in (shared, rest):
            if count >= 15:
                _append_varint(entries, count - 15)
        entries += name[shared:]
        _append_varint(entries, ordinal)
        previous = name
    return entries, np.array(restarts, np.uint32)


def _shared_prefix(a: bytes, b: bytes) -> int:
    for place, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return place
    return min(len(a), len(b))


def _append_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
