"""Pages without their null slots: a tree of the valid slots' values alone, both directions.

Where many slots of a chunk are null, its pages leave them out. The root node then has the flag
NULLS_REMOVED, and one more parameter before its own:

====== ==== ========= =====================================================
offset size name      meaning
====== ==== ========= =====================================================
0      4    numValues values of the tree, one for each valid slot, in order
4      4    reserved  0
====== ==== ========= =====================================================

The page header's numSlots still counts all slots. Which of them are valid only the VALIDITY stream
of the same level tells; numValues must agree with it. A chunk with such a page has the flag
DENSE_NO_NULL_SLOTS, so that readers fetch the validity of whole pages with it.
"""

from __future__ import annotations

import struct

import numpy as np

from fermion import kernels
from fermion.columns.types import BinaryValues, Bits, Values
from fermion.columns.validity import Validity
from fermion.encodings.encoding import NODE_HEADER_SIZE, Buffer, Node
from fermion.errors import InvalidFileError
from fermion.exports import dataclass
from fermion.layout import NodeFlag

# With fewer nulls than this, what they need is less than what putting them back takes.
NULLS_SHARE_MIN = 0.3

_COUNT = struct.Struct("<I4x")
_HEADER_START = struct.Struct("<HBBI")


def is_worth_removing(validity: Bits) -> bool:
    """Whether pages of slots of this validity are to leave the null ones out."""
    return len(validity) - validity.count() > NULLS_SHARE_MIN * len(validity)


def remove_nulls(values: Values, validity: Bits) -> Values:
    """The values of the valid slots, in order; a copy, but for the bytes of strings.

    Null slots of strings must be empty.
    """
    valid = validity.count()
    if isinstance(values, Bits):
        packed = np.zeros((valid + 7) // 8, np.uint8)
        kernels.remove_nulls_bits(values.data, validity.data, len(values), packed)
        return Bits(packed, valid)
    if isinstance(values, BinaryValues):
        offsets = np.zeros(valid + 1, np.int64)
        kernels.remove_nulls(values.offsets[1:], validity.data, offsets[1:])
        return BinaryValues(offsets, values.data)
    out = np.empty(valid, values.dtype)
    kernels.remove_nulls(values, validity.data, out)
    return out


def valid_before(validity: Bits, slots: list[int]) -> list[int]:
    """How many slots before each of some ascending ones, the first of them 0, are valid."""
    counts, at, total = [], 0, 0
    for slot in slots:
        total += kernels.count_bits(validity.data, at, slot - at)
        counts.append(total)
        at = slot
    return counts


def mark_root(parts: list[Buffer], values: int) -> list[Buffer]:
    """A root node as one whose tree holds the values of valid slots only.

    parts: The node, as `node_parts` makes it.
    values: Values that it holds.
    """
    encoding, children, _, length = _HEADER_START.unpack(parts[0])
    header = _HEADER_START.pack(encoding, children, NodeFlag.NULLS_REMOVED, length + _COUNT.size)
    return [header, _COUNT.pack(values), *parts[1:]]


def open_root(node: Node) -> tuple[Node, int]:
    """A root node with the flag as one without it, and the values of its tree.

    Raises InvalidFileError: The node is too short.
    """
    if node.stop - node.start < _COUNT.size:
        raise InvalidFileError(
            f"encoding tree: expected a node of {NODE_HEADER_SIZE + _COUNT.size} bytes at least, "
            f"found {node.stop - node.start + NODE_HEADER_SIZE}"
        )
    (values,) = node.unpack(_COUNT)
    start = node.start + _COUNT.size
    inner = Node(node.encoding, node.num_children, 0, node.buffer, start, node.stop, node.depth)
    return inner, values


@dataclass(frozen=True, slots=True)
class Spread:
    """Which slots the values of a tree belong to.

    bits: ``uint8``: validity of the page's slots.
    start, slots: The first slot wanted, and how many are.
    first, last: Their values within the tree, last exclusive.
    """

    bits: np.ndarray
    start: int
    slots: int
    first: int
    last: int

    @classmethod
    def of(cls, validity: Validity, values: int, slots: int, start: int, stop: int) -> Spread:
        """The slots ``start`` to ``stop`` (exclusive) of a page with ``slots`` slots.

        Raises InvalidFileError: The tree does not hold as many values as slots are valid.
        """
        if isinstance(validity, Bits):
            bits = validity.data
        else:
            bits = np.full((slots + 7) // 8, 0 if validity is False else 0xFF, np.uint8)
        if 8 * len(bits) < slots or (isinstance(validity, Bits) and len(validity) != slots):
            raise InvalidFileError(f"expected validity of {slots} slots, found another number")
        first = kernels.count_bits(bits, 0, start)
        last = first + kernels.count_bits(bits, start, stop - start)
        valid = last + kernels.count_bits(bits, stop, slots - stop)
        if valid != values:
            raise InvalidFileError(
                f"expected values of the {valid} valid slots of {slots}, found {values} values"
            )
        return cls(bits, start, stop - start, first, last)

    def tail(self, out: np.ndarray) -> np.ndarray:
        """The part of an array of one item a slot where the values go before `restore`; a view."""
        return out[len(out) - (self.last - self.first) :]

    def restore(self, out: np.ndarray) -> None:
        """Move the values at the end of ``out``, one item a slot, to their slots.

        A null slot gets the value before it, or zero.
        """
        kernels.restore_nulls(out, self.bits, self.start)

    def restore_bits(self, values: np.ndarray, out: np.ndarray, out_bit: int) -> None:
        """Put packed values into the bits of ``out`` (zeroed) from ``out_bit`` on."""
        kernels.restore_nulls_bits(values, self.bits, self.start, self.slots, out, out_bit)
