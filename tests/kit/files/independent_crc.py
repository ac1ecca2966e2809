"""CRC-32C as the specification names it, byte by byte; and what binds a checksum to its place."""

from __future__ import annotations


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    """CRC-32C, byte by byte."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def place_of(key: int, offset: int) -> int:
    """What a checksum at an offset of a file is combined with; 0 for the key 0."""
    if not key:
        return 0
    z = (key + 0x9E3779B97F4A7C15 * offset) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z = z ^ z >> 31
    return (z >> 32) ^ (z % 2**32)
