"""Split-block bloom filters over a chunk's values, as Parquet's format specifies them.

Values are hashed with XXH64 (seed 0) over canonical bytes, so that a filter does not depend on
how wide a column was when it was written:

===================  ==========================================================================
integers, temporal   8 bytes, little-endian, extended by their sign (unsigned: by zeros)
booleans             as the integers 0 and 1
floats               as float64; -0.0 as +0.0; NaN is never inserted
decimals             unscaled, 16 bytes, two's complement (decimal256: 32 bytes)
strings, binary      their bytes
===================  ==========================================================================

NULL is never inserted. In the file a filter is its blocks of 32 bytes, found by the chunk's
extension record BLOOM.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.arrow_types import Node, Order, leaf_type, strip_wrappers
from fermion.checksum import crc32c
from fermion.errors import ChecksumError, InvalidFileError, UnsupportedEncodingError
from fermion.values import BinaryValues, Bits, PhysicalKind, Values

BITS_PER_VALUE = 10.5  # one false positive in a hundred, by the Parquet format's table
BLOCK_BYTES = 32
BLOCKS_MAX = 1 << 25
ALGORITHM = 0

_RECORD = struct.Struct("<QIII")


def build_bloom(values: Values, validity: Bits | bool | None, node: Node) -> bytes:
    """The filter of a chunk's values.

    Parameters
    ----------
    values
        One a slot.
    validity
        Which slots are not null.
    node
        The leaf; its order is not NONE.
    """
    hashes = np.unique(_hashes(values, validity, node.order))
    blocks = int(min(max(np.ceil(len(hashes) * BITS_PER_VALUE / 256), 1), BLOCKS_MAX))
    words = np.zeros(8 * blocks, np.uint32)
    kernels.bloom_insert(hashes, words)
    return words.astype("<u4").tobytes()


def _hashes(values: Values, validity: Bits | bool | None, order: Order) -> np.ndarray:
    if validity is False:
        return np.empty(0, np.uint64)
    keep = validity.unpack() if isinstance(validity, Bits) else None
    if isinstance(values, BinaryValues):
        out = np.empty(len(values), np.uint64)
        kernels.hash_binary(values.offsets, values.data, out)
        return out if keep is None else out[keep]
    numbers = values.unpack().astype(np.int64) if isinstance(values, Bits) else values
    canonical = _canonical(numbers if keep is None else numbers[keep], order)
    out = np.empty(len(canonical), np.uint64)
    kernels.hash_fixed(canonical, out)
    return out


def _canonical(values: np.ndarray, order: Order) -> np.ndarray:
    if order is Order.FLOAT:
        wide = values.astype(np.float64)
        return wide[~np.isnan(wide)] + 0.0  # adding 0.0 makes -0.0 positive
    if order is Order.DECIMAL and values.dtype.kind != "V":
        out = np.empty(len(values), "V16")
        kernels.widen_fixed(values.astype(np.int64), out)
        return out
    if order in (Order.SIGNED, Order.UNSIGNED):
        return values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    return values


def bloom_record(offset: int, data: bytes) -> bytes:
    """The extension record of a filter that lies at ``offset`` of the file."""
    return _RECORD.pack(offset, len(data), crc32c(data), ALGORITHM)


def parse_bloom_record(record: bytes, stop: int, where: str) -> tuple[int, int, int]:
    """(offset, length, checksum) of a filter, which must end at ``stop`` or before.

    Raises
    ------
    InvalidFileError, UnsupportedEncodingError
    """
    if len(record) < _RECORD.size:
        raise InvalidFileError(f"{where}: bloom record of {len(record)} bytes")
    offset, length, crc, algorithm = _RECORD.unpack_from(record)
    if algorithm != ALGORITHM:
        raise UnsupportedEncodingError(f"{where}: unknown bloom filter algorithm {algorithm}")
    if offset + length > stop or length < BLOCK_BYTES or length % BLOCK_BYTES:
        raise InvalidFileError(f"{where}: bloom filter at {offset}+{length}, data ends at {stop}")
    return offset, length, crc


class BloomFilter:
    """A filter as read.

    Raises
    ------
    ChecksumError
        When the bytes are not those that were written.
    """

    def __init__(self, data: memoryview, crc: int, where: str) -> None:
        found = crc32c(data)
        if found != crc:
            raise ChecksumError(
                f"{where}: bloom filter checksum: expected {crc:#010x}, found {found:#010x}"
            )
        self._words = np.frombuffer(data, "<u4")

    def may_contain(self, raws: Sequence[Any], dtype: pa.DataType) -> np.ndarray:
        """Whether each value may be in the chunk: bool, shape (values,).

        Parameters
        ----------
        raws
            Values in the type's raw domain: int, float (not NaN) or bytes.
        dtype
            The column's type.
        """
        storage = strip_wrappers(dtype)
        found = np.zeros(len(raws), bool)
        places = [place for place, raw in enumerate(raws) if _can_hold(storage, raw)]
        hashes = _raw_hashes([raws[place] for place in places], storage)
        out = np.empty(len(hashes), np.uint8)
        kernels.bloom_contains(hashes, self._words, out)
        found[places] = out.view(bool)
        return found

    def contains_all(self, values: Values, validity: Bits | bool | None, node: Node) -> bool:
        """Whether every value of a chunk that is not null may be in it, as it must be."""
        hashes = _hashes(values, validity, node.order)
        out = np.empty(len(hashes), np.uint8)
        kernels.bloom_contains(hashes, self._words, out)
        return bool(out.all())


def _can_hold(storage: pa.DataType, raw: Any) -> bool:
    """Whether a raw value has the type's width at all; others cannot be in any chunk."""
    if not isinstance(raw, int) or isinstance(raw, bool):
        return True
    bits = 8 * max(storage.bit_width // 8, 16) if pa.types.is_decimal(storage) else 64
    if pa.types.is_unsigned_integer(storage):
        return 0 <= raw < 1 << bits
    return -(1 << bits - 1) <= raw < 1 << bits - 1


def _raw_hashes(raws: Sequence[Any], storage: pa.DataType) -> np.ndarray:
    leaf = leaf_type(storage)
    assert leaf is not None
    physical, order = leaf
    out = np.empty(len(raws), np.uint64)
    if order is Order.BYTES:
        offsets = np.concatenate(([0], np.cumsum([len(raw) for raw in raws]))).astype(np.int64)
        kernels.hash_binary(offsets, np.frombuffer(b"".join(raws), np.uint8), out)
        return out
    if order is Order.DECIMAL:
        width = max(physical.width, 16)
        data = b"".join(int(raw).to_bytes(width, "little", signed=True) for raw in raws)
        kernels.hash_fixed(np.frombuffer(data, f"V{width}"), out)
        return out
    if order is Order.FLOAT:
        values = np.array(raws, np.float64)
    else:
        unsigned = order is Order.UNSIGNED and physical.kind is not PhysicalKind.BITS
        values = np.array([int(raw) for raw in raws], np.uint64 if unsigned else np.int64)
    kernels.hash_fixed(_canonical(values, order), out)
    return out
