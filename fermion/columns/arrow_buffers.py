"""What lies in an Arrow array's buffers, as NumPy arrays: the only code that knows those layouts.

Every function heeds the array's offset and length, and views the memory where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import kernels
from fermion.columns.types import BinaryValues, Bits, PhysicalType, is_list_view
from fermion.columns.validity import Validity
from fermion.errors import InvalidArgumentError


def own_validity(array: pa.Array) -> Validity:
    """The validity that the array itself has, whatever its parents are."""
    slots, null_count = len(array), array.null_count
    if null_count == 0:
        return None
    if null_count == slots:
        return False
    if array.type.num_fields == 0:
        return _bits(array.buffers()[0], array.offset, slots)
    # buffers() of a nested array lists those of all its descendants; is_valid() has just this one.
    flags = array.is_valid()
    return _bits(flags.buffers()[1], flags.offset, slots)


def booleans(array: pa.BooleanArray) -> Bits:
    """The values of a boolean array; what null slots hold is unspecified."""
    return _bits(array.buffers()[1], array.offset, len(array))


def _bits(buffer: pa.Buffer, start: int, slots: int) -> Bits:
    """Bits ``start`` to ``start + slots`` (exclusive); a copy only if they start inside a byte."""
    data = np.frombuffer(buffer, np.uint8)
    if start % 8 == 0:
        return Bits(data[start // 8 : (start + slots + 7) // 8], slots)
    out = np.zeros((slots + 7) // 8, np.uint8)
    kernels.copy_bits(data, start, out, 0, slots)
    return Bits(out, slots)


def fixed_width(array: pa.Array, physical: PhysicalType) -> np.ndarray:
    """The values of an array of numbers or fixed-width bytes, of ``physical.dtype``.

    What null slots hold is unspecified. A view, but for memory that is not aligned.
    """
    slots, width = len(array), physical.width
    if width == 0:
        return np.zeros(slots, physical.dtype)
    values = np.frombuffer(
        array.buffers()[1], physical.dtype, count=slots, offset=array.offset * width
    )
    return values if values.flags.aligned else values.copy()


def binary(array: pa.Array) -> BinaryValues:
    """The values of strings or binary in any form; null slots may have a length."""
    dtype = array.type
    if pat.is_string_view(dtype):
        dtype = pa.large_string()
        array = array.cast(dtype)
    elif pat.is_binary_view(dtype):
        dtype = pa.large_binary()
        array = array.cast(dtype)
    wide = pat.is_large_string(dtype) or pat.is_large_binary(dtype)
    _, ends, data_buffer = array.buffers()
    raw = np.frombuffer(
        ends,
        np.int64 if wide else np.int32,
        count=len(array) + 1,
        offset=array.offset * (8 if wide else 4),
    )
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    offsets, base = _rebased(raw, len(data))
    return BinaryValues(offsets, data[base : base + int(offsets[-1])])


def list_offsets(array: pa.ListArray | pa.LargeListArray | pa.MapArray) -> tuple[np.ndarray, int]:
    """The offsets of lists without nulls, from 0, and the element they start at."""
    return _rebased(numbers_of(array.offsets), len(array.values))


def list_ranges(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """First element and length of each list in any form, ``int64``; unchecked."""
    offsets = numbers_of(array.offsets).astype(np.int64, copy=False)
    if is_list_view(array.type):
        return offsets, numbers_of(array.sizes).astype(np.int64, copy=False)
    return offsets[:-1], np.diff(offsets)


def _rebased(offsets: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Offsets as int64 from 0 (a view where they are so already), and what they started at."""
    base, end = int(offsets[0]), int(offsets[-1])
    if base < 0 or end > size or np.any(offsets[1:] < offsets[:-1]):
        raise InvalidArgumentError(
            f"offsets from {base} to {end}, expected them never to decrease, from 0 to {size}"
        )
    wide = offsets.astype(np.int64, copy=False)
    if base:
        wide = wide - base
    return (wide if wide.flags.aligned else wide.copy()), base


def dictionary_indices(array: pa.DictionaryArray) -> np.ndarray:
    """``int64``: which dictionary value each slot has; -1 for null."""
    indices, size = array.indices, len(array.dictionary)
    codes = np.frombuffer(
        indices.buffers()[1],
        indices.type.to_pandas_dtype(),
        count=len(indices),
        offset=indices.offset * indices.type.byte_width,
    ).astype(np.int64)
    valid = own_validity(indices)
    if valid is False:
        codes[:] = -1
        return codes
    if isinstance(valid, Bits):
        # Whatever stands in a null slot is no index.
        present = valid.unpack()
        wrong = present & ((codes < 0) | (codes >= size))
        codes[~present] = -1
    else:
        wrong = (codes < 0) | (codes >= size)
    if np.any(wrong):
        at = int(np.argmax(wrong))
        raise InvalidArgumentError(
            f"index {codes[at]} at row {at} is outside of a dictionary of {size} values"
        )
    return codes


def run_indices(array: pa.RunEndEncodedArray) -> np.ndarray:
    """``int64``: which run each slot belongs to."""
    ends = array.run_ends.to_numpy().astype(np.int64) - array.offset
    lengths = np.diff(np.clip(ends, 0, len(array)), prepend=0)
    indices = np.repeat(np.arange(len(ends)), lengths)
    if len(indices) != len(array) or len(ends) > len(array.values):
        raise InvalidArgumentError(
            f"{len(ends)} runs of {len(indices)} rows, expected {len(array)} rows and at most "
            f"{len(array.values)} runs"
        )
    return indices


def array_of(values: Sequence[Any] | np.ndarray, dtype: pa.DataType) -> pa.Array:
    """Numbers, texts or bytes, of which none is null, as an array of a type of `PLAIN`.

    `pyarrow.array` imports pandas where it is installed, which takes longer than a short query.
    Raises OverflowError: An integer does not fit, or the texts do not.
    Raises UnicodeEncodeError: A text has no UTF-8.
    """
    form = PLAIN[dtype]
    if form[0] != "o":
        buffers = [pa.py_buffer(np.ascontiguousarray(values, form))]
    else:
        parts = [value.encode() if isinstance(value, str) else value for value in values]
        ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        if ends[-1] > np.iinfo(form[1:]).max:
            raise OverflowError(f"{ends[-1]} bytes do not fit into an array of {dtype}")
        buffers = [pa.py_buffer(ends.astype(form[1:])), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(dtype, len(values), [None, *buffers])


def numbers_of(array: pa.Array) -> np.ndarray:
    """The numbers or booleans of an array without nulls; numbers as a view.

    `pyarrow.Array.to_numpy` imports pandas, too.
    """
    form = np.dtype("?" if pat.is_boolean(array.type) else PLAIN[array.type])
    if not len(array):
        return np.zeros(0, form)
    if form.kind == "b":
        return booleans(array).unpack()
    return np.frombuffer(array.buffers()[1], form, len(array), array.offset * form.itemsize)


PLAIN = {
    pa.int8(): "i1",
    pa.int16(): "i2",
    pa.int32(): "i4",
    pa.int64(): "i8",
    pa.uint8(): "u1",
    pa.uint16(): "u2",
    pa.uint32(): "u4",
    pa.uint64(): "u8",
    pa.float32(): "f4",
    pa.float64(): "f8",
    pa.string(): "oi4",
    pa.binary(): "oi4",
    pa.large_string(): "oi8",
    pa.large_binary(): "oi8",
}
"""Types of arrays that `array_of` makes: how values are stored, or after an ``o`` their ends."""


def is_same_memory(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays are the same memory; Arrow's Python objects are new at every look."""
    ours, theirs = (
        [buffer and (buffer.address, buffer.size) for buffer in array.buffers()]
        for array in (left, right)
    )
    return len(left) == len(right) and left.offset == right.offset and ours == theirs


def has_dictionary(dtype: pa.DataType) -> bool:
    """Whether a type is a dictionary, or has one anywhere within."""
    if isinstance(dtype, pa.BaseExtensionType):
        return has_dictionary(dtype.storage_type)
    if pat.is_run_end_encoded(dtype):
        return has_dictionary(dtype.value_type)
    return pat.is_dictionary(dtype) or any(
        has_dictionary(dtype.field(index).type) for index in range(dtype.num_fields)
    )
