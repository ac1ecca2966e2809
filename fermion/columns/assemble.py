"""The streams of a column → an Arrow array; `shred` is the way there.

Buffers are handed to Arrow without copying where they already are as Arrow wants them: numbers,
booleans, bytes and 64-bit offsets. Lengths are checked first, for Arrow trusts them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns import distinct
from fermion.columns import slots as rearrange
from fermion.columns.filled import check_filled
from fermion.columns.types import (
    BinaryValues,
    Bits,
    ColumnStreams,
    Node,
    NodeKind,
    PhysicalKind,
    is_list_view,
)
from fermion.columns.validity import Validity
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import CHUNK_SLOTS_MAX

_INT32_MAX = 2**31 - 1


def assemble(node: Node, streams: ColumnStreams) -> pa.Array:
    """Put a column together.

    node: The column's tree. Children of structs may be left out, of the tree and of its types.
    streams: Streams of all nodes of the tree. Below a node whose validity is ``False`` or that has
        no slots none are needed.
    Returns: ``streams.length`` values of exactly ``node.type``; numbers, booleans, bytes and 64-bit
        offsets are views of the streams.
    Raises InvalidFileError: If streams are missing, or their lengths contradict each other.
    Raises InvalidArgumentError: If the values do not fit the type in one array: more than 2**31 - 1
        bytes or elements under 32-bit offsets, or more dictionary values than the index type can
        number.
    """
    _check(node, streams, streams.length, node.name)
    try:
        return _build(node, streams, streams.length)
    except (pa.ArrowException, InvalidArgumentError) as error:
        kind = InvalidFileError if isinstance(error, pa.ArrowException) else InvalidArgumentError
        raise kind(f"column {node.name!r}: {error}") from error


def _check(node: Node, streams: ColumnStreams, slots: int, where: str) -> None:
    """Compare the lengths of all streams of a subtree with its slots."""
    if slots > CHUNK_SLOTS_MAX:
        raise InvalidArgumentError(
            f"column {where!r}: {slots} values in one array, expected at most {CHUNK_SLOTS_MAX}; "
            "read in smaller batches"
        )
    if node.kind is NodeKind.NULL:
        return
    valid = streams.validity.get(node.validity)
    _check_validity(node, valid, slots, where)
    if valid is False or slots == 0:
        check_filled(node.storage, slots, f"column {where!r}")
        return
    if node.kind is NodeKind.LEAF:
        _check_data(node, streams, slots, where)
    elif node.kind is NodeKind.LIST:
        elements = _check_offsets(streams.offsets.get(node.stream), slots, where)
        _check(node.children[0], streams, elements, f"{where}.{node.children[0].name}")
    elif node.kind is NodeKind.FIXED_LIST:
        elements = slots * node.storage.list_size
        _check(node.children[0], streams, elements, f"{where}.{node.children[0].name}")
    else:
        for child in node.children:
            _check(child, streams, slots, f"{where}.{child.name}")


def _check_validity(node: Node, valid: Validity, slots: int, where: str) -> None:
    if isinstance(valid, Bits):
        if valid.length != slots or len(valid.data) * 8 < slots:
            raise InvalidFileError(
                f"column {where!r}: {valid.length} validity bits, expected {slots}"
            )
        nulls = 0 if node.nullable else slots - valid.count()
    else:
        nulls = slots if valid is False else 0
    if nulls and not node.nullable:
        raise InvalidFileError(
            f"column {where!r}: {nulls} of {slots} values are null, expected none in a field that "
            "is not nullable"
        )


def _check_offsets(offsets: np.ndarray | None, slots: int, where: str) -> int:
    """The elements that the offsets end at."""
    if offsets is None:
        raise InvalidFileError(f"column {where!r}: no offsets for {slots} slots")
    if len(offsets) != slots + 1 or offsets[0] != 0 or offsets[-1] < 0:
        raise InvalidFileError(
            f"column {where!r}: {len(offsets)} offsets, expected {slots + 1} that start at 0"
        )
    return int(offsets[-1])


def _check_data(node: Node, streams: ColumnStreams, slots: int, where: str) -> None:
    assert node.physical is not None
    values = streams.data.get(node.stream)
    if values is None:
        raise InvalidFileError(f"column {where!r}: no data for {slots} slots")
    if len(values) != slots:
        raise InvalidFileError(f"column {where!r}: {len(values)} values, expected {slots}")
    if node.physical.kind is PhysicalKind.BINARY:
        assert isinstance(values, BinaryValues)
        size = _check_offsets(values.offsets, slots, where)
        if size > len(values.data):
            raise InvalidFileError(
                f"column {where!r}: {len(values.data)} bytes of data, expected {size}"
            )
    elif node.physical.kind is PhysicalKind.BITS:
        assert isinstance(values, Bits)
        if len(values.data) * 8 < slots:
            raise InvalidFileError(
                f"column {where!r}: {8 * len(values.data)} packed booleans, expected {slots}"
            )
    else:
        assert isinstance(values, np.ndarray)
        if values.itemsize != node.physical.dtype.itemsize:
            raise InvalidFileError(
                f"column {where!r}: values of {values.itemsize} bytes, "
                f"expected {node.physical.dtype.itemsize}"
            )


def _build(node: Node, streams: ColumnStreams, slots: int) -> pa.Array:
    if node.type is node.storage:
        return _build_storage(node, streams, slots)
    return _build_wrapped(node, streams, slots, node.type)


def _build_wrapped(node: Node, streams: ColumnStreams, slots: int, dtype: pa.DataType) -> pa.Array:
    """Build a subtree with the wrappers of ``dtype``: extension, dictionary, run-end encoded."""
    if isinstance(dtype, pa.BaseExtensionType):
        storage = _build_wrapped(node, streams, slots, dtype.storage_type)
        return pa.ExtensionArray.from_storage(dtype, storage)
    if pat.is_dictionary(dtype):
        codes, first = distinct.codes(node, streams, slots)
        distinct_values = rearrange.take(node, streams, first)
        dictionary = _build_wrapped(node, distinct_values, len(first), dtype.value_type)
        return _dictionary(dtype, codes, dictionary)
    if pat.is_run_end_encoded(dtype):
        starts = distinct.run_starts(node, streams, slots)
        run_values = rearrange.take(node, streams, starts)
        values = _build_wrapped(node, run_values, len(starts), dtype.value_type)
        return _run_end_encoded(dtype, np.append(starts[1:], slots)[: len(starts)], values)
    return _build_storage(node, streams, slots)


def _dictionary(
    dtype: pa.DictionaryType, codes: np.ndarray, dictionary: pa.Array
) -> pa.DictionaryArray:
    index_dtype = np.dtype(dtype.index_type.to_pandas_dtype())
    if len(dictionary) - 1 > np.iinfo(index_dtype).max:
        raise InvalidArgumentError(
            f"{len(dictionary)} distinct values, more than indices of type {dtype.index_type} can "
            "number; read fewer rows at once"
        )
    indices = pa.array(codes.astype(index_dtype), dtype.index_type, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=dtype.ordered, safe=False)


def _run_end_encoded(
    dtype: pa.RunEndEncodedType, ends: np.ndarray, values: pa.Array
) -> pa.RunEndEncodedArray:
    end_dtype = np.dtype(dtype.run_end_type.to_pandas_dtype())
    if len(ends) and ends[-1] > np.iinfo(end_dtype).max:
        raise InvalidArgumentError(
            f"{ends[-1]} rows, more than run ends of type {dtype.run_end_type} can number; "
            "read fewer rows at once"
        )
    run_ends = pa.array(ends.astype(end_dtype), dtype.run_end_type)
    return pa.RunEndEncodedArray.from_arrays(run_ends, values, dtype)


def _build_storage(node: Node, streams: ColumnStreams, slots: int) -> pa.Array:
    if node.kind is NodeKind.NULL:
        return pa.nulls(slots)
    valid = streams.validity.get(node.validity)
    if valid is False or slots == 0:
        if node.kind is NodeKind.LEAF and node.nullable:
            return pa.nulls(slots, node.storage)
        streams = ColumnStreams(slots)
        rearrange.blank(node, slots, streams)
        valid = streams.validity[node.validity]
    bitmap = _bitmap(valid, slots)
    if node.kind is NodeKind.LEAF:
        return _build_leaf(node, streams, slots, bitmap)
    if node.kind is NodeKind.LIST:
        return _build_list(node, streams, slots, bitmap)
    if node.kind is NodeKind.FIXED_LIST:
        child = _build(node.children[0], streams, slots * node.storage.list_size)
        return _from_buffers(node.storage, slots, [bitmap], [child])
    children = [_build(child, streams, slots) for child in node.children]
    return _from_buffers(node.storage, slots, [bitmap], children)


def _bitmap(valid: Validity, slots: int) -> pa.Buffer | None:
    if valid is None:
        return None
    if valid is False:
        return pa.py_buffer(np.zeros((slots + 7) // 8, np.uint8))
    assert isinstance(valid, Bits)
    return _buffer(valid.data)


def _buffer(array: np.ndarray) -> pa.Buffer:
    """The array's memory; copied first where Arrow could not use it as it lies."""
    flags = array.flags
    if not (flags.aligned and flags.c_contiguous):
        array = array.copy()
    return pa.py_buffer(array)


def _from_buffers(
    dtype: pa.DataType, slots: int, buffers: list[pa.Buffer | None], children: list[pa.Array]
) -> pa.Array:
    """Build a nested array. Arrow ends the process when a child has the wrong type, so look."""
    found = [child.type for child in children]
    expected = [dtype.field(index).type for index in range(dtype.num_fields)]
    if found != expected:
        raise InvalidArgumentError(f"children of types {found}, expected {expected} for {dtype}")
    return pa.Array.from_buffers(dtype, slots, buffers, children=children)


def _build_leaf(
    node: Node, streams: ColumnStreams, slots: int, bitmap: pa.Buffer | None
) -> pa.Array:
    values = streams.data[node.stream]
    if isinstance(values, BinaryValues):
        return _build_binary(node.storage, values, slots, bitmap)
    data = values.data if isinstance(values, Bits) else values
    return pa.Array.from_buffers(node.storage, slots, [bitmap, _buffer(data)])


def _build_binary(
    dtype: pa.DataType, values: BinaryValues, slots: int, bitmap: pa.Buffer | None
) -> pa.Array:
    offsets, layout = values.offsets, dtype
    if pat.is_string_view(dtype):
        layout = pa.large_string()
    elif pat.is_binary_view(dtype):
        layout = pa.large_binary()
    if not (pat.is_large_string(dtype) or pat.is_large_binary(dtype)):
        narrow = _narrowed(offsets, "bytes", dtype)
        offsets = narrow if layout is dtype else offsets
    buffers = [bitmap, _buffer(offsets), _buffer(values.data)]
    array = pa.Array.from_buffers(layout, slots, buffers)
    return array if layout is dtype else array.cast(dtype)


def _build_list(
    node: Node, streams: ColumnStreams, slots: int, bitmap: pa.Buffer | None
) -> pa.Array:
    dtype, offsets = node.storage, streams.offsets[node.stream]
    child = _build(node.children[0], streams, int(offsets[-1]))
    if not (pat.is_large_list(dtype) or pat.is_large_list_view(dtype)):
        offsets = _narrowed(offsets, "elements", dtype)
    if is_list_view(dtype):
        buffers = [bitmap, _buffer(offsets[:-1]), _buffer(np.diff(offsets))]
    else:
        buffers = [bitmap, _buffer(offsets)]
    return _from_buffers(dtype, slots, buffers, [child])


def _narrowed(offsets: np.ndarray, unit: str, dtype: pa.DataType) -> np.ndarray:
    if offsets[-1] > _INT32_MAX:
        raise InvalidArgumentError(
            f"{offsets[-1]} {unit} in one array, more than the 32-bit offsets of {dtype} can "
            "number; read in smaller batches"
        )
    return offsets.astype(np.int32)
