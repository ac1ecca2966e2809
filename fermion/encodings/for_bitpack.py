"""FOR_BITPACK as a node: integers as `fermion.encodings.bitpack` lays them out."""

from __future__ import annotations

import numpy as np

from fermion.columns.types import PhysicalType, Values
from fermion.encodings import bitpack
from fermion.encodings.encoding import (
    FOR_BITPACK,
    Buffer,
    Chooser,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Estimate,
    Node,
    Recipe,
    Slots,
    node_parts,
)
from fermion.encodings.narrow import is_narrow, narrowed
from fermion.errors import InvalidArgumentError
from fermion.layout import Codec, EncodingId


class ForBitpack(Encoding):
    """Integers as frames of reference; blocks of 1,024 decode alone."""

    id = EncodingId.FOR_BITPACK
    name = "for_bitpack"

    def holds(self, physical: PhysicalType) -> bool:
        """See `Encoding.holds`; wide integers through NARROW."""
        return physical.is_integer or is_narrow(physical)

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return narrowed(FOR_BITPACK, physical)

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        if not physical.is_integer:
            return None
        assert isinstance(values, np.ndarray)
        return Estimate(bitpack.sampled_size(values) + search.overhead, FOR_BITPACK)

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for anything but integers."""
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            raise InvalidArgumentError("encoding for_bitpack can only hold integers")
        return node_parts(self.id, [bitpack.encode(values)])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        """See `Encoding.read_fixed`; decodes only the blocks that hold the slots."""
        if out.dtype.kind not in "iu":
            raise self._mismatch(str(out.dtype))
        payload = node.array(np.uint8, node.stop - node.start, node.start)
        if isinstance(slots, range):
            bitpack.decode(payload, out.dtype, count, slots.start, slots.stop, out)
        else:
            bitpack.pick(payload, count, slots, out)
