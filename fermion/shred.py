"""Arrow arrays → the streams of a column; `assemble` is the way back.

Values hidden under nulls end here: ranges under null lists are dropped, children of null structs
become null (or zero, where they cannot be), null slots get a filler. What is stored depends on
the logical values alone, so slices, chunks and unusual layouts leave no trace.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import kernels, rearrange, validity
from fermion.arrow_types import Node, NodeKind
from fermion.errors import InvalidArgumentError
from fermion.streams import ColumnStreams
from fermion.validity import Validity
from fermion.values import BinaryValues, Bits, PhysicalKind

_WRAPPED = (pa.ExtensionArray, pa.DictionaryArray, pa.RunEndEncodedArray)
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

    Parameters
    ----------
    array
        Values of exactly ``node.type``; may be sliced or chunked.
    node
        The column's tree.

    Returns
    -------
    ColumnStreams
        Views of the array's buffers where they already are as the streams want them.

    Raises
    ------
    InvalidArgumentError
        If the type differs, if a field that is not nullable has a null, or if the array is not a
        well-formed Arrow array.
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

    Parameters
    ----------
    node, array
        The subtree and its values, wrapped or not.
    needed
        The slots that count: the others lie under a null parent, or nothing refers to them.
    out
        Gets the streams.
    """
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    slots = len(array)
    if slots == 0 or needed is False:
        rearrange.blank(node, slots, out)
    elif isinstance(array, pa.DictionaryArray):
        _shred_gathered(node, array.dictionary, _dictionary_indices(array), needed, out)
    elif isinstance(array, pa.RunEndEncodedArray):
        _shred_gathered(node, array.values, _run_indices(array), needed, out)
    else:
        _shred_storage(node, array, needed, out)


def _shred_storage(node: Node, array: pa.Array, needed: Validity, out: ColumnStreams) -> None:
    slots = len(array)
    own = _own_validity(node, array)
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


def _own_validity(node: Node, array: pa.Array) -> Validity:
    if node.kind is NodeKind.NULL:
        return False
    null_count = array.null_count
    if null_count == 0:
        return None
    if null_count == len(array):
        return False
    if node.kind is NodeKind.LEAF:
        return validity.bits_from_arrow(array.buffers()[0], array.offset, len(array))
    # buffers() of a nested array lists those of all its descendants; is_valid() has just this one.
    bits = array.is_valid()
    return validity.bits_from_arrow(bits.buffers()[1], bits.offset, len(bits))


def _visible(node: Node, own: Validity, needed: Validity, slots: int) -> Validity:
    """The slots that hold a value to be seen; a null that must not be is an error."""
    if not node.nullable:
        missing = validity.first_missing(own, needed, slots)
        if missing is not None:
            raise _MissingValueError(node, missing)
    return validity.intersect(own, needed)


def _shred_leaf(node: Node, array: pa.Array, visible: Validity, out: ColumnStreams) -> None:
    assert node.physical is not None
    slots = len(array)
    if node.physical.kind is PhysicalKind.BINARY:
        out.data[node.stream] = _binary(array, visible)
        return
    if node.physical.kind is PhysicalKind.BITS:
        bits = validity.bits_from_arrow(array.buffers()[1], array.offset, slots)
        if isinstance(visible, Bits):
            bits = Bits(bits.data[: (slots + 7) // 8].copy(), slots)
            rearrange.fill_nulls(bits, visible)
        out.data[node.stream] = bits
        return
    width = node.physical.width
    if width == 0:
        out.data[node.stream] = np.zeros(slots, node.physical.dtype)
        return
    values = np.frombuffer(
        array.buffers()[1], node.physical.dtype, count=slots, offset=array.offset * width
    )
    if isinstance(visible, Bits):
        values = values.copy()
        if node.nullable:
            rearrange.fill_nulls(values, visible)
        else:
            values[~visible.unpack()] = np.zeros((), values.dtype)
    out.data[node.stream] = values if values.flags.aligned else values.copy()


def _binary(array: pa.Array, visible: Validity) -> BinaryValues:
    """Strings or binary of any form; values that are not visible become empty."""
    dtype = array.type
    if pat.is_string_view(dtype):
        array = array.cast(pa.large_string())
    elif pat.is_binary_view(dtype):
        array = array.cast(pa.large_binary())
    dtype = array.type
    wide = pat.is_large_string(dtype) or pat.is_large_binary(dtype)
    slots = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(
        offsets_buffer,
        np.int64 if wide else np.int32,
        count=slots + 1,
        offset=array.offset * (8 if wide else 4),
    )
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    offsets, base = _rebased(offsets, len(data))
    values = BinaryValues(offsets, data[base : base + int(offsets[-1])])
    if isinstance(visible, Bits):
        seen = visible.unpack()
        if np.any(np.diff(offsets)[~seen]):
            return _without_hidden(values, seen)
    return values


def _rebased(offsets: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Offsets as int64 from 0 (a view where they are so already), and what they started at."""
    base, end = int(offsets[0]), int(offsets[-1])
    if base < 0 or end > size or np.any(offsets[1:] < offsets[:-1]):
        raise InvalidArgumentError(
            f"offsets {base} to {end} decrease or are outside of {size} values"
        )
    wide = offsets.astype(np.int64, copy=False)
    if base:
        wide = wide - base
    return (wide if wide.flags.aligned else wide.copy()), base


def _without_hidden(values: BinaryValues, seen: np.ndarray) -> BinaryValues:
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
    values = array.values
    starts, lengths = _list_ranges(node, array)
    if isinstance(visible, Bits):
        lengths = np.where(visible.unpack(), lengths, 0)
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out.offsets[node.stream] = offsets
    filled = np.flatnonzero(lengths)
    first, last = starts[filled], (starts + lengths)[filled]
    if len(filled) and (np.any(first < 0) or np.any(last > len(values)) or np.any(lengths < 0)):
        raise InvalidArgumentError(f"lists point outside of their {len(values)} values")
    child = node.children[0]
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


def _list_ranges(node: Node, array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """First slot and length of each list."""
    offsets = array.offsets.to_numpy().astype(np.int64, copy=False)
    if pat.is_list_view(node.storage) or pat.is_large_list_view(node.storage):
        return offsets, array.sizes.to_numpy().astype(np.int64, copy=False)
    return offsets[:-1], np.diff(offsets)


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


def _dictionary_indices(array: pa.DictionaryArray) -> np.ndarray:
    """``int64``: which dictionary value each slot has; -1 for null."""
    indices = array.indices
    size = len(array.dictionary)
    codes = np.frombuffer(
        indices.buffers()[1],
        indices.type.to_pandas_dtype(),
        count=len(indices),
        offset=indices.offset * indices.type.byte_width,
    ).astype(np.int64)
    if indices.null_count:
        codes[~indices.is_valid().to_numpy(zero_copy_only=False)] = -1
        wrong = codes < -1
    else:
        wrong = codes < 0
    wrong |= codes >= size
    if np.any(wrong):
        at = int(np.argmax(wrong))
        raise InvalidArgumentError(
            f"index {codes[at]} at row {at} is outside of a dictionary of {size} values"
        )
    return codes


def _run_indices(array: pa.RunEndEncodedArray) -> np.ndarray:
    """``int64``: which run each slot belongs to."""
    ends = array.run_ends.to_numpy().astype(np.int64) - array.offset
    lengths = np.diff(np.clip(ends, 0, len(array)), prepend=0)
    return np.repeat(np.arange(len(ends)), lengths)


def _shred_gathered(
    node: Node, values: pa.Array, indices: np.ndarray, needed: Validity, out: ColumnStreams
) -> None:
    """Shred values that slots refer to by index, -1 for null.

    The values get one blank slot more, which stands for every null.
    """
    slots = len(indices)
    size = len(values)
    if isinstance(needed, Bits):
        indices = np.where(needed.unpack(), indices, -1)
    used = np.zeros(size + 1, bool)
    used[indices] = True
    used[size] = False
    source = ColumnStreams(size)
    optional = replace(node, nullable=True)
    reached = validity.settled(Bits.pack(used[:size])) if size else None
    try:
        _shred_node(optional, values, reached, source)
    except _MissingValueError as missing:
        missing.slot = int(np.argmax(indices == missing.slot))
        raise
    own = np.append(validity.to_flags(source.validity[node.validity], size), False)[indices]
    visible = _visible(node, validity.settled(Bits.pack(own)), needed, slots)
    if visible is False:
        rearrange.blank(node, slots, out)
        return
    if not node.nullable:
        source.validity[node.validity] = None
    if isinstance(visible, Bits):
        indices = np.where(own, indices, size)
        padding = ColumnStreams(1)
        rearrange.blank(node, 1, padding)
        source = rearrange.concatenate(node, [source, padding])
    _adopt(rearrange.select(node, source, indices, indices + 1), out)
