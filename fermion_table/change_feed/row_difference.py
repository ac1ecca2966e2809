"""Which rows two tables do not have in common, over any Arrow types. Pure, in memory.

Rows are numbered by value: each column's values get codes, equal exactly where the values are
(NaN equals NaN, 0.0 is not -0.0), and the codes of a row's columns together get one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion.engine import take_batch_rows, unwrapped

NULL_CODE = -1
_CODE = np.dtype("<i8")


def rows_apart(
    one: Sequence[pa.RecordBatch], other: Sequence[pa.RecordBatch]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows left when each row of one is struck out together with an equal row of the other.

    one, other: Batches of one schema.
    Returns: Row numbers, counted through the batches of one and of the other, ``int64``, ascending.
        Of equal rows the last are left.
    """
    codes = row_codes([*one, *other])
    count = int(codes.max(initial=NULL_CODE)) + 1
    rows = sum(batch.num_rows for batch in one)
    ours, theirs = codes[:rows], codes[rows:]
    shared = np.minimum(np.bincount(ours, minlength=count), np.bincount(theirs, minlength=count))
    return _after(ours, shared), _after(theirs, shared)


def pick_rows(batches: Sequence[pa.RecordBatch], rows: np.ndarray) -> list[pa.RecordBatch]:
    """Rows of batches by number, ascending, counted through all batches; no batch is empty."""
    picked = []
    start = 0
    for batch in batches:
        low, high = np.searchsorted(rows, (start, start + batch.num_rows))
        if low < high:
            picked.append(take_batch_rows(batch, rows[low:high] - start))
        start += batch.num_rows
    return picked


def row_codes(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    """A number for each row, ``int64`` from 0 on, equal exactly for equal rows."""
    columns = [_codes(_one_array(chunks)) for chunks in zip(*batches, strict=True)]
    return _combined(columns, sum(batch.num_rows for batch in batches))


def _after(codes: np.ndarray, struck: np.ndarray) -> np.ndarray:
    """The rows but the first ``struck[code]`` of each code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.searchsorted(ordered, ordered)
    rank = np.arange(len(ordered)) - starts
    return np.sort(order[rank >= struck[ordered]])


def _combined(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    if not columns:
        return np.zeros(rows, _CODE)
    if len(columns) == 1:
        return _dense(pa.array(columns[0]))
    matrix = np.ascontiguousarray(np.stack(columns, axis=1).astype(_CODE, copy=False))
    wide = pa.binary(matrix.shape[1] * _CODE.itemsize)
    return _dense(pa.FixedSizeBinaryArray.from_buffers(wide, rows, [None, pa.py_buffer(matrix)]))


def _dense(array: pa.Array) -> np.ndarray:
    """Codes of values that Arrow can hash, in the order of first appearance."""
    indices = array.dictionary_encode().indices
    return indices.fill_null(NULL_CODE).to_numpy(zero_copy_only=False).astype(_CODE)


def _codes(array: pa.Array) -> np.ndarray:
    """A number for each value, ``int64``; `NULL_CODE` for null."""
    dtype = array.type
    plain = unwrapped(array)
    if plain is not array:
        return _codes(plain)
    if pat.is_struct(dtype):
        return _nulled(array, _combined([_codes(child) for child in array.flatten()], len(array)))
    if pat.is_map(dtype):
        return _codes(array.cast(pa.list_(pa.struct([("key", dtype.key_type), dtype.item_field]))))
    if pat.is_nested(dtype) and not pat.is_union(dtype):
        return _list_codes(array)
    try:
        return _dense(array)
    except pa.ArrowNotImplementedError:  # small decimals, unions
        return _nulled(array, _dense(pa.array([repr(value) for value in array.to_pylist()])))


def _list_codes(array: pa.Array) -> np.ndarray:
    """Lists are equal where the codes of their values are, as bytes."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    values = _codes(array.flatten())
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths * _CODE.itemsize, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return _nulled(array, _dense(pa.Array.from_buffers(pa.large_binary(), len(array), buffers)))


def _nulled(array: pa.Array, codes: np.ndarray) -> np.ndarray:
    if array.null_count:
        codes[array.is_null().to_numpy(zero_copy_only=False)] = NULL_CODE
    return codes


def _one_array(chunks: Sequence[pa.Array]) -> pa.Array:
    """A column's chunks as one array; long text gets offsets that can hold it."""
    dtype = chunks[0].type
    if pat.is_dictionary(dtype):
        chunks, dtype = [chunk.dictionary_decode() for chunk in chunks], dtype.value_type
    if pat.is_string(dtype) or pat.is_binary(dtype):
        dtype = pa.large_string() if pat.is_string(dtype) else pa.large_binary()
        chunks = [chunk.cast(dtype) for chunk in chunks]
    return pa.concat_arrays(chunks)
