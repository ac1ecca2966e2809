"""LZ4: a node compressed as one LZ4 block."""

from __future__ import annotations

from fermion.encodings.compressed import CompressedNode
from fermion.layout import Codec, EncodingId


class Lz4Node(CompressedNode):
    """Any node, as one LZ4 block."""

    id = EncodingId.LZ4
    name = "lz4"
    codec = Codec.LZ4
