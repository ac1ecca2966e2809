"""DICTIONARY and its kin: each slot a code, the place of its value in a dictionary.

DICTIONARY refers to the chunk's dictionary page, GLOBAL_DICTIONARY to the column's dictionary,
DICTIONARY_LOCAL holds the dictionary itself:

====== ==== ========== ====================================================
offset size name       meaning
====== ==== ========== ====================================================
0      4    entries    values of the local dictionary; else 0
4      1    code_width bytes of a code in child 0: 1, 2 or 4
5      3    reserved   0
====== ==== ========== ====================================================

Child 0: the codes, unsigned integers. Child 1, local only: the dictionary's values, distinct, in
the order of their first appearance. A chunk's dictionary may also be in the order of its bytes.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from fermion import arrow_compute, kernels
from fermion.columns.types import BinaryValues, Bits, PhysicalKind, PhysicalType, Values
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
    node_parts,
    pick_strings,
    plain_recipe,
)
from fermion.encodings.unsigned import UNSIGNED, narrowest, unsigned_dtype
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import Codec, EncodingId

_PARAMETERS = struct.Struct("<IB3x")
# The kernel copies short values in words of 16 bytes, but never past the dictionary's end, which
# in a small dictionary would be most values.
_SLACK = np.zeros(16, np.uint8)
_PADDED_BYTES_MAX = 4096


class Dictionary(Encoding):
    """Codes into the chunk's dictionary; `encode` takes the codes as values."""

    id = EncodingId.DICTIONARY
    name = "dictionary"

    def holds(self, physical: PhysicalType) -> bool:
        return physical.kind is not PhysicalKind.BITS

    def recipe(self, physical: PhysicalType, codec: Codec) -> Recipe:
        return Recipe(self.id, (FOR_BITPACK, plain_recipe(physical)))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; ``values`` are the slots' codes, ``uint32``."""
        if not isinstance(values, np.ndarray) or values.dtype != np.uint32:
            raise InvalidArgumentError(f"encoding {self.name} takes the codes of a dictionary")
        width, codes = _encode_codes(values, recipe.children[0], settings)
        return node_parts(self.id, [_PARAMETERS.pack(0, width)], [codes])

    def dictionary(self, node: Node, dtype: np.dtype | None, context: DecodeContext) -> Values:
        """The dictionary that a node refers to: of this dtype, or of strings for None."""
        if context.dictionary is None:
            raise InvalidFileError(f"{self.name} node: the chunk has no dictionary")
        return context.dictionary

    def codes(self, node: Node, count: int, slots: Slots, context: DecodeContext) -> np.ndarray:
        """The codes of some slots, ``uint32``."""
        _, width = node.unpack(_PARAMETERS)
        child = node.child(node.start + _PARAMETERS.size)
        codes = context.numbers(child, count, slots, unsigned_dtype(width))
        return codes.astype(np.uint32, copy=False)

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        dictionary = self.dictionary(node, out.dtype, context)
        if not isinstance(dictionary, np.ndarray):
            raise self._mismatch(str(out.dtype))
        kernels.gather_fixed(dictionary, self.codes(node, count, slots, context), out)

    def plan_binary(
        self, node: Node, count: int, slots: Slots, offsets: np.ndarray, context: DecodeContext
    ) -> BinaryPlan:
        dictionary = self.dictionary(node, None, context)
        if not isinstance(dictionary, BinaryValues):
            raise self._mismatch("binary")
        if dictionary.data.size < _PADDED_BYTES_MAX:
            dictionary = BinaryValues(dictionary.offsets, np.append(dictionary.data, _SLACK))
        return pick_strings(dictionary, self.codes(node, count, slots, context), offsets)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        return [("codes", node.child(node.start + _PARAMETERS.size), count)]


class GlobalDictionary(Dictionary):
    """Codes into the dictionary that stripes of a column share."""

    id = EncodingId.GLOBAL_DICTIONARY
    name = "global_dictionary"
    selectable = False


class DictionaryLocal(Dictionary):
    """Codes and their dictionary in one node."""

    id = EncodingId.DICTIONARY_LOCAL
    name = "dictionary_local"
    selectable = False

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """See `Encoding.encode`; fails for booleans and for no values at all."""
        built = build_dictionary(values, len(values))
        if built is None:
            raise InvalidArgumentError("encoding dictionary cannot hold booleans or an empty page")
        codes, dictionary = built
        width, coded = _encode_codes(codes, recipe.children[0], settings)
        entries = settings.encode(dictionary, physical, recipe.children[1])
        return node_parts(self.id, [_PARAMETERS.pack(len(dictionary), width)], [coded, entries])

    def dictionary(self, node: Node, dtype: np.dtype | None, context: DecodeContext) -> Values:
        entries, child = self._entries(node)
        context.check_output(entries * (8 if dtype is None else dtype.itemsize))
        if dtype is None:
            return context.strings(child, entries, range(entries))
        return context.numbers(child, entries, range(entries), dtype)

    def children(self, node: Node, count: int, context: DecodeContext) -> list[Child]:
        entries, child = self._entries(node)
        return [*super().children(node, count, context), ("dictionary", child, entries)]

    def _entries(self, node: Node) -> tuple[int, Node]:
        node.expect_children(2)
        entries, _ = node.unpack(_PARAMETERS)
        codes = node.child(node.start + _PARAMETERS.size)
        return entries, node.child(codes.stop)


def build_dictionary(values: Values, limit: int) -> tuple[np.ndarray, Values] | None:
    """Codes (``uint32``) and distinct values in order of first appearance.

    None for booleans, for no values, and for more than ``limit`` distinct ones.
    """
    if isinstance(values, Bits) or not len(values):
        return None
    if isinstance(values, BinaryValues):
        built = kernels.build_dictionary_binary(values.offsets, values.data, limit)
        return built and (built[0], values.take(built[1]))
    built = kernels.build_dictionary(values, limit)
    return built and (built[0], values[built[1]])


def in_order(codes: np.ndarray, entries: BinaryValues) -> tuple[np.ndarray, BinaryValues]:
    """The same dictionary with its entries in the order of their bytes, and the codes for that.

    Where neighbouring slots ascend, as they do in data sorted within groups, so do their codes.
    """
    buffers = [None, pa.py_buffer(entries.offsets), pa.py_buffer(entries.data)]
    array = pa.Array.from_buffers(pa.large_binary(), len(entries), buffers)
    order = arrow_compute.sort_indices(array).to_numpy()
    ranks = np.empty(len(order), np.uint32)
    ranks[order] = np.arange(len(order), dtype=np.uint32)
    return ranks[codes], entries.take(order)


def _encode_codes(
    codes: np.ndarray, recipe: Recipe, settings: EncodeSettings
) -> tuple[int, list[Buffer]]:
    """Codes at the smallest width that holds them: that width, and their node."""
    narrow = narrowest(codes)
    width = narrow.dtype.itemsize
    return width, settings.encode(narrow, UNSIGNED[width], recipe)
