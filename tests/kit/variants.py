"""Variant values in plain Python: encoded, taken apart into objects of encoded fields, put back."""

from __future__ import annotations

import datetime
import itertools
import struct
from typing import Any

import pyarrow as pa

from fermion.columns.variants import STORAGE, VariantType

EPOCH = datetime.datetime(1970, 1, 1)
SIZES = [0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, None, None, 8, 8, 8, 16]


def width(value: int) -> int:
    return max((value.bit_length() + 7) // 8, 1)


def little(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def primitive(value: Any) -> bytes:
    """A value of one of the types that columns of paths have, or encoded bytes as they are."""
    if isinstance(value, bytes):
        return value
    if value is None or isinstance(value, bool):
        return bytes([{None: 0, True: 1, False: 2}[value] << 2])
    if isinstance(value, int):
        kind, size = next(
            each
            for each in ((3, 1), (4, 2), (5, 4), (6, 8))
            if -(1 << 8 * each[1] - 1) <= value < 1 << 8 * each[1] - 1
        )
        return bytes([kind << 2]) + value.to_bytes(size, "little", signed=True)
    if isinstance(value, float):
        return bytes([7 << 2]) + struct.pack("<d", value)
    if isinstance(value, datetime.datetime):
        kind = 13 if value.tzinfo is None else 12
        micros = (value.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1)
        return bytes([kind << 2]) + struct.pack("<q", micros)
    if isinstance(value, datetime.date):
        return bytes([11 << 2]) + struct.pack("<i", (value - EPOCH.date()).days)
    text = value.encode()
    return (
        bytes([len(text) << 2 | 1]) if len(text) < 64 else bytes([64]) + little(len(text), 4)
    ) + text


def encoded(value: Any, ids: dict[str, int]) -> bytes:
    """A value with objects (dict) and arrays (list); what is neither is `primitive`."""
    if not isinstance(value, (dict, list)):
        return primitive(value)
    names = sorted(value, key=str.encode) if isinstance(value, dict) else range(len(value))
    fields = [encoded(value[name], ids) for name in names]
    own = [ids[name] for name in names] if isinstance(value, dict) else []
    size, large = sum(map(len, fields)), len(fields) > 255
    wide = width(size)
    head, id_width = (wide - 1) | large << 2, width(max(own, default=0))
    if isinstance(value, dict):
        head = (wide - 1) | (id_width - 1) << 2 | large << 4
    data = bytes([head << 2 | (2 if isinstance(value, dict) else 3)])
    data += little(len(fields), 4 if large else 1)
    data += b"".join(little(each, id_width) for each in own)
    for at in range(len(fields) + 1):
        data += little(sum(map(len, fields[:at])), wide)
    return data + b"".join(fields)


def names_of(value: Any) -> set[str]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set(value if isinstance(value, dict) else ()).union(*map(names_of, below))


def variant(value: Any) -> dict[str, bytes]:
    """A value with metadata of its own, sorted."""
    names = sorted(names_of(value), key=str.encode)
    texts = [name.encode() for name in names]
    wide = width(max(sum(map(len, texts)), len(texts)))
    metadata = bytes([1 | 1 << 4 | (wide - 1) << 6]) + little(len(texts), wide)
    for at in range(len(texts) + 1):
        metadata += little(sum(map(len, texts[:at])), wide)
    ids = {name: at for at, name in enumerate(names)}
    return {"metadata": metadata + b"".join(texts), "value": encoded(value, ids)}


def column(values: list) -> pa.Array:
    """Values as a Variant column; ``...`` is null."""
    rows = [None if each is ... else variant(each) for each in values]
    return pa.ExtensionArray.from_storage(VariantType(), pa.array(rows, STORAGE))


def table(values: list, name: str = "event") -> pa.Table:
    return pa.table([column(values)], names=[name])


def dictionary(metadata: bytes) -> list[str]:
    """The names of metadata, by id."""
    wide = (metadata[0] >> 6) + 1
    count = number(metadata, 1, wide)
    ends = [number(metadata, 1 + wide * (at + 1), wide) for at in range(count + 1)]
    text = metadata[1 + wide * (count + 2) :]
    return [text[start:stop].decode() for start, stop in itertools.pairwise(ends)]


def size_of(data: bytes) -> int:
    head, kind = data[0] >> 2, data[0] & 3
    if kind == 1:
        return 1 + head
    if kind == 0:
        return 1 + SIZES[head] if SIZES[head] is not None else 5 + number(data, 1, 4)
    large = head >> (4 if kind == 2 else 2) & 1
    first, wide = (5 if large else 2), (head & 3) + 1
    count = number(data, 1, first - 1)
    if kind == 2:
        first += count * ((head >> 2 & 3) + 1)
    return first + wide * (count + 1) + number(data, first + wide * count, wide)


def objects(names: list[str], data: bytes) -> Any:
    """A value as objects (dict), whose other values are bytes."""
    if data[0] & 3 != 2:
        return data[: size_of(data)]
    head = data[0] >> 2
    first, wide, id_width = (5 if head >> 4 & 1 else 2), (head & 3) + 1, (head >> 2 & 3) + 1
    count = number(data, 1, first - 1)
    offsets, values = first + count * id_width, first + count * id_width + (count + 1) * wide
    return {
        names[number(data, first + at * id_width, id_width)]: objects(
            names, data[values + number(data, offsets + at * wide, wide) :]
        )
        for at in range(count)
    }


def with_offsets(data: bytes, levels: int = 64) -> bytes:
    """The value that begins here, with offsets where its objects and arrays have ranks."""
    head, is_object = data[0] >> 2, data[0] & 3 == 2
    wide, first = (head & 3) + 1, 5 if head >> (4 if is_object else 2) & 1 else 2
    count = number(data, 1, first - 1) if data[0] & 3 > 1 else 0
    first += count * ((head >> 2 & 3) + 1) if is_object else 0
    start = first + wide * (count + 1)
    if not levels or not count or number(data, start - wide, wide):
        return data[: size_of(data)]
    values, at = [], start
    for _ in range(count):
        values.append(with_offsets(data[at:], levels - 1))
        at += len(values[-1])
    ranks = [number(data, first + wide * each, wide) for each in range(count)]
    assert sorted(ranks) == list(range(count))
    offsets = [sum(map(len, values[:rank])) for rank in (*ranks, count)]
    return b"".join([data[:first], *(little(each, wide) for each in offsets), *values])


def plain(row: dict[str, bytes] | None) -> Any:
    """What tells a value from others: its `objects`, or ``...`` for null."""
    return ... if row is None else objects(dictionary(row["metadata"]), row["value"])


def kind_of(value: Any) -> int:
    """The number of the type of column that a value of `objects` fits; 8 for Variant null."""
    if isinstance(value, dict):
        return 0
    kind = {0: 8, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 2, 7: 3, 11: 5, 12: 6, 13: 7, 16: 4}
    return 4 if value[0] & 3 == 1 else kind.get(value[0] >> 2, 0) if value[0] & 3 == 0 else 0


def taken(tree: Any, path: tuple[str, ...]) -> Any:
    """Take the value at a path out of `objects`; None where there is none."""
    for name in path[:-1]:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree.pop(path[-1], None) if isinstance(tree, dict) else None


def put(tree: Any, path: tuple[str, ...], value: Any) -> None:
    """Put a value into `objects`, where it is not yet."""
    for name in path[:-1]:
        tree = tree[name]
    assert path[-1] not in tree
    tree[path[-1]] = value
