"""DELTA: differences of neighbouring integers, restarted every 1,024 values.

====== ============== ======== ========================================
offset size           name     meaning
====== ============== ======== ========================================
0      1              width    bytes of a value: 1, 2, 4 or 8
1      7              reserved 0
8      width * blocks bases    the first value of each block
====== ============== ======== ========================================

Zero padding to 8 bytes, then child 0: the differences as signed integers of the same width,
modulo 2 to the power of its bits. That of a block's first slot is ignored; writers repeat the
one after it there.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion import kernels
from fermion.columns.types import PhysicalKind, PhysicalType, Values, number
from fermion.encodings.encoding import (
    FOR_BITPACK,
    Buffer,
    Child,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Node,
    Recipe,
    Slots,
    node_parts,
)
from fermion.encodings.narrow import is_narrow, narrowed
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import Codec, EncodingId, align

BLOCK_SLOTS = 1024
DELTA_FOR = Recipe(EncodingId.DELTA, (FOR_BITPACK,))

_PARAMETERS = struct.Struct("<B7x")
_SIGNED = {
    1: number(PhysicalKind.INT8),
    2: number(PhysicalKind.INT16),
    4: number(PhysicalKind.INT32),
    8: number(PhysicalKind.INT64),
}


class Delta(Encoding):
    """Differences of integers; a slot is found from its block's first value."""

    id = EncodingId.DELTA
    name = "delta"

    def holds(self, physical: PhysicalType) -> bool:
        """See `Encoding.holds`; wide integers through NARROW."""
        return physical.is_integer or is_narrow(physical)

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return narrowed(DELTA_FOR, physical)

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for anything but integers."""
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            raise InvalidArgumentError("encoding delta can only hold integers")
        width = values.dtype.itemsize
        bases = np.empty(-(-len(values) // BLOCK_SLOTS), values.dtype)
        child = settings.encode(differences(values, bases), _SIGNED[width], recipe.children[0])
        return node_parts(self.id, [_PARAMETERS.pack(width), bases.tobytes()], [child])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        """See `Encoding.read_fixed`; decodes only the blocks that hold the slots."""
        width, blocks, child = self._open(node, count)
        if out.dtype.kind not in "iu" or width != out.dtype.itemsize:
            raise self._mismatch(str(out.dtype))
        bases, signed = node.array(out.dtype, blocks, node.start + _PARAMETERS.size), _SIGNED[width]
        if not isinstance(slots, range):
            numbers = slots // BLOCK_SLOTS
            held = numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]
            wanted = (held[:, None] * BLOCK_SLOTS + np.arange(BLOCK_SLOTS)).ravel()
            wanted = wanted[: np.searchsorted(wanted, count)]
            deltas = context.numbers(child, count, wanted, signed.dtype)
            values = np.empty(len(wanted), out.dtype)
            kernels.delta_decode(deltas.view(out.dtype), bases[held], values)
            places = np.searchsorted(held, numbers) * BLOCK_SLOTS + slots % BLOCK_SLOTS
            kernels.gather_fixed(values, places.astype(np.uint32), out)
            return
        first, last = slots.start // BLOCK_SLOTS, (slots.stop - 1) // BLOCK_SLOTS + 1
        low, high = first * BLOCK_SLOTS, min(last * BLOCK_SLOTS, count)
        deltas = context.numbers(child, count, range(low, high), signed.dtype).view(out.dtype)
        if low == slots.start and high == slots.stop:
            kernels.delta_decode(deltas, bases[first:last], out)
            return
        values = np.empty(high - low, out.dtype)
        kernels.delta_decode(deltas, bases[first:last], values)
        out[:] = values[slots.start - low : slots.stop - low]

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("differences", self._open(node, count)[2], count)]

    def _open(self, node: Node, count: int) -> tuple[int, int, Node]:
        """Width, blocks and child."""
        node.expect_children(1)
        (width,) = node.unpack(_PARAMETERS)
        if width not in _SIGNED:
            raise InvalidFileError(f"delta node: expected 1, 2, 4 or 8 bytes, found {width}")
        blocks = -(-count // BLOCK_SLOTS)
        return width, blocks, node.child(node.start + align(_PARAMETERS.size + blocks * width))


def differences(values: np.ndarray, bases: np.ndarray | None = None) -> np.ndarray:
    """Differences to the slot before as signed integers of the same width; ``bases`` is written."""
    out = np.empty(len(values), f"<i{values.dtype.itemsize}")
    if bases is None:
        bases = np.empty(-(-len(values) // BLOCK_SLOTS), values.dtype)
    kernels.delta_encode(values, out.view(values.dtype), bases)
    return out
