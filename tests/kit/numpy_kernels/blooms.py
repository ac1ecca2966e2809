"""The bloom filter kernels again in plain Python: what the compiled ones must agree with."""

from __future__ import annotations

import itertools

import numpy as np

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _MASK


def _lane(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64(data: bytes) -> int:
    """XXH64 with seed 0, after the algorithm's specification."""
    at = 0
    total = _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            for i in range(4):
                word = int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")
                lanes[i] = _lane(lanes[i], word)
            at += 32
        total = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = ((total & _MASK ^ _lane(0, lane)) * _P1 + _P4) & _MASK
    total = (total + len(data)) & _MASK
    while at + 8 <= len(data):
        total ^= _lane(0, int.from_bytes(data[at : at + 8], "little"))
        total = (_rotate(total, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        total ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        total = (_rotate(total, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        total = _rotate(total ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


def hash_fixed(values: np.ndarray, out: np.ndarray) -> None:
    """XXH64 of each value's bytes."""
    _check_length(out, len(values))
    out[:] = [_xxh64(values[i : i + 1].tobytes()) for i in range(len(values))]


def hash_binary(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """XXH64 of each byte string."""
    _check_length(out, len(offsets) - 1)
    outside = len(offsets) < 1 or offsets[0] < 0 or offsets[-1] > len(data)
    if outside or (np.diff(offsets) < 0).any():
        raise ValueError("offsets decrease or are outside of the bytes")
    out[:] = [_xxh64(data[a:b].tobytes()) for a, b in itertools.pairwise(offsets.tolist())]


def _check_length(out: np.ndarray, expected: int) -> None:
    if len(out) != expected:
        raise ValueError(f"out has {len(out)} elements, expected {expected}")


def _bits(hashed: int, words: np.ndarray) -> list[tuple[int, int]]:
    block = (hashed >> 32) * (len(words) // 8) >> 32
    low = hashed & 0xFFFF_FFFF
    return [
        (8 * block + lane, 1 << ((low * salt & 0xFFFF_FFFF) >> 27))
        for lane, salt in enumerate(_SALTS)
    ]


def _check_words(words: np.ndarray) -> None:
    if len(words) < 8 or len(words) % 8:
        raise ValueError(f"a bloom filter has a multiple of 8 words, not {len(words)}")


def bloom_insert(hashes: np.ndarray, words: np.ndarray) -> None:
    """Set eight bits a hash."""
    _check_words(words)
    for hashed in hashes.tolist():
        for place, bit in _bits(hashed, words):
            words[place] |= np.uint32(bit)


def bloom_contains(hashes: np.ndarray, words: np.ndarray, out: np.ndarray) -> None:
    """Whether all eight bits are set."""
    _check_words(words)
    _check_length(out, len(hashes))
    out[:] = [
        all(int(words[place]) & bit for place, bit in _bits(hashed, words))
        for hashed in hashes.tolist()
    ]
