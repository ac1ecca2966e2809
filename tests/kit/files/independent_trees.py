"""Encoding trees, decoded one value at a time as docs/format.md says; no code of the package."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zstandard
from pcodec.wrapped import FileDecompressor

Slots = list[Any]
_SIGNED = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}
_UNSIGNED = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_CODES |= {"f2": "e", "f4": "f", "f8": "d"}


def align(value: int) -> int:
    """The next multiple of 8."""
    return (value + 7) // 8 * 8


@dataclass
class Decoder:
    """Decodes the pages of one chunk.

    Attributes
    ----------
    kind
        What values are: ``"bits"``, ``"binary"``, a number such as ``"<i4"``, or a width in bytes.
        Bits come out as bool, all others as bytes.
    dictionary
        The chunk's dictionary, once its page was seen, or the one that stripes share.
    """

    kind: str
    dictionary: Slots = field(default_factory=list)

    def page(self, tree: bytes, slots: int, valid: list[bool] | None) -> Slots:
        """The values of a page's slots; null slots that were left out get a filler."""
        encoding, children, flags, length = struct.unpack_from("<HBBI", tree)
        if flags != 1:
            return self.decode(tree, slots)
        assert valid is not None
        (count,) = struct.unpack_from("<I", tree, 8)
        assert count == sum(valid)
        # The same node without the flag and its parameter.
        node = struct.pack("<HBBI", encoding, children, 0, length - 8) + tree[16:]
        held = iter(self.decode(node, count))
        return [next(held) if each else filler(self.kind) for each in valid]

    def decode(self, node: bytes, slots: int) -> Slots:
        """The values of a tree."""
        return _decode(node, slots, self.kind, self.dictionary)


def filler(kind: str) -> Any:
    """What stands in a null slot."""
    return {"bits": False, "binary": b""}[kind] if kind.startswith("b") else bytes(_width_of(kind))


def _split(data: bytes, width: int, count: int) -> list[bytes]:
    assert len(data) >= width * count
    return [data[width * i : width * (i + 1)] for i in range(count)]


def unpack(values: list[bytes], kind: str) -> list:
    """Values as numbers."""
    code = _CODES[kind[1:]]
    return [struct.unpack("<" + code, each)[0] for each in values]


def _pack(values: list, kind: str) -> list[bytes]:
    code = _CODES[kind[1:]]
    return [struct.pack("<" + code, each) for each in values]


def _width_of(kind: str) -> int:
    return int(kind[2:]) if kind.startswith("<") else int(kind)


def _child(data: bytes, at: int) -> tuple[bytes, int]:
    """The child at a position, and where the next one is."""
    (length,) = struct.unpack_from("<I", data, at + 4)
    return data[at : at + 8 + length], at + 8 + length


def _integers(node: bytes, count: int, kind: str) -> list[int]:
    return unpack(_decode(node, count, kind, []), kind)


def _decode(node: bytes, count: int, kind: str, dictionary: Slots) -> Slots:
    encoding, _, flags, length = struct.unpack_from("<HBBI", node)
    assert flags == 0
    body = node[8 : 8 + length]
    assert len(body) == length
    decode = {
        1: _plain,
        2: _constant,
        3: _bitmap,
        5: _for_bitpack,
        6: _pcodec,
        7: _split_lengths,
        8: _zstd,
        9: _narrow,
        11: _delta,
        13: _rle,
        14: _byte_stream_split,
        15: _alp,
        16: _fsst,
        18: _lz4,
    }.get(encoding)
    if decode is not None:
        return decode(body, count, kind)
    assert encoding in (4, 10, 17)
    entries, code_width = struct.unpack_from("<IB", body)
    codes, at = _child(body, 8)
    if encoding == 10:
        dictionary = _decode(_child(body, at)[0], entries, kind, [])
    return [dictionary[code] for code in _integers(codes, count, _UNSIGNED[code_width])]


def _plain(body: bytes, count: int, kind: str) -> Slots:
    if kind != "binary":
        return _split(body, _width_of(kind), count)
    lengths = struct.unpack_from(f"<{count}I", body)
    return _cut(body[align(4 * count) :], lengths)


def _cut(data: bytes, lengths: Any) -> list[bytes]:
    values, at = [], 0
    for length in lengths:
        assert at + length <= len(data)
        values.append(data[at : at + length])
        at += length
    return values


def _constant(body: bytes, count: int, kind: str) -> Slots:
    if kind == "bits":
        return [bool(body[0])] * count
    if kind == "binary":
        (length,) = struct.unpack_from("<Q", body)
        return [body[8 : 8 + length]] * count
    return [body[: _width_of(kind)]] * count


def _bitmap(body: bytes, count: int, kind: str) -> Slots:
    assert kind == "bits"
    return [bool(body[slot // 8] >> slot % 8 & 1) for slot in range(count)]


def _bits(data: int, start: int, width: int) -> int:
    return data >> start & (1 << width) - 1


def _for_bitpack(body: bytes, count: int, kind: str) -> Slots:
    value_bits, stored = struct.unpack_from("<B3xI", body)
    assert stored == count
    assert value_bits == 8 * _width_of(kind)
    blocks = -(-count // 1024)
    ends = struct.unpack_from(f"<{blocks}I", body, 8)
    start, values = 8 + 4 * blocks, []
    for block in range(blocks):
        begin = start + (ends[block - 1] if block else 0)
        data = body[begin : start + ends[block]]
        values += _unpack_block(data, min(1024, count - 1024 * block), value_bits)
    return [value.to_bytes(value_bits // 8, "little") for value in values]


def _unpack_block(data: bytes, n: int, bits: int) -> list[int]:
    width, patches, patch_bytes = data[0], data[1], data[2]
    at = 4 + bits // 8
    base = int.from_bytes(data[4:at], "little")
    packed_bytes = (n * width + 7) // 8
    packed = int.from_bytes(data[at : at + packed_bytes], "little")
    if n < 1024:
        offsets = [_bits(packed, width * i, width) for i in range(n)]
    else:
        lanes = 1024 // bits
        lane_words = [0] * lanes
        for word in range(width * lanes):
            lane_words[word % lanes] |= _bits(packed, word * bits, bits) << word // lanes * bits
        offsets = [_bits(lane_words[i % lanes], width * (i // lanes), width) for i in range(n)]
    at += packed_bytes
    for patch in range(patches):
        (slot,) = struct.unpack_from("<H", data, at + 2 * patch)
        begin = at + 2 * patches + patch_bytes * patch
        offsets[slot] += int.from_bytes(data[begin : begin + patch_bytes], "little") << width
    return [(base + offset) % (1 << bits) for offset in offsets]


def _delta(body: bytes, count: int, kind: str) -> Slots:
    width, blocks = body[0], -(-count // 1024)
    assert width == _width_of(kind)
    bases = [int.from_bytes(each, "little") for each in _split(body[8:], width, blocks)]
    differences = _integers(_child(body, align(8 + width * blocks))[0], count, _SIGNED[width])
    values: list[int] = []
    for slot, difference in enumerate(differences):
        fresh = slot % 1024 == 0
        values.append(bases[slot // 1024] if fresh else values[-1] + difference)
    return [(value % (1 << 8 * width)).to_bytes(width, "little") for value in values]


def _rle(body: bytes, count: int, kind: str) -> Slots:
    runs, width = struct.unpack_from("<IB", body)
    lengths, at = _child(body, 8)
    sizes = _integers(lengths, runs, _UNSIGNED[width])
    assert sum(sizes) == count
    values = _decode(_child(body, at)[0], runs, kind, [])
    return [value for value, size in zip(values, sizes, strict=True) for _ in range(size)]


def _narrow(body: bytes, count: int, kind: str) -> Slots:
    numbers = _integers(_child(body, 0)[0], count, "<i8")
    return [number.to_bytes(_width_of(kind), "little", signed=True) for number in numbers]


def _byte_stream_split(body: bytes, count: int, kind: str) -> Slots:
    (width,) = struct.unpack_from("<I", body)
    assert width == _width_of(kind)
    planes = b"".join(_decode(_child(body, 8)[0], width * count, "<u1", []))
    return [planes[slot::count] for slot in range(count)]


def _split_lengths(body: bytes, count: int, kind: str) -> Slots:
    assert kind == "binary"
    frames, codec, width = struct.unpack_from("<IBB", body)
    slot_ends = struct.unpack_from(f"<{frames}I", body, 8)
    raw_ends = struct.unpack_from(f"<{frames}I", body, 8 + 4 * frames)
    at = 8 + 8 * frames
    stored_ends = raw_ends
    if codec:
        stored_ends = struct.unpack_from(f"<{frames}I", body, at)
        at += 4 * frames
    lengths = _integers(_child(body, align(at + stored_ends[-1]))[0], count, _UNSIGNED[width])
    values: list[bytes] = []
    for frame in range(frames):
        begin = stored_ends[frame - 1] if frame else 0
        piece = body[at + begin : at + stored_ends[frame]]
        raw_length = raw_ends[frame] - (raw_ends[frame - 1] if frame else 0)
        if codec:
            piece = unpacked(codec, piece, raw_length)
        assert len(piece) == raw_length
        first = slot_ends[frame - 1] if frame else 0
        values += _cut(piece, lengths[first : slot_ends[frame]])
    return values


def _fsst(body: bytes, count: int, kind: str) -> Slots:
    assert kind == "binary"
    block_slots, known, width = struct.unpack_from("<IBB", body)
    blocks = -(-count // block_slots)
    ends = struct.unpack_from(f"<{blocks}I", body, 8)
    at = 8 + 4 * blocks
    sizes = list(body[at : at + known])
    symbols = _cut(body[at + known :], sizes)
    at += known + sum(sizes)
    lengths = _integers(_child(body, align(at + ends[-1]))[0], count, _UNSIGNED[width])
    values: list[bytes] = []
    for block in range(blocks):
        codes = body[at + (ends[block - 1] if block else 0) : at + ends[block]]
        text = _without_codes(codes, symbols)
        own = lengths[block_slots * block : block_slots * (block + 1)]
        assert sum(own) == len(text)
        values += _cut(text, own)
    return values


def _without_codes(codes: bytes, symbols: list[bytes]) -> bytes:
    text, at = b"", 0
    while at < len(codes):
        escaped = codes[at] == 255
        text += codes[at + 1 : at + 2] if escaped else symbols[codes[at]]
        at += 1 + escaped
    return text


def _zstd(body: bytes, count: int, kind: str) -> Slots:
    (length,) = struct.unpack_from("<Q", body)
    return _decode(unpacked(1, body[8:], length), count, kind, [])


def _lz4(body: bytes, count: int, kind: str) -> Slots:
    (length,) = struct.unpack_from("<Q", body)
    return _decode(unpacked(2, body[8:], length), count, kind, [])


def unpacked(codec: int, data: bytes, length: int) -> bytes:
    """What a codec holds; padding may follow it."""
    if codec == 1:
        found = zstandard.ZstdDecompressor().decompress(data, length, allow_extra_data=True)
    else:
        assert codec == 2
        found = _lz4_block(data, length)
    assert len(found) == length
    return found


def _lz4_block(data: bytes, length: int) -> bytes:
    found, source = bytearray(), iter(data)

    def size(start: int) -> int:
        more = 255 if start == 15 else 0
        while more == 255:
            more = next(source)
            start += more
        return start

    while True:
        token = next(source)
        found += bytes(next(source) for _ in range(size(token >> 4)))
        if len(found) >= length:
            return bytes(found)
        distance = next(source) + 256 * next(source)
        assert 0 < distance <= len(found)
        for _ in range(size(token & 15) + 4):
            found.append(found[-distance])


def _pcodec(body: bytes, count: int, kind: str) -> Slots:
    block_slots, meta_length = struct.unpack_from("<II", body)
    blocks = -(-count // block_slots)
    ends = struct.unpack_from(f"<{blocks}I", body, 8)
    at = 8 + 4 * blocks
    meta = body[at : at + meta_length]
    at += meta_length
    file, header = FileDecompressor.new(meta)
    chunk, _ = file.chunk_decompressor(meta[header:], f"{kind[1]}{8 * int(kind[2:])}")
    values: list[bytes] = []
    for block in range(blocks):
        begin = ends[block - 1] if block else 0
        size = min(block_slots, count - block_slots * block)
        out = np.empty(size, kind)
        chunk.read_page_into(body[at + begin : at + ends[block]], size, out)
        values += _split(out.tobytes(), out.itemsize, size)
    return values


def _alp(body: bytes, count: int, kind: str) -> Slots:
    exponent, width, exceptions = struct.unpack_from("<BB2xI", body)
    assert width == _width_of(kind)
    slots = struct.unpack_from(f"<{exceptions}I", body, 8)
    at = align(8 + 4 * exceptions)
    kept = _split(body[at:], width, exceptions)
    child = _child(body, at + align(width * exceptions))[0]
    numbers = _integers(child, count, "<i8")
    values = _pack([_narrowed(number / 10**exponent, width) for number in numbers], kind)
    for slot, value in zip(slots, kept, strict=True):
        values[slot] = value
    return values


def _narrowed(value: float, width: int) -> float:
    return value if width == 8 else float(np.float32(value))
