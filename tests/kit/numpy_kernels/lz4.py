"""The kernel for LZ4 blocks again in Python: what the compiled one must agree with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_MATCH_MIN = 4


def lz4_decode(block: np.ndarray, out: np.ndarray) -> int:
    """Token by token, byte by byte."""
    source, found = iter(enumerate(bytes(block), 1)), bytearray()
    while True:
        _, token = _next(source)
        length = _length(source, token >> 4)
        for _ in range(length):
            _, byte = _next(source)
            found.append(byte)
        if len(found) > len(out):
            raise ValueError(f"the block holds more than {len(out)} bytes")
        if len(found) == len(out):
            break
        distance = _next(source)[1] + 256 * _next(source)[1]
        length = _length(source, token & 15) + _MATCH_MIN
        if not 0 < distance <= len(found):
            raise ValueError("the block copies bytes from before its start")
        if length > len(out) - len(found):
            raise ValueError(f"the block holds more than {len(out)} bytes")
        for _ in range(length):
            found.append(found[-distance])
    out[:] = np.frombuffer(found, np.uint8)
    return next((at - 1 for at, _ in source), len(block))


def _next(source: Iterator[tuple[int, int]]) -> tuple[int, int]:
    for found in source:
        return found
    raise ValueError("the block ends early")


def _length(source: Iterator[tuple[int, int]], length: int) -> int:
    more = 255 if length == 15 else 0
    while more == 255:
        _, more = _next(source)
        length += more
    return length
