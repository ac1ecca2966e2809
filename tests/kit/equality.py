"""Whether two Arrow arrays or tables hold the same logical values.

Stricter than Arrow's own equality (types match exactly; floats are compared bit for bit, so NaN
equals itself and 0.0 is not -0.0) and laxer (what lies under a null, how lists lie in memory, how
a dictionary is numbered and how rows are chunked make no difference). It is written against
Arrow's specification and shares no code with the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

Pieces = dict[tuple[Any, ...], list[np.ndarray]]


def assert_logically_equal(actual: Any, expected: Any) -> None:
    """Assert that two arrays, chunked arrays, record batches or tables are logically equal."""
    if isinstance(expected, (pa.Table, pa.RecordBatch)):
        assert actual.schema.equals(expected.schema, check_metadata=True), (
            f"schemas differ:\n{actual.schema.to_string()}\n--- expected\n"
            f"{expected.schema.to_string()}"
        )
        assert actual.num_rows == expected.num_rows
        for index in range(expected.num_columns):
            assert_logically_equal(actual.column(index), expected.column(index))
        return
    assert actual.type == expected.type, f"type {actual.type}, expected {expected.type}"
    assert len(actual) == len(expected), f"{len(actual)} values, expected {len(expected)}"
    found, wanted = _logical(actual), _logical(expected)
    for path, values in wanted.items():
        same = path in found and np.array_equal(found[path], values)
        assert same, (
            f"{expected.type}: values differ at {path}:\n{found.get(path)}\n--- expected\n{values}"
        )
    assert found.keys() == wanted.keys()


def is_logically_equal(actual: Any, expected: Any) -> bool:
    """Whether `assert_logically_equal` would pass."""
    try:
        assert_logically_equal(actual, expected)
    except AssertionError:
        return False
    return True


def valid_rows(array: pa.ChunkedArray) -> np.ndarray:
    """Which values are not null, also within wrappers: bool, shape (rows,).

    Without making scalars of them: Arrow crashes on some of those.
    """
    found = [_unwrap(chunk, np.arange(len(chunk)))[2] for chunk in array.chunks]
    return np.concatenate([np.empty(0, bool), *found])


def _logical(array: pa.Array | pa.ChunkedArray) -> dict[tuple[Any, ...], np.ndarray]:
    """Every logical value below an array, as flat NumPy arrays by path; hidden ones left out."""
    pieces: Pieces = {}
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    for chunk in chunks:
        _visit(chunk, np.arange(len(chunk)), (), pieces)
    joined = {path: np.concatenate(parts) for path, parts in pieces.items()}
    return {path: values for path, values in joined.items() if len(values)}


def _visit(array: pa.Array, slots: np.ndarray, path: tuple[Any, ...], pieces: Pieces) -> None:
    """Append what ``slots`` of ``array`` hold."""
    array, slots, valid = _unwrap(array, slots)
    pieces.setdefault((*path, "valid"), []).append(valid)
    slots = slots[valid]
    dtype = array.type
    if len(slots) == 0 or pat.is_null(dtype):
        return
    if pat.is_struct(dtype):
        for index in range(dtype.num_fields):
            _visit(array.field(index), slots, (*path, index), pieces)
    elif pat.is_fixed_size_list(dtype):
        size = dtype.list_size
        first = (slots + array.offset) * size
        elements = (first[:, None] + np.arange(size)).reshape(-1)
        _visit(array.values, elements, (*path, "item"), pieces)
    elif dtype.num_fields:
        starts = array.offsets.to_numpy().astype(np.int64)
        view = pat.is_list_view(dtype) or pat.is_large_list_view(dtype)
        sizes = array.sizes.to_numpy().astype(np.int64) if view else np.diff(starts)
        pieces.setdefault((*path, "size"), []).append(sizes[slots])
        _visit(array.values, _ranges(starts[slots], sizes[slots]), (*path, "item"), pieces)
    else:
        _visit_leaf(array, slots, path, pieces)


def _unwrap(array: pa.Array, slots: np.ndarray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The array without wrappers, the slots in it, and which of them are valid."""
    slots, valid = slots.copy(), np.ones(len(slots), bool)
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            valid[valid] = _flags(array.indices)[slots[valid]]
            codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            slots[valid] = codes[slots[valid]]
            array = array.dictionary
        elif isinstance(array, pa.RunEndEncodedArray):
            ends = array.run_ends.to_numpy().astype(np.int64)
            slots[valid] = np.searchsorted(ends, slots[valid] + array.offset, side="right")
            array = array.values
        else:
            break
    valid[valid] = _flags(array)[slots[valid]]
    return array, slots, valid


def _flags(array: pa.Array) -> np.ndarray:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _visit_leaf(array: pa.Array, slots: np.ndarray, path: tuple[Any, ...], pieces: Pieces) -> None:
    dtype = array.type
    if pat.is_string_view(dtype) or pat.is_binary_view(dtype):
        array = array.cast(pa.large_string() if pat.is_string_view(dtype) else pa.large_binary())
        dtype = array.type
    buffers = array.buffers()
    at = slots + array.offset
    if pat.is_boolean(dtype):
        bits = np.unpackbits(np.frombuffer(buffers[1], np.uint8), bitorder="little")
        pieces.setdefault((*path, "value"), []).append(bits[at])
    elif len(buffers) == 3:
        wide = pat.is_large_string(dtype) or pat.is_large_binary(dtype)
        ends = np.frombuffer(buffers[1], np.int64 if wide else np.int32).astype(np.int64)
        lengths = ends[at + 1] - ends[at]
        data = np.frombuffer(buffers[2] or b"", np.uint8)
        pieces.setdefault((*path, "length"), []).append(lengths)
        pieces.setdefault((*path, "bytes"), []).append(data[_ranges(ends[at], lengths)])
    else:
        width = dtype.bit_width // 8
        data = np.frombuffer(buffers[1] or b"", np.uint8)
        pieces.setdefault((*path, "value"), []).append(
            data[_ranges(at * width, np.full(len(at), width))]
        )


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All indices of the ranges, one after the other."""
    ends = np.cumsum(lengths)
    shift = np.repeat(starts - ends + lengths, lengths)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)
