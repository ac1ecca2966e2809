"""New columns whose values a function computes from columns that are there, file by file.

A file that is finished stays finished: where the function fails, the error has what was made so
far, and the operation can go on with it (see `FinishedColumns`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from fermion.arguments import first_repeated
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple, dataclass
from fermion_table.commit.commit import Publisher
from fermion_table.commit.request import CommitMetadata
from fermion_table.commit.schema_versions import evolved_schema
from fermion_table.errors import ColumnFunctionError, CommitConflict
from fermion_table.metadata.history import SchemaVersions
from fermion_table.metadata.manifest import Entry, ids_in
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import now_ms
from fermion_table.operations.column_commit import ColumnChange, Made, column_taken
from fermion_table.operations.column_task import ColumnRunner, ColumnTask, FinishedFile, Stopped
from fermion_table.planning.plan import splits_of
from fermion_table.reading.split_reader import SplitReader
from fermion_table.reading.whole_rows import column_reader
from fermion_table.schema.changes import merge_columns
from fermion_table.schema.schema import Field, PathLike, TableSchema
from fermion_table.schema.selection import (
    BATCH_COLUMNS,
    ROW_ID,
    MapKey,
    map_key,
    map_keys,
    queryable_fields,
    select_columns,
)
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.column_files import schema_of_columns

_VIRTUAL = frozenset(field.name for field in (*BATCH_COLUMNS, ROW_ID))
RESUME_MS_MAX = 24 * 3600 * 1000
"""Finished files older than this are made again: they may be removed as orphans while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
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
        owned = OwnedFiles(store)
        owned.take(each.made.path for each in self.files)
        owned.delete()


class Computation(NamedTuple):
    """How columns are computed.

    function: From a record batch to the columns of its rows that are written.
    columns: The new ones: keys of maps, too.
    batch_rows: Rows a call, at most.
    written: Columns of the files: maps in place of their keys.
    maps: These, as the table has them.
    """

    function: Callable[[pa.RecordBatch], Any]
    read: tuple[PathLike, ...]
    columns: pa.Schema
    batch_rows: int
    written: pa.Schema
    maps: tuple[Field, ...] = ()


class ComputedColumns(ColumnChange):
    """What `Table.add_columns_with` does.

    publisher, metadata: As of a `ColumnChange`.
    threads: Files computed side by side; None takes the number of processors.
    progress: Called with the files done and the files in all.
    resume: What an earlier try has made.
    runner: What computes the files; None: threads of this process.
    """

    def __init__(
        self,
        publisher: Publisher,
        metadata: CommitMetadata,
        computation: Computation,
        *,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        resume: FinishedColumns | None = None,
        runner: ColumnRunner | None = None,
    ) -> None:
        super().__init__(publisher, "add_columns_with", metadata)
        self._computation = computation
        self._read, self._columns = computation.read, computation.columns
        self._threads = threads or os.cpu_count() or 1
        self._progress = progress
        self._resumed = resume
        self._runner = runner
        self._is_first = True
        self._written: TableSchema | None = None if resume is None else resume.schema
        self._known: TableSchema | None = None  # under which the function names its columns
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
        for each in self._computation.maps:
            for schema in (current, self._written or current):
                if schema.by_name.get(each.name) != each:
                    raise CommitConflict(
                        f"{where}: {self.action}: column {each.name!r}, whose keys get values, "
                        "was changed by another commit",
                        mine=self.action,
                    )
        changes = merge_columns(current, self._computation.written)
        return evolved_schema(self.publisher.store, base, changes)

    def made_for(
        self, base: Snapshot, schemas: SchemaVersions, schema: TableSchema, entries: list[Entry]
    ) -> Made:
        """Compute the columns of all files that are not done yet."""
        if self._written is None:
            self._written = schema_of_columns(schema, self._computation.written.names)
        fields, keys = self._fields(schemas.current)
        tops = {*(each.id for each in fields), *(each.map_id for each in keys)}
        whole = tuple(each for each in queryable_fields(schemas.current) if each.id in tops)
        reader = column_reader(entries, self.store, fields, whole, schemas)
        rows = self._computation.batch_rows
        reader = SplitReader(replace(reader.request, batch_rows=rows, map_keys=keys))
        ids = [each.id for each in whole]
        left = []
        for entry in entries:
            known = self._done.get(entry.file)
            if known is None or not self._is_for(known, entry, ids, reader):
                left.append(entry)
        written = self._written
        task = ColumnTask(
            store=self.store,
            function=self._computation.function,
            request=reader.request,
            columns=self._computation.written,
            written=written,
            action=self.action,
        )
        self._compute(task, left, len(entries), base)
        return {entry.file: (self._done[entry.file].made, written) for entry in entries}

    def _fields(self, schema: TableSchema) -> tuple[tuple[Field, ...], tuple[MapKey, ...]]:
        """What the function reads, under the names that it knows: others may have renamed it.

        Returns: And which of these are keys of maps, or paths of Variants, as they are now.
        """
        where = self.store.location
        if self._known is None:
            self._known = schema
        known = self._known
        paths: list[PathLike] = []
        asked = map_keys(known, self._read, where=where)
        keys = {}
        for place, each in enumerate(self._read):
            key = asked.get(place)
            if key is None and each not in known.by_name and each in _VIRTUAL:
                paths.append(each)
                continue
            number = known.find(each, where=where).id if key is None else key.map_id
            path = schema.paths.get(number)
            if path is None:
                raise CommitConflict(
                    f"{where}: {self.action}: column {each!r}, which the function reads, was "
                    "dropped by another commit",
                    mine=self.action,
                )
            if key is not None:
                keys[place] = map_key(schema.by_id[number], key.key, key.field.id)
            paths.append(path)
        fields = select_columns(schema, paths, where=where, keys=keys)
        if schema is not known:
            names = {each.field.id: each.field.name for each in asked.values()}
            fields = tuple(_renamed(each, known, names) for each in fields)
        return fields, tuple(keys.values())

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
        self, task: ColumnTask, entries: Sequence[Entry], total: int, base: Snapshot
    ) -> None:
        """Compute files; what is finished when one fails is handed to the error."""
        done = total - len(entries)
        run = self._runner or partial(_side_by_side, threads=self._threads, owned=self.files)
        try:
            slim = [msgspec.structs.replace(each, stats={}) for each in entries]
            with closing(run(task, slim)) as finished:
                for each in finished:
                    self.files.take([each.made.path])
                    self._done[each.source.file] = each
                    done += 1
                    if self._progress is not None:
                        self._progress(done, total)
        except ColumnFunctionError as error:
            self._hand_over(error, base)
            raise

    def _hand_over(self, error: ColumnFunctionError, base: Snapshot) -> None:
        """Give the files that are finished to the error."""
        assert self._written is not None
        files = tuple(self._done.values())
        error.finished = FinishedColumns(
            table_uuid=base.table_uuid,
            read=self._read,
            columns=self._columns,
            schema=self._written,
            files=files,
        )
        kept = OwnedFiles(self.store)
        kept.take(each.made.path for each in files)
        kept.release(error.finished)


def _side_by_side(
    task: ColumnTask, entries: Sequence[Entry], *, threads: int, owned: OwnedFiles
) -> Generator[FinishedFile]:
    """Compute files on threads; the first failure stops the others after their next batch."""
    if threads == 1:
        for entry in entries:
            yield task.compute(entry, owned=owned)
        return
    stop, failed = threading.Event(), None
    decoders = max(1, threads // max(len(entries), 1))
    with ThreadPoolExecutor(threads) as pool:
        compute = partial(task.compute, threads=decoders, owned=owned, stop=stop)
        futures = [pool.submit(compute, entry) for entry in entries]

        def cancel() -> None:
            stop.set()
            for each in futures:
                each.cancel()

        try:
            for future in as_completed(futures):
                error = None if future.cancelled() else future.exception()
                if error is None and not future.cancelled():
                    yield future.result()
                elif failed is None and error is not None and not isinstance(error, Stopped):
                    failed = error
                    cancel()
        except BaseException:
            cancel()
            raise
    if failed is not None:
        raise failed


def _renamed(field: Field, known: TableSchema, names: Mapping[int, str]) -> Field:
    """A field, and those inside, under the names of another schema version that has them.

    names: Of fields that are in no schema, by id.
    """
    if field.id in names:
        return msgspec.structs.replace(field, name=names[field.id])
    if field.children:
        field = field.with_children(_renamed(each, known, names) for each in field.children)
    path = known.paths.get(field.id)
    return field if path is None else msgspec.structs.replace(field, name=path[-1])


def _holders(entry: Entry, ids: Sequence[int]) -> list[str]:
    """Which files of an entry hold the values of some top-level columns."""
    holders = dict.fromkeys(ids, entry.file)
    for file in entry.column_files:
        holders.update(dict.fromkeys(ids_in(file.fields, ids), file.file))
    return list(holders.values())


def _is_stored(store: AtomicStore, made: Entry) -> bool:
    try:
        return store.size(made.path) == made.size
    except FileNotFoundError:
        return False


def check_new_columns(columns: pa.Schema, action: str, where: str) -> pa.Schema:
    """The columns that a function gives, without metadata; refused where they can't be.

    Raises InvalidArgumentError: None at all, a name twice, or one that must not be null: rows that
        others append while the values are computed have none.
    """
    if not len(columns):
        raise InvalidArgumentError(f"{where}: {action}: schema: expected at least one column")
    repeated = first_repeated(columns.names)
    if repeated is not None:
        raise InvalidArgumentError(f"{where}: {action}: schema: {repeated!r} is there twice")
    for each in columns:
        if not each.nullable:
            raise InvalidArgumentError(
                f"{where}: {action}: schema: column {each.name!r} is NOT NULL: expected a nullable "
                "one, as rows appended meanwhile have no value; alter_column can require values "
                "afterwards"
            )
    return columns.remove_metadata()
