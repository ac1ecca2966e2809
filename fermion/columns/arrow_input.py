"""Any Arrow producer → one `pyarrow.RecordBatchReader`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.file_input import reader_of_files
from fermion.errors import InvalidArgumentError

_ROWS_AT_ONCE = 1 << 16


def record_batch_reader(data: Any, *, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Read any Arrow producer as a stream of record batches, without copying where it can be.

    Parameters
    ----------
    data
        A table, a record batch, a reader, an iterable of either, a frame of pandas or Polars (a
        lazy one, too), a dict of columns, dicts of values one a row, a structured or a
        two-dimensional array of NumPy (named by ``schema``, or ``column0`` and so on), a dataset or
        scanner of `pyarrow.dataset`, files of other formats (see `reader_of_files`), or any object
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
        return reader_of_files(data)
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

    Parameters
    ----------
    where
        The file, for the message.

    Raises
    ------
    InvalidArgumentError
        At once, where they differ, or as `record_batch_reader` says.
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
    for field in schema if schema is not None else ():
        _check_whole(field, data.get(field.name))
    try:
        return pa.table(data, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        fields = {each.name: each for each in schema or ()}
        for name, values in data.items():  # Arrow does not say which one it was
            wanted = None
            if name in fields:
                wanted = pa.schema([fields[name]])
            try:
                pa.table({name: values}, schema=wanted)
            except (pa.ArrowException, TypeError, ValueError, KeyError) as wrong:
                dtype = f" of type {wanted.field(0).type}" if wanted is not None else ""
                raise InvalidArgumentError(f"data: column {name!r}{dtype}: {wrong}") from wrong
        raise InvalidArgumentError(f"data: {error}") from error


def _check_whole(field: pa.Field, values: Any) -> None:
    """Refuse a list of floats for an integer column where Arrow would cut off their fractions."""
    if not pat.is_integer(field.type) or not isinstance(values, (list, tuple)):
        return
    if any(issubclass(kind, (float, np.floating)) for kind in set(map(type, values))):
        try:
            pa.array(values).cast(field.type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"data: column {field.name!r} of type {field.type}: {error}"
            ) from error


def _from_pandas(data: Any, schema: pa.Schema | None) -> pa.Table:
    if not hasattr(data, "columns"):
        kind = type(data).__name__
        raise InvalidArgumentError(
            f"data: expected a data frame, found {kind}; take its to_frame()"
        )
    try:
        return pa.Table.from_pandas(data, schema=schema, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise InvalidArgumentError(f"data: {error}") from error


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

    Parameters
    ----------
    start
        Number of the first row, for messages.
    names
        Of the columns; None: all that occur, in the order in which they do.
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
