"""SPLIT_LENGTHS: strings as their lengths and their bytes, apart.

====== ========== ============ ======================================================
offset size       name         meaning
====== ========== ============ ======================================================
0      4          frames       pieces that the bytes are cut into, at value bounds
4      1          codec        `Codec` of each piece
5      1          length_width bytes of a length in child 0: 1, 2 or 4
6      2          reserved     0
8      4 * frames slot_ends    slots up to the end of each piece
...    4 * frames raw_ends     bytes up to the end of each piece, decompressed
...    4 * frames stored_ends  the same as stored; with a codec only
...    ...        bytes        the pieces
====== ========== ============ ======================================================

Zero padding to 8 bytes, then child 0: the lengths, unsigned integers. A slot is found by
decompressing one piece and the lengths from that piece's first slot on.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, PhysicalKind, PhysicalType, Values
from fermion.encodings.compressed import CODECS
from fermion.encodings.encoding import (
    FOR_BITPACK,
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
    bounds_of,
    node_parts,
)
from fermion.encodings.unsigned import UNSIGNED, narrowest, unsigned_dtype
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedEncodingError
from fermion.io.compression import pack, unpack
from fermion.layout import Codec, EncodingId, align

_PARAMETERS = struct.Struct("<IBB2x")
_BYTES_MAX = 0xFFFF_FFFF
# A piece that a codec does not make this much smaller is not worth decompressing.
_WORTHWHILE = 0.95
_KNOWN_CODECS = (Codec.NONE, *CODECS.values())


class SplitLengths(Encoding):
    """Lengths through a child, bytes as they are or in pieces that decompress alone."""

    id = EncodingId.SPLIT_LENGTHS
    name = "split_lengths"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.kind is PhysicalKind.BINARY

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (FOR_BITPACK, PLAIN))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; ``recipe`` has children for the lengths and for the bytes."""
        if not isinstance(values, BinaryValues):
            raise InvalidArgumentError("encoding split_lengths can only hold strings and binary")
        total = int(values.offsets[-1])
        if total > _BYTES_MAX:
            raise InvalidArgumentError(f"a page of {total} bytes: expected at most {_BYTES_MAX}")
        slot_ends = frame_slot_ends(values.offsets, settings.frame_bytes)
        raw_ends = values.offsets[slot_ends]
        tables = [slot_ends.astype("<u4"), raw_ends.astype("<u4")]
        codec = Codec.NONE
        pieces: list[Buffer] = [values.data[:total]]
        wanted = CODECS.get(recipe.children[1].encoding, Codec.NONE)
        if wanted is not Codec.NONE:
            frames = _compress_frames(wanted, values.data, raw_ends, settings.level)
            sizes = np.cumsum([len(frame) for frame in frames], dtype=np.int64)
            if sizes[-1] <= total * _WORTHWHILE:
                codec, pieces = wanted, list(frames)
                tables.append(sizes.astype("<u4"))
        lengths = narrowest(values.lengths)
        width = lengths.dtype.itemsize
        parameters = _PARAMETERS.pack(len(slot_ends), codec, width)
        child = settings.encode(lengths, UNSIGNED[width], recipe.children[0])
        return node_parts(self.id, [parameters, *tables, *pieces], [child])

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        """See `Encoding.plan_binary`; decompresses only the pieces that hold bytes of some."""
        layout = _Layout(node)
        start, stop = bounds_of(slots)
        frames = layout.frames_of(start, stop, count)
        known = range(frames.slot, stop)
        lengths = context.numbers(layout.child, count, known, layout.length_dtype)
        if not isinstance(slots, range):
            return layout.pick(node, frames, lengths, slots - frames.slot, offsets, context)
        before, skipped = frames.raw_ends[0], start - frames.slot
        if skipped:
            before += int(lengths[:skipped].sum(dtype=np.int64))
            lengths = lengths[skipped:]
        total = kernels.lengths_to_offsets(lengths, offsets)
        end = before + total
        frames.check_end(end)
        if layout.codec == Codec.NONE:
            return BinaryPlan(total, node.array(np.uint8, total, layout.bytes_start + before))

        def fill(out: np.ndarray, base: int) -> None:
            for piece, (raw_start, raw_stop) in enumerate(pairwise(frames.raw_ends)):
                low, high = max(before, raw_start), min(end, raw_stop)
                if low < high:
                    raw = layout.piece(node, frames, piece, context)
                    part = raw[low - raw_start : high - raw_start]
                    out[base + low - before : base + high - before] = part

        return BinaryPlan(total, fill=fill)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("lengths", _Layout(node).child, count)]


class _Frames:
    """The pieces that hold some slots.

    slot: First slot of the first piece.
    raw_ends, stored_ends: Byte positions: start of the first piece, then the end of each.
    ends_at_stop: Whether the last piece ends with the last slot wanted.
    """

    __slots__ = ("ends_at_stop", "raw_ends", "slot", "stored_ends")

    def __init__(
        self, slot: int, raw_ends: list[int], stored_ends: list[int], ends_at_stop: bool
    ) -> None:
        self.slot, self.raw_ends, self.stored_ends = slot, raw_ends, stored_ends
        self.ends_at_stop = ends_at_stop

    def check_end(self, end: int) -> None:
        """Refuse lengths up to the last slot wanted that do not end where the pieces say."""
        if end > self.raw_ends[-1] or (self.ends_at_stop and end != self.raw_ends[-1]):
            raise InvalidFileError(
                f"split_lengths node: expected lengths up to byte {self.raw_ends[-1]}, found {end}"
            )


class _Layout:
    """Where the parts of a node lie."""

    def __init__(self, node: Node) -> None:
        node.expect_children(1)
        frames, self.codec, width = node.unpack(_PARAMETERS)
        if self.codec not in _KNOWN_CODECS:
            raise UnsupportedEncodingError(f"split_lengths node: codec id {self.codec} is unknown")
        if not frames:
            raise InvalidFileError("split_lengths node: expected at least 1 piece, found 0")
        self.length_dtype = unsigned_dtype(width)
        at = node.start + _PARAMETERS.size
        self._slot_ends = node.array("<u4", frames, at)
        self._raw_ends = node.array("<u4", frames, at + 4 * frames)
        at += 8 * frames
        self._stored_ends = self._raw_ends
        if self.codec != Codec.NONE:
            self._stored_ends = node.array("<u4", frames, at)
            at += 4 * frames
        self.bytes_start = at
        stored = int(self._stored_ends[-1])
        node.check(at, stored)
        self.child = node.child(node.start + align(at + stored - node.start))
        self._stored = stored

    def frames_of(self, start: int, stop: int, count: int) -> _Frames:
        """The pieces that hold slots ``start`` to ``stop`` (exclusive)."""
        ends = self._slot_ends
        first, last = (
            (0, 0) if len(ends) == 1 else ends.searchsorted((start, stop - 1), "right").tolist()
        )
        before = slice(first - 1, last + 1) if first else slice(0, last + 1)
        head = [] if first else [0]
        slots = head + ends[before].tolist()
        raw = head + self._raw_ends[before].tolist()
        stored = head + self._stored_ends[before].tolist()
        if (
            not first <= last < len(ends)
            or not slots[0] <= start < stop <= slots[-1] <= count
            or raw != sorted(raw)
            or stored != sorted(stored)
            or stored[-1] > self._stored
        ):
            raise InvalidFileError(
                f"split_lengths node: the table of {len(ends)} pieces does not hold slots "
                f"{start} to {stop} of {count}"
            )
        return _Frames(slots[0], raw, stored, stop == slots[-1])

    def piece(self, node: Node, frames: _Frames, piece: int, context: DecodeContext) -> np.ndarray:
        """The bytes of a compressed piece, ``uint8``."""
        size = frames.raw_ends[piece + 1] - frames.raw_ends[piece]
        context.check_output(size)
        start = self.bytes_start + frames.stored_ends[piece]
        stop = self.bytes_start + frames.stored_ends[piece + 1]
        raw = unpack(self.codec, memoryview(node.buffer)[start:stop], size)
        return np.frombuffer(raw, np.uint8)

    def pick(
        self,
        node: Node,
        frames: _Frames,
        lengths: np.ndarray,
        places: np.ndarray,
        offsets: np.ndarray,
        context: DecodeContext,
    ) -> BinaryPlan:
        """Some of the values of the pieces, whose lengths are known."""
        bounds = np.empty(len(lengths) + 1, np.int64)
        frames.check_end(frames.raw_ends[0] + kernels.lengths_to_offsets(lengths, bounds))
        bounds += frames.raw_ends[0]
        starts, stops = bounds[places], bounds[places + 1]
        total = kernels.lengths_to_offsets(lengths[places], offsets)
        ends = offsets[1:].copy()

        def fill(out: np.ndarray, base: int) -> None:
            if self.codec == Codec.NONE:
                first = frames.raw_ends[0]
                data = node.array(np.uint8, frames.raw_ends[-1] - first, self.bytes_start + first)
                kernels.gather_ranges(data, starts - first, stops - first, out[base : base + total])
                return
            cuts = starts.searchsorted(frames.raw_ends).tolist()
            at = 0
            for piece, (low, high) in enumerate(pairwise(cuts)):
                end = int(ends[high - 1]) if high else 0
                if low < high and end > at:
                    raw = self.piece(node, frames, piece, context)
                    first = frames.raw_ends[piece]
                    kernels.gather_ranges(
                        raw,
                        starts[low:high] - first,
                        stops[low:high] - first,
                        out[base + at : base + end],
                    )
                    at = end

        return BinaryPlan(total, fill=fill)


def frame_slot_ends(offsets: np.ndarray, frame_bytes: int) -> np.ndarray:
    """Where to cut strings into pieces of nearly equal bytes, about ``frame_bytes`` at most.

    offsets: ``int64``, shape (n + 1,), from 0.
    Returns: ``int64``: slot after the last of each piece, increasing, ending with n.
    """
    count, total = len(offsets) - 1, int(offsets[-1])
    frames = -(-total // frame_bytes)
    if frames <= 1:
        return np.array([count])
    targets = np.arange(1, frames, dtype=np.int64) * total // frames
    cuts = offsets.searchsorted(targets, "right") - 1
    # A value longer than a piece makes cuts fall together or at the start.
    cuts = np.unique(cuts)
    return np.append(cuts[(cuts > 0) & (cuts < count)], count)


def _compress_frames(codec: Codec, data: np.ndarray, ends: np.ndarray, level: int) -> list[bytes]:
    start, frames = 0, []
    for end in ends.tolist():
        frames.append(pack(codec, data[start:end], level))
        start = end
    return frames
