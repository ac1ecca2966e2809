"""Any Arrow producer → one `pyarrow.RecordBatchReader`, and copies of batches that are kept.

Who else can write to the memory of an Arrow array is not known: a buffer of NumPy's is as mutable
as one of Arrow's own, neither names an owner, and buffers of other libraries look immutable
whatever lies behind them. So rows that wait after a call, or while their producer makes its next
batch, are copied, unless the caller promises to leave them alone.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.arrow_buffers import list_ranges
from fermion.columns.types import is_list_view
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor

if TYPE_CHECKING:
    from fermion.columns import file_input, python_values
else:
    file_input = LoadedWhenAskedFor("fermion.columns.file_input")
    python_values = LoadedWhenAskedFor("fermion.columns.python_values")

_ROWS_AT_ONCE = 1 << 16


def record_batch_reader(data: Any, *, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Read any Arrow producer as a stream of record batches, without copying where it can be.

    Parameters
    ----------
    data
        A table, a record batch, a reader, an iterable of either, a frame of pandas or Polars (a
        lazy one, too), a dict of columns, dicts of values one a row, a structured or a
        two-dimensional array of NumPy (named by ``schema``, or ``column0`` and so on), a dataset or
        scanner of `pyarrow.dataset`, files of other formats (see `file_input`), or any object
        with ``__arrow_c_stream__``.
    schema
        Wanted for an iterable that may be empty, and for pandas frames and dicts.

    Raises
    ------
    InvalidArgumentError
        When the object is none of these, an empty iterable comes without a schema, or values do
        not fit their column's type or each other.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, dict):
        return _from_columns(data, schema).to_reader()
    if is_of_pandas(data):
        return _from_pandas(data, schema).to_reader()
    if isinstance(data, (pa.Array, pa.ChunkedArray)) and not pat.is_struct(data.type):
        raise InvalidArgumentError(
            f"data: expected columns with names, found an array of {data.type}; "
            'pass {"name": array}'
        )
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    datasets = sys.modules.get("pyarrow.dataset")  # slow to import, so only what has been imported
    if datasets is not None and isinstance(data, (datasets.Dataset, datasets.Scanner)):
        return (data.scanner() if isinstance(data, datasets.Dataset) else data).to_reader()
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    if isinstance(data, np.ndarray):
        return _from_columns(_of_numpy(data, schema), schema).to_reader()
    if isinstance(data, (str, os.PathLike)):
        return file_input.reader_of_files(data)
    if hasattr(data, "collect_batches"):
        return _from_lazy(data)
    if isinstance(data, Iterable) and not isinstance(data, bytes):
        return _from_iterable(iter(data), schema)
    raise InvalidArgumentError(
        "data: expected an Arrow table, batch, reader, dataset, an iterable of batches or dicts, a "
        f"data frame, a path or an object with __arrow_c_stream__; found {type(data).__name__}"
    )


def is_in_memory(data: Any) -> bool:
    """Whether all rows are there already, so that reading them runs no code of the caller's.

    False where that is not certain: the memory of one batch may be that of the next one.
    """
    if isinstance(data, (list, tuple)):
        return all(map(is_in_memory, data))
    known = isinstance(
        data, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray, dict, np.ndarray)
    )
    return known or is_of_pandas(data)


def is_of_pandas(data: Any) -> bool:
    """Whether an object is one of pandas; those of version 3 say they are of ``pandas`` itself."""
    return type(data).__module__.partition(".")[0] == "pandas"


def batches_of(data: Any, schema: pa.Schema, where: str) -> Iterator[pa.RecordBatch]:
    """The batches of any Arrow producer whose names and types are those of a file.

    where: The file, for the message.
    Raises InvalidArgumentError: At once, where they differ, or as `record_batch_reader` says.
    """
    reader = record_batch_reader(data, schema=schema)
    if not reader.schema.equals(schema, check_metadata=False):
        raise InvalidArgumentError(
            f"{where}: the data's schema differs from the file's: "
            f"{_difference(schema, reader.schema)}"
        )
    return iter(reader)


def _difference(expected: pa.Schema, found: pa.Schema) -> str:
    for wanted, given in zip(expected, found, strict=False):
        if not wanted.equals(given):
            return f"expected {wanted}, found {given}"
    return f"expected {len(expected)} columns, found {len(found)}"


def _from_columns(data: dict[str, Any], schema: pa.Schema | None) -> pa.Table:
    for name, values in data.items():
        if isinstance(values, str | bytes):  # Arrow would take each character for a value
            raise InvalidArgumentError(
                f"data: column {name!r}: expected a sequence of values, found {values!r:.80}"
            )
    types = {field.name: field.type for field in schema or ()}
    data = {name: _readable(name, each, types.get(name)) for name, each in data.items()}
    for field in schema or ():
        _check_kept(field, data.get(field.name))
    try:
        table = pa.table(data, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as error:
        fields = {each.name: each for each in schema or ()}
        for name, values in data.items():  # Arrow does not say which one it was
            wanted = None
            if name in fields:
                wanted = pa.schema([fields[name]])
            try:
                pa.table({name: values}, schema=wanted)
            except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as wrong:
                dtype = f" of type {wanted.field(0).type}" if wanted is not None else ""
                raise InvalidArgumentError(f"data: column {name!r}{dtype}: {wrong}") from wrong
        raise InvalidArgumentError(f"data: {error}") from error
    if schema is None:
        _check_inferred(table.schema, data)
    return table


def _readable(name: str, values: Any, dtype: pa.DataType | None) -> Any:
    """Values of a column, arrays of times in units that Arrow reads."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in ("m", "M"):
        return values
    try:
        return python_values.readable(values, dtype)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"data: column {name!r}: {error}") from error


def _check_inferred(schema: pa.Schema, data: Any) -> None:
    """Refuse what types that Arrow has chosen would cut off; numbers and texts they hold whole."""
    for field, (_, values) in zip(schema, data.items(), strict=True):
        if pat.is_temporal(field.type) or pat.is_nested(field.type):
            _check_kept(field, values)


def _check_kept(field: pa.Field, values: Any) -> None:
    """Refuse values of Python, NumPy and pandas that Arrow would cut off."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    try:
        if kind == "O" or isinstance(values, (list, tuple)):
            values = np.asarray(values).tolist() if kind == "O" else values
            python_values.check_kept(values, field.type)
        elif kind:
            python_values.check_column(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"data: column {field.name!r} of type {field.type}: {error}"
        ) from error


def _from_pandas(data: Any, schema: pa.Schema | None) -> pa.Table:
    if not hasattr(data, "columns"):
        kind = type(data).__name__
        raise InvalidArgumentError(
            f"data: expected a data frame, found {kind}; take its to_frame()"
        )
    for field in schema or ():
        _check_kept(field, data.get(field.name))
    try:
        table = pa.Table.from_pandas(data, schema=schema, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as error:
        raise InvalidArgumentError(f"data: {error}") from error
    if schema is None:
        _check_inferred(table.schema, data)
    return table


def _from_iterable(items: Iterator[Any], schema: pa.Schema | None) -> pa.RecordBatchReader:
    first = next(items, None)
    if first is None:
        if schema is None:
            raise InvalidArgumentError("data: an empty iterable needs a schema")
        return pa.RecordBatchReader.from_batches(schema, [])
    if isinstance(first, dict):
        return _from_rows(itertools.chain([first], items), schema)
    if not hasattr(first, "__arrow_c_stream__") and not hasattr(first, "__arrow_c_array__"):
        raise InvalidArgumentError(
            f"data: expected an iterable of record batches, tables or dicts; "
            f"found one of {type(first).__name__}"
        )
    head = record_batch_reader(first)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from head
        for item in items:
            yield from record_batch_reader(item)

    return pa.RecordBatchReader.from_batches(head.schema, batches())


def _from_rows(rows: Iterator[Any], schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Dicts of values; the columns are those of the schema, or of the first rows."""
    first = _columns_of_rows(list(itertools.islice(rows, _ROWS_AT_ONCE)), 0, None)
    if schema is not None:
        fields = [field for field in schema if field.name in first]
        # What the schema lacks is refused, or added, by who knows it.
        schema = pa.schema(fields) if len(fields) == len(first) else None
    head = _from_columns(first, schema)
    names = dict.fromkeys(first)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from head.to_batches()
        start = _ROWS_AT_ONCE
        while chunk := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            columns = _columns_of_rows(chunk, start, names)
            yield from _from_columns(columns, head.schema).to_batches()
            start += len(chunk)

    return pa.RecordBatchReader.from_batches(head.schema, batches())


def _columns_of_rows(
    rows: list[Any], start: int, names: dict[str, None] | None
) -> dict[str, list[Any]]:
    """Rows as columns; None where a row lacks one.

    start: Number of the first row, for messages.
    names: Of the columns; None: all that occur, in the order in which they do.
    """
    known = dict.fromkeys(names or ())
    for number, row in enumerate(rows, start):
        if not isinstance(row, dict):
            raise InvalidArgumentError(
                f"data: row {number}: expected a dict, found {type(row).__name__}"
            )
        for name in row.keys() - known.keys():
            if not isinstance(name, str) or names is not None:
                expected = "a name as text" if names is None else f"one of {list(names)}"
                raise InvalidArgumentError(
                    f"data: row {number}: expected {expected}, found {name!r}"
                )
        known.update(dict.fromkeys(row))
    return {name: [row.get(name) for row in rows] for name in known}


def _of_numpy(data: np.ndarray, schema: pa.Schema | None) -> dict[str, Any]:
    """The columns of an array of NumPy."""
    if data.dtype.names is not None and data.ndim == 1:
        return {name: data[name] for name in data.dtype.names}
    if data.ndim != 2:
        raise InvalidArgumentError(
            f"data: expected two dimensions, rows and columns, found an array of shape {data.shape}"
        )
    count = data.shape[1]
    names = [f"column{place}" for place in range(count)] if schema is None else schema.names
    if len(names) != count:
        raise InvalidArgumentError(f"data: expected {len(names)} columns, found {count}")
    return {name: np.ascontiguousarray(data[:, place]) for place, name in enumerate(names)}


def _from_lazy(frame: Any) -> pa.RecordBatchReader:
    """A lazy frame of Polars, computed while it is read."""
    head = pa.RecordBatchReader.from_stream(frame.clear().collect())

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.collect_batches(maintain_order=True):
            yield from pa.RecordBatchReader.from_stream(part)

    return pa.RecordBatchReader.from_batches(head.schema, batches())


IPC_LEVELS_MAX = 32
"""Arrow's IPC refuses types nested deeper than 64 levels."""


class BatchCopier:
    """Copies batches of one schema: their rows alone, not all of the buffers that these lie in.

    Neighbouring batches with the same dictionary share one copy of it, as they shared it before.

    Parameters
    ----------
    schema
        Of the batches, which may have other columns of plain types after its own.
    special
        Ordinals of the columns whose type is not plain (`is_plain`); None: they are looked for.
    """

    def __init__(self, schema: pa.Schema, special: Iterable[int] | None = None) -> None:
        if special is None:
            types = schema.types  # of which a wide schema has few
            unlike = {dtype for dtype in set(types) if not is_plain(dtype)}
            special = [at for at, dtype in enumerate(types) if dtype in unlike] if unlike else ()
        self._special = {place: _copier(schema.field(place).type) for place in special}

    def copy(self, batch: pa.RecordBatch, places: Iterable[int] | None = None) -> pa.RecordBatch:
        """A batch with the same rows, and no memory that anyone else has.

        Parameters
        ----------
        places
            Copy only these columns; None: all.

        Raises
        ------
        InvalidArgumentError
            An array is not well-formed, as one of another library may be.
        """
        try:
            batch.validate()  # or what an offset says would be copied, wherever it lies
        except pa.ArrowInvalid as error:
            raise InvalidArgumentError(f"not a well-formed Arrow array: {error}") from error
        if places is None and not self._special:
            return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
        columns = batch.columns
        chosen = range(len(columns)) if places is None else list(places)
        plain = [place for place in chosen if place not in self._special]
        for place, column in zip(plain, _copied([columns[at] for at in plain]), strict=True):
            columns[place] = column
        for place in chosen:
            if place in self._special:
                columns[place] = self._special[place].copy(columns[place])
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else batch


def read_all(data: Any, *, schema: pa.Schema | None = None) -> pa.Table:
    """All rows of any Arrow producer: views of data that lie in memory, else copies of the batches.

    Parameters
    ----------
    data, schema
        As for `record_batch_reader`.

    Raises
    ------
    InvalidArgumentError
        See `record_batch_reader`.
    """
    reader = record_batch_reader(data, schema=schema)
    if is_in_memory(data):
        return reader.read_all()
    copier = BatchCopier(reader.schema)
    return pa.Table.from_batches(map(copier.copy, reader), schema=reader.schema)


def copied_array(array: pa.Array) -> pa.Array:
    """An array with the same values, and no memory that anyone else has."""
    batch = pa.RecordBatch.from_arrays([array], [""])
    return BatchCopier(batch.schema).copy(batch).column(0)


def is_plain(dtype: pa.DataType, levels: int = IPC_LEVELS_MAX) -> bool:
    """Whether Arrow's IPC copies the rows of an array and nothing else, in one message.

    Of views it copies whole buffers, and dictionaries are messages of their own.
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return is_plain(dtype.storage_type, levels)
    if levels == 0 or _is_view(dtype) or pat.is_dictionary(dtype):
        return False
    below = (dtype.field(at).type for at in range(dtype.num_fields))
    return all(is_plain(each, levels - 1) for each in below)


class _ArrayCopier(Protocol):
    """Copies the arrays of one type."""

    def copy(self, array: pa.Array) -> pa.Array:
        """The same values in other memory."""


def _copier(dtype: pa.DataType) -> _ArrayCopier:
    if is_plain(dtype):
        return _PlainCopier()
    if isinstance(dtype, pa.BaseExtensionType):
        return _ExtensionCopier(dtype)
    if _is_view(dtype):
        return _ViewCopier(dtype)
    if pat.is_dictionary(dtype):
        return _DictionaryCopier(dtype)
    return _RunsCopier(dtype) if pat.is_run_end_encoded(dtype) else _NestedCopier(dtype)


def _is_view(dtype: pa.DataType) -> bool:
    return pat.is_string_view(dtype) or pat.is_binary_view(dtype)


def _copied(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Arrays of one length and of plain types, copied into one piece of memory."""
    batch = pa.RecordBatch.from_arrays(arrays, [""] * len(arrays))
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema).columns if arrays else []


class _PlainCopier:
    """Copies arrays of plain types."""

    def copy(self, array: pa.Array) -> pa.Array:
        return _copied([array])[0]


class _ExtensionCopier:
    """Copies arrays of extension types whose storage is of no plain type."""

    def __init__(self, dtype: pa.BaseExtensionType) -> None:
        self._dtype, self._storage = dtype, _copier(dtype.storage_type)

    def copy(self, array: pa.ExtensionArray) -> pa.Array:
        return pa.ExtensionArray.from_storage(self._dtype, self._storage.copy(array.storage))


class _ViewCopier:
    """Copies string views and binary views: of their buffers only what the rows refer to."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._dtype = dtype
        self._wide = pa.large_string() if pat.is_string_view(dtype) else pa.large_binary()

    def copy(self, array: pa.Array) -> pa.Array:
        return _copied([array.cast(self._wide)])[0].cast(self._dtype)


class _DictionaryCopier:
    """Copies dictionary arrays; a dictionary only when a byte of it is not as in the last one."""

    def __init__(self, dtype: pa.DictionaryType) -> None:
        self._dtype = dtype
        self._values = _copier(dtype.value_type)
        self._is_compared = is_plain(dtype.value_type) or _is_view(dtype.value_type)
        self._bytes: pa.Buffer | None = None
        self._dictionary: pa.Array | None = None

    def copy(self, array: pa.DictionaryArray) -> pa.Array:
        (indices,), values = _copied([array.indices]), array.dictionary
        found = None
        if self._is_compared:
            found = pa.RecordBatch.from_arrays([values], [""]).serialize()
        # Not by their values, of which 0.0 equals -0.0.
        if found is None or self._bytes is None or not found.equals(self._bytes):
            self._bytes, self._dictionary = found, self._values.copy(values)
        return pa.DictionaryArray.from_arrays(
            indices, self._dictionary, ordered=self._dtype.ordered, safe=False
        )


class _RunsCopier:
    """Copies run-end encoded arrays."""

    def __init__(self, dtype: pa.RunEndEncodedType) -> None:
        self._dtype, self._values = dtype, _copier(dtype.value_type)

    def copy(self, array: pa.RunEndEncodedArray) -> pa.Array:
        first, count = array.find_physical_offset(), array.find_physical_length()
        ends = array.run_ends.to_numpy()[first : first + count].astype(np.int64) - array.offset
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(np.minimum(ends, len(array)), self._dtype.run_end_type),
            self._values.copy(array.values.slice(first, count)),
            self._dtype,
        )


class _NestedCopier:
    """Copies structs, lists and maps: their own buffers, and of their children what rows have."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._dtype = dtype
        self._children = [_copier(dtype.field(at).type) for at in range(dtype.num_fields)]

    def copy(self, array: pa.Array) -> pa.Array:
        valid = _copied([array.is_valid()])[0]
        buffers, children = [valid.buffers()[1] if array.null_count else None], []
        if pat.is_struct(self._dtype):
            children = [array.field(at) for at in range(len(self._children))]
        elif pat.is_fixed_size_list(self._dtype):
            size = self._dtype.list_size
            children = [array.values.slice(array.offset * size, len(array) * size)]
        else:
            own, low, high = self._list_buffers(array, valid.to_numpy(zero_copy_only=False))
            buffers += own
            children = [array.values.slice(low, high - low)]
        copied = [each.copy(child) for each, child in zip(self._children, children, strict=True)]
        return pa.Array.from_buffers(self._dtype, len(array), buffers, children=copied)

    def _list_buffers(self, array: pa.Array, valid: np.ndarray) -> tuple[list[pa.Buffer], int, int]:
        """Where the lists begin and end among their elements, and which of those they have."""
        width = array.offsets.type.to_pandas_dtype()
        if not is_list_view(self._dtype):
            offsets = array.offsets.to_numpy()
            low, high = int(offsets[0]), int(offsets[-1])
            return [pa.py_buffer(offsets - width(low))], low, high
        starts, lengths = list_ranges(array)
        lengths = np.where(valid, lengths, 0)
        has_any = lengths > 0
        low = int(starts[has_any].min(initial=len(array.values)))
        high = int((starts + lengths)[has_any].max(initial=low))
        starts = np.where(has_any, starts - low, 0)
        return [pa.py_buffer(each.astype(width)) for each in (starts, lengths)], low, high
