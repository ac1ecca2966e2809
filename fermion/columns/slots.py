"""Rows of shredded columns: blank ones, selected ranges, and parts put together.

These work on `ColumnStreams` and never on Arrow arrays, so that every type can be selected and
joined, also those for which Arrow has no such function, and no 32-bit offset can overflow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fermion import kernels
from fermion.columns import validity
from fermion.columns.types import (
    BinaryValues,
    Bits,
    ColumnStreams,
    Node,
    NodeKind,
    PhysicalKind,
    PhysicalType,
    Values,
)
from fermion.columns.types import concatenate as concatenate_values
from fermion.columns.validity import Validity


def blank(node: Node, slots: int, out: ColumnStreams) -> None:
    """Fill the streams of a subtree with nulls, and with zeros and empty values where it has none.

    slots: Slots of ``node``.
    """
    out.slots[node.validity] = slots
    nullable = node.nullable or node.kind is NodeKind.NULL
    out.validity[node.validity] = False if nullable and slots else None
    if node.kind is NodeKind.LEAF:
        assert node.physical is not None
        out.slots[node.stream] = slots
        out.data[node.stream] = blank_values(node.physical, slots)
    elif node.kind is NodeKind.LIST:
        out.slots[node.stream] = slots
        out.offsets[node.stream] = np.zeros(slots + 1, np.int64)
        blank(node.children[0], 0, out)
    elif node.kind is NodeKind.FIXED_LIST:
        blank(node.children[0], slots * node.storage.list_size, out)
    else:
        for child in node.children:
            blank(child, slots, out)


def blank_values(physical: PhysicalType, slots: int) -> Values:
    """Zeros, or empty strings."""
    if physical.kind is PhysicalKind.BITS:
        return Bits(np.zeros((slots + 7) // 8, np.uint8), slots)
    if physical.kind is PhysicalKind.BINARY:
        return BinaryValues(np.zeros(slots + 1, np.int64), np.empty(0, np.uint8))
    return np.zeros(slots, physical.dtype)


def fill_nulls(values: Values, valid: Validity) -> None:
    """Put fillers into the null slots of a leaf, in place: the previous valid value, or zero.

    Binary values are left alone: their null slots have the length 0 already.
    """
    if isinstance(values, np.ndarray) and isinstance(valid, Bits):
        kernels.fill_nulls(values, valid.data)
    elif isinstance(values, Bits) and isinstance(valid, Bits):
        size = (valid.length + 7) // 8
        np.bitwise_and(values.data[:size], valid.data[:size], out=values.data[:size])


def select(
    node: Node, source: ColumnStreams, starts: np.ndarray, stops: np.ndarray
) -> ColumnStreams:
    """The slots of some ranges, in the order of the ranges; a copy.

    node: The subtree to select from.
    starts, stops: ``int64``, shape (ranges,): slots of ``node``, ``stops`` exclusive. Ranges may
        overlap.
    """
    out = ColumnStreams(int(np.sum(stops - starts)))
    _select(node, source, starts, stops, out.length, out)
    return out


def take(node: Node, source: ColumnStreams, indices: np.ndarray) -> ColumnStreams:
    """The slots with some indices (``int64``, each within ``node``'s slots), in order; a copy."""
    valid = source.validity.get(node.validity)
    if node.kind is not NodeKind.LEAF or valid is False or len(indices) == 0:
        return select(node, source, indices, indices + 1)
    slots = len(indices)
    out = ColumnStreams(slots)
    if isinstance(valid, Bits):
        valid = validity.settled(Bits.pack(valid.unpack()[indices]))
    values = take_values(source.data[node.stream], indices)
    fill_nulls(values, valid)
    out.slots[node.validity] = out.slots[node.stream] = slots
    out.validity[node.validity] = valid
    out.data[node.stream] = values
    return out


def take_values(values: Values, indices: np.ndarray) -> Values:
    """The values with some indices; a copy."""
    if isinstance(values, Bits):
        return Bits.pack(values.unpack()[indices])
    if isinstance(values, BinaryValues):
        return values.take(indices)
    out = np.empty(len(indices), values.dtype)
    kernels.gather_fixed(values, indices.astype(np.uint32), out)
    return out


def _select(
    node: Node,
    source: ColumnStreams,
    starts: np.ndarray,
    stops: np.ndarray,
    slots: int,
    out: ColumnStreams,
) -> None:
    valid = validity.select(source.validity.get(node.validity), starts, stops, slots)
    if slots == 0 or valid is False:
        blank(node, slots, out)
        return
    out.slots[node.validity] = slots
    out.validity[node.validity] = valid
    if node.kind is NodeKind.LEAF:
        values = select_values(source.data[node.stream], starts, stops, slots)
        fill_nulls(values, valid)
        out.slots[node.stream] = slots
        out.data[node.stream] = values
    elif node.kind is NodeKind.LIST:
        offsets = source.offsets[node.stream]
        chosen = _select_offsets(offsets, starts, stops, slots)
        out.slots[node.stream] = slots
        out.offsets[node.stream] = chosen
        _select(node.children[0], source, offsets[starts], offsets[stops], int(chosen[-1]), out)
    elif node.kind is NodeKind.FIXED_LIST:
        size = node.storage.list_size
        _select(node.children[0], source, starts * size, stops * size, slots * size, out)
    else:
        for child in node.children:
            _select(child, source, starts, stops, slots, out)


def select_values(values: Values, starts: np.ndarray, stops: np.ndarray, slots: int) -> Values:
    """The values in some ranges, ``slots`` in all; a copy."""
    if isinstance(values, Bits):
        packed = np.zeros((slots + 7) // 8, np.uint8)
        kernels.gather_ranges_bits(values.data, starts, stops, packed)
        return Bits(packed, slots)
    if isinstance(values, BinaryValues):
        offsets = _select_offsets(values.offsets, starts, stops, slots)
        data = np.empty(int(offsets[-1]), np.uint8)
        kernels.gather_ranges(values.data, values.offsets[starts], values.offsets[stops], data)
        return BinaryValues(offsets, data)
    out = np.empty(slots, values.dtype)
    kernels.gather_ranges(values, starts, stops, out)
    return out


def _select_offsets(
    offsets: np.ndarray, starts: np.ndarray, stops: np.ndarray, slots: int
) -> np.ndarray:
    lengths = np.empty(slots, np.int64)
    kernels.gather_ranges(np.diff(offsets), starts, stops, lengths)
    out = np.empty(slots + 1, np.int64)
    kernels.lengths_to_offsets(lengths, out)
    return out


def concatenate(node: Node, parts: Sequence[ColumnStreams]) -> ColumnStreams:
    """All slots of ``parts`` in order; the one part itself when there is only one."""
    if len(parts) == 1:
        return parts[0]
    out = ColumnStreams(sum(part.length for part in parts))
    for each in node.walk():
        slots = [part.slots[each.validity] for part in parts]
        own = [part.validity[each.validity] for part in parts]
        valid = validity.concatenate(list(zip(own, slots, strict=True)))
        out.slots[each.validity] = sum(slots)
        out.validity[each.validity] = valid
        if each.stream >= 0:
            out.slots[each.stream] = sum(slots)
        if each.kind is NodeKind.LEAF:
            assert each.physical is not None
            values = concatenate_values([part.data[each.stream] for part in parts], each.physical)
            # A part that starts with nulls did not know the value before them.
            fill_nulls(values, valid)
            out.data[each.stream] = values
        elif each.kind is NodeKind.LIST:
            out.offsets[each.stream] = _concatenate_offsets(
                [part.offsets[each.stream] for part in parts]
            )
    return out


def _concatenate_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    lengths = np.concatenate([np.diff(part) for part in parts])
    out = np.empty(len(lengths) + 1, np.int64)
    kernels.lengths_to_offsets(lengths, out)
    return out
