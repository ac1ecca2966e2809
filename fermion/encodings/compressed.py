"""A node that holds another one compressed: what ZSTD and LZ4 have in common.

Parameters: the node's length (``uint64``, header included), then what the codec made of that
node. ``numChildren`` is 1.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion.columns.types import PhysicalType, Values
from fermion.encodings.encoding import (
    PLAIN,
    BinaryPlan,
    Buffer,
    Child,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Node,
    Recipe,
    Slots,
    node_parts,
    parse_node,
    plain_recipe,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.io.compression import pack, unpack
from fermion.layout import Codec, EncodingId

_LENGTH = struct.Struct("<Q")
_CHILD_BYTES_MAX = 64 * 1024 * 1024
CODECS: dict[int, Codec] = {EncodingId.ZSTD: Codec.ZSTD, EncodingId.LZ4: Codec.LZ4}
_IDS = {codec: number for number, codec in CODECS.items()}


class CompressedNode(Encoding):
    """Any node, compressed; a subclass names the codec."""

    codec: Codec

    def holds(self, physical: PhysicalType) -> bool:
        return True

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (plain_recipe(physical),))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for nodes larger than 64 MiB, which readers may refuse."""
        raw = b"".join(settings.encode(values, physical, recipe.children[0]))
        if len(raw) > _CHILD_BYTES_MAX:
            raise InvalidArgumentError(
                f"encoding {self.name} cannot hold a page of {len(raw)} bytes: "
                f"expected at most {_CHILD_BYTES_MAX}"
            )
        frame = pack(self.codec, raw, settings.level)
        return node_parts(self.id, [_LENGTH.pack(len(raw)), frame], num_children=1)

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        child = self.open_child(node, context)
        context.encoding(child).read_fixed(child, count, slots, out, context)

    def read_bits(
        self,
        node: Node,
        count: int,
        slots: range,
        out: np.ndarray,
        bit: int,
        context: DecodeContext,
    ) -> None:
        child = self.open_child(node, context)
        context.encoding(child).read_bits(child, count, slots, out, bit, context)

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        child = self.open_child(node, context)
        return context.encoding(child).plan_binary(child, count, slots, offsets, context)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("content", self.open_child(node, context), count)]

    def open_child(self, node: Node, context: DecodeContext) -> Node:
        """Decompress the node within.

        Raises InvalidFileError: It is larger than the context allows, damaged, or not exactly one
            node.
        """
        node.expect_children(1)
        (raw_length,) = node.unpack(_LENGTH)
        context.check_output(raw_length)
        packed = memoryview(node.buffer)[node.start + _LENGTH.size : node.stop]
        raw = unpack(self.codec, packed, raw_length, padded=True)
        child = parse_node(raw, 0, raw_length, node.depth + 1)
        if child.stop != raw_length:
            raise InvalidFileError(
                f"{self.name} node: expected a node of {raw_length} bytes, found {child.stop}"
            )
        return child


def packed_recipe(codec: Codec, recipe: Recipe = PLAIN) -> Recipe:
    """The recipe of a node that holds another one compressed."""
    return Recipe(_IDS[codec], (recipe,))


class Lz4Node(CompressedNode):
    """Any node, as one LZ4 block."""

    id = EncodingId.LZ4
    name = "lz4"
    codec = Codec.LZ4


class ZstdNode(CompressedNode):
    """Any node, as one zstd frame."""

    id = EncodingId.ZSTD
    name = "zstd"
    codec = Codec.ZSTD
