"""Variant values in plain Python, by the specification of the encoding."""

from __future__ import annotations

import datetime
import decimal
import itertools
import struct
import uuid
from typing import Any

EPOCH = datetime.datetime(1970, 1, 1)


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def numbers(data: bytes, width: int, count: int) -> list[int]:
    return [number(data[at * width : (at + 1) * width]) for at in range(count)]


def names_of(metadata: bytes) -> list[str]:
    """The names of a metadata, which has to be sorted if it says so."""
    assert metadata[0] & 15 == 1
    width = (metadata[0] >> 6) + 1
    count = number(metadata[1 : 1 + width])
    ends = [
        number(metadata[at : at + width]) for at in range(1 + width, 1 + width * (count + 2), width)
    ]
    text = metadata[1 + width * (count + 2) :]
    names = [text[first:last].decode() for first, last in itertools.pairwise(ends)]
    if metadata[0] >> 4 & 1:
        assert [each.encode() for each in names] == sorted({each.encode() for each in names})
    return names


def metadata_size(data: bytes) -> int:
    """Bytes of the metadata at the beginning of some."""
    width = (data[0] >> 6) + 1
    count = number(data[1 : 1 + width])
    last = 1 + width * (count + 1)
    return last + width + number(data[last : last + width])


def decoded(metadata: bytes, value: bytes) -> Any:
    """The value; objects are dicts in the order of their fields."""
    names = names_of(metadata)
    kind, head = value[0] & 3, value[0] >> 2
    if kind == 0:
        return _primitive(head, value[1:])
    if kind == 1:
        assert len(value) == 1 + head
        return value[1:].decode()
    width, id_width, wide = (head & 3) + 1, 0, head >> 2 & 1
    if kind == 2:
        id_width, wide = (head >> 2 & 3) + 1, head >> 4 & 1
    first = 5 if wide else 2
    count = number(value[1:first])
    ids = [
        number(value[at : at + id_width])
        for at in range(first, first + count * id_width, id_width or 1)
    ]
    start = first + count * id_width
    offsets = [
        number(value[at : at + width]) for at in range(start, start + width * (count + 1), width)
    ]
    body = value[start + width * (count + 1) :]
    assert len(body) == offsets[-1]
    stops = {at: min(each for each in offsets if each > at) for at in offsets[:-1]}
    parts = [decoded(metadata, body[at : stops[at]]) for at in offsets[:-1]]
    if kind == 3:
        return parts
    listed = [names[each] for each in ids]
    assert [each.encode() for each in listed] == sorted(each.encode() for each in listed)
    return dict(zip(listed, parts, strict=True))


def _primitive(head: int, body: bytes) -> Any:
    signed = int.from_bytes(body, "little", signed=True)
    if head == 0:
        return None
    if head in (1, 2):
        return head == 1
    if head in (3, 4, 5, 6):
        assert len(body) == 1 << head - 3
        return signed
    if head in (7, 14):
        return struct.unpack("<d" if head == 7 else "<f", body)[0]
    if head in (8, 9, 10):
        unscaled = int.from_bytes(body[1:], "little", signed=True)
        return decimal.Decimal(unscaled).scaleb(-body[0], decimal.Context(prec=60))
    if head == 11:
        return (EPOCH + datetime.timedelta(days=signed)).date()
    if head in (12, 13):
        moment = EPOCH + datetime.timedelta(microseconds=signed)
        return moment.replace(tzinfo=datetime.UTC) if head == 12 else moment
    if head in (15, 16):
        assert number(body[:4]) == len(body) - 4
        return body[4:] if head == 15 else body[4:].decode()
    if head == 17:
        return (EPOCH + datetime.timedelta(microseconds=signed)).time()
    if head in (18, 19):
        return signed
    assert head == 20
    return uuid.UUID(bytes=body)
