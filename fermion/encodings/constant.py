"""CONSTANT: one value for all slots.

Numbers and fixed-width bytes: the value's bytes. Booleans: one byte, 0 or 1. Strings: the length
(``uint64``), then the bytes.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion.columns.types import BinaryValues, Bits, PhysicalType, Values
from fermion.encodings.encoding import (
    BinaryPlan,
    Buffer,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Node,
    Recipe,
    Slots,
    node_parts,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import EncodingId

_LENGTH = struct.Struct("<Q")
_BYTE = struct.Struct("<B")
_UNSIGNED = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


class Constant(Encoding):
    """One value repeated."""

    id = EncodingId.CONSTANT
    name = "constant"

    def holds(self, physical: PhysicalType) -> bool:
        return True

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails where values differ, bit by bit, or where there are none."""
        if not is_constant(values):
            raise InvalidArgumentError("encoding constant cannot hold values that differ")
        if isinstance(values, Bits):
            return node_parts(self.id, [_BYTE.pack(int(values.data[0]) & 1)])
        if isinstance(values, BinaryValues):
            length = int(values.offsets[1])
            return node_parts(self.id, [_LENGTH.pack(length), values.data[:length]])
        return node_parts(self.id, [values[:1].tobytes()])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        out[:] = node.array(out.dtype, 1, node.start)[0]

    def read_bits(
        self,
        node: Node,
        count: int,
        slots: range,
        out: np.ndarray,
        bit: int,
        context: DecodeContext,
    ) -> None:
        (value,) = node.unpack(_BYTE)
        if value > 1:
            raise InvalidFileError(f"constant node: expected a boolean of 0 or 1, found {value}")
        if value:
            set_bits(out, bit, len(slots))

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        (length,) = node.unpack(_LENGTH)
        value = node.array(np.uint8, length, node.start + _LENGTH.size)
        np.multiply(np.arange(len(slots) + 1, dtype=np.int64), length, out=offsets)
        total = len(slots) * length
        context.check_output(total)

        def fill(out: np.ndarray, base: int) -> None:
            if length:
                out[base : base + total].reshape(len(slots), length)[:] = value

        return BinaryPlan(total, fill=fill)


def is_constant(values: Values) -> bool:
    """Whether there is a value and all values equal it, bit by bit."""
    if len(values) == 0:
        return False
    if isinstance(values, Bits):
        return values.count() in (0, len(values))
    if isinstance(values, BinaryValues):
        return _is_constant_binary(values)
    return is_constant_array(values)


def is_constant_array(values: np.ndarray) -> bool:
    """Whether all values of a non-empty array of any fixed width equal the first, bit by bit."""
    width = values.dtype.itemsize
    if width in _UNSIGNED:
        bits = values.view(_UNSIGNED[width])
        # The ends first: most columns that vary are told by two values.
        return bool(bits[0] == bits[-1]) and bool((bits == bits[0]).all())
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    return bool((rows[0] == rows[-1]).all()) and bool((rows == rows[0]).all())


def _is_constant_binary(values: BinaryValues) -> bool:
    offsets = values.offsets
    length, count = int(offsets[1]), len(values)
    if int(offsets[-1]) != length * count or not bool((np.diff(offsets) == length).all()):
        return False
    rows = values.data[: length * count].reshape(count, length)
    if length == 0:
        return True
    # The ends first: most columns that vary are told by two values.
    return bool((rows[0] == rows[-1]).all()) and bool((rows == rows[0]).all())


def set_bits(out: np.ndarray, start: int, count: int) -> None:
    """Set ``count`` bits of ``out`` (``uint8``) from bit ``start`` on."""
    stop = start + count
    if count <= 0:
        return
    first, last = start // 8, (stop - 1) // 8
    head = (0xFF << (start % 8)) & 0xFF
    tail = 0xFF >> (7 - (stop - 1) % 8)
    if first == last:
        out[first] |= head & tail
        return
    out[first] |= head
    out[first + 1 : last] = 0xFF
    out[last] |= tail
