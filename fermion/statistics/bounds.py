"""Bounds and counts of a column's values, as the format keeps them: order-preserving int64.

`statistics.keys` maps values to keys. NaN and NULL never enter bounds. A zero counts as -0.0 in a
minimum and as +0.0 in a maximum.

Extension records say more of a chunk: counts, and bounds in full.

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
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import kernels
from fermion.columns import distinct
from fermion.columns.types import BinaryValues, Bits, Node, Order, Values
from fermion.errors import InvalidFileError
from fermion.exports import NamedTuple, dataclass
from fermion.layout import INT64_MAX, INT64_MIN, LONG_BOUND_BYTES_MAX, ChunkFlag, ExtTag
from fermion.statistics.keys import (
    KEY_BYTES,
    bytes_key,
    is_unambiguous,
    key_bytes,
    key_value,
    plain_maximums,
)

# Plain integers: operations on enum flags cost more than the statistics of a small column.
_MIN_EXACT = int(ChunkFlag.MIN_EXACT)
_MAX_EXACT = int(ChunkFlag.MAX_EXACT)
_HAS_NAN = np.uint32(ChunkFlag.HAS_NAN)
_NOT_EXACT = np.uint32(0xFFFF_FFFF ^ _MIN_EXACT ^ _MAX_EXACT)
_NO_BOUNDS = int(ChunkFlag.NAN_KNOWN)
_EMPTY_BOUNDS = int(ChunkFlag.HAS_MINMAX | ChunkFlag.NAN_KNOWN)
EXACT_FLAGS = _EMPTY_BOUNDS | _MIN_EXACT | _MAX_EXACT
"""Of units whose bounds are attained, and whose NaNs are known."""
_chunk_flag = cache(ChunkFlag)


@dataclass(frozen=True, slots=True, eq=False)
class PageStatistics:
    """Statistics of each page of a chunk.

    order: How the column's values compare.
    min, max: ``int64``, shape (p,): keys of the bounds. ``min > max``: the page has no comparable
        value. Without HAS_MINMAX they are -2**63 and 2**63 - 1: unknown.
    null_count, nan_count: ``int64``, shape (p,).
    flags: ``uint32``, shape (p,): `ChunkFlag` bits.
    min_max_slots: Of byte strings, ``int64``, shape (2, p): the slots of the smallest and of the
        greatest value of each page; -1 for a page without values. None for other values.
    """

    order: Order
    min: np.ndarray
    max: np.ndarray
    null_count: np.ndarray
    nan_count: np.ndarray
    flags: np.ndarray
    min_max_slots: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.min)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of one column over a chunk, a file, or more.

    Attributes
    ----------
    min, max
        Keys of the bounds, as in `PageStatistics`.
    flags
        HAS_MINMAX, MIN_EXACT, MAX_EXACT, HAS_NAN, NAN_KNOWN, SORTED_ASC, SORTED_DESC.
    null_count
        NULLs; -1 where that is not known.
    nan_count
        NaNs; None where that is not known.
    rows
        Values counted, NULLs included.
    order
        How the column's values compare.
    """

    min: int
    max: int
    flags: ChunkFlag
    null_count: int
    nan_count: int | None
    rows: int
    order: Order

    @property
    def has_values(self) -> bool:
        """Whether the bounds are known and belong to at least one value."""
        return bool(self.flags & ChunkFlag.HAS_MINMAX) and self.min <= self.max

    def min_value(self, dtype: pa.DataType, *, exact: bool = False) -> pa.Scalar | None:
        """The minimum as a value of the column's type.

        Parameters
        ----------
        exact
            Only give the true minimum. Otherwise a lower bound will do: strings longer than 7
            bytes come back as their first bytes.

        Returns
        -------
        pa.Scalar or None
            None where there is no such value, or it is not known: keys end where int64 does (of
            binary, where all bytes are 0xFF).
        """
        is_exact = bool(self.flags & ChunkFlag.MIN_EXACT)
        is_cut = self.order is Order.DECIMAL and self.min == INT64_MIN
        if not self.has_values or (not is_exact and (exact or is_cut)):
            return None
        return key_value(self.min, dtype, pad=0x00)

    def max_value(self, dtype: pa.DataType, *, exact: bool = False) -> pa.Scalar | None:
        """The maximum, as `min_value`; an inexact string is the prefix of an upper bound."""
        is_exact = bool(self.flags & ChunkFlag.MAX_EXACT)
        if not self.has_values or (not is_exact and (exact or self.max == INT64_MAX)):
            return None
        return key_value(self.max, dtype, pad=0xFF)


def unknown_statistics(rows: int, order: Order = Order.NONE) -> ColumnStatistics:
    """Statistics that say nothing but the number of values."""
    return ColumnStatistics(
        min=INT64_MIN,
        max=INT64_MAX,
        flags=ChunkFlag(0),
        null_count=-1,
        nan_count=None,
        rows=rows,
        order=order,
    )


def page_statistics(
    values: Values,
    validity: Bits | bool | None,
    cuts: np.ndarray,
    node: Node,
    *,
    sortedness: bool = False,
) -> PageStatistics:
    """Statistics of a chunk's pages.

    values: Physical values of the DATA stream.
    validity: 1 = valid; None where every slot is valid, False where none is.
    cuts: ``int64``, shape (p + 1,): page i holds slots ``cuts[i]`` to ``cuts[i + 1]``, exclusive.
    sortedness: Whether to look if values are sorted, for SORTED_ASC and SORTED_DESC (numbers
        without NULL and NaN only; one more pass).
    """
    count = len(cuts) - 1
    order = node.order
    rows = np.empty((4, count), np.int64)
    minimums, maximums, nulls, nans = rows
    flags = np.empty(count, np.uint32)
    min_max_slots = np.full((2, count), -1, np.int64) if order is Order.BYTES else None
    result = PageStatistics(order, minimums, maximums, nulls, nans, flags, min_max_slots)
    if validity is False or order is Order.NONE:
        _count_nulls(validity, cuts, nulls)
        nans[:] = 0
        no_values = validity is False and order is not Order.NONE
        minimums[:], maximums[:] = (INT64_MAX, INT64_MIN) if no_values else (INT64_MIN, INT64_MAX)
        flags[:] = _EMPTY_BOUNDS if no_values else _NO_BOUNDS
        return result
    bits = validity.data if isinstance(validity, Bits) else None
    flags[:] = EXACT_FLAGS
    if order is Order.BYTES:
        nans[:] = 0
        _binary_bounds(values, bits, cuts, result)
    else:
        numbers, saturated = _comparable(values, order)
        kernels.page_bounds(numbers, bits, cuts, minimums, maximums, nulls, nans)
        if saturated:
            _clear_saturated(result)
        if order is Order.FLOAT:
            flags[nans > 0] |= _HAS_NAN
        if sortedness and not saturated:
            _mark_sorted(numbers, cuts, result)
    if order is not Order.BYTES:
        flags[minimums > maximums] &= _NOT_EXACT
    return result


def _count_nulls(validity: Bits | bool | None, cuts: np.ndarray, nulls: np.ndarray) -> None:
    np.subtract(cuts[1:], cuts[:-1], out=nulls)
    if validity is None:
        nulls[:] = 0
    elif isinstance(validity, Bits):
        for page, (start, slots) in enumerate(zip(cuts.tolist(), nulls.tolist(), strict=False)):
            nulls[page] -= kernels.count_bits(validity.data, start, slots)


def _comparable(values: Values, order: Order) -> tuple[np.ndarray, bool]:
    """Values as numbers that `page_bounds` orders, and whether any was saturated."""
    if isinstance(values, Bits):
        return values.unpack().view(np.uint8), False
    assert isinstance(values, np.ndarray)
    if order is not Order.DECIMAL or values.dtype.kind != "V":
        return values, False
    narrow = np.empty(len(values), np.int64)
    if kernels.narrow_fixed(values, narrow):
        return narrow, False
    return _saturate(values), True


def _saturate(values: np.ndarray) -> np.ndarray:
    """Little-endian two's complement of 16 or 32 bytes, clamped to int64; a copy."""
    words = np.ascontiguousarray(values).view("<i8").reshape(len(values), -1)
    low = words[:, 0]
    fits = np.all(words[:, 1:] == (low >> 63)[:, None], axis=1)
    ends = np.where(words[:, -1] < 0, np.int64(INT64_MIN), np.int64(INT64_MAX))
    return np.where(fits, low, ends)


def _clear_saturated(pages: PageStatistics) -> None:
    for bounds, flag in ((pages.min, _MIN_EXACT), (pages.max, _MAX_EXACT)):
        ends = (bounds == INT64_MIN) | (bounds == INT64_MAX)
        pages.flags[ends] &= np.uint32(0xFFFF_FFFF ^ flag)


def _binary_bounds(
    values: Values, bits: np.ndarray | None, cuts: np.ndarray, pages: PageStatistics
) -> None:
    offsets, data = byte_strings(values)
    assert pages.min_max_slots is not None
    low, high = pages.min_max_slots
    kernels.page_bounds_binary(offsets, data, bits, cuts, low, high, pages.null_count)
    for page, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if first < 0:
            pages.min[page], pages.max[page] = INT64_MAX, INT64_MIN
            pages.flags[page] = _EMPTY_BOUNDS
            continue
        least, most = _prefix(offsets, data, first), _prefix(offsets, data, last)
        pages.min[page] = bytes_key(least, 0x00)
        pages.max[page] = bytes_key(most, 0xFF)
        pages.flags[page] = (
            _EMPTY_BOUNDS
            | (_MIN_EXACT if is_unambiguous(least) else 0)
            | (_MAX_EXACT if is_unambiguous(most) else 0)
        )


def byte_strings(values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes of byte strings, also of those that all have the same width."""
    if isinstance(values, BinaryValues):
        return values.offsets, values.data
    assert isinstance(values, np.ndarray)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.dtype.itemsize
    return offsets, np.ascontiguousarray(values).view(np.uint8)


def _prefix(offsets: np.ndarray, data: np.ndarray, index: int) -> bytes:
    """The first 8 bytes of a value."""
    start, stop = offsets[index : index + 2].tolist()
    return data[start : min(start + KEY_BYTES, stop)].tobytes()


def _mark_sorted(numbers: np.ndarray, cuts: np.ndarray, pages: PageStatistics) -> None:
    dense = (pages.null_count == 0) & (pages.nan_count == 0)
    if not dense.any():
        return
    rises = numbers[1:] > numbers[:-1]
    falls = numbers[1:] < numbers[:-1]
    for page, (start, stop) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
        if not dense[page]:
            continue
        inner = slice(start, max(stop - 1, start))
        if not falls[inner].any():
            pages.flags[page] |= np.uint32(ChunkFlag.SORTED_ASC)
        if not rises[inner].any():
            pages.flags[page] |= np.uint32(ChunkFlag.SORTED_DESC)


def merge(pages: PageStatistics, rows: int) -> ColumnStatistics:
    """A chunk's statistics from those of its pages; ``rows`` is its number of slots."""
    if len(pages) == 1:
        minimum, maximum, flags = pages.min.item(), pages.max.item(), pages.flags.item()
        nulls, nans = pages.null_count.item(), pages.nan_count.item()
    else:
        minimum, maximum, flags = _merged(pages.order, pages.min, pages.max, pages.flags)
        nulls, nans = int(pages.null_count.sum()), int(pages.nan_count.sum())
    return chunk_statistics(minimum, maximum, flags, nulls, nans, rows, pages.order)


def chunk_statistics(
    minimum: int, maximum: int, flags: int, nulls: int, nans: int, rows: int, order: Order
) -> ColumnStatistics:
    """A chunk's statistics from plain numbers."""
    return ColumnStatistics(
        min=minimum,
        max=maximum,
        flags=_chunk_flag(flags),
        null_count=nulls,
        nan_count=nans,
        rows=rows,
        order=order,
    )


def merge_columns(parts: Sequence[ColumnStatistics]) -> ColumnStatistics:
    """Statistics of several runs of rows of one column, in row order, taken together."""
    if not parts:
        return unknown_statistics(0)
    if len(parts) == 1:
        return parts[0]
    minimum, maximum, flags = _merged(
        parts[0].order,
        np.array([part.min for part in parts], np.int64),
        np.array([part.max for part in parts], np.int64),
        np.array([part.flags for part in parts], np.uint32),
    )
    nans = [part.nan_count for part in parts]
    nulls = [part.null_count for part in parts]
    return ColumnStatistics(
        min=minimum,
        max=maximum,
        flags=_chunk_flag(flags),
        null_count=-1 if min(nulls) < 0 else sum(nulls),
        nan_count=None if None in nans else sum(count for count in nans if count is not None),
        rows=sum(part.rows for part in parts),
        order=parts[0].order,
    )


class MergedStatistics(Mapping[tuple[str, ...], ColumnStatistics]):
    """Statistics of leaves by their paths, merged from those of runs of rows when asked for.

    A wide file has far more columns than anybody asks for.
    """

    def __init__(self, parts: Mapping[tuple[str, ...], Sequence[ColumnStatistics]]) -> None:
        self._parts = parts

    def __getitem__(self, path: tuple[str, ...]) -> ColumnStatistics:
        return merge_columns(self._parts[path])

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return f"<statistics of {len(self)} leaves>"


def _merged(
    order: Order, minimums: np.ndarray, maximums: np.ndarray, flags: np.ndarray
) -> tuple[int, int, int]:
    """Bounds and flags of units taken together."""
    if not len(flags):
        return INT64_MAX, INT64_MIN, _EMPTY_BOUNDS
    every = int(np.bitwise_and.reduce(flags))
    some = int(np.bitwise_or.reduce(flags))
    nan_flags = (every & ChunkFlag.NAN_KNOWN) | (some & ChunkFlag.HAS_NAN)
    if not every & ChunkFlag.HAS_MINMAX:
        return INT64_MIN, INT64_MAX, nan_flags
    filled = minimums <= maximums
    if not filled.any():
        return INT64_MAX, INT64_MIN, nan_flags | ChunkFlag.HAS_MINMAX
    low, high, known = minimums[filled], maximums[filled], flags[filled]
    minimum = int(low.min())
    maximum, max_exact = _merged_maximum(order, high, (known & ChunkFlag.MAX_EXACT) != 0)
    result = nan_flags | ChunkFlag.HAS_MINMAX
    if np.all(known[low == minimum] & ChunkFlag.MIN_EXACT):
        result |= ChunkFlag.MIN_EXACT
    if max_exact:
        result |= ChunkFlag.MAX_EXACT
    if filled.all() and order is not Order.BYTES:
        if every & ChunkFlag.SORTED_ASC and np.all(low[1:] >= high[:-1]):
            result |= ChunkFlag.SORTED_ASC
        if every & ChunkFlag.SORTED_DESC and np.all(high[1:] <= low[:-1]):
            result |= ChunkFlag.SORTED_DESC
    return minimum, maximum, int(result)


def _merged_maximum(order: Order, maximums: np.ndarray, exact: np.ndarray) -> tuple[int, bool]:
    """The greatest maximum, and whether it is exact.

    Padding with 0xFF puts "a" above "ab", so exact byte maximums are compared without it.
    """
    plain = maximums
    if order is Order.BYTES:
        plain, exact = plain_maximums(maximums, exact)
    greatest = plain.max()
    at = plain == greatest
    if exact[at].all():
        return int(maximums[at].max()), True
    return int(greatest), False


def page_flags(
    flags: int, chunk_min: int, chunk_max: int, minimums: np.ndarray, maximums: np.ndarray
) -> np.ndarray:
    """Flags of pages from those of their chunk, which is where they are stored.

    A chunk's bound says nothing of the exactness of the pages that do not attain it.

    chunk_min, chunk_max: Keys of the chunk's bounds.
    minimums, maximums: ``int64``, shape (p,): keys of the pages' bounds.
    Returns: ``uint32``, shape (p,).
    """
    result = np.full(len(minimums), flags, np.uint32)
    result[minimums != chunk_min] &= np.uint32(0xFFFF_FFFF ^ _MIN_EXACT)
    result[maximums != chunk_max] &= np.uint32(0xFFFF_FFFF ^ _MAX_EXACT)
    return result


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
    values: Values, pages: PageStatistics, merged: ColumnStatistics, stored_bytes: int
) -> dict[ExtTag, bytes]:
    """The records of a chunk.

    values: One a slot.
    pages, merged: What is known of them.
    stored_bytes: Bytes of the chunk.
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

    values: One a slot.
    validity: Which slots are not null.
    stored_bytes: Bytes of the chunk.
    summary: Whether DISTINCT_COUNT and SUM are wanted.
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

    Raises InvalidFileError: The record is of another number of pages.
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


def merged_long_bounds(chunks: Sequence[ChunkBounds]) -> tuple[LongBound | None, LongBound | None]:
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
