"""Partition transforms: functions of a column whose results the rows of a data file share.

==================  ==========================  =================================================
transform           columns                     partition value (its JSON)
==================  ==========================  =================================================
``identity``        plain types                 the value
``year``            dates, timestamps           years since 1970
``month``           dates, timestamps           months since January 1970
``day``             dates, timestamps           days since 1970-01-01
``hour``            timestamps                  hours since 1970-01-01 00:00
``bucket(n)``       all but booleans, floats    hash (Murmur3) modulo n, from 0 to n - 1
``truncate(w)``     integers, decimals          greatest multiple of w (of w units of the last
                                                digit) that is not above the value
``truncate(w)``     strings, binary             first w characters, bytes
==================  ==========================  =================================================

Null goes to null. Timestamps with a zone are taken in UTC. The bucket of a number is that of its
raw 64-bit value (ticks, for dates and times), of a decimal that of its unscaled value as big-endian
two's complement in as few bytes as hold it, of a string that of its UTF-8 bytes.

The hash is Murmur3 (x86, 32 bits, seed 0), over whole arrays. Integers are hashed as 8 bytes,
little-endian, so that widening a column moves no row; byte strings each distinct one once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.arguments import INT64_MIN, integer, text
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.schema import value_codec

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_LENGTH = np.uint32(8)


def hash_integers(values: np.ndarray) -> np.ndarray:
    """The hash of each number.

    values: ``int64`` or ``uint64``, shape (n,).
    Returns: ``uint32``, shape (n,).
    """
    words = values.view(np.uint64)
    state = np.zeros(len(words), np.uint32)
    with np.errstate(over="ignore"):
        for shift in (0, 32):
            word = (words >> np.uint64(shift)).astype(np.uint32) * _C1
            state ^= _rotated(word, 15) * _C2
            state = _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= _LENGTH
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def hash_texts(values: Iterable[bytes]) -> np.ndarray:
    """The hash of each byte string: ``uint32``, shape (n,)."""
    import mmh3  # for buckets of texts alone

    return np.array([mmh3.hash(value, signed=False) for value in values], np.uint32)


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


TransformKind = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]

PARAMETER_MAX = 2**31 - 1
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"year": "Y", "month": "M", "day": "D"}

_TEXT = re.compile(r"\s*([A-Za-z]+)\s*\((.*)\)\s*", re.DOTALL)
_NUMBER = re.compile(r"\s*\d{1,10}\s*")


@dataclass(frozen=True, slots=True)
class PartitionTransform:
    """A column to partition by, and the function of it.

    Attributes
    ----------
    column
        A top-level column.
    kind
        Which function.
    parameter
        Buckets, or the width of ``truncate``; 0 for the others.
    name
        Of the partition field; empty: made of the column's and the function's.
    """

    column: str
    kind: TransformKind = "identity"
    parameter: int = 0
    name: str = ""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        text(self.column, "column")
        text(self.name, "name")
        object.__setattr__(self, "parameter", integer(self.parameter, "parameter"))
        text(self.kind, "kind")
        if self.kind in _PARAMETRIC:
            if not 1 <= self.parameter <= PARAMETER_MAX:
                raise InvalidArgumentError(
                    f"{self.kind} of {self.column!r}: found {self.parameter}, expected 1 to "
                    f"{PARAMETER_MAX} {_PARAMETRIC[self.kind]}"
                )
        elif self.kind not in _PLAIN:
            raise InvalidArgumentError(
                f"partition transform: kind={self.kind!r}: expected one of "
                f"{', '.join((*_PLAIN, *_PARAMETRIC))}"
            )
        elif self.parameter:
            raise InvalidArgumentError(f"{self.kind} of {self.column!r}: takes no number")

    @property
    def field_name(self) -> str:
        """The name of the partition field."""
        if self.name or self.kind == "identity":
            return self.name or self.column
        return "_".join([self.column, self.kind, *([str(self.parameter)] * bool(self.parameter))])

    def values(self, column: pa.Array) -> pa.Array:
        """The partition values of a column's rows; see `transformed`."""
        if not isinstance(column, (pa.Array, pa.ChunkedArray)):
            raise TypeError(f"column: expected an Arrow array, found {type(column).__name__}")
        return transformed(self.kind, self.parameter, column)


_PLAIN = ("identity", "year", "month", "day", "hour")
_PARAMETRIC = {"bucket": "buckets", "truncate": "characters, bytes or units"}


def identity(column: str) -> PartitionTransform:
    """Partition by a column's values."""
    return PartitionTransform(column)


def year(column: str) -> PartitionTransform:
    """Partition by the year of a date or timestamp."""
    return PartitionTransform(column, "year")


def month(column: str) -> PartitionTransform:
    """Partition by the month of a date or timestamp."""
    return PartitionTransform(column, "month")


def day(column: str) -> PartitionTransform:
    """Partition by the day of a date or timestamp."""
    return PartitionTransform(column, "day")


def hour(column: str) -> PartitionTransform:
    """Partition by the hour of a timestamp."""
    return PartitionTransform(column, "hour")


def bucket(count: int, column: str) -> PartitionTransform:
    """Partition by hash into so many buckets."""
    return PartitionTransform(column, "bucket", count)


def truncate(width: int, column: str) -> PartitionTransform:
    """Partition by the first characters, or by runs of so many integers."""
    return PartitionTransform(column, "truncate", width)


def parse_transform(text: str) -> PartitionTransform:
    """A transform from text: ``"city"``, ``"day(ts)"``, ``"bucket(16, id)"``.

    Raises InvalidArgumentError: Not of that form.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        return PartitionTransform(text)
    word, inside = match[1].lower(), match[2]
    kind: Any = word if word in _PLAIN or word in _PARAMETRIC else word.removesuffix("s")
    if kind in _PARAMETRIC:
        first, _, last = inside.partition(",")
        if not _NUMBER.fullmatch(first):
            last, _, first = inside.rpartition(",")
        if not _NUMBER.fullmatch(first) or not last.strip():
            raise InvalidArgumentError(
                f"partition_by: {text!r}: expected a number and a column, as in '{kind}(16, id)'"
            )
        return PartitionTransform(last.strip(), kind, int(first))
    return PartitionTransform(inside.strip(), kind)


def check_column(transform: PartitionTransform, dtype: pa.DataType) -> None:
    """Refuse a column type that a transform is not made for.

    Raises InvalidArgumentError.
    """
    allowed, expected = _COLUMNS[transform.kind]
    if not allowed(dtype):
        raise InvalidArgumentError(
            f"partition_by: column {transform.column!r} is {dtype}; {transform.kind} expects "
            f"{expected}"
        )


def keeps_values(transform: PartitionTransform, old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of a column has the same partition value when its type widens.

    Raises InvalidArgumentError: The transform is not made for the new type.
    """
    check_column(transform, new)
    # What is cut off below the least decimal depends on how many digits there are.
    return not (transform.kind == "truncate" and pat.is_decimal(old) and old != new)


def transformed(kind: TransformKind, parameter: int, column: pa.Array) -> pa.Array:
    """The partition values of a column's rows.

    Returns: ``int64`` for times and buckets, else of the column's type (integers that ``truncate``
        made are ``int64`` or ``uint64``). The column itself for ``identity``.
    """
    if kind == "identity":
        return column
    if kind == "bucket":
        return _buckets(column, parameter)
    if kind == "truncate":
        return _truncated(column, parameter)
    return _by_nulls(_times(kind, column), column)


def text_of(kind: TransformKind, value: int) -> str:
    """A time's or bucket's partition value for people, as in ``2024-02-29-13``."""
    if kind == "hour":
        days, hours = divmod(value, 24)
        return f"{_moment(days, 'D')}-{hours:02}"
    return str(_moment(value, _UNITS[kind])) if kind in _UNITS else str(value)


def source_range(
    kind: TransformKind, parameter: int, dtype: pa.DataType, low: Any, high: Any
) -> tuple[Any, Any] | None:
    """Bounds of a column, from bounds of its partition values; all of them JSON values.

    low, high: Smallest and greatest partition value, inclusive.
    Returns: Both inclusive. Strings and binary may be longer than the upper bound, and begin with
        it. None where partition values say nothing about an order.
    """
    if kind == "bucket":
        return None
    if kind == "identity":
        return low, high
    if kind == "truncate":
        if isinstance(low, int) and isinstance(high, int):
            return low, high + parameter - 1
        return low, high
    ticks = _day_ticks(dtype)
    if kind == "hour":
        return low * ticks // 24, (high + 1) * ticks // 24 - 1
    unit = _UNITS[kind]
    first, after = (
        int(_moment(each, unit).astype("M8[D]").astype(np.int64)) for each in (low, high + 1)
    )
    return first * ticks, after * ticks - 1


def bucket_of(raw: Any, dtype: pa.DataType, count: int) -> int:
    """The bucket of a raw value: an int (ticks, unscaled) or bytes."""
    if pat.is_decimal(dtype):
        hashed = hash_texts([shortest_bytes(raw)])
    elif isinstance(raw, bytes):
        hashed = hash_texts([raw])
    else:
        hashed = hash_integers(np.array([raw & (2**64 - 1)], np.uint64))
    return int(_bucket_numbers(hashed, count)[0])


def _times(kind: str, column: pa.Array) -> np.ndarray:
    ticks = _day_ticks(column.type)
    if kind == "hour":
        return _numbers(column) // (ticks // 24)
    days = _numbers(column) // ticks
    return days.astype("M8[D]").astype(f"M8[{_UNITS[kind]}]").astype(np.int64)


def _moment(value: int, unit: str) -> np.ndarray:
    """So many years, months or days since 1970: ``datetime64`` of that unit, shape ()."""
    return np.array(value).astype(f"M8[{unit}]")


def _day_ticks(dtype: pa.DataType) -> int:
    if pat.is_date32(dtype):
        return 1
    return _TICKS["ms" if pat.is_date64(dtype) else dtype.unit] * 86_400


def _numbers(column: pa.Array) -> np.ndarray:
    """Integers, ticks: ``int64`` or ``uint64``, shape (n,); anything at nulls."""
    dtype = column.type
    width = np.dtype(f"{'u' if pat.is_unsigned_integer(dtype) else 'i'}{dtype.bit_width // 8}")
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), np.int64)
    values = np.frombuffer(data, width, len(column), column.offset * width.itemsize)
    return values if pat.is_uint64(dtype) else values.astype(np.int64)


def _by_nulls(values: np.ndarray, column: pa.Array) -> pa.Array:
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, mask=nulls)


def _buckets(column: pa.Array, count: int) -> pa.Array:
    if not _is_texts(column.type) and not pat.is_decimal(column.type):
        return _by_nulls(_bucket_numbers(hash_integers(_numbers(column)), count), column)
    encoded = plain(column).dictionary_encode()
    if pat.is_decimal(column.type):
        texts = [shortest_bytes(value_codec.encode_value(each)) for each in encoded.dictionary]
    else:
        wide = encoded.dictionary.cast(pa.large_binary())
        texts = wide.to_pylist()
    found = pa.array(_bucket_numbers(hash_texts(texts), count))
    return found.take(encoded.indices)


def _bucket_numbers(hashes: np.ndarray, count: int) -> np.ndarray:
    return ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int64)


def shortest_bytes(number: int) -> bytes:
    """A number as big-endian two's complement in as few bytes as hold it."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    dtype = column.type
    if pat.is_decimal(dtype):
        encoded = plain(column).dictionary_encode()
        numbers = [value_codec.encode_value(each) for each in encoded.dictionary]
        lowest = 1 - 10**dtype.precision
        cut = [max(number - number % width, lowest) for number in numbers]
        scalars = [value_codec.decode_value(each, encoded.dictionary.type) for each in cut]
        return pa.array(scalars, encoded.dictionary.type).take(encoded.indices)
    if pat.is_integer(dtype):
        values = _numbers(column)
        rest = values % values.dtype.type(width)
        if values.dtype == np.int64:  # the multiple below the least number may not exist
            above_least = (values - np.int64(INT64_MIN)).view(np.uint64)
            rest = np.minimum(rest.view(np.uint64), above_least).view(np.int64)
        return _by_nulls(values - rest, column)
    wide = plain(column)
    if pat.is_string(wide.type) or pat.is_large_string(wide.type):
        return pc.utf8_slice_codeunits(wide, 0, width)
    if pat.is_fixed_size_binary(wide.type):
        wide = wide.cast(pa.binary())
    return pc.binary_slice(wide, 0, width)


def plain(column: pa.Array) -> pa.Array:
    """The same values in a type that Arrow's functions know."""
    if pat.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pat.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    if pat.is_decimal(column.type) and column.type.bit_width < 128:
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column


def _is_texts(dtype: pa.DataType) -> bool:
    """Whether values are strings or binary of any layout."""
    return value_codec.has_plain_json(dtype) and not (
        pat.is_boolean(dtype)
        or pat.is_integer(dtype)
        or pat.is_floating(dtype)
        or pat.is_decimal(dtype)
        or pat.is_temporal(dtype)
    )


def _is_moment(dtype: pa.DataType) -> bool:
    return bool(pat.is_date(dtype) or pat.is_timestamp(dtype))


def _can_hash(dtype: pa.DataType) -> bool:
    return value_codec.has_plain_json(dtype) and not (
        pat.is_boolean(dtype) or pat.is_floating(dtype)
    )


def _can_truncate(dtype: pa.DataType) -> bool:
    return bool(pat.is_integer(dtype) or pat.is_decimal(dtype) or _is_texts(dtype))


_COLUMNS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "identity": (
        value_codec.has_plain_json,
        "booleans, numbers, strings, binary, dates or times",
    ),
    "year": (_is_moment, "dates or timestamps"),
    "month": (_is_moment, "dates or timestamps"),
    "day": (_is_moment, "dates or timestamps"),
    "hour": (pat.is_timestamp, "timestamps"),
    "bucket": (_can_hash, "integers, decimals, strings, binary, dates or times"),
    "truncate": (_can_truncate, "integers, decimals, strings or binary"),
}
