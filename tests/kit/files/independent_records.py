"""Extension records of chunks against the values, by the specification alone."""

from __future__ import annotations

import itertools
import struct
from typing import Any

from tests.kit.files.independent_crc import crc32c
from tests.kit.files.independent_trees import unpack


def check_records(
    data: bytes,
    records: dict[int, bytes],
    kind: str,
    found: list[Any],
    valid: list[bool],
    pages: list[int],
) -> None:
    """Compare what a chunk's records say with its values; ``data`` is the whole file."""
    held = [value for value, each in zip(found, valid, strict=True) if each]
    if 2 in records:
        assert kind.startswith("<f")
        assert struct.unpack("<Q", records[2])[0] == sum(
            number != number for number in unpack(held, kind)
        )
    if 5 in records:
        for record, value in ((records[5], min(held)), (records[6], max(held))):
            assert record[1:] == value[:64]
            assert record[0] == (len(value) <= 64)
    if 3 in records:
        assert records[3] == struct.pack("<QB", len(set(held)), 1)
    if 4 in records:
        assert struct.unpack("<Q", records[4])[0] == sum(map(len, held))
    if 10 in records:
        numbers = held if kind == "bits" else whole_numbers(held, kind)
        assert int.from_bytes(records[10], "little", signed=True) == sum(numbers)
    for tag in {1, 8} & records.keys():
        offset, length, crc, algorithm = struct.unpack_from("<QIII", records[tag])
        assert crc == crc32c(data[offset : offset + length])
        blocks = struct.unpack(f"<{len(pages) if tag == 8 else 0}I", records[tag][20:])
        assert algorithm == 0
        assert 32 * sum(blocks) == length or tag == 1
        assert all(blocks)
    if 9 in records:
        ends = list(itertools.accumulate(pages))
        nulls = [rows - sum(valid[end - rows : end]) for rows, end in zip(pages, ends, strict=True)]
        assert struct.unpack(f"<{len(pages)}I", records[9]) == tuple(nulls)


def whole_numbers(values: list[Any], kind: str) -> list[int]:
    """Whole numbers of any width."""
    return [int.from_bytes(each, "little", signed=not kind.startswith("<u")) for each in values]
