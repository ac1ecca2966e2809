"""Physical values: what the data of one stream is once Arrow's logical types are taken off.

A stream's values have one of three shapes, chosen by its `PhysicalType`:

- numbers and fixed-width bytes: a contiguous 1-D ``np.ndarray`` of ``PhysicalType.dtype``
  (``V{width}`` for fixed-width bytes and for decimals of 128 and 256 bits);
- booleans and validity: `Bits`, packed least significant bit first, as Arrow packs them;
- strings and binary: `BinaryValues`, Arrow's offsets and bytes, starting at 0.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fermion import kernels


class PhysicalKind(enum.IntEnum):
    """What one value of a stream is."""

    BITS = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    FIXED = 12
    BINARY = 13


_DTYPES = {
    PhysicalKind.INT8: "<i1",
    PhysicalKind.INT16: "<i2",
    PhysicalKind.INT32: "<i4",
    PhysicalKind.INT64: "<i8",
    PhysicalKind.UINT8: "<u1",
    PhysicalKind.UINT16: "<u2",
    PhysicalKind.UINT32: "<u4",
    PhysicalKind.UINT64: "<u8",
    PhysicalKind.FLOAT16: "<f2",
    PhysicalKind.FLOAT32: "<f4",
    PhysicalKind.FLOAT64: "<f8",
}


@dataclass(frozen=True, slots=True)
class PhysicalType:
    """The physical type of a stream: a kind, and the bytes of one value where that is fixed."""

    kind: PhysicalKind
    width: int = 0

    @property
    def is_integer(self) -> bool:
        """Whether values are integers, signed or not."""
        return PhysicalKind.INT8 <= self.kind <= PhysicalKind.UINT64

    @property
    def is_number(self) -> bool:
        """Whether values are integers or floats."""
        return PhysicalKind.INT8 <= self.kind <= PhysicalKind.FLOAT64

    @property
    def is_fixed_width(self) -> bool:
        """Whether values are numbers or bytes of a fixed width, so neither bits nor strings."""
        return PhysicalKind.INT8 <= self.kind <= PhysicalKind.FIXED

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype of the values' array; ``uint8`` for bits and binary."""
        if self.kind is PhysicalKind.FIXED:
            return np.dtype(f"V{self.width}") if self.width else np.dtype("V1")
        return np.dtype(_DTYPES.get(self.kind, "<u1"))


def number(kind: PhysicalKind) -> PhysicalType:
    """The physical type of a number of this kind."""
    return PhysicalType(kind, np.dtype(_DTYPES[kind]).itemsize)


BITS = PhysicalType(PhysicalKind.BITS)
BINARY = PhysicalType(PhysicalKind.BINARY)
INT32 = number(PhysicalKind.INT32)
INT64 = number(PhysicalKind.INT64)
UINT32 = number(PhysicalKind.UINT32)


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """Packed booleans, least significant bit first, bit 0 of byte 0 is slot 0.

    Attributes
    ----------
    data
        ``uint8``, at least ``ceil(length / 8)`` long; bits from ``length`` on are unspecified.
    length
        Slots.
    """

    data: np.ndarray
    length: int

    def __len__(self) -> int:
        return self.length

    @classmethod
    def pack(cls, flags: np.ndarray) -> Bits:
        """Pack a boolean array, shape (n,); a copy."""
        return cls(np.packbits(np.asarray(flags, dtype=bool), bitorder="little"), len(flags))

    def unpack(self) -> np.ndarray:
        """The bits as a boolean array, shape (length,); a copy."""
        return np.unpackbits(self.data, count=self.length, bitorder="little").view(bool)

    def count(self) -> int:
        """How many bits are set."""
        return kernels.count_bits(self.data, 0, self.length)


@dataclass(frozen=True, slots=True, eq=False)
class BinaryValues:
    """Strings or binary: value i is ``data[offsets[i]:offsets[i + 1]]``.

    Attributes
    ----------
    offsets
        ``int64``, shape (n + 1,), starting at 0, never decreasing.
    data
        ``uint8``, shape (offsets[-1],).
    """

    offsets: np.ndarray
    data: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """``int64``, shape (n,): bytes of each value; a copy."""
        return np.diff(self.offsets)

    def take(self, indices: np.ndarray) -> BinaryValues:
        """The values with some indices; a copy."""
        codes = indices.astype(np.uint32)
        offsets = np.empty(len(codes) + 1, np.int64)
        total = kernels.gather_binary(self.offsets, self.data, codes, offsets)
        data = np.empty(total, np.uint8)
        kernels.gather_binary_data(self.offsets, self.data, codes, offsets, data)
        return BinaryValues(offsets, data)


Values = np.ndarray | Bits | BinaryValues


def slots_bytes(physical: PhysicalType, slots: int) -> int:
    """Bytes that slots take in memory: values of a fixed width, or the offsets of strings."""
    if physical.kind is PhysicalKind.BITS:
        return (slots + 7) // 8
    width = 8 if physical.kind is PhysicalKind.BINARY else physical.dtype.itemsize
    return width * slots


def empty(physical: PhysicalType) -> Values:
    """No values of this type."""
    if physical.kind is PhysicalKind.BITS:
        return Bits(np.empty(0, np.uint8), 0)
    if physical.kind is PhysicalKind.BINARY:
        return BinaryValues(np.zeros(1, np.int64), np.empty(0, np.uint8))
    return np.empty(0, physical.dtype)


def slice_values(values: Values, start: int, stop: int) -> Values:
    """Slots ``start`` to ``stop`` (exclusive); a view, but for bits that start inside a byte."""
    if isinstance(values, Bits):
        if start % 8 == 0:
            return Bits(values.data[start // 8 : (stop + 7) // 8], stop - start)
        out = np.zeros((stop - start + 7) // 8, np.uint8)
        kernels.copy_bits(values.data, start, out, 0, stop - start)
        return Bits(out, stop - start)
    if isinstance(values, BinaryValues):
        offsets = values.offsets[start : stop + 1]
        base = int(offsets[0])
        data = values.data[base : int(offsets[-1])]
        return BinaryValues(offsets - base if base else offsets, data)
    return values[start:stop]


def concatenate(parts: Sequence[Values], physical: PhysicalType) -> Values:
    """All slots of ``parts`` in order; the one part itself when there is only one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty(physical)
    if physical.kind is PhysicalKind.BITS:
        total = sum(len(part) for part in parts)
        out = np.zeros((total + 7) // 8, np.uint8)
        at = 0
        for part in parts:
            assert isinstance(part, Bits)
            kernels.copy_bits(part.data, 0, out, at, part.length)
            at += part.length
        return Bits(out, total)
    if physical.kind is PhysicalKind.BINARY:
        return _concatenate_binary([part for part in parts if isinstance(part, BinaryValues)])
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def _concatenate_binary(parts: Sequence[BinaryValues]) -> BinaryValues:
    offsets = np.empty(sum(len(part) for part in parts) + 1, np.int64)
    offsets[0] = 0
    at, base = 1, 0
    for part in parts:
        count = len(part)
        np.add(part.offsets[1:], base, out=offsets[at : at + count])
        at += count
        base += int(part.offsets[-1])
    return BinaryValues(offsets, np.concatenate([part.data[: part.offsets[-1]] for part in parts]))


@dataclass(slots=True)
class ColumnStreams:
    """Values of a column's streams, keyed by stream ordinal.

    A projected column holds only the ordinals it needs.

    Attributes
    ----------
    length
        Rows.
    slots
        Slots of each stream at its own level: list elements for a list's child.
    validity
        VALIDITY streams: `Bits` (1 = valid), ``None`` where every slot is valid, or ``False``
        where every slot is null.
    offsets
        OFFSETS streams: ``int64``, shape (slots + 1,), starting at 0.
    data
        DATA streams: physical values, one a slot. Slots that are null hold a filler (the previous
        valid value, or zero), never what the input hid there.
    """

    length: int
    slots: dict[int, int] = field(default_factory=dict)
    validity: dict[int, Bits | bool | None] = field(default_factory=dict)
    offsets: dict[int, np.ndarray] = field(default_factory=dict)
    data: dict[int, Values] = field(default_factory=dict)
