"""PLAIN: values as they are.

Numbers and fixed-width bytes: ``count * width`` bytes. Strings: ``count`` lengths (``uint32``),
zero padding to 8 bytes, then all bytes. Booleans have BITMAP instead.
"""

from __future__ import annotations

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, Bits, PhysicalType, Values
from fermion.encodings.encoding import (
    PLAIN,
    BinaryPlan,
    Buffer,
    Chooser,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Estimate,
    Node,
    Recipe,
    Slots,
    bounds_of,
    node_parts,
    pick_strings,
    plain_recipe,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import Codec, EncodingId, align

_VALUE_BYTES_MAX = 0xFFFF_FFFF


class Plain(Encoding):
    """Values without any encoding."""

    id = EncodingId.PLAIN
    name = "plain"

    def holds(self, physical: PhysicalType) -> bool:
        return True

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        """See `Encoding.recipe`; BITMAP for booleans."""
        return plain_recipe(physical)

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        """See `Encoding.estimate`; for numbers and fixed-width bytes."""
        if not isinstance(values, np.ndarray):  # strings always have their lengths apart
            return None
        return Estimate(values.nbytes + search.overhead, PLAIN)

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for booleans and for single values of 4 GiB."""
        if isinstance(values, Bits):
            raise InvalidArgumentError("encoding plain cannot hold booleans; use bitmap")
        if isinstance(values, BinaryValues):
            lengths = values.lengths
            if len(lengths) and int(lengths.max()) > _VALUE_BYTES_MAX:
                raise InvalidArgumentError(
                    f"a value of {lengths.max()} bytes: expected at most {_VALUE_BYTES_MAX}"
                )
            narrow = lengths.astype("<u4").view(np.uint8)
            gap = align(narrow.size) - narrow.size
            data = values.data[: int(values.offsets[-1])]
            return node_parts(self.id, [narrow, b"\0" * gap, data])
        return node_parts(self.id, [np.ascontiguousarray(values).view(np.uint8)])

    def view_fixed(self, node: Node, count: int, dtype: np.dtype) -> np.ndarray | None:
        view = node.array(dtype, count, node.start)
        return view if view.flags.aligned else None

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        if isinstance(slots, range):
            node.check(node.start, count * out.dtype.itemsize)
            at = node.start + slots.start * out.dtype.itemsize
            out[:] = np.frombuffer(node.buffer, out.dtype, len(slots), at)
        else:
            values = node.array(out.dtype, count, node.start)
            kernels.gather_fixed(values, slots.astype(np.uint32), out)

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        """See `Encoding.plan_binary`; the bytes of a run are always a view."""
        if not isinstance(slots, range):
            run = range(*bounds_of(slots))
            strings = context.strings(node, count, run)
            return pick_strings(strings, slots - run.start, offsets)
        lengths = node.array("<u4", count, node.start)
        data_start = node.start + align(count * 4)
        total = kernels.lengths_to_offsets(lengths[slots.start : slots.stop], offsets)
        before = int(lengths[: slots.start].sum(dtype=np.int64)) if slots.start else 0
        if data_start + before + total > node.stop:
            raise InvalidFileError(
                f"plain node: expected {before + total} bytes of strings, "
                f"found {node.stop - data_start}"
            )
        return BinaryPlan(total, node.array(np.uint8, total, data_start + before))
