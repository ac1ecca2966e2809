"""BITMAP: booleans, one bit a slot, least significant bit first, unused bits zero."""

from __future__ import annotations

import numpy as np

from fermion import kernels
from fermion.columns.types import Bits, PhysicalKind, PhysicalType, Values
from fermion.encodings.encoding import (
    BITMAP,
    Buffer,
    Chooser,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Estimate,
    Node,
    Recipe,
    node_parts,
)
from fermion.errors import InvalidArgumentError
from fermion.layout import EncodingId


class Bitmap(Encoding):
    """Packed booleans."""

    id = EncodingId.BITMAP
    name = "bitmap"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.kind is PhysicalKind.BITS

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        assert isinstance(values, Bits)
        return Estimate(values.length / 8 + search.overhead, BITMAP)

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for anything but booleans."""
        if not isinstance(values, Bits):
            raise InvalidArgumentError("encoding bitmap can only hold booleans")
        full, rest = divmod(values.length, 8)
        parts: list[Buffer] = [np.ascontiguousarray(values.data[:full])]
        if rest:
            parts.append(bytes([int(values.data[full]) & ((1 << rest) - 1)]))
        return node_parts(self.id, parts)

    def view_bits(self, node: Node, count: int) -> np.ndarray | None:
        return node.array(np.uint8, (count + 7) // 8, node.start)

    def read_bits(
        self,
        node: Node,
        count: int,
        slots: range,
        out: np.ndarray,
        bit: int,
        context: DecodeContext,
    ) -> None:
        source = node.array(np.uint8, (count + 7) // 8, node.start)
        kernels.copy_bits(source, slots.start, out, bit, len(slots))
