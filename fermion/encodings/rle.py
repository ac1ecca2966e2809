"""RLE: runs of equal numbers or fixed-width values.

====== ==== ============ ===================================
offset size name         meaning
====== ==== ============ ===================================
0      4    runs         number of runs
4      1    length_width bytes of a length: 1, 2 or 4
5      3    reserved     0
====== ==== ============ ===================================

Child 0: the runs' lengths, unsigned integers. Child 1: their values.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion import kernels
from fermion.columns.types import PhysicalType, Values
from fermion.encodings import bitpack
from fermion.encodings.encoding import (
    FOR_BITPACK,
    PLAIN,
    Buffer,
    Child,
    Chooser,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Estimate,
    Node,
    Recipe,
    Slots,
    node_parts,
)
from fermion.encodings.unsigned import UNSIGNED, narrowest, unsigned_dtype
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import Codec, EncodingId

_PARAMETERS = struct.Struct("<IB3x")
RUN_SLOTS_MIN = 4


class RunLength(Encoding):
    """Runs: how long, and of what; equal means equal bytes."""

    id = EncodingId.RLE
    name = "rle"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.is_fixed_width

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (FOR_BITPACK, PLAIN))

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        """See `Encoding.estimate`; where runs are four slots or more on average."""
        assert isinstance(values, np.ndarray)
        if search.nested or kernels.count_runs(values) * RUN_SLOTS_MIN > len(values):
            return None
        starts = run_starts(values)
        lengths = narrowest(np.diff(starts, append=len(values)))
        size = bitpack.sampled_size(lengths) + 3 * search.overhead
        plain = len(starts) * values.dtype.itemsize
        packed = bitpack.sampled_size(values[starts]) if physical.is_integer else plain
        child = FOR_BITPACK if packed < plain else PLAIN
        return Estimate(size + min(packed, plain), Recipe(self.id, (FOR_BITPACK, child)))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; ``recipe`` has children for the lengths and for the values."""
        if not isinstance(values, np.ndarray):
            raise InvalidArgumentError(
                "encoding rle can only hold numbers and fixed-width values; "
                "use dictionary for strings"
            )
        if not len(values):
            raise InvalidArgumentError("encoding rle cannot hold an empty page")
        starts = run_starts(values)
        lengths = narrowest(np.diff(starts, append=len(values)))
        width = lengths.dtype.itemsize
        return node_parts(
            self.id,
            [_PARAMETERS.pack(len(starts), width)],
            [
                settings.encode(lengths, UNSIGNED[width], recipe.children[0]),
                settings.encode(values[starts], physical, recipe.children[1]),
            ],
        )

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        runs, width, (lengths, values) = self._open(node, count)
        offsets = np.empty(runs + 1, np.int64)
        found = context.numbers(lengths, runs, range(runs), unsigned_dtype(width))
        if kernels.lengths_to_offsets(found, offsets) != count:
            raise InvalidFileError(f"rle node: expected runs of {count} slots, found {offsets[-1]}")
        ends = offsets[1:]
        if isinstance(slots, range):
            first, last = ends.searchsorted((slots.start, slots.stop - 1), "right").tolist()
            part = context.numbers(values, runs, range(first, last + 1), out.dtype)
            kernels.expand_runs(part, ends[first : last + 1], slots.start, slots.stop, out)
        else:
            wanted, places = np.unique(ends.searchsorted(slots, "right"), return_inverse=True)
            picked = context.numbers(values, runs, wanted, out.dtype)
            kernels.gather_fixed(picked, places.astype(np.uint32), out)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        runs, _, (lengths, values) = self._open(node, count)
        return [("lengths", lengths, runs), ("values", values, runs)]

    def _open(self, node: Node, count: int) -> tuple[int, int, tuple[Node, Node]]:
        node.expect_children(2)
        runs, width = node.unpack(_PARAMETERS)
        if not 1 <= runs <= count:
            raise InvalidFileError(f"rle node: expected 1 to {count} runs, found {runs}")
        lengths = node.child(node.start + _PARAMETERS.size)
        return runs, width, (lengths, node.child(lengths.stop))


def run_starts(values: np.ndarray) -> np.ndarray:
    """``int64``: where runs of equal bytes start."""
    starts = np.empty(kernels.count_runs(values), np.int64)
    kernels.run_starts(values, starts)
    return starts
