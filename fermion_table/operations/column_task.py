"""What computes the columns of one data file, on any machine: the function, and its checks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fermion.display import short_repr
from fermion.engine import (
    BatchCopier,
    VariantValue,
    check_filled,
    one_batch,
    read_all,
    take_batch_rows,
    with_values,
)
from fermion.exports import dataclass
from fermion.predicate import RowRanges
from fermion_table.errors import ColumnFunctionError
from fermion_table.metadata.manifest import Entry
from fermion_table.operations.assignments import whole_table
from fermion_table.planning.plan import splits_of
from fermion_table.planning.split import ReadRequest
from fermion_table.reading.split_reader import SplitReader
from fermion_table.reading.whole_rows import whole_batches
from fermion_table.schema.conversion import find_null
from fermion_table.schema.repeated import nulls, zeros
from fermion_table.schema.schema import Field, TableSchema, field_to_arrow
from fermion_table.schema.selection import MapKey
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.column_files import write_column_file


class FinishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A column file that was made for a data file.

    Attributes
    ----------
    source
        The data file, as it was read.
    made
        The column file, as if it were a data file.
    """

    source: Entry
    made: Entry

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTask:
    """All that is needed to compute columns of a data file. Picklable if the function is.

    Attributes
    ----------
    store
        Of the table.
    function
        From a record batch to the new columns of its rows.
    request
        What is read of a file.
    columns
        The new ones.
    written
        What the column files are written with.
    action
        What it is called in messages.
    """

    store: AtomicStore
    function: Callable[[pa.RecordBatch], Any]
    request: ReadRequest
    columns: pa.Schema
    written: TableSchema
    action: str

    __repr__ = short_repr

    def compute(
        self,
        entry: Entry,
        *,
        threads: int = 1,
        owned: OwnedFiles | None = None,
        stop: threading.Event | None = None,
    ) -> FinishedFile:
        """Compute the columns of one file; what it has written goes if that fails.

        Parameters
        ----------
        entry
            The file.
        threads
            For decoding it.
        owned
            Those of the operation; None: the caller takes the file.
        stop
            Set when the columns are of no use any more.

        Raises
        ------
        ColumnFunctionError
            The function raised, or gave something else.
        Stopped
            It was set.
        """
        reader = SplitReader(self.request)
        rows = self._rows(entry, reader, threads, stop)
        if entry.batch is None:
            made = write_column_file(self.store, self.written, rows, None, owned)
            return FinishedFile(source=entry, made=made)
        (split,) = splits_of([entry], self.store)
        known = reader.batches(split, rows=RowRanges.all(entry.rows))
        batches = whole_batches(rows, known, self.columns)
        made = write_column_file(self.store, self.written, None, batches, owned)
        return FinishedFile(source=entry, made=made)

    def _rows(
        self, entry: Entry, reader: SplitReader, threads: int, stop: threading.Event | None
    ) -> Iterator[pa.RecordBatch]:
        """The new columns of all rows of a file: null, or empty, where a row is deleted."""
        (split,) = splits_of([entry], self.store)
        wanted = reader.rows(split)
        places = None if wanted is None else wanted.to_indices()
        start = at = 0
        for batch in reader.read_file(split, rows=wanted, threads=threads):
            if stop is not None and stop.is_set():
                raise Stopped
            count = batch.num_rows
            first, last = start, start + count - 1
            if places is not None:
                first, last = int(places[first]), int(places[last])
            values = self._called(batch, entry, (first, last + 1))
            if places is not None:
                own = places[start : start + count] - at
                values = _spread(values, own, last + 1 - at)
            start, at = start + count, last + 1
            yield values
        if at < entry.rows:
            missing = entry.rows - at
            yield _absent(self.columns, missing)

    def _called(self, batch: pa.RecordBatch, entry: Entry, rows: tuple[int, int]) -> pa.RecordBatch:
        """What the function gives for some rows, checked."""
        try:
            found = _checked(self.function(batch), batch.num_rows, self.columns)
            return BatchCopier(self.columns).copy(found)  # the next call may fill the same memory
        except Exception as error:
            raise ColumnFunctionError(
                f"{self.store.location}: {self.action}: rows {rows[0]:,} to {rows[1] - 1:,} of "
                f"{entry.file}: {type(error).__name__}: {error}",
                file=entry.file,
                rows=rows,
            ) from error


class MapValues:
    """A function of columns, some of them keys of maps: gives the maps with these keys. Picklable.

    function: From a record batch to ``columns``.
    keys: Of these, by their places.
    maps: Those of the keys, as the table calls them.
    beside: Columns that it is given and the function is not.
    """

    def __init__(
        self,
        function: Callable[[pa.RecordBatch], Any],
        columns: pa.Schema,
        keys: Mapping[int, MapKey],
        maps: Sequence[Field],
        beside: frozenset[str],
    ) -> None:
        self._function, self._columns, self._beside = function, columns, beside
        self._keys = {
            each.name: {
                place: key.key
                for place, key in keys.items()
                if key.map_id == each.id and not isinstance(key.key, VariantValue)
            }
            for each in maps
        }
        plain = [each for place, each in enumerate(columns) if place not in keys]
        self.columns = pa.schema(
            [*(field_to_arrow(each, field_ids=False) for each in maps), *plain]
        )

    __repr__ = short_repr

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The maps and the other columns of some rows."""
        given = batch.select([name for name in batch.schema.names if name not in self._beside])
        found = _checked(self._function(given), batch.num_rows, self._columns)
        arrays = [
            with_values(batch[name], list(keys.values()), [found.column(place) for place in keys])
            for name, keys in self._keys.items()
        ]
        plain = [found[name] for name in self.columns.names[len(arrays) :]]
        return pa.RecordBatch.from_arrays([*arrays, *plain], schema=self.columns)


ColumnRunner = Callable[[ColumnTask, Sequence[Entry]], Generator[FinishedFile]]
"""Computes files by a task, in any order; if one fails, its error comes after all that finished."""


class Stopped(Exception):
    """Another file has failed."""


def _spread(values: pa.RecordBatch, places: np.ndarray, count: int) -> pa.RecordBatch:
    """Rows at their places among others, which are null.

    places: ``int64``, ascending.
    """
    if len(places) == count:
        return values
    order = np.full(count, values.num_rows, np.int64)
    order[places] = np.arange(values.num_rows)
    for name, each in zip(values.schema.names, values.columns, strict=True):
        check_filled(each.type, count - len(places), f"column {name!r}")
    return take_batch_rows(one_batch([values, _absent(values.schema, 1)]), order)


def _absent(columns: pa.Schema, rows: int) -> pa.RecordBatch:
    """Rows for those that are deleted; maps that must not be null are empty."""
    arrays = [(nulls if each.nullable else zeros)(each.type, rows) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _checked(found: Any, rows: int, columns: pa.Schema) -> pa.RecordBatch:
    """What a function gave, as one batch of exactly the new columns.

    Raises TypeError, ValueError, InvalidArgumentError: Other columns, types, or another number of
        rows.
    """
    if found is None:
        raise TypeError("the function returned None: expected the new columns")
    if isinstance(found, (pa.Array, pa.ChunkedArray)) and len(columns) == 1:
        found = pa.table([found], names=columns.names)
    elif isinstance(found, Mapping):
        found = pa.table({name: _column(name, found[name], columns) for name in found})
    table = read_all(found)
    names = table.schema.names
    if sorted(names) != sorted(columns.names):
        raise ValueError(f"expected columns {columns.names}, found {names}")
    table = table.select(columns.names)
    for expected, field_found in zip(columns, table.schema, strict=True):
        if not field_found.type.equals(expected.type):
            raise TypeError(
                f"column {expected.name!r}: expected type {expected.type}, found {field_found.type}"
            )
    if table.num_rows != rows:
        raise ValueError(f"expected {rows:,} rows, found {table.num_rows:,}")
    arrays = whole_table(table, "result").columns
    for expected, array in zip(columns, arrays, strict=True):
        where = find_null(expected, array)
        if where is not None:
            raise ValueError(f"column {where!r} is NOT NULL, and has a null")
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _column(name: str, values: Any, columns: pa.Schema) -> Any:
    """A column of a dict: Python values take the type that is expected, arrays have their own."""
    is_plain = isinstance(values, Sequence) and name in columns.names
    return pa.array(values, columns.field(name).type) if is_plain else values
