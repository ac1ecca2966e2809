"""zstd and LZ4 over bytes: contexts kept per thread, sizes checked before allocating."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor
from fermion.layout import Codec

if TYPE_CHECKING:
    import zstandard
else:
    zstandard = LoadedWhenAskedFor("zstandard")

Buffer = Any
"""Anything that gives bytes without copying; typing has no name for it before Python 3.12."""

LEVEL_MIN = -7
LEVEL_MAX = 19
LZ4_LEVEL_MAX = 12
PACKED_BYTES_MAX = 0x7E00_0000
"""LZ4's own limit for a block, kept for zstd too."""
_LZ4_EXPANSION_MAX = 255


class _Contexts(threading.local):
    """The zstd contexts of one thread: making one costs more than compressing a small page."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()
        self.content_size = zstandard.frame_content_size
        self.lz4: dict[int, pa.Codec] = {}


_contexts = _Contexts()


def compress(data: Buffer, level: int) -> bytes:
    """Compress into one zstd frame that records its content size.

    data: Contiguous bytes.
    level: zstd level, clamped to ``LEVEL_MIN`` to ``LEVEL_MAX``: higher ones need windows that
        readers may refuse.
    """
    level = min(max(level, LEVEL_MIN), LEVEL_MAX)
    compressor = _contexts.compressors.get(level)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(
            level=level, write_content_size=True, write_checksum=False
        )
        _contexts.compressors[level] = compressor
    return compressor.compress(memoryview(data))


def decompress(data: Buffer, raw_length: int, *, padded: bool = False, where: str = "") -> bytes:
    """Decompress one zstd frame that must hold exactly ``raw_length`` bytes.

    The size recorded in the frame is compared first, so that nothing larger than
    ``raw_length`` is ever allocated: callers bound ``raw_length``.

    data: One frame; with ``padded``, bytes after its end are ignored.
    raw_length: Bytes expected.
    where: Prefix of the error message, such as the file's name.
    Raises InvalidFileError: The frame is damaged, or holds another number of bytes.
    """
    prefix = f"{where}: " if where else ""
    frame = memoryview(data)
    try:
        stored = _contexts.content_size(frame)
        if stored != raw_length:
            raise InvalidFileError(
                f"{prefix}zstd frame: expected {raw_length} bytes of content, found {stored}"
            )
        raw = _contexts.decompressor.decompress(frame, raw_length, allow_extra_data=padded)
    except zstandard.ZstdError as error:
        raise InvalidFileError(f"{prefix}zstd frame: {error}") from error
    if len(raw) != raw_length:
        raise InvalidFileError(
            f"{prefix}zstd frame: expected {raw_length} bytes of content, found {len(raw)}"
        )
    return raw


def decompress_padded(frame: memoryview, raw_length: int) -> bytes:
    """`decompress` of a frame that padding may follow, as kernels call it."""
    return decompress(frame, raw_length, padded=True)


def pack(codec: Codec, data: Buffer, level: int) -> bytes:
    """Compress as a codec of pages and of pieces does: one zstd frame, or one LZ4 block.

    data: Contiguous bytes.
    level: zstd level, or LZ4's, both clamped to what the codec has.
    Raises InvalidArgumentError: More than ``PACKED_BYTES_MAX`` bytes.
    """
    size = memoryview(data).nbytes
    if size > PACKED_BYTES_MAX:
        raise InvalidArgumentError(
            f"{codec.name.lower()} cannot hold {size} bytes: expected at most {PACKED_BYTES_MAX}"
        )
    if codec is Codec.ZSTD:
        return compress(data, level)
    level = min(max(level, 1), LZ4_LEVEL_MAX)
    compressor = _contexts.lz4.get(level)
    if compressor is None:
        compressor = pa.Codec("lz4_raw", compression_level=level)
        _contexts.lz4[level] = compressor
    return compressor.compress(pa.py_buffer(data), asbytes=True)


def unpack(
    codec: int, data: Buffer, raw_length: int, *, padded: bool = False
) -> bytes | memoryview:
    """Undo `pack`; see `decompress` for the parameters.

    Raises InvalidFileError: The data are damaged, or hold another number of bytes.
    """
    if codec == Codec.ZSTD:
        return decompress(data, raw_length, padded=padded)
    block = np.frombuffer(data, np.uint8)
    if raw_length > _LZ4_EXPANSION_MAX * len(block):
        raise InvalidFileError(
            f"lz4 block: expected {raw_length} bytes, which {len(block)} bytes cannot hold"
        )
    out = np.empty(raw_length, np.uint8)
    try:
        used = kernels.lz4_decode(block, out)
    except ValueError as error:
        raise InvalidFileError(f"lz4 block: {error}") from error
    if used != len(block) and not padded:
        raise InvalidFileError(f"lz4 block: expected {len(block)} bytes, found {used}")
    return out.data
