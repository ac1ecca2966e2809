"""FSST: strings as codes of one byte, each for a symbol of up to 8 bytes that occurs often.

After Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression", VLDB 2020.

====== =========== ============ ========================================================
offset size        name         meaning
====== =========== ============ ========================================================
0      4           block_slots  values of a block; the last block holds the rest
4      1           symbols      0 to 255
5      1           length_width bytes of a length in child 0: 1, 2 or 4
6      2           reserved     0
8      4 * blocks  code_ends    codes up to the end of each block
...    symbols     sizes        bytes of each symbol, 1 to 8
...    sum(sizes)  symbol_bytes the symbols, one after the other
...    ...         codes        of all values, one after the other
====== =========== ============ ========================================================

Zero padding to 8 bytes, then child 0: the values' lengths, unsigned integers. A code below
``symbols`` stands for that symbol; 255 for the byte that follows it. Values share no codes, so a
slot is found from its block's first code on.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, PhysicalKind, PhysicalType, Values
from fermion.encodings.encoding import (
    FOR_BITPACK,
    BinaryPlan,
    Buffer,
    Child,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Node,
    Recipe,
    Slots,
    bounds_of,
    node_parts,
)
from fermion.encodings.unsigned import UNSIGNED, narrowest, unsigned_dtype
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import NamedTuple
from fermion.layout import Codec, EncodingId, align

_PARAMETERS = struct.Struct("<IBB2x")
_BYTES_MAX = 0x7FFF_FFFF  # codes are up to twice as many, and have ends of 4 bytes
_SYMBOL_BYTES_MAX = 8
_BLOCK_SLOTS_MAX = 1024
# A page that earlier symbols make larger than this, beside what they were trained on, gets its own.
_DRIFT_MAX = 1.05
# Runs of a sample: one for so many bytes, but training costs more than it gains beyond a bound.
_SAMPLE_BYTES_PER_RUN = 16 * 1024
_SAMPLE_RUNS_MIN = 8
_SAMPLE_RUNS_MAX = 32
_SAMPLE_RUN_BYTES = 1024


class Fsst(Encoding):
    """Bytes through a page's own table of symbols, lengths through a child."""

    id = EncodingId.FSST
    name = "fsst"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.kind is PhysicalKind.BINARY

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (FOR_BITPACK,))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; ``recipe`` has a child for the lengths."""
        if not isinstance(values, BinaryValues):
            raise InvalidArgumentError("encoding fsst can only hold strings and binary")
        total = int(values.offsets[-1])
        if total > _BYTES_MAX:
            raise InvalidArgumentError(
                f"encoding fsst cannot hold a page of {total} bytes: expected at most {_BYTES_MAX}"
            )
        (sizes, symbols), codes, ends = _encode_page(values, settings.learnt)
        block = _block_slots(values, settings.symbols_bytes)
        code_ends = ends[np.minimum(np.arange(block, len(ends) + block, block), len(ends)) - 1]
        lengths = narrowest(values.lengths)
        width = lengths.dtype.itemsize
        parameters = _PARAMETERS.pack(block, len(sizes), width)
        child = settings.encode(lengths, UNSIGNED[width], recipe.children[0])
        return node_parts(
            self.id, [parameters, code_ends.astype("<u4"), sizes, symbols, codes], [child]
        )

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        """See `Encoding.plan_binary`; decodes of each block that holds some what lies before."""
        layout = _Layout(node, count)
        start, stop = bounds_of(slots)
        first, codes = layout.codes_of(start, stop)
        lengths = context.numbers(layout.child, count, range(first, stop), layout.length_dtype)
        if not isinstance(slots, range):
            code_ends = layout.code_ends(first, stop)
            return _picked(layout, codes, code_ends, lengths, slots - first, offsets)
        skip = int(lengths[: start - first].sum(dtype=np.int64))
        total = kernels.lengths_to_offsets(lengths[start - first :], offsets)
        _check_lengths(skip + total, codes)

        def fill(out: np.ndarray, base: int) -> None:
            used = kernels.fsst_decode(
                codes, layout.sizes, layout.symbols, skip, out[base : base + total]
            )
            if layout.ends_block(stop) and used != len(codes):
                raise InvalidFileError(
                    f"fsst node: expected {len(codes)} bytes of codes, found values in {used}"
                )

        return BinaryPlan(total, fill=fill)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("lengths", _Layout(node, count).child, count)]


class _Layout:
    """Where the parts of a node lie.

    block: Values of a block but the last.
    sizes, symbols: ``uint8``: the bytes of each symbol; the symbols.
    """

    def __init__(self, node: Node, count: int) -> None:
        node.expect_children(1)
        self.block, symbols, width = node.unpack(_PARAMETERS)
        if not self.block:
            raise InvalidFileError("fsst node: expected blocks of at least 1 value, found 0")
        self._count = count
        self.length_dtype = unsigned_dtype(width)
        at = node.start + _PARAMETERS.size
        self._ends = node.array("<u4", -(-count // self.block), at)
        at += self._ends.nbytes
        self.sizes = node.array(np.uint8, symbols, at)
        at += symbols
        self.symbols = node.array(np.uint8, int(self.sizes.sum(dtype=np.int64)), at)
        at += self.symbols.nbytes
        self._codes = node.array(np.uint8, int(self._ends[-1]) if count else 0, at)
        at += self._codes.nbytes
        self.child = node.child(node.start + align(at - node.start))

    def codes_of(self, start: int, stop: int) -> tuple[int, np.ndarray]:
        """The first slot of the blocks that hold slots ``start`` to ``stop``, and their codes."""
        first, last = start // self.block, (stop - 1) // self.block
        begin = int(self._ends[first - 1]) if first else 0
        end = int(self._ends[last])
        if not begin <= end <= len(self._codes):
            raise InvalidFileError(
                f"fsst node: blocks {first} to {last} have codes {begin} to {end} "
                f"of {len(self._codes)}"
            )
        return first * self.block, self._codes[begin:end]

    def code_ends(self, first: int, stop: int) -> np.ndarray:
        """Where the codes of each block of slots ``first`` to ``stop`` end: int64, from its 0."""
        low, high = first // self.block, (stop - 1) // self.block + 1
        ends = self._ends[low:high].astype(np.int64)
        return ends - int(self._ends[low - 1]) if low else ends

    def ends_block(self, stop: int) -> bool:
        """Whether a block ends at this slot."""
        return stop == self._count or stop % self.block == 0


def _picked(
    layout: _Layout,
    codes: np.ndarray,
    code_ends: np.ndarray,
    lengths: np.ndarray,
    places: np.ndarray,
    offsets: np.ndarray,
) -> BinaryPlan:
    """Some of the values that have these codes and lengths."""
    bounds = np.empty(len(lengths) + 1, np.int64)
    _check_lengths(kernels.lengths_to_offsets(lengths, bounds), codes)
    total = kernels.lengths_to_offsets(lengths[places], offsets)
    block, sizes, symbols = layout.block, layout.sizes, layout.symbols

    def fill(out: np.ndarray, base: int) -> None:
        to = out[base : base + total]
        kernels.fsst_pick(codes, code_ends, block, bounds, sizes, symbols, places, to)

    return BinaryPlan(total, fill=fill)


def _check_lengths(total: int, codes: np.ndarray) -> None:
    """Refuse lengths of more bytes than so many codes can stand for."""
    if total > _SYMBOL_BYTES_MAX * len(codes):
        raise InvalidFileError(
            f"fsst node: expected at most {_SYMBOL_BYTES_MAX * len(codes)} bytes of "
            f"{len(codes)} codes, found lengths of {total}"
        )


class Learnt(NamedTuple):
    """Symbols of an earlier page of the chunk, or of a trial, and its codes over its bytes."""

    table: tuple[np.ndarray, np.ndarray]
    ratio: float

    @property
    def table_bytes(self) -> int:
        """Bytes of the symbols as a page stores them."""
        return self.table[0].nbytes + self.table[1].nbytes


def _encode_page(
    values: BinaryValues, learnt: dict[EncodingId, Any] | None
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """The symbols of a page, its codes, and where those of each value end.

    An earlier page's symbols serve as long as they make the page about as small as that one.
    """
    total = int(values.offsets[-1])
    known: Learnt | None = learnt.get(EncodingId.FSST) if learnt else None
    if known is not None:
        codes, ends = _encode_bytes(values, *known.table)
        if len(codes) <= _DRIFT_MAX * known.ratio * total:
            return known.table, codes, ends
    table = train_symbols(values)
    codes, ends = _encode_bytes(values, *table)
    if learnt is not None:
        learnt[EncodingId.FSST] = Learnt(table, len(codes) / max(total, 1))
    return table, codes, ends


def train_symbols(values: BinaryValues) -> tuple[np.ndarray, np.ndarray]:
    """Symbols for these strings: the bytes of each, and all their bytes; ``uint8`` both."""
    sample = sample_of(values)
    return kernels.fsst_train(sample.offsets, sample.data)


def learn(values: BinaryValues) -> Learnt:
    """Symbols for these strings, and what they make of them."""
    table = train_symbols(values)
    codes, _ = _encode_bytes(values, *table)
    return Learnt(table, len(codes) / max(int(values.offsets[-1]), 1))


def _encode_bytes(
    values: BinaryValues, sizes: np.ndarray, symbols: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The codes, ``uint8``, and where those of each value end."""
    out = np.empty(2 * int(values.offsets[-1]), np.uint8)
    ends = np.empty(len(values), np.int64)
    used = kernels.fsst_encode(values.offsets, values.data, sizes, symbols, out, ends)
    return out[:used], ends


def _block_slots(values: BinaryValues, block_bytes: int) -> int:
    """Values whose bytes are about a block: a power of 2."""
    wanted = block_bytes * len(values) // max(int(values.offsets[-1]), 1)
    return 1 << min(max(wanted, 1), _BLOCK_SLOTS_MAX).bit_length() - 1


def sample_of(values: BinaryValues) -> BinaryValues:
    """All of a few strings; of more bytes 8 to 32 runs of 1 KiB, spread evenly: always the same.

    A run may begin and end within a value, however long that is.
    """
    total, run = int(values.offsets[-1]), _SAMPLE_RUN_BYTES
    runs = min(max(total // _SAMPLE_BYTES_PER_RUN, _SAMPLE_RUNS_MIN), _SAMPLE_RUNS_MAX)
    if total <= 2 * runs * run:
        return values
    offsets, parts = [np.zeros(1, np.int64)], []
    starts = (np.arange(runs) * (total - run) // (runs - 1)).tolist()
    for number, start in enumerate(starts):
        low, high = values.offsets.searchsorted((start, start + run), "right").tolist()
        ends = np.append(values.offsets[low:high], start + run)
        offsets.append(ends - start + number * run)
        parts.append(values.data[start : start + run])
    return BinaryValues(np.concatenate(offsets), np.concatenate(parts))
