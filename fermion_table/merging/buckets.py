"""Which bucket a row of a primary-key table belongs to: the hash of its bucket key, modulo.

The hash is Murmur3 (x86, 32 bits, seed 0) without the sign bit. Of one column it is that of the
transform ``bucket``. Of several columns it is the hash of their concatenated bytes:

==============================  ===================================================================
type                            bytes
==============================  ===================================================================
integer, date, time, timestamp  8: the number (days, ticks), little-endian
boolean                         8: 0 or 1, little-endian
decimal                         4: the length, little-endian; then the unscaled value as big-endian
                                two's complement in as few bytes as hold it
string, binary, fixed-size      4: the length, little-endian; then the value (UTF-8)
binary
==============================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.arguments import integer
from fermion.engine import array_of
from fermion.errors import InvalidArgumentError
from fermion_table.schema.key_encoding import check_key_type, direct_keys, fixed_bytes, is_number
from fermion_table.schema.property_kinds import NUMBER_MAX
from fermion_table.schema.transforms import hash_integers, hash_texts, plain, shortest_bytes
from fermion_table.schema.value_codec import encode_value

_SIGN = np.uint64(1 << 63)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_SAME_LENGTH_MIN = 32
"""Byte strings of one length are hashed together where there are at least so many."""


def bucket_numbers(
    columns: Sequence[pa.Array], count: int, names: Sequence[str] = ()
) -> np.ndarray:
    """The bucket of each row.

    columns: Of the bucket key, in its order, all of one length, without nulls.
    count: Number of buckets, from 1 on.
    Returns: ``int32``, shape (n,): from 0 to ``count - 1``.
    Raises TypeError: ``count`` is no integer.
    Raises InvalidArgumentError: ``count`` is out of its range, there is no column, columns have
        different lengths or nulls, or a type has no place in a key.
    """
    count = integer(count, "bucket", minimum=1, maximum=NUMBER_MAX)
    if not columns or any(len(column) != len(columns[0]) for column in columns):
        lengths = [len(column) for column in columns]
        raise InvalidArgumentError(f"columns: expected one or more of one length, found {lengths}")
    for at, column in enumerate(columns):
        name = names[at] if names else f"#{at}"
        check_key_type(name, column.type)
        if column.null_count:
            raise InvalidArgumentError(
                f"bucket key column {name!r}: expected no nulls, found {column.null_count} in "
                f"{len(column)} rows"
            )
    if count == 1:
        return np.zeros(len(columns[0]), np.int32)
    return ((_hashes(columns) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def hash_rows(texts: pa.Array) -> np.ndarray:
    """Murmur3 (x86, 32 bits, seed 0) of each byte string, those of one length at once.

    texts: Large binary, without nulls.
    Returns: ``uint32``, shape (n,).
    """
    if not len(texts):
        return np.zeros(0, np.uint32)
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, 8 * texts.offset)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    hashes = np.empty(len(texts), np.uint32)
    for rows in np.split(order, cuts):
        length = int(lengths[rows[0]])
        if len(rows) < _SAME_LENGTH_MIN or not length:
            hashes[rows] = hash_texts(texts.take(rows).to_pylist())
        else:
            hashes[rows] = _hash_matrix(data[offsets[rows, None] + np.arange(length)])
    return hashes


def _hashes(columns: Sequence[pa.Array]) -> np.ndarray:
    if len(columns) > 1:
        parts = [part for column in columns for part in _bytes_of(column, has_length=True)]
        return hash_rows(pc.binary_join_element_wise(*parts, array_of([b""], pa.large_binary())[0]))
    (column,) = columns
    if is_number(column.type) or pat.is_boolean(column.type):
        return hash_integers(_words(column))
    (part,) = _bytes_of(column, has_length=False)
    return hash_rows(part)


def _bytes_of(column: pa.Array, *, has_length: bool) -> list[pa.Array]:
    """Large binary arrays that make up a column's bytes, one after the other."""
    if is_number(column.type) or pat.is_boolean(column.type):
        return [fixed_bytes(_words(column).astype("<u8").view(np.uint8).reshape(-1, 8))]
    if pat.is_decimal(column.type):
        encoded = plain(column).dictionary_encode()
        shortest = [shortest_bytes(encode_value(each)) for each in encoded.dictionary]
        texts = pa.array(shortest, pa.large_binary()).take(encoded.indices)
    else:
        wide = plain(column)
        wide = wide.cast(pa.binary()) if pat.is_fixed_size_binary(wide.type) else wide
        texts = wide.cast(pa.large_binary())
    if not has_length:
        return [texts]
    lengths = pc.binary_length(texts).to_numpy().astype("<u4")
    return [fixed_bytes(lengths.view(np.uint8).reshape(-1, 4)), texts]


def _words(column: pa.Array) -> np.ndarray:
    """Numbers as ``uint64``, shape (n,)."""
    if pat.is_boolean(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.uint64)
    words = direct_keys(column).view(np.uint64)
    return words ^ _SIGN if pat.is_unsigned_integer(column.type) else words


def _hash_matrix(rows: np.ndarray) -> np.ndarray:
    """The hash of byte strings of one length: ``uint8``, shape (n, length), to ``uint32``."""
    length = rows.shape[1]
    whole = length // 4
    state = np.zeros(len(rows), np.uint32)
    words = np.ascontiguousarray(rows[:, : 4 * whole]).view("<u4") if whole else rows[:, :0]
    with np.errstate(over="ignore"):
        for at in range(whole):
            state ^= _mixed(words[:, at].astype(np.uint32))
            state = _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        if length % 4:
            rest = np.zeros(len(rows), np.uint32)
            for at in range(length % 4):
                rest |= rows[:, 4 * whole + at].astype(np.uint32) << np.uint32(8 * at)
            state ^= _mixed(rest)
        state ^= np.uint32(length)
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _mixed(words: np.ndarray) -> np.ndarray:
    return _rotated(words * _C1, 15) * _C2


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
