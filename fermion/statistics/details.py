"""What extension records say of a chunk's values beyond bounds: counts, and bounds in full.

================  ===========================================================================
record            bytes
================  ===========================================================================
NAN_COUNT         u64: values that are NaN
LONG_MIN          u8: 1 for a whole value, 0 for its beginning; then up to 64 bytes of it
LONG_MAX          the same
PAGE_NULL_COUNTS  u32 a page, dictionary page not counted: nulls of the page
DECODED_BYTES     u64: bytes of all byte strings, without lengths
DISTINCT_COUNT    u64: different values, bit for bit; u8: 1 for exactly so many
SUM               i128: of all whole numbers, or of the unscaled values of decimals
================  ===========================================================================

Byte strings have LONG_MIN and LONG_MAX where the chunk's keys do not tell its bounds and the chunk
is not so small that this would cost much beside it; so it is with DECODED_BYTES. DISTINCT_COUNT and
SUM are for columns that the options name. NULL counts in none of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.types as pat

from fermion.columns import distinct
from fermion.columns.types import Node, Order
from fermion.columns.values import BinaryValues, Bits, Values
from fermion.errors import InvalidFileError
from fermion.layout import LONG_BOUND_BYTES_MAX, ChunkFlag, ExtTag
from fermion.statistics.bounds import ColumnStatistics, PageStatistics, byte_strings
from fermion.statistics.keys import key_bytes

Records = Mapping[int, bytes]
LONG_CHUNK_BYTES_MIN = 4096
WORD_BYTES = 4

_COUNT = struct.Struct("<Q")
_DISTINCT = struct.Struct("<QB")
SUM_BYTES = 16
CONTENT_TAGS = (ExtTag.DECODED_BYTES, ExtTag.DISTINCT_COUNT, ExtTag.SUM)


class LongBound(NamedTuple):
    """A bound of byte strings: the value, or the first bytes of one that is longer."""

    value: bytes
    whole: bool


def detail_records(
    values: Values,
    pages: PageStatistics,
    merged: ColumnStatistics,
    stored_bytes: int,
) -> dict[ExtTag, bytes]:
    """The records of a chunk.

    Parameters
    ----------
    values
        One a slot.
    pages, merged
        What is known of them.
    stored_bytes
        Bytes of the chunk.
    """
    records = nan_records(merged.nan_count)
    if merged.order is Order.BYTES and stored_bytes >= LONG_CHUNK_BYTES_MIN and merged.has_values:
        exact = ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT
        if merged.flags & exact != exact:
            low, high = long_bounds(values, pages)
            records[ExtTag.LONG_MIN] = bytes([low.whole]) + low.value
            records[ExtTag.LONG_MAX] = bytes([high.whole]) + high.value
    if len(pages) > 1 and merged.null_count > 0:
        records[ExtTag.PAGE_NULL_COUNTS] = pages.null_count.astype("<u4").tobytes()
    return records


def nan_records(count: int | None) -> dict[ExtTag, bytes]:
    """The record of how many values are NaN, if there are any."""
    return {ExtTag.NAN_COUNT: _COUNT.pack(count)} if count else {}


def content_records(
    values: Values, validity: Bits | bool | None, node: Node, stored_bytes: int, *, summary: bool
) -> dict[ExtTag, bytes]:
    """What a chunk's values are together, as records.

    Parameters
    ----------
    values
        One a slot.
    validity
        Which slots are not null.
    node
        The leaf.
    stored_bytes
        Bytes of the chunk.
    summary
        Whether DISTINCT_COUNT and SUM are wanted.
    """
    records: dict[ExtTag, bytes] = {}
    valid = validity.unpack() if isinstance(validity, Bits) else None
    if isinstance(values, BinaryValues) and stored_bytes >= LONG_CHUNK_BYTES_MIN:
        lengths = values.lengths
        size = int((lengths if valid is None else lengths[valid]).sum())
        records[ExtTag.DECODED_BYTES] = _COUNT.pack(size)
    if summary:
        records[ExtTag.DISTINCT_COUNT] = _DISTINCT.pack(distinct.count(values, valid), 1)
        total = _total(values, valid, node)
        if total is not None and -(1 << 127) <= total < 1 << 127:
            records[ExtTag.SUM] = total.to_bytes(SUM_BYTES, "little", signed=True)
    return records


def _total(values: Values, valid: np.ndarray | None, node: Node) -> int | None:
    """The exact sum of whole numbers or unscaled decimals; None for other types."""
    storage = node.storage
    if isinstance(values, Bits):
        flags = values.unpack()
        return int((flags if valid is None else flags & valid).sum())
    if not isinstance(values, np.ndarray):
        return None
    if not pat.is_integer(storage) and not pat.is_decimal(storage):
        return None
    chosen = values if valid is None else values[valid]
    if chosen.dtype.itemsize < WORD_BYTES:
        return int(chosen.sum(dtype=np.int64))
    # Word by word, as two's complement: the words of 2**31 values add up in 64 bits.
    words = np.ascontiguousarray(chosen).view("<u4").reshape(len(chosen), -1)
    total = sum(int(each) << 32 * place for place, each in enumerate(words.sum(0, np.uint64)))
    if chosen.dtype.kind == "u" or not len(chosen):
        return total
    return total - (int((words[:, -1] >> 31).sum(dtype=np.int64)) << 32 * words.shape[1])


def long_bounds(values: Values, pages: PageStatistics) -> tuple[LongBound, LongBound]:
    """The smallest and the greatest of byte strings, of which some page has one."""
    offsets, data = byte_strings(values)
    assert pages.min_max_slots is not None
    low, high = (
        [_beginning(offsets, data, slot) for slot in slots[slots >= 0].tolist()]
        for slots in pages.min_max_slots
    )
    return _cut(min(low)), _cut(max(high))


def _beginning(offsets: np.ndarray, data: np.ndarray, slot: int) -> bytes:
    """As much of a value as tells where it lies among others, and whether it is cut."""
    start, stop = offsets[slot : slot + 2].tolist()
    return data[start : min(stop, start + LONG_BOUND_BYTES_MAX + 1)].tobytes()


def _cut(value: bytes) -> LongBound:
    return LongBound(value[:LONG_BOUND_BYTES_MAX], len(value) <= LONG_BOUND_BYTES_MAX)


def nan_count(records: Records) -> int | None:
    """How many values are NaN; None where that is not recorded."""
    data = records.get(ExtTag.NAN_COUNT, b"")
    return _COUNT.unpack_from(data)[0] if len(data) >= _COUNT.size else None


def decoded_bytes(records: Records) -> int | None:
    """Bytes of all byte strings of a chunk; None where that is not recorded."""
    data = records.get(ExtTag.DECODED_BYTES, b"")
    return _COUNT.unpack_from(data)[0] if len(data) >= _COUNT.size else None


def distinct_count(records: Records) -> int | None:
    """How many different values a chunk has; None where that is not recorded, or not exactly."""
    data = records.get(ExtTag.DISTINCT_COUNT, b"")
    count, exact = _DISTINCT.unpack_from(data) if len(data) >= _DISTINCT.size else (0, 0)
    return count if exact == 1 else None


def recorded_sum(records: Records) -> int | None:
    """The sum of a chunk's numbers, of decimals unscaled; None where that is not recorded."""
    data = records.get(ExtTag.SUM, b"")
    return int.from_bytes(data, "little", signed=True) if len(data) == SUM_BYTES else None


def page_null_counts(records: Records, pages: int, where: str) -> np.ndarray | None:
    """Nulls of each page, ``int64`` of shape (pages,); None where that is not recorded.

    Raises
    ------
    InvalidFileError
        The record is of another number of pages.
    """
    data = records.get(ExtTag.PAGE_NULL_COUNTS)
    if data is None:
        return None
    if len(data) != 4 * pages:
        raise InvalidFileError(
            f"{where}: null counts of pages: expected {4 * pages} bytes, found {len(data)}"
        )
    return np.frombuffer(data, "<u4").astype(np.int64)


def recorded_bound(records: Records, tag: ExtTag) -> LongBound | None:
    """LONG_MIN or LONG_MAX; None where there is none."""
    data = records.get(tag)
    return LongBound(data[1:], data[0] == 1) if data else None


def may_lie_within(records: Records, value: bytes) -> bool:
    """Whether a byte string may be in a chunk, by its bounds in full."""
    low = recorded_bound(records, ExtTag.LONG_MIN)
    high = recorded_bound(records, ExtTag.LONG_MAX)
    if low is not None and value < low.value:
        return False
    if high is None:
        return True
    return (value if high.whole else value[: len(high.value)]) <= high.value


class ChunkBounds(NamedTuple):
    """What a chunk's descriptor and its records say of the bounds of its values."""

    minimum: int
    maximum: int
    flags: int
    records: Records


def merged_long_bounds(
    chunks: Sequence[ChunkBounds],
) -> tuple[LongBound | None, LongBound | None]:
    """The bounds in full of byte strings in several chunks; None where one of them has none."""
    lows = [
        _bound(chunk.minimum, 0x00, chunk.flags & ChunkFlag.MIN_EXACT, chunk.records, low=True)
        for chunk in chunks
    ]
    highs = [
        _bound(chunk.maximum, 0xFF, chunk.flags & ChunkFlag.MAX_EXACT, chunk.records, low=False)
        for chunk in chunks
    ]
    known_lows = [bound for bound in lows if bound is not None]
    known_highs = [bound for bound in highs if bound is not None]
    smallest = greatest = None
    if chunks and len(known_lows) == len(chunks):
        # Where a whole value is the beginning of a longer one, it is the smaller.
        smallest = min(known_lows, key=lambda bound: (bound.value, not bound.whole))
    if chunks and len(known_highs) == len(chunks):
        greatest = max(known_highs, key=lambda bound: (bound.value, not bound.whole))
    return smallest, greatest


def _bound(key: int, pad: int, exact: int, records: Records, *, low: bool) -> LongBound | None:
    if exact:
        return LongBound(key_bytes(key, pad), True)
    return recorded_bound(records, ExtTag.LONG_MIN if low else ExtTag.LONG_MAX)
