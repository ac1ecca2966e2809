"""Arrays that hold one value in every row, valid for every Arrow type.

Arrow's own ``pa.nulls`` and ``pa.repeat`` give run-end encoded children below a null a validity
bitmap; Arrow itself refuses such arrays.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import array_of, check_filled, filled_bytes
from fermion_table.schema.widening import is_binary, is_list_view, is_text

_FIXED_OR_VIEWS = (pa.FixedSizeBinaryScalar, pa.BinaryViewScalar, pa.StringViewScalar)
"""Scalars whose bytes follow from the type, or are there once for all rows."""


def repeat(scalar: pa.Scalar, length: int) -> pa.Array:
    """An array of ``length`` rows that all hold ``scalar``.

    Returns: Of the scalar's type.
    Raises pa.ArrowInvalid: Run ends of the type can't count so many rows.
    Raises InvalidArgumentError: They would take too much memory: see `fermion.engine.check_filled`.
    """
    dtype = scalar.type
    if not scalar.is_valid or not length:  # Arrow repeats no list zero times
        return nulls(dtype, length)
    check_filled(dtype, length, value_bytes=scalar_bytes(scalar))
    return _repeat(scalar, length)


def repeat_text(text: str, length: int) -> pa.Array:
    """An array of ``length`` texts; unlike ``pa.scalar``, without importing pandas."""
    return repeat(array_of([text], pa.string())[0], length)


def scalar_bytes(scalar: pa.Scalar) -> int:
    """Bytes that a value takes in each row of an array that holds nothing else."""
    if isinstance(scalar, pa.ExtensionScalar):
        return scalar_bytes(scalar.value)
    if isinstance(scalar, pa.BinaryScalar) and not isinstance(scalar, _FIXED_OR_VIEWS):
        return filled_bytes(scalar.type) + int(scalar.as_buffer().size)
    if isinstance(scalar, pa.StructScalar):
        return sum(scalar_bytes(each) for each in scalar.values() if each.is_valid)
    if isinstance(scalar, pa.ListScalar) and scalar.values is not None:
        return filled_bytes(scalar.type) + int(scalar.values.nbytes)
    return filled_bytes(scalar.type)


def _repeat(scalar: pa.Scalar, length: int) -> pa.Array:
    dtype = scalar.type
    if not scalar.is_valid:
        return _nulls(dtype, length)
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, _repeat(scalar.value, length))
    if pat.is_struct(dtype) and dtype.num_fields:
        children = [_repeat(scalar[at], length) for at in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(dtype))
    return pa.repeat(scalar, length)


def nulls(dtype: pa.DataType, length: int) -> pa.Array:
    """An array of ``length`` nulls.

    Raises pa.ArrowInvalid, InvalidArgumentError: As of `repeat`.
    """
    check_filled(dtype, length)
    return _nulls(dtype, length)


def _nulls(dtype: pa.DataType, length: int) -> pa.Array:
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, _nulls(dtype.storage_type, length))
    if pat.is_run_end_encoded(dtype):
        ends = pa.array([length] if length else [], dtype.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, _nulls(dtype.value_type, len(ends)), dtype)
    if pat.is_dictionary(dtype):
        return pa.DictionaryArray.from_arrays(
            pa.nulls(length, dtype.index_type), _nulls(dtype.value_type, 0), ordered=dtype.ordered
        )
    if not dtype.num_fields:
        return pa.nulls(length, dtype)
    buffers = [pa.py_buffer(bytes(-(-length // 8)))]
    lengths = length if pat.is_struct(dtype) else 0
    if pat.is_fixed_size_list(dtype):
        lengths = length * dtype.list_size
    elif not pat.is_struct(dtype):
        width = 8 if pat.is_large_list(dtype) or pat.is_large_list_view(dtype) else 4
        buffers.append(pa.py_buffer(bytes(width * (length + 1))))
        if is_list_view(dtype):
            buffers.append(pa.py_buffer(bytes(width * length)))
    children = [_nulls(dtype.field(at).type, lengths) for at in range(dtype.num_fields)]
    return pa.Array.from_buffers(dtype, length, buffers, length, children=children)


def zeros(dtype: pa.DataType, length: int) -> pa.Array:
    """An array of ``length`` values that are 0, false or empty; nullable fields inside are null.

    Raises pa.ArrowInvalid, InvalidArgumentError: As of `repeat`.
    """
    check_filled(dtype, length)
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, zeros(dtype.storage_type, length))
    if pat.is_run_end_encoded(dtype):
        ends = pa.array([length] if length else [], dtype.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, zeros(dtype.value_type, len(ends)), dtype)
    if pat.is_dictionary(dtype):
        indices = zeros(dtype.index_type, length)
        return pa.DictionaryArray.from_arrays(
            indices, zeros(dtype.value_type, 1), ordered=dtype.ordered
        )
    if pat.is_struct(dtype) or pat.is_fixed_size_list(dtype):
        count = length if pat.is_struct(dtype) else length * dtype.list_size
        children = [
            (nulls if child.nullable else zeros)(child.type, count)
            for child in (dtype.field(at) for at in range(dtype.num_fields))
        ]
        return pa.Array.from_buffers(dtype, length, [None], children=children)
    if dtype.num_fields:  # lists and maps without elements: as nulls are, but valid
        empty = nulls(dtype, length)
        children = [nulls(dtype.field(at).type, 0) for at in range(dtype.num_fields)]
        buffers = [None, *empty.buffers()[1 : 3 if is_list_view(dtype) else 2]]
        return pa.Array.from_buffers(dtype, length, buffers, children=children)
    if pat.is_null(dtype):
        return pa.nulls(length)
    if pat.is_fixed_size_binary(dtype) or not (is_text(dtype) or is_binary(dtype)):
        size = -(-length * dtype.bit_width // 8)
        return pa.Array.from_buffers(dtype, length, [None, pa.py_buffer(bytes(size))])
    return pa.repeat(array_of([b""], pa.binary())[0].cast(dtype), length)
