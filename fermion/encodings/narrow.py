"""NARROW: little-endian two's-complement integers of 16 or 32 bytes that all fit in ``int64``.

No parameters; child 0 holds the values as ``int64``.
"""

from __future__ import annotations

import numpy as np

from fermion import kernels
from fermion.columns.types import INT64, PhysicalKind, PhysicalType, Values
from fermion.encodings.encoding import (
    FOR_BITPACK,
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
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import Codec, EncodingId

WIDTHS = (16, 32)


class Narrow(Encoding):
    """Wide integers (decimals) as 64-bit ones."""

    id = EncodingId.NARROW
    name = "narrow"

    def holds(self, physical: PhysicalType) -> bool:
        return is_narrow(physical)

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return narrowed(FOR_BITPACK, physical)

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        assert isinstance(values, np.ndarray)
        narrow = np.empty(len(values), np.int64)
        if not kernels.narrow_fixed(values, narrow):
            return None
        best = search.child_numbers(narrow, INT64)
        return Estimate(best.size + search.overhead, narrowed(best.recipe, physical))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails where a value does not fit in 64 bits."""
        if not isinstance(values, np.ndarray) or values.dtype.itemsize not in WIDTHS:
            raise InvalidArgumentError(
                "encoding narrow can only hold values that are 16 or 32 bytes wide"
            )
        narrow = np.empty(len(values), np.int64)
        if not kernels.narrow_fixed(values, narrow):
            raise InvalidArgumentError(
                "encoding narrow cannot hold integers that do not fit in 64 bits"
            )
        return node_parts(self.id, [], [settings.encode(narrow, INT64, recipe.children[0])])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        if out.dtype.itemsize not in WIDTHS:
            raise InvalidFileError(f"narrow node cannot hold values of type {out.dtype}")
        node.expect_children(1)
        narrow = context.numbers(node.child(node.start), count, slots, np.int64)
        kernels.widen_fixed(narrow, out)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("int64", node.child(node.start), count)]


def is_narrow(physical: PhysicalType) -> bool:
    """Whether values of a type are wide integers, which NARROW may hold."""
    return physical.kind is PhysicalKind.FIXED and physical.width in WIDTHS


def narrowed(recipe: Recipe, physical: PhysicalType) -> Recipe:
    """A recipe for integers, below NARROW where the values are wide ones."""
    return Recipe(EncodingId.NARROW, (recipe,)) if is_narrow(physical) else recipe
