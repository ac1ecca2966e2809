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
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fermion.columns.types import PhysicalType, Values
from fermion.encodings.encoding import (
    Buffer,
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
from fermion.exports import LoadedWhenAskedFor
from fermion.layout import Codec, EncodingId

if TYPE_CHECKING:
    import pcodec
    from pcodec import wrapped
else:
    wrapped = LoadedWhenAskedFor("pcodec.wrapped")
    pcodec = LoadedWhenAskedFor("pcodec")

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
    name = "pcodec"

    def holds(self, physical: PhysicalType) -> bool:
        """See `Encoding.holds`; wide integers through NARROW."""
        return physical.is_number or is_narrow(physical)

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return narrowed(Recipe(self.id), physical)

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for anything but numbers, and for no values at all."""
        if not isinstance(values, np.ndarray) or values.dtype.str[1:] not in _NAMES:
            raise InvalidArgumentError("encoding pcodec can only hold numbers")
        if not len(values):
            raise InvalidArgumentError("encoding pcodec cannot hold an empty page")
        return node_parts(self.id, node_body(values, settings.block_slots))

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        """See `Encoding.read_fixed`; decodes only the blocks that hold the slots.

        Of slots that lie apart it decodes in each block what lies before them.
        """
        blocks = _Blocks(node, count, out.dtype)
        if not isinstance(slots, range):
            _pick(blocks, slots, out)
            return
        size, start, stop = blocks.size, slots.start, slots.stop
        for block in range(start // size, (stop - 1) // size + 1):
            low = block * size
            high = min(low + size, count)
            if start <= low and high <= stop:
                blocks.read(block, out[low - start : high - start])
                continue
            first, last = max(start, low), min(stop, high)
            part = blocks.prefix(block, last - low)
            out[first - start : last - start] = part[first - low : last - low]


def _pick(blocks: _Blocks, slots: np.ndarray, out: np.ndarray) -> None:
    last = int(slots[-1])
    if last < blocks.size:  # as in all pages of a wide file
        out[:] = blocks.prefix(0, last + 1)[slots]
        return
    numbers = slots // blocks.size
    places = slots - numbers * blocks.size
    firsts = np.concatenate(([0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1))
    lasts = np.append(firsts[1:], len(slots))
    wanted = places[lasts - 1] + 1
    touched = (each.tolist() for each in (numbers[firsts], wanted, firsts, lasts))
    for block, stop, first, last in zip(*touched, strict=True):
        out[first:last] = blocks.prefix(block, stop)[places[first:last]]


class _Blocks:
    """The blocks of a node.

    size: Values of a block but the last.
    """

    def __init__(self, node: Node, count: int, dtype: np.dtype) -> None:
        self.size, meta_length = node.unpack(_PARAMETERS)
        if self.size == 0:
            raise InvalidFileError("pcodec node: expected blocks of at least 1 value, found 0")
        at = node.start + _PARAMETERS.size
        ends = node.array("<u4", -(-count // self.size), at)
        self._ends = ends.tolist()
        at += ends.nbytes
        node.check(at, meta_length)
        self._node, self._base, self._count = node, at + meta_length, count
        self._decompressor, self._dtype = _open(bytes(node.buffer[at : self._base]), dtype), dtype

    def read(self, block: int, out: np.ndarray) -> None:
        """All values of a block; or as many whole batches, counted from its start."""
        base, node = self._base, self._node
        low, high = self._ends[block - 1] if block else 0, self._ends[block]
        if high < low or base + high > node.stop:
            raise InvalidFileError(
                f"pcodec node: expected block ends from {low} to {node.stop - base}, found {high}"
            )
        slots = min(self.size, self._count - block * self.size)
        _read_block(self._decompressor, bytes(node.buffer[base + low : base + high]), slots, out)

    def prefix(self, block: int, wanted: int) -> np.ndarray:
        """At least the first ``wanted`` values of a block, and no batch more; a new array."""
        slots = min(self.size, self._count - block * self.size)
        batches = -(-wanted // _BATCH_VALUES) * _BATCH_VALUES
        part = np.empty(min(slots, batches), self._dtype)
        self.read(block, part)
        return part


def node_body(values: np.ndarray, block_slots: int) -> list[Buffer]:
    """What a node of numbers has after its header; fails where that passes 4 GiB."""
    meta, blocks = compress_blocks(values, block_slots)
    ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
    if ends[-1] > 0xFFFF_FFFF:
        raise InvalidArgumentError("a page that passes 4 GiB; use smaller pages")
    return [_PARAMETERS.pack(block_slots, len(meta)), ends.astype("<u4"), meta, *blocks]


def compress_blocks(
    values: np.ndarray, block_slots: int, *, level: int | None = None
) -> tuple[bytes, list[bytes]]:
    """Numbers as pcodec metadata (file header included) and one compressed page a block.

    level: pcodec's effort, 0 to 12; None: what suits the number of values.
    """
    count = len(values)
    full, rest = divmod(count, block_slots)
    if level is None:
        level = LEVEL if count > _FEW_VALUES else _LEVEL_OF_FEW
    config = pcodec.ChunkConfig(
        compression_level=level,
        paging_spec=pcodec.PagingSpec.exact_page_sizes([block_slots] * full + [rest] * (rest > 0)),
        enable_8_bit=True,
    )
    file = wrapped.FileCompressor()
    chunk = file.chunk_compressor(np.ascontiguousarray(values), config)
    meta = file.write_header() + chunk.write_meta()
    return meta, [chunk.write_page(block) for block in range(full + (rest > 0))]


@cache
def _file_decompressor() -> type[wrapped.FileDecompressor]:
    return wrapped.FileDecompressor


def _open(meta: bytes, dtype: np.dtype) -> wrapped.ChunkDecompressor:
    name = _NAMES.get(dtype.str[1:])
    if name is None:
        raise InvalidFileError(f"pcodec node cannot hold values of type {dtype}")
    try:
        file, header_length = _file_decompressor().new(meta)
        chunk, _ = file.chunk_decompressor(meta[header_length:], name)
    except BaseException as error:
        raise _mapped(error) from error
    return chunk


def _read_block(
    decompressor: wrapped.ChunkDecompressor, data: bytes, slots: int, out: np.ndarray
) -> None:
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
