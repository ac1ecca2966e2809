"""Keys as byte strings whose order is the order of the keys; both directions, over whole arrays.

A key is the concatenation of its columns' bytes:

====================  =============================================================================
type                  bytes
====================  =============================================================================
boolean               1: 0 or 1
int8 to int64, date,  8: the number (days, ticks) + 2^63, big-endian
time, timestamp
uint8 to uint64       8: the number, big-endian
decimal               16, of more than 38 digits 32: the unscaled value + 2^127 (2^255), big-endian
fixed-size binary     the value
string, binary        the value (UTF-8); before the last column each byte 00 becomes 00 01, and
                      00 00 follows at the end
====================  =============================================================================

Numbers have 8 bytes whatever their type, so that widening a column changes no key. A key of one
column that is an integer, a date or a time has a *direct* form as well: an ``int64`` that sorts as
the key does, which is far faster to compare.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.engine import array_of, stable_order
from fermion.errors import InvalidArgumentError
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.widening import is_binary, is_text

_SIGN = np.uint64(1 << 63)
_ZERO, _ESCAPED, _END = b"\x00", b"\x00\x01", b"\x00\x00"
_NARROW_DIGITS_MAX = 38
"""Decimals of at most so many digits are 16 bytes, whatever Arrow type holds them."""
_PADDED_BYTES_MAX = 64
"""Keys up to this length are compared as words of 8 bytes; longer ones by Arrow."""


def check_key_type(name: str, dtype: pa.DataType) -> None:
    """Refuse a type that a key column can't have.

    Raises InvalidArgumentError: A float, a nested type, a dictionary or another type without an
        order of bytes.
    """
    if not (is_number(dtype) or _is_fixed(dtype) or _is_bytes(dtype)):
        reason = " (NaN and -0.0 have no one place in an order)" if pat.is_floating(dtype) else ""
        raise InvalidArgumentError(
            f"key column {name!r} is {dtype}{reason}: expected an integer, decimal, boolean, date, "
            "time, timestamp, string or binary"
        )


def is_number(dtype: pa.DataType) -> bool:
    """Whether a key of one column of this type has a direct form."""
    return bool(
        pat.is_integer(dtype) or pat.is_date(dtype) or pat.is_time(dtype) or pat.is_timestamp(dtype)
    )


def keeps_keys(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a key column may widen so: no key's bytes change."""
    if pat.is_integer(old) and pat.is_integer(new):
        return bool(pat.is_signed_integer(old) == pat.is_signed_integer(new))
    if pat.is_decimal(old) and pat.is_decimal(new):
        return old.scale == new.scale and _width(old) == _width(new)
    variable = [_is_bytes(each) and not pat.is_fixed_size_binary(each) for each in (old, new)]
    return old == new or (all(variable) and is_text(old) == is_text(new))


def direct_keys(column: pa.Array, name: str = "") -> np.ndarray:
    """The direct form of a key of one column.

    Returns: ``int64``, shape (n,): numbers, days or ticks; of unsigned integers less 2^63. A view
        of the column's values where these are ``int64`` already.
    Raises InvalidArgumentError: The column holds nulls, or its type has no direct form.
    """
    if not is_number(column.type):
        raise InvalidArgumentError(
            f"key column {name!r} is {column.type}: expected an integer, date, time or timestamp"
        )
    _check_nulls(column, name)
    numbers = _numbers(column)
    if numbers.dtype == np.uint64:
        return (numbers ^ _SIGN).view(np.int64)
    return numbers


def encode_keys(columns: Sequence[pa.Array], names: Sequence[str] = ()) -> pa.LargeBinaryArray:
    """The key of each row as bytes.

    columns: The key columns in the key's order, all of one length, without nulls.
    Raises InvalidArgumentError: No column, columns of different lengths, a null, or a type that has
        no place in a key.
    """
    if not columns or any(len(column) != len(columns[0]) for column in columns):
        lengths = [len(column) for column in columns]
        raise InvalidArgumentError(f"columns: expected one or more of one length, found {lengths}")
    parts = []
    for at, column in enumerate(columns):
        name = names[at] if names else f"#{at}"
        check_key_type(name, column.type)
        _check_nulls(column, name)
        parts += _parts(column, is_last=at == len(columns) - 1)
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, array_of([b""], pa.large_binary())[0])


def decode_keys(keys: pa.Array, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns of keys; the inverse of `encode_keys`.

    keys: Binary of any kind, without nulls.
    types: Of the key columns, in the key's order.
    Raises CorruptMetadata: Bytes that are no key of these types.
    Raises InvalidArgumentError: A type that has no place in a key.
    """
    for place, dtype in enumerate(types):
        check_key_type(f"#{place}", dtype)
    if not len(keys):
        return [pa.array([], dtype) for dtype in types]
    keys = _large(keys)
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, 8 * keys.offset)
    data = _bytes_of(keys)
    at, ends = offsets[:-1], offsets[1:]
    columns = []
    for place, dtype in enumerate(types):
        if _is_bytes(dtype) and not pat.is_fixed_size_binary(dtype):
            is_last = place == len(types) - 1
            column, at = _read_text(data, at, ends, dtype, is_last=is_last)
        else:
            width = _width(dtype)
            _check(bool((at + width <= ends).all()), dtype, "a key that ends early")
            raw = data[at[:, None] + np.arange(width)] if len(at) else np.empty((0, width), "u1")
            column, at = _read_fixed(raw, dtype), at + width
        columns.append(column)
    _check(bool((at == ends).all()), types[-1], "bytes after the last column of a key")
    return columns


def key_ranks(keys: pa.Array) -> np.ndarray:
    """The place of each key among the distinct ones in their order.

    keys: Binary of any kind, without nulls.
    Returns: ``int64``, shape (n,): from 0 on; equal keys have equal numbers.
    """
    if not len(keys):
        return np.zeros(0, np.int64)
    keys = _large(keys)
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, 8 * keys.offset)
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    if longest > _PADDED_BYTES_MAX:
        return pc.rank(keys, tiebreaker="dense").to_numpy().astype(np.int64) - 1
    words = _words(_bytes_of(keys), offsets, lengths, longest)
    order = stable_order(lengths)
    for each in words[::-1]:
        order = order[stable_order((each ^ _SIGN).view(np.int64)[order])]
    is_new = np.zeros(len(order), bool)
    for each in (lengths, *words):
        placed = each[order]
        is_new[1:] |= placed[1:] != placed[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new)
    return ranks


def _words(data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, longest: int) -> list:
    """The keys as words that compare as they do, padded with zeros: ``uint64``, first one first."""
    count = len(lengths)
    width = -(-longest // 8) * 8
    padded = np.zeros((count, width), np.uint8)
    inside = np.arange(width) < lengths[:, None]
    padded[inside] = data[offsets[0] : offsets[-1]]
    return [
        padded[:, at : at + 8].copy().view(">u8")[:, 0].astype(np.uint64)
        for at in range(0, width, 8)
    ]


def _parts(column: pa.Array, *, is_last: bool) -> list:
    """Arrays and scalars of large binary that make up a column's bytes, one after the other."""
    dtype = column.type
    if is_number(dtype):
        numbers = _numbers(column)
        words = numbers if numbers.dtype == np.uint64 else numbers.view(np.uint64) ^ _SIGN
        return [fixed_bytes(words.astype(">u8").view(np.uint8).reshape(-1, 8))]
    if pat.is_boolean(dtype):
        flags = column.to_numpy(zero_copy_only=False)
        return [fixed_bytes(flags.astype(np.uint8)[:, None])]
    if pat.is_decimal(dtype):
        return [fixed_bytes(_decimal_bytes(column))]
    if pat.is_fixed_size_binary(dtype):
        return [column.cast(pa.binary()).cast(pa.large_binary())]
    texts = _large(column)
    if is_last:
        return [texts]
    if len(texts) and not _bytes_of(texts).all():
        texts = pc.replace_substring(texts, pattern=_ZERO, replacement=_ESCAPED)
    return [texts, array_of([_END], pa.large_binary())[0]]


def _numbers(column: pa.Array) -> np.ndarray:
    """``uint64`` of unsigned integers, else ``int64``; shape (n,)."""
    dtype = column.type
    kind = "u" if pat.is_unsigned_integer(dtype) else "i"
    width = np.dtype(f"{kind}{dtype.bit_width // 8}")
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(0, f"{kind}8")
    values = np.frombuffer(data, width, len(column), column.offset * width.itemsize)
    return values.astype(f"{kind}8", copy=False)


def _decimal_bytes(column: pa.Array) -> np.ndarray:
    """Unscaled values, big-endian with the sign flipped: ``uint8``, shape (n, 16) or (n, 32)."""
    size, width = column.type.bit_width // 8, _width(column.type)
    raw = np.empty((len(column), size), np.uint8)
    if len(column):
        start = column.offset * size
        raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * size, start)
        raw = raw.reshape(-1, size)
    wide = np.empty((len(column), width), np.uint8)
    wide[:, -min(size, width) :] = raw[:, : min(size, width)][:, ::-1]
    if size < width:
        wide[:, : width - size] = np.where(raw[:, -1:] & 0x80, 0xFF, 0)
    wide[:, 0] ^= 0x80
    return wide


def _read_fixed(raw: np.ndarray, dtype: pa.DataType) -> pa.Array:
    """A column from the bytes of its values: ``uint8``, shape (n, width)."""
    count = len(raw)
    if pat.is_boolean(dtype):
        _check(bool((raw <= 1).all()), dtype, "a boolean that is neither 0 nor 1")
        return pa.array(raw[:, 0].astype(bool), dtype)
    if pat.is_fixed_size_binary(dtype):
        flat = pa.py_buffer(np.ascontiguousarray(raw).tobytes())
        return pa.Array.from_buffers(dtype, count, [None, flat])
    if pat.is_decimal(dtype):
        plain = raw.copy()
        plain[:, 0] ^= 0x80
        size = dtype.bit_width // 8
        low = plain[:, ::-1]
        wide = np.empty((count, size), np.uint8)
        kept = min(size, low.shape[1])
        wide[:, :kept] = low[:, :kept]
        wide[:, kept:] = np.where(low[:, -1:] & 0x80, 0xFF, 0)
        rest = low[:, kept:]
        is_sign = rest == np.where(wide[:, -1:] & 0x80, 0xFF, 0)
        _check(bool(is_sign.all()), dtype, "a decimal of more digits")
        column = pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(wide.tobytes())])
        _check(_is_valid(column), dtype, "a decimal of more digits")
        return column
    words = np.ascontiguousarray(raw).view(">u8")[:, 0].astype(np.uint64)
    is_unsigned = pat.is_unsigned_integer(dtype)
    numbers = words if is_unsigned else (words ^ _SIGN).view(np.int64)
    target = np.dtype(f"{'u' if is_unsigned else 'i'}{dtype.bit_width // 8}")
    narrow = numbers.astype(target)
    _check(bool((narrow == numbers).all()), dtype, "a number out of its range")
    return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(narrow.tobytes())])


def _read_text(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, dtype: pa.DataType, *, is_last: bool
) -> tuple[pa.Array, np.ndarray]:
    """A column of strings or binary, and where the next one begins in each key."""
    following = ends
    is_escaped = False
    if not is_last:
        marks = np.flatnonzero((data[:-1] == 0) & (data[1:] == 0))
        found = np.append(marks, len(data))[np.searchsorted(marks, starts)]
        _check(bool((found + 2 <= ends).all()), dtype, "a text without an end")
        is_escaped = bool((data == 0).any())
        ends, following = found, found + 2
    lengths = ends - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    picked = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data[picked].tobytes())]
    texts = pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)
    if is_escaped:
        texts = pc.replace_substring(texts, pattern=_ESCAPED, replacement=_ZERO)
    try:
        if is_text(dtype):
            return texts.cast(pa.large_string()).cast(dtype), following
        return texts.cast(dtype), following
    except pa.ArrowInvalid as error:
        raise CorruptMetadata("a key", f"a {dtype}", str(error)) from None


def fixed_bytes(raw: np.ndarray) -> pa.LargeBinaryArray:
    """Rows of bytes, shape (n, width), as an array."""
    offsets = np.arange(len(raw) + 1, dtype=np.int64) * raw.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(raw))]
    return pa.Array.from_buffers(pa.large_binary(), len(raw), buffers)


def _large(column: pa.Array) -> pa.LargeBinaryArray:
    """The same byte strings as large binary; a string's are those of its UTF-8."""
    dtype = column.type
    if pat.is_string(dtype) or pat.is_string_view(dtype):
        column = column.cast(pa.large_string())
    return column if pat.is_large_binary(column.type) else column.cast(pa.large_binary())


def _bytes_of(texts: pa.LargeBinaryArray) -> np.ndarray:
    """The buffer of the values, which offsets point into: ``uint8``, shape (n,)."""
    data = texts.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _check_nulls(column: pa.Array, name: str) -> None:
    if column.null_count:
        raise InvalidArgumentError(
            f"key column {name!r}: expected no nulls, found {column.null_count} in {len(column)} "
            "rows"
        )


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _check(holds: bool, dtype: pa.DataType, found: str) -> None:
    if not holds:
        raise CorruptMetadata("a key", f"a {dtype}", found)


def _width(dtype: pa.DataType) -> int:
    """Bytes of a value of a fixed width."""
    if pat.is_boolean(dtype):
        return 1
    if pat.is_decimal(dtype):
        return 16 if dtype.precision <= _NARROW_DIGITS_MAX else 32
    return dtype.byte_width if pat.is_fixed_size_binary(dtype) else 8


def _is_fixed(dtype: pa.DataType) -> bool:
    return bool(pat.is_boolean(dtype) or pat.is_decimal(dtype) or pat.is_fixed_size_binary(dtype))


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(is_text(dtype) or is_binary(dtype) or pat.is_fixed_size_binary(dtype))
