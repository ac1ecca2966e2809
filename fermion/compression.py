"""zstd over bytes: contexts kept per thread, decompressed sizes checked before allocating."""

from __future__ import annotations

import threading
from typing import Any

import zstandard

from fermion.errors import InvalidFileError

Buffer = Any
"""Anything that gives bytes without copying; typing has no name for it before Python 3.12."""

LEVEL_MIN = -7
LEVEL_MAX = 19


class _Contexts(threading.local):
    """The zstd contexts of one thread: making one costs more than compressing a small page."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(data: Buffer, level: int) -> bytes:
    """Compress into one zstd frame that records its content size.

    Parameters
    ----------
    data
        Contiguous bytes.
    level
        zstd level, clamped to ``LEVEL_MIN`` to ``LEVEL_MAX``: higher ones need windows that
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

    Parameters
    ----------
    data
        One frame; with ``padded``, bytes after its end are ignored.
    raw_length
        Bytes expected.
    where
        Prefix of the error message, such as the file's name.

    Raises
    ------
    InvalidFileError
        The frame is damaged, or holds another number of bytes.
    """
    prefix = f"{where}: " if where else ""
    frame = memoryview(data)
    try:
        stored = zstandard.frame_content_size(frame)
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
