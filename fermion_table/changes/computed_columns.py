"""New columns whose values a function computes from columns that are there, file by file.

A file that is finished stays finished: where the function fails, the error has what was made so
far, and the operation can go on with it (see `FinishedColumns`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fermion.columns.arrow_input import record_batch_reader
from fermion.columns.rows import one_batch, take_batch_rows
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.predicate import RowRanges
from fermion_table.changes.column_commit import ColumnChange, Made, column_taken
from fermion_table.changes.whole_tables import whole_table
from fermion_table.commit.publisher import Publisher
from fermion_table.commit.request import CommitMetadata
from fermion_table.errors import ColumnFunctionError
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.schema_store import SchemaVersions
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import now_ms
from fermion_table.scanning.batch_stream import whole_batches
from fermion_table.scanning.plan import splits_of
from fermion_table.scanning.split_reader import SplitReader
from fermion_table.scanning.whole_rows import column_reader
from fermion_table.schema.changes import merge_columns
from fermion_table.schema.conversion import find_null
from fermion_table.schema.repeated import nulls
from fermion_table.schema.schema import PathLike, TableSchema
from fermion_table.schema.selection import queryable_fields, select_columns
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.column_files import schema_of_columns, write_column_file

RESUME_MS_MAX = 24 * 3600 * 1000
"""Finished files older than this are made again: they may be removed as orphans while it runs."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedColumns:
    """The column files that an `add_columns_with` that failed has made. Picklable.

    No snapshot names them: unless they are used within a day, or discarded, the removal of orphan
    files deletes them.

    Attributes
    ----------
    table_uuid
        Of the table.
    read, columns
        What the function was given, and the columns that it gave.
    schema
        What the files were written with.
    files
        One a data file that is finished.
    """

    table_uuid: str
    read: tuple[PathLike, ...]
    columns: pa.Schema
    schema: TableSchema
    files: tuple[FinishedFile, ...] = field(repr=False)

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.files)

    def discard(self, store: AtomicStore) -> None:
        """Delete the files, which can't be used any more then.

        Parameters
        ----------
        store
            Of the table (`Table.store`).
        """
        for each in self.files:
            store.delete(each.made.path)


class ComputedColumns(ColumnChange):
    """What `Table.add_columns_with` does.

    Parameters
    ----------
    publisher, metadata
        As of a `ColumnChange`.
    function
        From a record batch to the new columns of its rows.
    read
        The columns that it is given.
    columns
        The new ones.
    batch_rows
        Rows a call, at most.
    threads
        Files computed side by side; None takes the number of processors.
    progress
        Called with the files done and the files in all.
    resume
        What an earlier try has made.
    """

    def __init__(
        self,
        publisher: Publisher,
        metadata: CommitMetadata,
        function: Callable[[pa.RecordBatch], Any],
        *,
        read: tuple[PathLike, ...],
        columns: pa.Schema,
        batch_rows: int,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        resume: FinishedColumns | None = None,
    ) -> None:
        super().__init__(publisher, "add_columns_with", metadata)
        self._function = function
        self._read = read
        self._columns = columns
        self._batch_rows = batch_rows
        self._threads = threads or os.cpu_count() or 1
        self._progress = progress
        self._resumed = resume
        self._is_first = True
        self._written: TableSchema | None = None if resume is None else resume.schema
        self._done: dict[str, FinishedFile] = {}

    def schema_on(self, base: Snapshot) -> TableSchema | None:
        """The snapshot's schema with the new columns."""
        where = self.store.location
        current = SchemaVersions(self.store, base).current
        for name in self._columns.names:
            if name in current.by_name:
                raise column_taken(name, self.action, where, is_first=self._is_first)
        if self._resumed is not None and self._is_first:
            self._take(self._resumed, base)
        self._is_first = False
        return self.publisher.evolved_schema(base, merge_columns(current, self._columns))

    def made_for(
        self, base: Snapshot, schemas: SchemaVersions, schema: TableSchema, entries: list[Entry]
    ) -> Made:
        """Compute the columns of all files that are not done yet."""
        if self._written is None:
            self._written = schema_of_columns(schema, self._columns.names)
        fields = select_columns(schemas.current, self._read, where=self.store.location)
        names = {each.name for each in fields}
        whole = tuple(each for each in queryable_fields(schemas.current) if each.name in names)
        reader = column_reader(entries, self.store, fields, whole, schemas)
        reader = SplitReader(replace(reader.request, batch_rows=self._batch_rows))
        ids = [each.id for each in whole]
        left = []
        for entry in entries:
            known = self._done.get(entry.file)
            if known is None or not self._is_for(known, entry, ids, reader):
                left.append(entry)
        self._compute(left, len(entries), reader, base)
        written = self._written
        return {entry.file: (self._done[entry.file].made, written) for entry in entries}

    def _take(self, resumed: FinishedColumns, base: Snapshot) -> None:
        """Go on with what an earlier try has made, as far as that is there and young enough."""
        where = self.store.location
        if resumed.table_uuid != base.table_uuid:
            raise InvalidArgumentError(f"{where}: resume: columns of another table")
        for name, mine, theirs in (
            ("read", self._read, resumed.read),
            ("schema", self._columns, resumed.columns),
        ):
            if mine != theirs:
                raise InvalidArgumentError(
                    f"{where}: resume: expected the {name} of the try that failed, {theirs}, "
                    f"found {mine}"
                )
        for each in resumed.files:
            is_young = now_ms() - each.made.created_ms < RESUME_MS_MAX
            if is_young and _is_stored(self.store, each.made):
                self._done[each.source.file] = each

    def _is_for(
        self, known: FinishedFile, entry: Entry, ids: Sequence[int], reader: SplitReader
    ) -> bool:
        """Whether a finished file has the values of all rows of an entry."""
        if _holders(known.source, ids) != _holders(entry, ids):
            return False
        if known.source.deletion_vector in (None, entry.deletion_vector):
            return True
        was, now = (reader.rows(each) for each in splits_of([known.source, entry], self.store))
        return was is None or (now is not None and not now & was.complement(entry.rows))

    def _compute(
        self, entries: Sequence[Entry], total: int, reader: SplitReader, base: Snapshot
    ) -> None:
        """Compute files on threads; the first failure stops the others after their next batch."""
        stop = threading.Event()
        decoders = max(1, self._threads // max(len(entries), 1))

        def compute(entry: Entry) -> FinishedFile:
            return FinishedFile(source=entry, made=self._file(entry, reader, decoders, stop))

        done = total - len(entries)

        def finish(finished: FinishedFile) -> None:
            nonlocal done
            self._done[finished.source.file] = finished
            done += 1
            if self._progress is not None:
                self._progress(done, total)

        try:
            if self._threads == 1:
                for entry in entries:
                    finish(compute(entry))
            else:
                _on_threads(compute, entries, self._threads, finish, stop)
        except ColumnFunctionError as error:
            self._hand_over(error, base)
            raise

    def _hand_over(self, error: ColumnFunctionError, base: Snapshot) -> None:
        """Give the files that are finished to the error."""
        assert self._written is not None
        files = tuple(self._done.values())
        for each in files:
            self.files.paths.discard(each.made.path)
        error.finished = FinishedColumns(
            table_uuid=base.table_uuid,
            read=self._read,
            columns=self._columns,
            schema=self._written,
            files=files,
        )

    def _file(
        self, entry: Entry, reader: SplitReader, decoders: int, stop: threading.Event
    ) -> Entry:
        """Compute the columns of one file."""
        assert self._written is not None
        rows: Iterator[pa.RecordBatch] = self._rows(entry, reader, decoders, stop)
        if entry.batch is None:
            return write_column_file(self.store, self._written, rows, None, self.files.paths)
        (split,) = splits_of([entry], self.store)
        known = reader.batches(split, rows=RowRanges.all(entry.rows))
        batches = whole_batches(rows, known, self._columns)
        return write_column_file(self.store, self._written, None, batches, self.files.paths)

    def _rows(
        self, entry: Entry, reader: SplitReader, decoders: int, stop: threading.Event
    ) -> Iterator[pa.RecordBatch]:
        """The new columns of all rows of a file: null where a row is deleted."""
        (split,) = splits_of([entry], self.store)
        wanted = reader.rows(split)
        places = None if wanted is None else wanted.to_indices()
        start = at = 0
        for batch in reader.read_file(split, rows=wanted, threads=decoders):
            if stop.is_set():
                raise _Stopped
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
            arrays = [nulls(each.type, missing) for each in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def _called(self, batch: pa.RecordBatch, entry: Entry, rows: tuple[int, int]) -> pa.RecordBatch:
        """What the function gives for some rows, checked."""
        try:
            return _checked(self._function(batch), batch.num_rows, self._columns)
        except Exception as error:
            raise ColumnFunctionError(
                f"{self.store.location}: {self.action}: rows {rows[0]:,} to {rows[1] - 1:,} of "
                f"{entry.file}: {type(error).__name__}: {error}",
                file=entry.file,
                rows=rows,
            ) from error


class _Stopped(Exception):
    """Another file has failed."""


def _on_threads(
    compute: Callable[[Entry], FinishedFile],
    entries: Sequence[Entry],
    threads: int,
    finish: Callable[[FinishedFile], None],
    stop: threading.Event,
) -> None:
    """Compute files side by side; the first failure comes out when all threads have stopped."""
    failed: BaseException | None = None
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(compute, entry) for entry in entries]

        def cancel() -> None:
            stop.set()
            for each in futures:
                each.cancel()

        try:
            for future in as_completed(futures):
                error = None if future.cancelled() else future.exception()
                if error is None and not future.cancelled():
                    finish(future.result())
                elif failed is None and error is not None and not isinstance(error, _Stopped):
                    failed = error
                    cancel()
        except BaseException:
            cancel()
            raise
    if failed is not None:
        raise failed


def _holders(entry: Entry, ids: Sequence[int]) -> list[str]:
    """Which files of an entry hold the values of some top-level columns."""
    found = []
    for each in ids:
        holding = (file.file for file in reversed(entry.column_files) if file.has_field(each))
        found.append(next(holding, entry.file))
    return found


def _is_stored(store: AtomicStore, made: Entry) -> bool:
    try:
        return store.size(made.path) == made.size
    except FileNotFoundError:
        return False


def _spread(values: pa.RecordBatch, places: np.ndarray, count: int) -> pa.RecordBatch:
    """Rows at their places among others, which are null.

    Parameters
    ----------
    places
        ``int64``, ascending.
    count
        Rows of the result.
    """
    if len(places) == count:
        return values
    order = np.full(count, values.num_rows, np.int64)
    order[places] = np.arange(values.num_rows)
    null = [nulls(each.type, 1) for each in values.columns]
    return take_batch_rows(
        one_batch([values, pa.RecordBatch.from_arrays(null, schema=values.schema)]), order
    )


def _checked(found: Any, rows: int, columns: pa.Schema) -> pa.RecordBatch:
    """What a function gave, as one batch of exactly the new columns.

    Raises
    ------
    TypeError, ValueError, InvalidArgumentError
        Other columns, types, or another number of rows.
    """
    if found is None:
        raise TypeError("the function returned None: expected the new columns")
    if isinstance(found, (pa.Array, pa.ChunkedArray)) and len(columns) == 1:
        found = pa.table([found], names=columns.names)
    elif isinstance(found, Mapping):
        found = pa.table({name: _column(name, found[name], columns) for name in found})
    table = record_batch_reader(found).read_all()
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


def check_new_columns(columns: pa.Schema, action: str, where: str) -> pa.Schema:
    """The columns that a function gives, without metadata; refused where they can't be.

    Raises
    ------
    InvalidArgumentError
        None at all, a name twice, or one that must not be null: rows that others append while the
        values are computed have none.
    """
    if not len(columns):
        raise InvalidArgumentError(f"{where}: {action}: schema: expected at least one column")
    names = columns.names
    for each in columns:
        if names.count(each.name) > 1:
            raise InvalidArgumentError(f"{where}: {action}: schema: {each.name!r} is there twice")
        if not each.nullable:
            raise InvalidArgumentError(
                f"{where}: {action}: schema: column {each.name!r} is NOT NULL: expected a nullable "
                "one, as rows appended meanwhile have no value; alter_column can require values "
                "afterwards"
            )
    return columns.remove_metadata()
