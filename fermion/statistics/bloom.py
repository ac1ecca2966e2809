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
extension record BLOOM; the filters of its pages lie one behind the other, found by PAGE_BLOOM.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.types import (
    BinaryValues,
    Bits,
    Node,
    Order,
    PhysicalKind,
    Values,
    column_node,
    leaf_type,
    slice_values,
    strip_wrappers,
)
from fermion.errors import ChecksumError, InvalidFileError, UnsupportedEncodingError
from fermion.exports import LoadedWhenAskedFor, NamedTuple
from fermion.io.checksum import crc32c
from fermion.io.source import CountingSource
from fermion.layout import ExtTag

if TYPE_CHECKING:
    from fermion.columns import shred
else:  # readers need it not
    shred = LoadedWhenAskedFor("fermion.columns.shred")

BITS_PER_VALUE = 10.5  # one false positive in a hundred, by the Parquet format's table
BLOCK_BYTES = 32
BLOCKS_MAX = 1 << 25
ALGORITHM = 0

_RECORD = struct.Struct("<QIII")


class BuiltFilters(NamedTuple):
    """Filters on their way into a file.

    tag: Of the extension record that will find them.
    rest: What the record says behind their place.
    """

    tag: ExtTag
    data: bytes
    rest: bytes

    def record(self, offset: int) -> bytes:
        """The extension record for filters that lie at ``offset`` of the file."""
        return bloom_record(offset, self.data) + self.rest


def build_bloom(values: Values, validity: Bits | bool | None, node: Node) -> BuiltFilters:
    """The filter of a chunk's values.

    values: One a slot.
    validity: Which slots are not null.
    node: The leaf; its order is not NONE.
    """
    return BuiltFilters(ExtTag.BLOOM, _filter(values, validity, node), b"")


def build_page_blooms(
    values: Values, validity: Bits | bool | None, node: Node, cuts: np.ndarray
) -> BuiltFilters:
    """A filter for each page of a chunk; ``cuts`` as `page_statistics` takes them."""
    filters = []
    for start, stop in pairwise(cuts.tolist()):
        own = slice_values(validity, start, stop) if isinstance(validity, Bits) else validity
        assert own is None or isinstance(own, (bool, Bits))
        filters.append(_filter(slice_values(values, start, stop), own, node))
    blocks = np.array([len(each) // BLOCK_BYTES for each in filters], "<u4")
    return BuiltFilters(ExtTag.PAGE_BLOOM, b"".join(filters), blocks.tobytes())


def bloom_filter_of(array: pa.Array) -> bytes:
    """The filter of the values of an array whose type has an order."""
    node = column_node(pa.field("value", array.type))
    streams = shred.shred(array, node)
    values = streams.data.get(node.stream)
    validity = streams.validity.get(node.validity) if values is not None else False
    return _filter(np.empty(0, np.uint64) if values is None else values, validity, node)


def _filter(values: Values, validity: Bits | bool | None, node: Node) -> bytes:
    hashes = np.sort(_hashes(values, validity, node.order))  # np.unique takes nine times as long
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = hashes[1:] != hashes[:-1]
    hashes = hashes[is_first]
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

    Raises InvalidFileError, UnsupportedEncodingError.
    """
    if len(record) < _RECORD.size:
        raise InvalidFileError(f"{where}: bloom record of {len(record)} bytes")
    offset, length, crc, algorithm = _RECORD.unpack_from(record)
    if algorithm != ALGORITHM:
        raise UnsupportedEncodingError(f"{where}: unknown bloom filter algorithm {algorithm}")
    if offset + length > stop or length < BLOCK_BYTES or length % BLOCK_BYTES:
        raise InvalidFileError(f"{where}: bloom filter at {offset}+{length}, data ends at {stop}")
    return offset, length, crc


def parse_page_bloom_record(
    record: bytes, pages: int, stop: int, where: str
) -> tuple[int, int, int, np.ndarray]:
    """(offset, length, checksum) of a chunk's page filters, and the blocks of each.

    Raises InvalidFileError, UnsupportedEncodingError.
    """
    offset, length, crc = parse_bloom_record(record, stop, where)
    rest = record[_RECORD.size :]
    blocks = np.frombuffer(rest[: len(rest) // 4 * 4], "<u4").astype(np.int64)
    if len(rest) != 4 * pages or (blocks < 1).any() or BLOCK_BYTES * blocks.sum() != length:
        raise InvalidFileError(
            f"{where}: bloom filters of pages at {offset}+{length}: expected blocks of {pages} "
            f"pages, found {blocks.tolist()[:8]}"
        )
    return offset, length, crc, blocks


class BloomFilters:
    """The filter of a chunk, or those of its pages, as read.

    data, crc: The bytes of all filters, and their checksum; None: it was verified.
    blocks: How many blocks each of them has; None: there is one.
    Raises ChecksumError: When the bytes are not those that were written.
    """

    def __init__(
        self, data: memoryview, crc: int | None, where: str, blocks: np.ndarray | None = None
    ) -> None:
        if crc is not None and (found := crc32c(data)) != crc:
            raise ChecksumError(
                f"{where}: bloom filter checksum: expected {crc:#010x}, found {found:#010x}"
            )
        words = np.frombuffer(data, "<u4")
        self._filters = [words] if blocks is None else np.split(words, 8 * np.cumsum(blocks)[:-1])

    def may_contain(self, raws: Sequence[Any], dtype: pa.DataType) -> np.ndarray:
        """Whether each value may be in each filter's values: bool, shape (values, filters).

        raws: Values in the type's raw domain: int, float (not NaN) or bytes.
        """
        storage = strip_wrappers(dtype)
        found = np.zeros((len(raws), len(self._filters)), bool)
        places = [place for place, raw in enumerate(raws) if _can_hold(storage, raw)]
        hashes = _raw_hashes([raws[place] for place in places], storage)
        for number, words in enumerate(self._filters):
            found[places, number] = _contains(hashes, words)
        return found

    def contains_all(
        self, values: Values, validity: Bits | bool | None, node: Node, number: int = 0
    ) -> bool:
        """Whether every value that is not null may be in a filter's values, as it must be."""
        return bool(_contains(_hashes(values, validity, node.order), self._filters[number]).all())


def read_filters(
    source: CountingSource,
    place: tuple[int, int],
    crc: int,
    where: str,
    blocks: np.ndarray | None = None,
) -> BloomFilters:
    """The filters at a place of a file; parameters and errors are those of `BloomFilters`."""
    return source.read_checked([place], lambda data: BloomFilters(data[0], crc, where, blocks))


def _contains(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    out = np.empty(len(hashes), np.uint8)
    kernels.bloom_contains(hashes, words, out)
    return out.view(bool)


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
