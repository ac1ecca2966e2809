"""PCODEC: numbers compressed by pcodec, in blocks that decode alone.

One page is one pcodec chunk in its wrapped format, cut into pcodec pages ("blocks"):

====== ========== ============== ====================================================
offset size       name           meaning
====== ========== ============== ====================================================
0      4          block_slots    values of a block; the last block may hold fewer
4      4          meta_length    bytes of pcodec's file header and chunk metadata
8      4 * blocks ends           end of each block, from the start of the first
...    meta       meta           pcodec's file header, then its chunk metadata
...    ...        blocks         pcodec pages
====== ========== ============== ====================================================
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
from pcodec import ChunkConfig, PagingSpec
from pcodec.wrapped import ChunkDecompressor, FileCompressor, FileDecompressor

from fermion.encodings.protocol import (
    Buffer,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Node,
    Recipe,
    node_parts,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import EncodingId
from fermion.values import PhysicalType, Values

_PARAMETERS = struct.Struct("<II")
# pcodec fills destinations shorter than a block only in whole batches of this many values.
_BATCH_VALUES = 256
LEVEL = 8
# Few values leave little to find: half the time, and at most 0.2 % more bytes.
_FEW_VALUES, _LEVEL_OF_FEW = 8192, 6
_NAMES = {
    "i1": "i8",
    "i2": "i16",
    "i4": "i32",
    "i8": "i64",
    "u1": "u8",
    "u2": "u16",
    "u4": "u32",
    "u8": "u64",
    "f2": "f16",
    "f4": "f32",
    "f8": "f64",
}


class PcodecBlocks(Encoding):
    """Numbers through pcodec; keeps every bit of floats."""

    id = EncodingId.PCODEC

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for anything but numbers, and for no values at all."""
        if not isinstance(values, np.ndarray) or values.dtype.str[1:] not in _NAMES:
            raise InvalidArgumentError("encoding pcodec can only hold numbers")
        if not len(values):
            raise InvalidArgumentError("encoding pcodec cannot hold an empty page")
        meta, blocks = compress_blocks(values, settings.block_slots)
        ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
        if ends[-1] > 0xFFFF_FFFF:
            raise InvalidArgumentError("a page that passes 4 GiB; use smaller pages")
        parameters = _PARAMETERS.pack(settings.block_slots, len(meta))
        return node_parts(self.id, [parameters, ends.astype("<u4"), meta, *blocks])

    def read_fixed(
        self, node: Node, count: int, start: int, stop: int, out: np.ndarray, context: DecodeContext
    ) -> None:
        """See `Encoding.read_fixed`; decodes only the blocks that hold the slots."""
        block_slots, meta_length = node.unpack(_PARAMETERS)
        if block_slots == 0:
            raise InvalidFileError("pcodec node: expected blocks of at least 1 value, found 0")
        blocks = -(-count // block_slots)
        at = node.start + _PARAMETERS.size
        ends = node.array("<u4", blocks, at)
        at += 4 * blocks
        node.check(at, meta_length)
        base = at + meta_length
        first, last = start // block_slots, (stop - 1) // block_slots
        positions = [0 if first == 0 else int(ends[first - 1]), *ends[first : last + 1].tolist()]
        _check_positions(positions, node, base)
        decompressor = _open(bytes(node.buffer[at:base]), out.dtype)
        buffer = node.buffer
        for block in range(first, last + 1):
            low = block * block_slots
            data = bytes(
                buffer[base + positions[block - first] : base + positions[block - first + 1]]
            )
            size = min(block_slots, count - low)
            if start <= low and low + size <= stop:
                _read_block(decompressor, data, size, out[low - start : low + size - start])
                continue
            wanted = min(size, stop - low)
            whole_batches = -(-wanted // _BATCH_VALUES) * _BATCH_VALUES
            part = np.empty(min(size, whole_batches), out.dtype)
            _read_block(decompressor, data, size, part)
            skip = max(start - low, 0)
            out[low + skip - start : low + wanted - start] = part[skip:wanted]


def compress_blocks(
    values: np.ndarray, block_slots: int, *, level: int | None = None
) -> tuple[bytes, list[bytes]]:
    """Numbers as pcodec metadata (file header included) and one compressed page a block.

    Parameters
    ----------
    level
        pcodec's effort, 0 to 12; None: what suits the number of values.
    """
    count = len(values)
    full, rest = divmod(count, block_slots)
    if level is None:
        level = LEVEL if count > _FEW_VALUES else _LEVEL_OF_FEW
    config = ChunkConfig(
        compression_level=level,
        paging_spec=PagingSpec.exact_page_sizes([block_slots] * full + [rest] * (rest > 0)),
        enable_8_bit=True,
    )
    file = FileCompressor()
    chunk = file.chunk_compressor(np.ascontiguousarray(values), config)
    meta = file.write_header() + chunk.write_meta()
    return meta, [chunk.write_page(block) for block in range(full + (rest > 0))]


def _check_positions(positions: list[int], node: Node, base: int) -> None:
    for low, high in pairwise(positions):
        if high < low or base + high > node.stop:
            raise InvalidFileError(
                f"pcodec node: expected block ends from {low} to {node.stop - base}, found {high}"
            )


def _open(meta: bytes, dtype: np.dtype) -> ChunkDecompressor:
    name = _NAMES.get(dtype.str[1:])
    if name is None:
        raise InvalidFileError(f"pcodec node cannot hold values of type {dtype}")
    try:
        file, header_length = FileDecompressor.new(meta)
        chunk, _ = file.chunk_decompressor(meta[header_length:], name)
    except BaseException as error:
        raise _mapped(error) from error
    return chunk


def _read_block(decompressor: ChunkDecompressor, data: bytes, slots: int, out: np.ndarray) -> None:
    try:
        progress, _ = decompressor.read_page_into(data, slots, out)
    except BaseException as error:
        raise _mapped(error) from error
    if progress.n_processed != len(out):
        raise InvalidFileError(
            f"pcodec node: expected {len(out)} values of a block, found {progress.n_processed}"
        )


def _mapped(error: BaseException) -> BaseException:
    """The error to raise for one that pcodec raised: interrupts and lack of memory stay."""
    if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit)):
        return error
    return InvalidFileError(f"pcodec node: {error}")
