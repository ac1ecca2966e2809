"""Equal values of shredded columns: numbers for them, and the runs they form.

Equality is that of stored values: bit for bit, so that NaN equals itself and 0.0 is not -0.0.
Nested values are compared by the numbers of their parts, which works for every type.
"""

from __future__ import annotations

import numpy as np

from fermion import kernels
from fermion.columns import validity
from fermion.columns.types import BinaryValues, Bits, ColumnStreams, Node, NodeKind, Values

_CODE_BYTES = 8


def codes(node: Node, streams: ColumnStreams, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct values of a subtree, in the order in which they first appear.

    Returns codes: ``int64``, shape (slots,): each slot's number, -1 for null.
    Returns first: ``int64``, shape (distinct,): the slot where each number first appears.
    """
    valid = streams.validity.get(node.validity)
    if slots == 0 or valid is False or node.kind is NodeKind.NULL:
        return np.full(slots, -1, np.int64), np.empty(0, np.int64)
    values = _comparable(node, streams, slots)
    if valid is None:
        numbers, first = _number(values)
        return numbers.astype(np.int64), first
    present = np.flatnonzero(validity.to_flags(valid, slots))
    out = np.full(slots, -1, np.int64)
    numbers, first = _number(values)
    # Null slots hold fillers that may be numbered too: number again what is left without them.
    numbers, again = _number(numbers[present].astype(np.int64))
    out[present] = numbers
    return out, present[again]


def count(values: Values, valid: np.ndarray | None) -> int:
    """How many different values there are.

    values: One a slot.
    valid: ``bool``, shape (slots,): which of them count; None: all.
    """
    numbers, first = _number(values.unpack().view(np.uint8) if isinstance(values, Bits) else values)
    return len(first) if valid is None else len(np.unique(numbers[valid]))


def run_starts(node: Node, streams: ColumnStreams, slots: int) -> np.ndarray:
    """``int64``, shape (runs,): the first slot of each run of equal values or nulls."""
    numbers, _ = codes(node, streams, slots)
    return np.flatnonzero(np.diff(numbers, prepend=-2)) if slots else np.empty(0, np.int64)


def _comparable(node: Node, streams: ColumnStreams, slots: int) -> Values:
    """Values that are equal as bytes exactly where the slots of a subtree are equal."""
    if node.kind is NodeKind.LEAF:
        values = streams.data[node.stream]
        return values.unpack().view(np.uint8) if isinstance(values, Bits) else values
    if node.kind is NodeKind.LIST:
        offsets = streams.offsets[node.stream]
        elements, _ = codes(node.children[0], streams, int(offsets[-1]))
        return BinaryValues(offsets * _CODE_BYTES, elements.view(np.uint8))
    if node.kind is NodeKind.FIXED_LIST:
        width = node.storage.list_size
        parts, _ = codes(node.children[0], streams, slots * width)
    else:
        width = len(node.children)
        parts = np.empty((slots, width), np.int64)
        for index, child in enumerate(node.children):
            parts[:, index], _ = codes(child, streams, slots)
    ends = np.arange(slots + 1, dtype=np.int64) * (width * _CODE_BYTES)
    return BinaryValues(ends, parts.reshape(-1).view(np.uint8))


def _number(values: Values) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(values, BinaryValues):
        numbered = kernels.build_dictionary_binary(values.offsets, values.data, len(values))
    else:
        assert isinstance(values, np.ndarray)
        numbered = kernels.build_dictionary(values, len(values))
    assert numbered is not None, "there are at most as many distinct values as values"
    return numbered
