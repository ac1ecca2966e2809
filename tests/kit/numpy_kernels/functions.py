"""The kernels again in NumPy and Python: what the compiled ones must agree with.

Written to be read and believed, not to be fast. Signatures, results and errors are those of
`fermion.kernels`, whose stub ``_compiled.pyi`` documents them.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

_INT64 = np.iinfo(np.int64)
_CRC32C_POLYNOMIAL = 0x82F63B78


def _crc32c_table() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C_TABLE = _crc32c_table()


def crc32c(data: object, seed: int = 0, *, portable: bool = False) -> int:
    """CRC-32C, one byte at a time."""
    crc = ~seed & 0xFFFF_FFFF
    for byte in np.frombuffer(data, np.uint8).tolist():  # type: ignore[call-overload]
        crc = (crc >> 8) ^ _CRC32C_TABLE[(crc ^ byte) & 0xFF]
    return ~crc & 0xFFFF_FFFF


def _check_bits(size_bytes: int, start: int, count: int) -> None:
    if start < 0 or count < 0 or start + count > 8 * size_bytes:
        raise ValueError(f"bits {start} to {start + count} are outside of {8 * size_bytes} bits")


def _unpacked(data: np.ndarray, start: int, count: int) -> np.ndarray:
    _check_bits(len(data), start, count)
    return np.unpackbits(data, bitorder="little")[start : start + count].astype(bool)


def count_bits(data: np.ndarray, start: int, count: int) -> int:
    """Set bits of a range."""
    return int(_unpacked(data, start, count).sum())


def copy_bits(
    source: np.ndarray, source_bit: int, out: np.ndarray, out_bit: int, count: int
) -> None:
    """Copy bits between any two bit positions."""
    bits = _unpacked(source, source_bit, count)
    _check_bits(len(out), out_bit, count)
    flags = np.unpackbits(out, bitorder="little")
    flags[out_bit : out_bit + count] = bits
    out[:] = np.packbits(flags, bitorder="little")


def _check_lengths(expected: int, *arrays: np.ndarray) -> None:
    for array in arrays:
        if len(array) != expected:
            raise ValueError(f"an array has {len(array)} elements, expected {expected}")


def _check_cuts(cuts: np.ndarray, length: int) -> None:
    if len(cuts) < 1 or cuts[0] < 0 or cuts[-1] > length or np.any(cuts[1:] < cuts[:-1]):
        raise ValueError(f"cuts {cuts} do not divide {length} values")


def _check_offsets(offsets: np.ndarray, size_bytes: int) -> None:
    if len(offsets) < 1 or offsets[0] < 0 or offsets[-1] > size_bytes:
        raise ValueError(f"offsets are outside of {size_bytes} bytes")
    if np.any(offsets[1:] < offsets[:-1]):
        raise ValueError("offsets decrease")


def _check_codes(codes: np.ndarray, size: int) -> None:
    if len(codes) and codes.max() >= size:
        raise ValueError(f"code {codes.max()} is outside of a dictionary of {size} values")


def _valid(bits: np.ndarray | None, start: int, stop: int) -> np.ndarray:
    if bits is None:
        return np.ones(stop - start, bool)
    return _unpacked(bits, start, stop - start)


def order_key(value: np.generic, *, is_high: bool) -> int:
    """A number's place in the order-preserving int64 map (D54)."""
    if value.dtype.kind != "f":
        return int(value) - 2**63 if value.dtype == np.uint64 else int(value.astype(np.int64))
    if value == 0:
        return 0 if is_high else -1
    key = int(np.float64(value).view(np.int64))
    return key ^ _INT64.max if key < 0 else key


def page_bounds(
    values: np.ndarray,
    bits: np.ndarray | None,
    cuts: np.ndarray,
    mins: np.ndarray,
    maxs: np.ndarray,
    nulls: np.ndarray,
    nans: np.ndarray,
) -> None:
    """Order-preserving bounds of each page."""
    if values.dtype.kind not in "iufmM":
        raise TypeError(f"page_bounds has no order for {values.dtype}")
    if values.dtype.kind in "mM":
        values = values.view(np.int64)
    _check_cuts(cuts, len(values))
    _check_lengths(len(cuts) - 1, mins, maxs, nulls, nans)
    for page, (start, stop) in enumerate(itertools.pairwise(cuts)):
        valid = values[start:stop][_valid(bits, start, stop)]
        present = valid[valid == valid] if valid.dtype.kind == "f" else valid
        nulls[page] = stop - start - len(valid)
        nans[page] = len(valid) - len(present)
        mins[page], maxs[page] = _INT64.max, _INT64.min
        if len(present):
            mins[page] = order_key(present.min(), is_high=False)
            maxs[page] = order_key(present.max(), is_high=True)


def _items(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    _check_offsets(offsets, len(data))
    ends = offsets.tolist()
    return [data[a:b].tobytes() for a, b in itertools.pairwise(ends)]


def page_bounds_binary(
    offsets: np.ndarray,
    data: np.ndarray,
    bits: np.ndarray | None,
    cuts: np.ndarray,
    min_index: np.ndarray,
    max_index: np.ndarray,
    nulls: np.ndarray,
) -> None:
    """Index of the smallest and greatest byte string of each page."""
    items = _items(offsets, data)
    _check_cuts(cuts, len(items))
    _check_lengths(len(cuts) - 1, min_index, max_index, nulls)
    for page, (start, stop) in enumerate(itertools.pairwise(cuts)):
        slots = (np.flatnonzero(_valid(bits, start, stop)) + start).tolist()
        nulls[page] = stop - start - len(slots)
        min_index[page] = min(slots, key=items.__getitem__, default=-1)
        max_index[page] = max(slots, key=items.__getitem__, default=-1)


def _build(items: Sequence[bytes], limit: int) -> tuple[np.ndarray, np.ndarray] | None:
    if limit < 0:
        raise ValueError(f"limit is {limit}, expected at least 0")
    codes_by_item: dict[bytes, int] = {}
    first: list[int] = []
    codes = np.empty(len(items), np.uint32)
    for i, item in enumerate(items):
        code = codes_by_item.setdefault(item, len(first))
        if code == len(first):
            if code >= limit:
                return None
            first.append(i)
        codes[i] = code
    return codes, np.array(first, np.int64)


def build_dictionary(values: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Codes in order of first appearance."""
    if values.dtype.hasobject:
        raise TypeError(f"expected fixed-width values, got {values.dtype}")
    return _build([value.tobytes() for value in values], limit)


def build_dictionary_binary(
    offsets: np.ndarray, data: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Codes in order of first appearance."""
    return _build(_items(offsets, data), limit)


def _check_widths(values: np.ndarray, out: np.ndarray) -> None:
    if values.itemsize != out.itemsize:
        raise ValueError(f"out has items of {out.itemsize} bytes, expected {values.itemsize}")


def gather_fixed(dictionary: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
    """Values by code."""
    _check_widths(dictionary, out)
    _check_lengths(len(codes), out)
    _check_codes(codes, len(dictionary))
    out[:] = dictionary.view(out.dtype)[codes]


def gather_binary(
    dict_offsets: np.ndarray, dict_data: np.ndarray, codes: np.ndarray, out_offsets: np.ndarray
) -> int:
    """Offsets of values by code."""
    _check_offsets(dict_offsets, len(dict_data))
    _check_lengths(len(codes) + 1, out_offsets)
    _check_codes(codes, len(dict_offsets) - 1)
    out_offsets[0] = 0
    np.cumsum(np.diff(dict_offsets)[codes], out=out_offsets[1:])
    return int(out_offsets[-1])


def gather_binary_data(
    dict_offsets: np.ndarray,
    dict_data: np.ndarray,
    codes: np.ndarray,
    out_offsets: np.ndarray,
    out_data: np.ndarray,
) -> None:
    """Bytes of values by code."""
    items = _items(dict_offsets, dict_data)
    _check_lengths(len(codes) + 1, out_offsets)
    _check_codes(codes, len(items))
    joined = b"".join(items[code] for code in codes.tolist())
    _check_lengths(len(joined), out_data)
    out_data[:] = np.frombuffer(joined, np.uint8)


def lengths_to_offsets(lengths: np.ndarray, out: np.ndarray) -> int:
    """Running total of lengths."""
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}")
    _check_lengths(len(lengths) + 1, out)
    exact = lengths.tolist()
    if min(exact, default=0) < 0 or sum(exact) > _INT64.max:
        raise ValueError("a length is negative, or the lengths add up to 2**63 or more")
    out[0] = 0
    np.cumsum(lengths.astype(np.int64), out=out[1:])
    return int(out[-1])


def count_runs(values: np.ndarray) -> int:
    """Runs of equal bytes."""
    items = [value.tobytes() for value in values]
    return sum(1 for i in range(len(items)) if i == 0 or items[i] != items[i - 1])


def fill_nulls(values: np.ndarray, bits: np.ndarray) -> None:
    """Forward fill in place."""
    valid = _unpacked(bits, 0, len(values))
    source = np.maximum.accumulate(np.where(valid, np.arange(len(values)), -1))
    filled = values[source]
    filled[source < 0] = np.zeros(1, values.dtype)[0]
    values[:] = filled


def narrow_fixed(values: np.ndarray, out: np.ndarray) -> bool:
    """Low 8 bytes of wide integers."""
    if values.itemsize not in (16, 32):
        raise ValueError(f"values are {values.itemsize} bytes wide, expected 16 or 32")
    _check_lengths(len(values), out)
    words = np.frombuffer(values.tobytes(), np.int64).reshape(len(values), values.itemsize // 8)
    out[:] = words[:, 0]
    return bool(np.all(words[:, 1:] == words[:, :1] >> 63))


def widen_fixed(values: np.ndarray, out: np.ndarray) -> None:
    """Sign extension to wide integers."""
    if out.itemsize not in (16, 32):
        raise ValueError(f"out is {out.itemsize} bytes wide, expected 16 or 32")
    _check_lengths(len(values), out)
    words = np.repeat((values >> 63)[:, None], out.itemsize // 8, axis=1)
    words[:, 0] = values
    out[:] = np.frombuffer(words.tobytes(), out.dtype)


def _range_slots(starts: np.ndarray, stops: np.ndarray, length: int) -> np.ndarray:
    _check_lengths(len(starts), stops)
    if np.any(starts < 0) or np.any(stops < starts) or np.any(stops > length):
        raise ValueError(f"a range is outside of {length} slots")
    parts = [np.arange(a, b) for a, b in zip(starts, stops, strict=True)]
    return np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64)


def gather_ranges(
    values: np.ndarray, starts: np.ndarray, stops: np.ndarray, out: np.ndarray
) -> None:
    """Values of several ranges, joined."""
    slots = _range_slots(starts, stops, len(values))
    _check_widths(values, out)
    _check_lengths(len(slots), out)
    out[:] = values.view(out.dtype)[slots]


def gather_ranges_bits(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, out: np.ndarray
) -> None:
    """Bits of several ranges, joined."""
    slots = _range_slots(starts, stops, 8 * len(data))
    joined = np.packbits(np.unpackbits(data, bitorder="little")[slots], bitorder="little")
    copy_bits(joined, 0, out, 0, len(slots))


_BLOCK = 1024


def _check_integers(values: np.ndarray) -> None:
    if values.dtype.kind not in "iumM":
        raise TypeError(f"expected whole numbers, got {values.dtype}")


def _bit_places(bits: int, width: int, count: int) -> np.ndarray:
    """Where bit k of packed offset i lies, shape (count, width)."""
    slots, each = np.arange(count)[:, None], np.arange(width)[None, :]
    if count < _BLOCK:
        return slots * width + each
    lanes = _BLOCK // bits
    in_lane = slots // lanes * width + each
    return (in_lane // bits * lanes + slots % lanes) * bits + in_lane % bits


def _encode_block(values: np.ndarray) -> bytes:
    bits, count = 8 * values.itemsize, len(values)
    base = int(values.min())
    offsets = [value - base for value in values.tolist()]
    needed = [offset.bit_length() for offset in offsets]
    top = max(needed)
    best = (count * top + 7) // 8, top, 0
    for width in range(top - 4, -1, -1):
        patches = sum(need > width for need in needed)
        size = (count * width + 7) // 8 + patches * (2 + (top - width + 7) // 8)
        if patches <= 255 and size < best[0]:
            best = size, width, (top - width + 7) // 8
    _, width, patch_bytes = best
    patched = [i for i, need in enumerate(needed) if need > width]
    flags = np.zeros((count * width + 7) // 8 * 8, np.uint8)
    binary = np.array([[offset >> k & 1 for k in range(width)] for offset in offsets], np.uint8)
    flags[_bit_places(bits, width, count)] = binary.reshape(count, width)
    parts = [bytes([width, len(patched), patch_bytes, 0])]
    parts += [(base % 2**bits).to_bytes(bits // 8, "little")]
    parts += [np.packbits(flags, bitorder="little").tobytes()]
    parts += [np.array(patched, "<u2").tobytes()]
    parts += [(offsets[i] >> width).to_bytes(patch_bytes, "little") for i in patched]
    return b"".join(parts)


def bitpack_encode(values: np.ndarray) -> np.ndarray:
    """A frame of reference and offsets of few bits, per block."""
    _check_integers(values)
    blocks = [_encode_block(values[i : i + _BLOCK]) for i in range(0, len(values), _BLOCK)]
    ends = np.cumsum([len(block) for block in blocks]).astype("<u4").tobytes()
    header = struct.pack("<B3xI", 8 * values.itemsize, len(values))
    payload = b"".join([header, ends, *blocks])
    return np.frombuffer(payload + b"\0" * (-len(payload) % 8), np.uint8)


def bitpack_size(values: np.ndarray) -> int:
    """Length of the payload."""
    return len(bitpack_encode(values))


def _decode_block(block: bytes, bits: int, count: int) -> list[int]:
    start = 4 + bits // 8
    if len(block) < start:
        raise ValueError("its size is not what its header says")
    width, patches, patch_bytes, reserved = block[:4]
    if width > bits or reserved:
        raise ValueError("its width is more than the type has bits, or a reserved byte is set")
    if patches and (not 1 <= patch_bytes <= bits // 8 or width == bits):
        raise ValueError("a patch is too wide")
    packed_size = (count * width + 7) // 8
    if len(block) != start + packed_size + patches * (2 + patch_bytes):
        raise ValueError("its size is not what its header says")
    base = int.from_bytes(block[4:start], "little")
    flags = np.unpackbits(
        np.frombuffer(block[start : start + packed_size], np.uint8), bitorder="little"
    )
    offsets = [
        sum(bit << k for k, bit in enumerate(row))
        for row in flags[_bit_places(bits, width, count)].tolist()
    ]
    rest = block[start + packed_size :]
    positions = [int.from_bytes(rest[2 * k : 2 * k + 2], "little") for k in range(patches)]
    if positions != sorted(set(positions)) or max(positions, default=0) >= count:
        raise ValueError("a patch lies outside of the block or out of order")
    for k, position in enumerate(positions):
        patch = rest[2 * patches + k * patch_bytes :][:patch_bytes]
        offsets[position] += int.from_bytes(patch, "little") << width
    return [(base + offset) % 2**bits for offset in offsets]


def bitpack_decode(payload: np.ndarray, count: int, start: int, stop: int, out: np.ndarray) -> None:
    """Decode a payload block by block."""
    _check_integers(out)
    if not 0 <= start <= stop <= count:
        raise ValueError(f"slots {start} to {stop} are outside of {count} values")
    _check_lengths(stop - start, out)
    bits, data, blocks = 8 * out.itemsize, payload.tobytes(), -(-count // _BLOCK)
    if len(data) < 8 + 4 * blocks or data[:8] != struct.pack("<B3xI", bits, count):
        raise ValueError(f"expected {count} values of {bits} bits")
    ends = [0, *struct.unpack_from(f"<{blocks}I", data, 8)]
    body = data[8 + 4 * blocks :]
    decoded = []
    first = start // _BLOCK
    for block in range(first, -(-stop // _BLOCK)):
        if not ends[block] <= ends[block + 1] <= len(body):
            raise ValueError(f"block {block}: its end offset decreases or lies outside")
        size = min(_BLOCK, count - block * _BLOCK)
        decoded += _decode_block(body[ends[block] : ends[block + 1]], bits, size)
    wanted = decoded[start - first * _BLOCK :][: stop - start]
    out[:] = np.array(wanted, f"<u{bits // 8}").view(out.dtype)


def _check_delta(values: np.ndarray, bases: np.ndarray, out: np.ndarray) -> None:
    _check_integers(values)
    _check_widths(values, bases)
    _check_widths(values, out)
    _check_lengths(-(-len(values) // _BLOCK), bases)
    _check_lengths(len(values), out)


def delta_encode(values: np.ndarray, out: np.ndarray, bases: np.ndarray) -> None:
    """Differences of neighbours, block by block."""
    _check_delta(values, bases, out)
    for block, first in enumerate(range(0, len(values), _BLOCK)):
        part = values[first : first + _BLOCK]
        bases[block] = part[0]
        out[first + 1 : first + len(part)] = np.diff(part)
        out[first] = out[first + 1] if len(part) > 1 else 0


def delta_decode(deltas: np.ndarray, bases: np.ndarray, out: np.ndarray) -> None:
    """Running totals, block by block."""
    _check_delta(deltas, bases, out)
    for block, first in enumerate(range(0, len(deltas), _BLOCK)):
        part = deltas[first : first + _BLOCK].copy()
        part[0] = bases[block]
        out[first : first + len(part)] = np.cumsum(part, dtype=part.dtype)


def run_starts(values: np.ndarray, out: np.ndarray) -> None:
    """Where each run of equal bytes starts."""
    items = [value.tobytes() for value in values]
    starts = [i for i in range(len(items)) if i == 0 or items[i] != items[i - 1]]
    _check_lengths(len(starts), out)
    out[:] = starts


def expand_runs(
    values: np.ndarray, ends: np.ndarray, start: int, stop: int, out: np.ndarray
) -> None:
    """Repeat values."""
    _check_widths(values, out)
    _check_lengths(len(values), ends)
    lengths = np.diff(ends, prepend=0)
    if np.any(lengths < 0) or not 0 <= start <= stop <= lengths.sum():
        raise ValueError(f"slots {start} to {stop} are outside of the runs")
    _check_lengths(stop - start, out)
    out[:] = np.repeat(values.view(out.dtype), lengths)[start:stop]


def byte_stream_split(values: np.ndarray, out: np.ndarray) -> None:
    """Transpose bytes."""
    _check_lengths(values.nbytes, out)
    out[:] = np.frombuffer(values.tobytes(), np.uint8).reshape(-1, values.itemsize).T.ravel()


def byte_stream_merge(data: np.ndarray, count: int, start: int, stop: int, out: np.ndarray) -> None:
    """Transpose bytes back."""
    if not 0 <= start <= stop <= count:
        raise ValueError(f"slots {start} to {stop} are outside of {count} values")
    _check_lengths(count * out.itemsize, data)
    _check_lengths(stop - start, out)
    rows = data.reshape(out.itemsize, count).T[start:stop]
    out[:] = np.frombuffer(rows.tobytes(), out.dtype)


def stable_order(values: np.ndarray, out: np.ndarray) -> None:
    """The places of sorted values."""
    _check_lengths(len(values), out)
    out[:] = sorted(range(len(values)), key=values.tolist().__getitem__)
