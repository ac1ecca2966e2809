"""DELTA: differences of neighbouring integers, restarted every block.

====== ============== =========== =====================================
offset size           name        meaning
====== ============== =========== =====================================
0      4              block_slots values of a block
4      1              width       bytes of a value: 1, 2, 4 or 8
5      3              reserved    0
8      width * blocks bases       the first value of each block
====== ============== =========== =====================================

Zero padding to 8 bytes, then child 0: the differences as signed integers of the same width,
modulo 2 to the power of its bits; that of a block's first slot is 0.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion.encodings.protocol import (
    Buffer,
    Child,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Node,
    Recipe,
    node_parts,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import EncodingId, align
from fermion.values import PhysicalKind, PhysicalType, Values, number

BLOCK_SLOTS = 1024

_PARAMETERS = struct.Struct("<IB3x")
_SIGNED = {
    1: number(PhysicalKind.INT8),
    2: number(PhysicalKind.INT16),
    4: number(PhysicalKind.INT32),
    8: number(PhysicalKind.INT64),
}


class Delta(Encoding):
    """Differences of integers; a slot is found from its block's first value."""

    id = EncodingId.DELTA

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for anything but integers."""
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            raise InvalidArgumentError("encoding delta can only hold integers")
        signed = _SIGNED[values.dtype.itemsize]
        differences = block_differences(values, BLOCK_SLOTS)
        return node_parts(
            self.id,
            [_PARAMETERS.pack(BLOCK_SLOTS, values.dtype.itemsize), values[::BLOCK_SLOTS].tobytes()],
            [settings.encode(differences, signed, recipe.children[0])],
        )

    def read_fixed(
        self, node: Node, count: int, start: int, stop: int, out: np.ndarray, context: DecodeContext
    ) -> None:
        """See `Encoding.read_fixed`; decodes only the blocks that hold the slots."""
        if out.dtype.kind not in "iu":
            raise self._mismatch(str(out.dtype))
        block, width, child = self._open(node, count)
        if width != out.dtype.itemsize:
            raise self._mismatch(str(out.dtype))
        unsigned = np.dtype(f"<u{width}")
        blocks = -(-count // block)
        bases = node.array(unsigned, blocks, node.start + _PARAMETERS.size)
        first, last = start // block, (stop - 1) // block + 1
        low, high = first * block, min(last * block, count)
        values = np.array(
            context.numbers(child, count, low, high, _SIGNED[width].dtype).view(unsigned)
        )
        values[::block] = bases[first:last]
        whole = (high - low) // block * block
        rows = values[:whole].reshape(-1, block)
        np.cumsum(rows, axis=1, dtype=unsigned, out=rows)
        np.cumsum(values[whole:], dtype=unsigned, out=values[whole:])
        out.view(unsigned)[:] = values[start - low : stop - low]

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        """See `Encoding.children`."""
        return [("differences", self._open(node, count)[2], count)]

    def _open(self, node: Node, count: int) -> tuple[int, int, Node]:
        node.expect_children(1)
        block, width = node.unpack(_PARAMETERS)
        if not block or width not in _SIGNED:
            raise InvalidFileError(
                f"delta node: expected blocks of integers, found {block} values of {width} bytes"
            )
        blocks = -(-count // block)
        return block, width, node.child(node.start + align(_PARAMETERS.size + blocks * width))


def block_differences(values: np.ndarray, block: int) -> np.ndarray:
    """Differences to the slot before, modulo 2 to the width, as signed integers of that width."""
    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"<u{width}")
    differences = np.empty(len(bits), bits.dtype)
    np.subtract(bits[1:], bits[:-1], out=differences[1:])
    differences[::block] = 0
    return differences.view(f"<i{width}")
