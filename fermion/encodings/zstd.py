"""ZSTD: a node compressed as one zstd frame."""

from __future__ import annotations

from fermion.encodings.compressed import CompressedNode
from fermion.layout import Codec, EncodingId


class ZstdNode(CompressedNode):
    """Any node, as one zstd frame."""

    id = EncodingId.ZSTD
    name = "zstd"
    codec = Codec.ZSTD
