"""Arrays given other types that hold the same values, both ways: for the exchange with engines.

Arrow's casts convert the leaves. Lists, maps and structs are taken apart and rebuilt here, because
Arrow cannot cast every form of list, nor dictionaries and extension types within a list.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion.columns.rows import unwrapped

_INT32_MAX = np.iinfo(np.int32).max


class TooLong(Exception):
    """An array holds more bytes than 32-bit offsets can address: convert its halves."""


def convert_batches(
    batch: pa.RecordBatch, target: pa.Schema, refusal: type[Exception]
) -> Iterator[pa.RecordBatch]:
    """Convert a batch, in halves if its strings are too long for one batch with 32-bit offsets.

    Parameters
    ----------
    batch
        Columns in the order of ``target``.
    target
        The schema to convert to; a batch that has it is not copied.
    refusal
        The error that is raised where a value does not fit; the message names the column.
    """
    try:
        converted = convert_batch(batch, target, refusal)
    except TooLong as error:
        if batch.num_rows < 2:
            raise refusal(str(error)) from error
        half = batch.num_rows // 2
        yield from convert_batches(batch.slice(0, half), target, refusal)
        yield from convert_batches(batch.slice(half), target, refusal)
    else:
        yield converted


def convert_batch(
    batch: pa.RecordBatch, target: pa.Schema, refusal: type[Exception]
) -> pa.RecordBatch:
    """Convert the columns of a batch, by position; see `convert_batches`."""
    if batch.schema == target:
        return batch
    columns = []
    for column, field in zip(batch.columns, target, strict=True):
        try:
            columns.append(convert(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
            raise refusal(
                f"column {field.name!r}: cannot convert {column.type} to {field.type}: {error}"
            ) from error
        except TooLong as error:
            raise TooLong(f"column {field.name!r}: {error}") from error
    if not columns:
        return bare_batch(batch.num_rows)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def bare_batch(rows: int) -> pa.RecordBatch:
    """A batch of rows without columns."""
    # Without columns only a struct carries the number of rows.
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Give an array another type that holds the same values.

    array: Any array, also a slice.
    target: A type of the same values; what engines take of the array's type.
    Returns: The same array if it has the type, nullability of nested fields included.
    Raises pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OverflowError: A value does not
        fit.
    Raises TooLong.
    """
    if array.type == target:
        return array
    array = unwrapped(array)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, convert(array, target.storage_type))
    if pat.is_dictionary(target):
        return _encoded(convert(array, target.value_type), target)
    if pat.is_run_end_encoded(target):
        values = convert(array, target.value_type)
        return pc.run_end_encode(values, run_end_type=target.run_end_type)
    if pat.is_struct(target):
        return _convert_struct(array, target)
    if pat.is_map(target):
        return _convert_map(array, target)
    if hasattr(target, "value_field"):
        return _convert_list(array, target)
    return _convert_leaf(array, target)


def _encoded(values: pa.Array, target: pa.DictionaryType) -> pa.Array:
    encoded = values.dictionary_encode()
    indices = encoded.indices.cast(target.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=target.ordered)


def _convert_struct(array: pa.Array, target: pa.StructType) -> pa.Array:
    if not pat.is_struct(array.type):
        raise pa.ArrowInvalid("expected a struct")
    if target.num_fields == 0:
        return array.cast(target)
    children = []
    for child in target:
        ordinal = array.type.get_field_index(child.name)
        if ordinal < 0:
            raise pa.ArrowInvalid(f"the struct has no field {child.name!r}")
        children.append(convert(array.field(ordinal), child.type))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_null_mask(array))


def _convert_map(array: pa.Array, target: pa.MapType) -> pa.Array:
    offsets, start, stop = _list_layout(array)
    keys = convert(array.keys.slice(start, stop - start), target.key_type)
    items = convert(array.items.slice(start, stop - start), target.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_null_mask(array))


def _convert_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pat.is_fixed_size_list(target):
        return _convert_fixed_list(array, target)
    if pat.is_list(array.type) or pat.is_large_list(array.type):
        offsets, start, stop = _list_layout(array)
        values = array.values.slice(start, stop - start)
    else:  # views overlap and leave gaps, fixed-size lists have values under nulls
        offsets = _offsets_of_lengths(pc.list_value_length(array))
        values = array.flatten()
    values = convert(values, target.value_type)
    mask = _null_mask(array)
    if pat.is_list_view(target) or pat.is_large_list_view(target):
        starts, sizes = offsets[:-1], pc.subtract(offsets[1:], offsets[:-1])
        if pat.is_list_view(target):
            return pa.ListViewArray.from_arrays(starts, sizes, values, type=target, mask=mask)
        starts, sizes = starts.cast(pa.int64()), sizes.cast(pa.int64())
        return pa.LargeListViewArray.from_arrays(starts, sizes, values, type=target, mask=mask)
    if pat.is_large_list(target):
        offsets = offsets.cast(pa.int64())
        return pa.LargeListArray.from_arrays(offsets, values, type=target, mask=mask)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=mask)


def _convert_fixed_list(array: pa.Array, target: pa.FixedSizeListType) -> pa.Array:
    size = target.list_size
    if not pat.is_fixed_size_list(array.type) or array.type.list_size != size:
        array = array.cast(pa.list_(array.type.value_field, size))
    values = array.values.slice(array.offset * size, len(array) * size)
    values = convert(values, target.value_type)
    return pa.FixedSizeListArray.from_arrays(values, type=target, mask=_null_mask(array))


def _list_layout(array: pa.Array) -> tuple[pa.Array, int, int]:
    """32-bit offsets from 0, and the run of values (start, stop) that they cut."""
    offsets = array.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    _check_total(stop - start, "list elements")
    return pc.subtract(offsets, offsets[0]).cast(pa.int32()), start, stop


def _offsets_of_lengths(lengths: pa.Array) -> pa.Array:
    ends = np.cumsum(lengths.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    _check_total(int(ends[-1]) if len(ends) else 0, "list elements")
    return pa.array(np.concatenate([[0], ends]), pa.int32())


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _convert_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pat.is_float16(target):
        return _to_float16(array)
    if pat.is_null(target) and array.null_count == len(array):
        return pa.nulls(len(array))
    if _is_finer(array.type, target):
        return _rounded_down(array, target)
    if pat.is_string(target) or pat.is_binary(target):
        _check_length(array)
    return array.cast(target)


def _to_float16(array: pa.Array) -> pa.Array:
    halves = array.cast(pa.float16())
    wide = array.to_numpy(zero_copy_only=False)
    back = halves.cast(pa.float32()).to_numpy(zero_copy_only=False)
    lost = ~((wide == back) | (np.isnan(wide) & np.isnan(back)))
    if lost.any():
        raise pa.ArrowInvalid(f"{wide[lost][0]} is not a 16-bit float")
    return halves


def _is_finer(source: pa.DataType, target: pa.DataType) -> bool:
    for kind in (pat.is_timestamp, pat.is_duration):
        if kind(source) and kind(target):
            return source.unit == "ns" and target.unit == "us"
    return False


def _rounded_down(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Round down to microseconds: a cast would raise an error, or round towards 1970."""
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    ticks = array.view(pa.int64()).fill_null(0).to_numpy()
    return pa.array(np.floor_divide(ticks, 1_000), pa.int64(), mask=mask).view(target)


def _check_length(array: pa.Array) -> None:
    if pat.is_string_view(array.type) or pat.is_binary_view(array.type):
        total = array.nbytes  # at least the bytes of the strings, and known without a cast
    elif pat.is_large_string(array.type) or pat.is_large_binary(array.type):
        total = pc.sum(pc.binary_length(array)).as_py() or 0
    else:
        return
    _check_total(total, "bytes")


def _check_total(total: int, what: str) -> None:
    if total > _INT32_MAX:
        raise TooLong(f"{total} {what} in one batch")
