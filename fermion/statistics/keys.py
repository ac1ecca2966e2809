"""Values ⇄ order-preserving int64 keys: what bounds are made of, in files and in filters.

Each type maps to int64 so that greater values never get smaller keys (docs/format.md):

========================  =====================================================================
signed, temporal, bool    the value itself (temporal: ticks)
uint8 to uint32           the value itself
uint64                    the value XOR 2**63
floats                    widened to float64; bits b become b ^ ((b >> 63) & (2**63 - 1))
decimals                  the unscaled value, saturated at the ends of int64
strings, binary           the first 8 bytes, big-endian, XOR 2**63; a shorter minimum is padded
                          with 0x00, a shorter maximum with 0xFF
intervals, nested         none
========================  =====================================================================
"""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import Order, PhysicalKind, is_text, leaf_type, strip_wrappers
from fermion.layout import INT64_MAX, INT64_MIN

KEY_BYTES = 8
_SIGN = 1 << 63
_FLOAT_MASK = (1 << 63) - 1
_CONTEXT = Context(prec=100, Emax=1000, Emin=-1000)


def is_unambiguous(prefix: bytes) -> bool:
    """Whether a byte string is short enough, and ends so, that its key tells it exactly."""
    return len(prefix) < KEY_BYTES and (not prefix or prefix[-1] not in (0x00, 0xFF))


def bytes_key(value: bytes, pad: int) -> int:
    """The key of a byte string: its first 8 bytes, padded with ``pad`` (0x00 or 0xFF)."""
    padded = value[:KEY_BYTES].ljust(KEY_BYTES, bytes((pad,)))
    return int.from_bytes(padded, "big") - _SIGN


def float_key(value: float) -> int:
    """The key of a float: its place in the total order of float64."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits ^ ((bits >> 63) & _FLOAT_MASK)


def value_key(raw: Any, order: Order, *, is_uint64: bool = False) -> int:
    """The key of a raw value: int, float or bytes (padded with 0x00); ints are saturated."""
    if order is Order.BYTES:
        return bytes_key(raw, 0x00)
    if order is Order.FLOAT:
        return float_key(raw)
    return min(max(raw - _SIGN if is_uint64 else raw, INT64_MIN), INT64_MAX)


def key_value(key: int, dtype: pa.DataType, *, pad: int) -> pa.Scalar | None:
    """The value behind a key.

    dtype: The column's type; the result has it, without dictionary and extension wrappers.
    pad: The byte that short strings were padded with: 0x00 for a minimum, 0xFF for a maximum.
    Returns: Strings and binary lose their padding, and what follows the last whole character. None
        for types without an order, and for a saturated decimal.
    """
    storage = strip_wrappers(dtype)
    leaf = leaf_type(storage)
    if leaf is None or leaf[1] is Order.NONE:
        return None
    physical, order = leaf
    if order is Order.BYTES:
        return string_scalar(key_bytes(key, pad), storage)
    if order is Order.FLOAT:
        bits = key ^ ((key >> 63) & _FLOAT_MASK)
        (number,) = struct.unpack("<d", struct.pack("<q", bits))
        return pa.scalar(number, storage)
    if physical.kind is PhysicalKind.UINT64:
        return pa.scalar(key + _SIGN, storage)
    if order is Order.DECIMAL:
        return raw_decimal(key, storage)
    return pa.scalar(bool(key)) if pat.is_boolean(storage) else pa.scalar(key, storage)


def raw_decimal(raw: int, storage: pa.DataType) -> pa.Scalar | None:
    """An unscaled integer as a decimal scalar; None if it has more digits than the type."""
    if abs(raw) >= 10**storage.precision:
        return None
    # From bytes: Arrow takes no Python decimal with fewer digits than decimal places.
    data = raw.to_bytes(storage.byte_width, "little", signed=True)
    return pa.Array.from_buffers(storage, 1, [None, pa.py_buffer(data)])[0]


def unscaled_integer(value: Decimal, scale: int) -> int:
    """A decimal as its unscaled integer, exactly, whatever the decimal context of the program.

    Parameters
    ----------
    scale
        Of its type: so many digits at most after the decimal point.
    """
    return int(_CONTEXT.scaleb(value, scale))


def key_bytes(key: int, pad: int) -> bytes:
    """The first bytes of a byte string by its key, without what it was padded with."""
    return (key + _SIGN).to_bytes(KEY_BYTES, "big").rstrip(bytes((pad,)))


def string_scalar(prefix: bytes, storage: pa.DataType) -> pa.Scalar:
    """The first bytes of a byte string as a scalar, without a last character cut short."""
    if pat.is_fixed_size_binary(storage):
        return pa.scalar(prefix, storage if len(prefix) == storage.byte_width else pa.binary())
    if is_text(storage):
        return pa.scalar(prefix.decode("utf-8", "ignore"), storage)
    return pa.scalar(prefix, storage)


def plain_maximums(maximums: np.ndarray, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Byte-string maximums with the 0xFF padding of exact ones replaced by 0x00.

    maximums: ``int64``, shape (u,): keys.
    exact: ``bool``, shape (u,): whether MAX_EXACT is set.
    Returns: The keys (``int64``; inexact ones as they were), and which are exact (``bool``): a flag
        that its key contradicts, since exact values are short and end in neither 0x00 nor 0xFF,
        does not count.
    """
    keys = maximums.view(np.uint64) ^ np.uint64(_SIGN)
    stripped, last = keys, np.zeros(len(keys), np.uint64)
    for count in range(1, KEY_BYTES + 1):
        ones = np.uint64((1 << 8 * count) - 1)
        is_padded = keys & ones == ones
        stripped = np.where(is_padded, keys & ~ones, stripped)
        before = (keys >> np.uint64(8 * count)) & np.uint64(0xFF) if count < KEY_BYTES else 1
        last = np.where(is_padded, before, last)
    sound = exact & (last != 0)
    return np.where(sound, (stripped ^ np.uint64(_SIGN)).view(np.int64), maximums), sound
