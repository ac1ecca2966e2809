"""BYTE_STREAM_SPLIT: first all values' byte 0, then all bytes 1, and so on.

Parameters: the width of a value (``uint32``), 4 zero bytes. Child 0: ``count * width`` bytes as
``uint8``. Makes zstd find what neighbouring floats and hashes share.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion import kernels
from fermion.columns.types import PhysicalType, Values
from fermion.encodings.compressed import packed_recipe
from fermion.encodings.encoding import (
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
from fermion.encodings.unsigned import UNSIGNED
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import Codec, EncodingId

_WIDTH = struct.Struct("<I4x")


class ByteStreamSplit(Encoding):
    """Transposed bytes of fixed-width values."""

    id = EncodingId.BYTE_STREAM_SPLIT
    name = "byte_stream_split"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.is_fixed_width

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (packed_recipe(codec),))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for booleans and strings."""
        if not isinstance(values, np.ndarray):
            raise InvalidArgumentError(
                "encoding byte_stream_split can only hold numbers and fixed-width values"
            )
        planes = split_bytes(values)
        child = settings.encode(planes, UNSIGNED[1], recipe.children[0])
        return node_parts(self.id, [_WIDTH.pack(values.dtype.itemsize)], [child])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        if not isinstance(slots, range):
            self.pick_of_run(node, count, slots, out, context)
            return
        width, child = self._open(node)
        if width != out.dtype.itemsize:
            raise InvalidFileError(
                f"byte_stream_split node: expected values of {out.dtype.itemsize} bytes, "
                f"found {width}"
            )
        context.check_output(count * width)
        planes = context.numbers(child, count * width, range(count * width), np.uint8)
        kernels.byte_stream_merge(planes, count, slots.start, slots.stop, out)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        width, child = self._open(node)
        return [("bytes", child, count * width)]

    def _open(self, node: Node) -> tuple[int, Node]:
        node.expect_children(1)
        (width,) = node.unpack(_WIDTH)
        return width, node.child(node.start + _WIDTH.size)


def split_bytes(values: np.ndarray) -> np.ndarray:
    """All bytes 0, then all bytes 1, and so on: ``uint8``, shape (count * width,)."""
    out = np.empty(values.nbytes, np.uint8)
    kernels.byte_stream_split(values, out)
    return out
