"""Arrow arrays → the streams of a column; `assemble` is the way back.

Values hidden under nulls end here: ranges under null lists are dropped, children of null structs
become null (or zero, where they cannot be), null slots get a filler. What is stored depends on
the logical values alone, so slices, chunks and unusual layouts leave no trace.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns import arrow_buffers, validity
from fermion.columns import slots as rearrange
from fermion.columns.types import (
    BinaryValues,
    Bits,
    ColumnStreams,
    Node,
    NodeKind,
    PhysicalKind,
    Values,
    is_list_view,
)
from fermion.columns.validity import Validity
from fermion.errors import InvalidArgumentError

_CHUNK_ROWS_SMALL = 4096


class _MissingValueError(Exception):
    """A null where none may be: the slot, turned into the parent's as the error climbs."""

    def __init__(self, node: Node, slot: int) -> None:
        super().__init__()
        self.path = [node.name]
        self.slot = slot

    def climb(self, node: Node, slot: int) -> None:
        self.path.append(node.name)
        self.slot = slot


def shred(array: pa.Array | pa.ChunkedArray, node: Node) -> ColumnStreams:
    """Take a column apart into its streams.

    array: Values of exactly ``node.type``; may be sliced or chunked.
    Returns: Views of the array's buffers where they already are as the streams want them.
    Raises InvalidArgumentError: If the type differs, if a field that is not nullable has a null, or
        if the array is not a well-formed Arrow array.
    """
    if array.type != node.type:
        raise InvalidArgumentError(
            f"column {node.name!r}: expected values of type {node.type}, got {array.type}"
        )
    first_row = 0
    try:
        if isinstance(array, pa.Array):
            return _shred_array(node, array)
        parts = []
        for chunk in _worthwhile_chunks(array):
            parts.append(_shred_array(node, chunk))
            first_row += len(chunk)
    except _MissingValueError as missing:
        raise InvalidArgumentError(
            f"column {'.'.join(reversed(missing.path))!r} is not nullable, "
            f"but row {first_row + missing.slot} holds a null"
        ) from None
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise InvalidArgumentError(
            f"column {node.name!r}: not a well-formed Arrow array of type {node.type}: {error}"
        ) from error
    return rearrange.concatenate(node, parts) if parts else _shred_nothing(node)


def _worthwhile_chunks(array: pa.ChunkedArray) -> list[pa.Array]:
    """The chunks that are not empty; many small ones are first joined by Arrow, which is faster."""
    chunks = [chunk for chunk in array.chunks if len(chunk)]
    if len(chunks) < 2 or len(array) > _CHUNK_ROWS_SMALL * len(chunks):
        return chunks
    if arrow_buffers.has_dictionary(
        array.type
    ):  # Arrow joins half floats' dictionaries to wrong values
        return chunks
    try:
        return [pa.concat_arrays(chunks)]
    except pa.ArrowException:  # offsets of 32 bits overflow, or dictionaries that hold nulls
        return chunks


def _shred_nothing(node: Node) -> ColumnStreams:
    out = ColumnStreams(0)
    rearrange.blank(node, 0, out)
    return out


def _shred_array(node: Node, array: pa.Array) -> ColumnStreams:
    out = ColumnStreams(len(array))
    _shred_node(node, array, None, out)
    return out


def _shred_node(node: Node, array: pa.Array, needed: Validity, out: ColumnStreams) -> None:
    """Shred a subtree.

    node, array: The subtree and its values, wrapped or not.
    needed: The slots that count: the others lie under a null parent, or nothing refers to them.
    """
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    slots = len(array)
    if slots == 0 or needed is False:
        rearrange.blank(node, slots, out)
    elif isinstance(array, pa.DictionaryArray):
        _shred_gathered(
            node, array.dictionary, arrow_buffers.dictionary_indices(array), needed, out
        )
    elif isinstance(array, pa.RunEndEncodedArray):
        indices = arrow_buffers.run_indices(array)
        _shred_gathered(node, array.values, indices, needed, out)
    else:
        _shred_storage(node, array, needed, out)


def _shred_storage(node: Node, array: pa.Array, needed: Validity, out: ColumnStreams) -> None:
    slots = len(array)
    own = False if node.kind is NodeKind.NULL else arrow_buffers.own_validity(array)
    visible = _visible(node, own, needed, slots)
    if visible is False:
        rearrange.blank(node, slots, out)
        return
    out.slots[node.validity] = slots
    out.validity[node.validity] = visible if node.nullable else None
    if node.stream >= 0:
        out.slots[node.stream] = slots
    if node.kind is NodeKind.LEAF:
        _shred_leaf(node, array, visible, out)
    elif node.kind is NodeKind.LIST:
        _shred_list(node, array, visible, out)
    elif node.kind is NodeKind.FIXED_LIST:
        _shred_fixed_list(node, array, visible, out)
    else:
        _shred_struct(node, array, visible, out)


def _visible(node: Node, own: Validity, needed: Validity, slots: int) -> Validity:
    """The slots that hold a value to be seen; a null that must not be is an error."""
    if not node.nullable:
        missing = validity.first_missing(own, needed, slots)
        if missing is not None:
            raise _MissingValueError(node, missing)
    return validity.intersect(own, needed)


def _shred_leaf(node: Node, array: pa.Array, visible: Validity, out: ColumnStreams) -> None:
    assert node.physical is not None
    kind = node.physical.kind
    values: Values
    if kind is PhysicalKind.BINARY:
        values = arrow_buffers.binary(array)
    elif kind is PhysicalKind.BITS:
        values = arrow_buffers.booleans(array)
    else:
        values = arrow_buffers.fixed_width(array, node.physical)
    if isinstance(visible, Bits):
        values = _without_hidden(values, visible, forward=node.nullable)
    out.data[node.stream] = values


def _without_hidden(values: Values, visible: Bits, *, forward: bool) -> Values:
    """The values with a filler in slots that are not visible; a copy where it has to be.

    ``forward`` fills with the value before, as suits null slots; otherwise with zero.
    """
    if isinstance(values, BinaryValues):
        seen = visible.unpack()
        return values if not np.any(values.lengths[~seen]) else _compacted(values, seen)
    if isinstance(values, Bits):
        values = Bits(values.data.copy(), values.length)
        rearrange.fill_nulls(values, visible)
        return values
    values = values.copy()
    if forward:
        rearrange.fill_nulls(values, visible)
    else:
        values[~visible.unpack()] = np.zeros((), values.dtype)
    return values


def _compacted(values: BinaryValues, seen: np.ndarray) -> BinaryValues:
    lengths = np.where(seen, values.lengths, 0)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    starts = values.offsets[:-1]
    data = np.empty(int(offsets[-1]), np.uint8)
    kernels.gather_ranges(values.data, starts, starts + lengths, data)
    return BinaryValues(offsets, data)


def _shred_struct(node: Node, array: pa.Array, visible: Validity, out: ColumnStreams) -> None:
    for index, child in enumerate(node.children):
        try:
            _shred_node(child, array.field(index), visible, out)
        except _MissingValueError as missing:
            missing.climb(node, missing.slot)
            raise


def _shred_fixed_list(node: Node, array: pa.Array, visible: Validity, out: ColumnStreams) -> None:
    size = node.storage.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    try:
        _shred_node(node.children[0], values, validity.repeat(visible, size), out)
    except _MissingValueError as missing:
        missing.climb(node, missing.slot // size)
        raise


def _shred_list(node: Node, array: pa.Array, visible: Validity, out: ColumnStreams) -> None:
    if visible is None and not is_list_view(node.storage):
        _shred_plain_list(node, array, out)
        return
    starts, lengths = arrow_buffers.list_ranges(array)
    if isinstance(visible, Bits):
        lengths = np.where(visible.unpack(), lengths, 0)
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out.offsets[node.stream] = offsets
    values, child = array.values, node.children[0]
    filled = np.flatnonzero(lengths)
    first, last = starts[filled], (starts + lengths)[filled]
    if len(filled) and (np.any(first < 0) or np.any(last > len(values)) or np.any(lengths < 0)):
        raise InvalidArgumentError(f"lists point outside of their {len(values)} values")
    try:
        if len(filled) == 0:
            rearrange.blank(child, 0, out)
        elif np.array_equal(first[1:], last[:-1]):
            total = int(offsets[-1])
            _shred_node(child, values.slice(int(first[0]), total), None, out)
        else:
            _shred_scattered(child, values, first, last, out)
    except _MissingValueError as missing:
        missing.climb(node, _list_of(starts, lengths, missing.slot + int(first.min())))
        raise


def _shred_plain_list(node: Node, array: pa.Array, out: ColumnStreams) -> None:
    """Shred lists without nulls, whose elements lie in order."""
    offsets, base = arrow_buffers.list_offsets(array)
    out.offsets[node.stream] = offsets
    try:
        _shred_node(node.children[0], array.values.slice(base, int(offsets[-1])), None, out)
    except _MissingValueError as missing:
        missing.climb(node, int(np.searchsorted(offsets, missing.slot, side="right")) - 1)
        raise


def _list_of(starts: np.ndarray, lengths: np.ndarray, slot: int) -> int:
    """The first list that an element belongs to."""
    return int(np.argmax((starts <= slot) & (slot < starts + lengths)))


def _shred_scattered(
    child: Node, values: pa.Array, starts: np.ndarray, stops: np.ndarray, out: ColumnStreams
) -> None:
    """Shred ranges of list elements that lie apart, overlap or are out of order."""
    low, high = int(starts.min()), int(stops.max())
    source = ColumnStreams(high - low)
    needed = _covered(starts - low, stops - low, high - low)
    _shred_node(child, values.slice(low, high - low), needed, source)
    _adopt(rearrange.select(child, source, starts - low, stops - low), out)


def _covered(starts: np.ndarray, stops: np.ndarray, slots: int) -> Validity:
    """The slots that lie in at least one range."""
    depth = np.bincount(starts, minlength=slots + 1) - np.bincount(stops, minlength=slots + 1)
    return validity.settled(Bits.pack(np.cumsum(depth[:slots]) > 0))


def _adopt(source: ColumnStreams, out: ColumnStreams) -> None:
    out.slots.update(source.slots)
    out.validity.update(source.validity)
    out.offsets.update(source.offsets)
    out.data.update(source.data)


def _shred_gathered(
    node: Node, values: pa.Array, indices: np.ndarray, needed: Validity, out: ColumnStreams
) -> None:
    """Shred values that slots refer to by index, -1 for null.

    The values get one blank slot more, which stands for every null.
    """
    slots, size = len(indices), len(values)
    if isinstance(needed, Bits):
        indices = np.where(needed.unpack(), indices, -1)
    source = ColumnStreams(size)
    try:
        _shred_node(replace(node, nullable=True), values, _used(node, indices, size), source)
    except _MissingValueError as missing:
        missing.slot = int(np.argmax(indices == missing.slot))
        raise
    own = _validity_at(source.validity[node.validity], indices)
    visible = _visible(node, own, needed, slots)
    if visible is False:
        rearrange.blank(node, slots, out)
        return
    if isinstance(visible, Bits):
        indices = np.where(visible.unpack(), indices, size)
        padding = ColumnStreams(1)
        rearrange.blank(node, 1, padding)
        source = rearrange.concatenate(node, [source, padding])
    _adopt(rearrange.take(node, source, indices), out)


def _used(node: Node, indices: np.ndarray, size: int) -> Validity:
    """The values that indices refer to, for only in those a null can be an error."""
    if node.kind is NodeKind.LEAF or size == 0:
        return None
    used = np.zeros(size + 1, bool)
    used[indices] = True
    return validity.settled(Bits.pack(used[:size]))


def _validity_at(valid: Validity, indices: np.ndarray) -> Validity:
    """The validity of slots that refer to others by index, -1 for null."""
    present = indices >= 0
    if isinstance(valid, Bits):
        present &= np.append(valid.unpack(), False)[indices]
    elif valid is False:
        return False
    return validity.settled(Bits.pack(present))
