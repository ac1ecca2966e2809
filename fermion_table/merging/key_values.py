"""Keys that a caller names: values, tuples, dictionaries or Arrow data, as rows of key columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import array_of, is_of_pandas, read_all
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import described
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.transforms import plain
from fermion_table.schema.widening import can_cast_checked, cast_checked

KEY_ROLE = "the primary key"
_NULL = type(None)


def key_rows(
    keys: Any,
    key: PrimaryKey,
    *,
    roles: Mapping[str, str] | None = None,
    nullable: Collection[str] = (),
) -> pa.RecordBatch:
    """Keys as rows of a table's key columns.

    keys: Arrow data, a data frame or a dictionary with the key's columns, others are ignored; of a
        key of one column also an array, a series or a list of values; of any key a list of tuples
        in the key's order, or of dictionaries.
    roles: What messages call columns that are no columns of the primary key, by name.
    nullable: Columns that may be null.
    Returns: The key's columns, of its types and without nulls, in the order of the keys given.
    Raises TypeError: Something else.
    Raises InvalidArgumentError: A column that is missing, a null, or a value that does not fit its
        column exactly.
    """
    columns = _columns(keys, key)
    arrays = []
    for column, name, dtype in zip(columns, key.names, key.types, strict=True):
        where = f"keys: column {name!r} of {(roles or {}).get(name, KEY_ROLE)}"
        array = _fitting(column, dtype, where)
        if array.null_count and name not in nullable:
            raise InvalidArgumentError(f"{where}: expected no nulls, found {array.null_count}")
        arrays.append(array)
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise InvalidArgumentError(f"keys: expected columns of one length, found {lengths}")
    return pa.RecordBatch.from_arrays(arrays, names=list(key.names))


def _columns(keys: Any, key: PrimaryKey) -> Sequence[Any]:
    """The key's columns: Arrow arrays, or lists of values."""
    if isinstance(keys, str | bytes) or not (
        isinstance(keys, Iterable) or hasattr(keys, "__arrow_c_stream__")
    ):
        raise TypeError(f"keys: expected Arrow data or a list of keys, found {described(keys)}")
    if isinstance(keys, Mapping):
        return [_named(keys, name, keys) for name in key.names]
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return _of_array(keys, key)
    if isinstance(keys, np.ndarray) or (is_of_pandas(keys) and not hasattr(keys, "columns")):
        return _of_array(_array(keys, "keys"), key)
    if isinstance(keys, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or is_of_pandas(keys):
        return _of_table(keys, key)
    if hasattr(keys, "__arrow_c_stream__"):
        return _of_array(pa.chunked_array(keys), key)
    if hasattr(keys, "__arrow_c_array__"):
        return _of_array(pa.array(keys), key)
    items = iter(keys)
    first = list(islice(items, 1))
    every = chain(first, items)
    if first and hasattr(first[0], "__arrow_c_array__"):
        return _of_table(every, key)
    # A generator may give the same list or dictionary, filled again.
    copies = [copy(each) if isinstance(each, list | dict) else each for each in every]
    return _of_values(copies, key)


def _of_table(data: Any, key: PrimaryKey) -> Sequence[Any]:
    table = read_all(data)
    return [_named(table, name, table.column_names) for name in key.names]


def _of_array(array: Any, key: PrimaryKey) -> Sequence[Any]:
    if pat.is_struct(array.type):
        if array.null_count:
            raise InvalidArgumentError(f"keys: expected no nulls, found {array.null_count}")
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        batches = [pa.RecordBatch.from_struct_array(chunk) for chunk in chunks]
        schema = pa.schema(list(array.type))
        return _of_table(pa.Table.from_batches(batches, schema=schema), key)
    if len(key.names) > 1:
        raise InvalidArgumentError(
            f"keys: expected the columns {', '.join(key.names)}, found one array of {array.type}"
        )
    return [array]


def _of_values(values: list[Any], key: PrimaryKey) -> Sequence[Any]:
    """Columns of a list of values, tuples or dictionaries."""
    count = len(key.names)
    if count == 1 and not any(isinstance(value, Mapping | tuple) for value in values):
        return [values]
    columns: list[list[Any]] = [[] for _ in key.names]
    for value in values:
        if isinstance(value, Mapping):
            found = [_named(value, name, value, "an item of keys") for name in key.names]
        elif isinstance(value, tuple | list) and len(value) == count:
            found = list(value)
        else:
            raise InvalidArgumentError(
                f"an item of keys: expected the values of {', '.join(key.names)} as a tuple "
                f"or a dictionary, found {described(value)}"
            )
        for column, each in zip(columns, found, strict=True):
            column.append(each)
    return columns


def _named(data: Any, name: str, names: Iterable[Any], where: str = "keys") -> Any:
    """The column, or value, of a name that data must have once."""
    found = sum(each == name for each in names)
    if found != 1:
        listed = ", ".join(map(str, names)) or "no columns"
        raise InvalidArgumentError(f"{where}: expected one column {name!r}, found {listed}"[:400])
    return data[name]


def _fitting(column: Any, dtype: pa.DataType, where: str) -> pa.Array:
    """Values as an array of exactly a column's type."""
    array = _typed_array(column, dtype, where)
    if array.type == dtype:
        return array
    if pat.is_decimal(array.type) and pat.is_integer(dtype):
        return _whole_numbers(array, dtype, where)
    if len(array) > array.null_count and not can_cast_checked(array.type, dtype):
        raise InvalidArgumentError(f"{where} is {dtype}, found values of {array.type}")
    try:
        return cast_checked(plain(array), dtype) if len(array) else pa.array([], dtype)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"{where} is {dtype}: a value of {array.type} does not fit: {error}"
        ) from None


def _whole_numbers(decimals: pa.Array, dtype: pa.DataType, where: str) -> pa.Array:
    """Decimals as integers; Arrow casts none to ``uint64``."""
    values = plain(decimals).to_pylist()
    try:
        numbers = pa.array([None if each is None else int(each) for each in values], dtype)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidArgumentError(
            f"{where} is {dtype}: a value of {decimals.type} does not fit: {error}"
        ) from None
    if numbers.to_pylist() != values:
        raise InvalidArgumentError(f"{where} is {dtype}: found a value that is no whole number")
    return numbers


def _typed_array(column: Any, dtype: pa.DataType, where: str) -> pa.Array:
    """Arrow data as one array; plain values with the type that they have by themselves."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.Array):
        return column
    if not isinstance(column, list | tuple):
        return _array(column, f"{where} is {dtype}")
    # Arrow checks these itself, and could not cast what it infers of them.
    is_checked = (
        pat.is_decimal(dtype)
        or pat.is_fixed_size_binary(dtype)
        or (pat.is_integer(dtype) and all(type(value) in (int, _NULL) for value in column))
    )
    kinds, given = set(map(type, column)), dtype if is_checked else None
    try:
        if kinds == {str} and given is None:
            return array_of(column, pa.string())
        if kinds == {int} and pat.is_integer(dtype):
            return array_of(column, dtype)
        return pa.array(column, given)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{where} is {dtype}: {error}") from None


def _array(values: Any, where: str) -> pa.Array:
    """A NumPy array, a series or another sequence as one array."""
    try:
        array = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{where}: {error}") from None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
