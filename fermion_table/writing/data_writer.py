"""Writes rows as data files of a table, and describes them by manifest entries.

Nothing it writes is visible before a commit names it: files have unique names, and
`DataWriter.prepare_commit` gives the entries. Giving up deletes the files it made, no others.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NoReturn, get_args

import msgspec
import pyarrow as pa

import fermion
from fermion.arguments import INT64_MAX, INT64_MIN, integer, several
from fermion.columns.arrow_input import record_batch_reader
from fermion.errors import InvalidArgumentError
from fermion_table.argument_checks import check_bool, check_kind
from fermion_table.errors import SchemaMismatch, UnsupportedFeature
from fermion_table.metadata import pointers
from fermion_table.metadata.manifest import Entry, Source
from fermion_table.moments import now_ms
from fermion_table.schema.conversion import Conversion, convert_batch, find_null, plan_writing
from fermion_table.schema.key_changes import has_buckets
from fermion_table.schema.properties import parse_properties
from fermion_table.schema.schema import TableSchema
from fermion_table.schema.sorting import RowOrder
from fermion_table.storage.paths import MAIN, data_path, unique_name
from fermion_table.storage.pending_files import PendingFiles
from fermion_table.storage.store import AtomicStore, is_durable
from fermion_table.writing.entry_maker import EntryMaker
from fermion_table.writing.partition import UNPARTITIONED, Partition, partition_columns, split_batch
from fermion_table.writing.sort_buffer import WriteBuffer

OPEN_FILES_MAX = 64
"""Partitions that are written to at once; more close the one not written to for longest."""
FIRST_RATIO = 0.4
"""Bytes of a file for a byte of Arrow data, until a file has been closed."""


class WriterMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files of one writer; small and picklable. `Table.commit` commits it.

    Attributes
    ----------
    entries
        Its data files.
    schema_id
        The schema they were written with.
    table_uuid
        The table they belong to.
    base_id, branch
        A snapshot of a branch that was there before the writer began: no commit up to it can have
        added the files. None: not known.
    schema_time_ms
        When their schema was made, which tells it from another branch's of the same id. None: not
        known.
    """

    entries: tuple[Entry, ...] = ()
    schema_id: int = 0
    table_uuid: str = ""
    base_id: int | None = None
    branch: str = MAIN
    schema_time_ms: int | None = None

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(entry.rows for entry in self.entries)


def check_same_schema(message: WriterMessage, schema: TableSchema, branch: str, where: str) -> None:
    """Refuse files whose schema is another branch's, and has the id of one of this branch.

    Parameters
    ----------
    schema
        Of the message's schema id, on the branch that takes the files.
    branch, where
        That branch, and the table's location.

    Raises
    ------
    InvalidArgumentError
        Their columns would be read as others.
    """
    if message.branch == branch == MAIN:  # its history is one line: ids are unique
        return
    if message.schema_time_ms not in (None, schema.time_ms):
        raise InvalidArgumentError(
            f"{where}: a message of branch {message.branch!r}: branch {branch!r} never had the "
            f"schema that its files were written with, and has another one of id {schema.id}"
        )


def check_batches(batches: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of a batch's id and its data.

    Raises
    ------
    TypeError
        No iterable of pairs.
    """
    for at, each in enumerate(several(batches, "batches", "pairs of id and data")):
        if not isinstance(each, (tuple, list)) or len(each) != 2:
            found = type(each).__name__
            raise TypeError(f"batches[{at}]: expected a pair of id and data, found {found}")
        yield each[0], each[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How data files are written.

    Attributes
    ----------
    target_file_bytes
        A new file is begun when one has about this size; None takes the table's property.
    file_options
        Of every file; None takes the table's profile.
    threads
        That encode a file; None takes those of the file options.
    source
        What the entries say wrote them.
    keeps_order
        Whether rows are written in the order they come in, whatever the table's sort order.
    """

    target_file_bytes: int | None = None
    file_options: fermion.WriteOptions | None = None
    threads: int | None = None
    source: Source = "append"
    keeps_order: bool = False

    def __post_init__(self) -> None:
        if self.target_file_bytes is not None:
            size = integer(self.target_file_bytes, "target_file_bytes", minimum=1)
            object.__setattr__(self, "target_file_bytes", size)
        if self.file_options is not None:
            check_kind(self.file_options, fermion.WriteOptions, "file_options")
        if self.threads is not None:
            object.__setattr__(self, "threads", integer(self.threads, "threads", minimum=1))
        if self.source not in get_args(Source):
            expected = ", ".join(map(repr, get_args(Source)))
            raise InvalidArgumentError(f"source={self.source!r}: expected one of {expected}")
        object.__setattr__(self, "keeps_order", check_bool(self.keeps_order, "keeps_order"))


@dataclass(slots=True)
class _OpenFile:
    """A data file being written."""

    writer: fermion.Writer
    path: str
    partition: Partition
    raw_bytes: int = 0
    rows: int = 0
    waiting_bytes: int = 0
    waiting_rows: int = 0


@dataclass(slots=True)
class _Progress:
    """What a writer has done."""

    entries: list[Entry] = field(default_factory=list)
    raw_bytes: int = 0
    file_bytes: int = 0

    def ratio(self) -> float:
        return self.file_bytes / self.raw_bytes if self.raw_bytes else FIRST_RATIO


class DataWriter:
    """Writes Arrow data to a table's files.

    As a context manager it deletes what it wrote unless the block reaches `prepare_commit`. So it
    does when it is forgotten before.

    Parameters
    ----------
    store
        Of the table.
    schema
        What the files are written with; data is matched by name.
    settings
        How.
    table_uuid
        Goes into the message.
    base_id, branch
        The snapshot that the files are written for; None: the latest one is looked up.
    begun
        Where the paths of its files are noted, each before the file is made, for a caller that
        deletes them if it gives up.
    """

    def __init__(
        self,
        store: AtomicStore,
        schema: TableSchema,
        *,
        settings: WriteSettings | None = None,
        table_uuid: str = "",
        base_id: int | None = None,
        branch: str = MAIN,
        begun: set[str] | None = None,
    ) -> None:
        if settings is not None:
            check_kind(settings, WriteSettings, "settings")
        if has_buckets(schema):
            raise UnsupportedFeature(f"{store.location}: writing to tables with a primary key")
        self.schema = schema
        self._base_id = pointers.read_latest(store, branch) if base_id is None else base_id
        self._branch = branch
        self._store = store
        self._begun = begun if begun is not None else set()
        self._written = PendingFiles(store, self)
        self._settings = settings or WriteSettings()
        self._table_uuid = table_uuid
        properties = parse_properties(schema.properties)
        target = self._settings.target_file_bytes
        self._target = properties.target_file_bytes if target is None else target
        profile: Any = properties.profile
        default = fermion.WriteOptions(profile=profile) if profile else fermion.WriteOptions()
        options = self._settings.file_options or default
        threads = self._settings.threads or options.threads
        durable = options.durable and is_durable(store)
        self._options = replace(options, durable=durable, threads=threads)
        self._arrow = schema.to_arrow()
        self._partitions = partition_columns(schema)
        self._entries = EntryMaker(schema, properties.statistics_columns)
        self._open: OrderedDict[tuple[Any, ...], _OpenFile] = OrderedDict()
        self._progress = _Progress()
        self._batch_mode: bool | None = None
        self._plan: tuple[pa.Schema, list[Conversion]] | None = None
        self._finished = False
        self._memory = properties.write_buffer_bytes
        self._buffer = self._sorting_buffer()

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would own, and delete, the same files."""
        raise TypeError(
            "a DataWriter can't be pickled or copied: pickle the Table and make a writer there, or "
            "pickle the messages of prepare_commit()"
        )

    def _sorting_buffer(self) -> WriteBuffer | None:
        if not self.schema.sort_by or self._settings.keeps_order:
            return None
        names = (self.schema.by_id[each].name for each in self.schema.sort_by)
        return WriteBuffer(RowOrder(tuple(names)), self._memory)

    def __enter__(self) -> DataWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._finished:  # once there are messages, a commit may have named the files
            self.abort()

    def write(self, data: Any) -> None:
        """Append rows from any Arrow producer.

        Raises
        ------
        SchemaMismatch
            The data does not fit the table's schema, field by field; or one value does not.
        InvalidArgumentError
            After `append_batch`: a file holds batches or plain rows.
        """
        self._enter_mode(batches=False)
        for batch in self._reader(data):
            for partition, rows in split_batch(self._converted(batch), self._partitions):
                if self._buffer is None:
                    self._write_rows(partition, rows)
                else:
                    self._buffer.add(partition, rows)
                    if self._buffer.is_full:
                        self._write_sorted(self._buffer)

    def append_batch(self, batch_id: int, data: Any) -> None:
        """Append one batch; its rows are stored together and can be looked up by its id.

        In a partitioned table the rows of each partition are a batch of that id there.
        """
        number = integer(batch_id, "batch_id", minimum=INT64_MIN, maximum=INT64_MAX)
        self._enter_mode(batches=True)
        reader = self._reader(data)
        table = pa.Table.from_batches(map(self._converted, reader), schema=self._arrow)
        parts: dict[Partition, list[pa.RecordBatch]] = {}
        for batch in table.to_batches():
            for partition, rows in split_batch(batch, self._partitions):
                parts.setdefault(partition, []).append(rows)
        if not parts and not self._partitions:
            parts[UNPARTITIONED] = []
        for partition, batches in parts.items():
            self._write_batch(partition, number, batches)

    def prepare_commit(self) -> list[WriterMessage]:
        """Finish all files and return the messages for `Table.commit`."""
        if not self._finished:
            if self._buffer is not None:
                self._write_sorted(self._buffer)
            for key in list(self._open):
                self._close(key)
            self._finished = True
            self._written.release()
        return [
            WriterMessage(
                entries=tuple(self._progress.entries),
                schema_id=self.schema.id,
                table_uuid=self._table_uuid,
                base_id=self._base_id,
                branch=self._branch,
                schema_time_ms=self.schema.time_ms,
            )
        ]

    def abort(self) -> None:
        """Delete every file of this writer. Not allowed after an attempt to commit its messages."""
        self._finished = True
        self._buffer = None
        for file in self._open.values():
            file.writer.abort()
        self._open.clear()
        self._begun -= self._written.paths
        self._written.delete()
        self._progress.entries.clear()

    def _schema_for(self, data: Any) -> pa.Schema | None:
        """What a data set without types of its own (a dict, an empty iterable) is read as."""
        untyped = isinstance(data, dict) or not hasattr(data, "__arrow_c_stream__")
        known = isinstance(data, pa.RecordBatch | pa.RecordBatchReader)
        if isinstance(data, dict):
            fields = [item for item in self._arrow if item.name in data]
            return pa.schema(fields) if len(fields) == len(data) else None  # refused by name later
        return self._arrow if untyped and not known else None

    def _reader(self, data: Any) -> pa.RecordBatchReader:
        """The data as record batches, of which there may be none; their schema is checked first."""
        reader = record_batch_reader(data, schema=self._schema_for(data))
        self._take_schema(reader.schema)
        return reader

    def _take_schema(self, data: pa.Schema) -> Sequence[Conversion]:
        """How data of a schema is converted; refuse what does not fit the table's."""
        if self._plan is None or not self._plan[0].equals(data):
            self._plan = data, plan_writing(self.schema, data)
        return self._plan[1]

    def _enter_mode(self, *, batches: bool) -> None:
        if self._finished:
            raise InvalidArgumentError("the writer is finished: create a new one")
        if self._batch_mode is not None and self._batch_mode != batches:
            raise InvalidArgumentError("a writer takes batches or plain rows, not both")
        self._batch_mode = batches

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        converted = convert_batch(self._take_schema(batch.schema), batch, self._arrow)
        for item, column in zip(self._arrow, converted.columns, strict=True):
            found = find_null(item, column)
            if found is not None:
                raise SchemaMismatch(f"column {found!r} is NOT NULL, but the data holds nulls")
        return converted

    def _write_sorted(self, buffer: WriteBuffer) -> None:
        """Write what is buffered; the next rows begin new files, so that each file is sorted."""
        for partition, rows in buffer.drain():
            self._write_rows(partition, rows)
            if partition.values in self._open:
                self._close(partition.values)

    def _write_rows(self, partition: Partition, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            file = self._file(partition)
            row_bytes = max(rows.nbytes / rows.num_rows, 1.0) * self._progress.ratio()
            room = max(1, int((self._target - self._size(file)) / row_bytes))
            head = rows.slice(0, room)
            file.writer.write(head)
            self._count(file, head.num_rows, head.nbytes)
            rows = rows.slice(head.num_rows)

    def _write_batch(
        self, partition: Partition, batch_id: int, batches: Sequence[pa.RecordBatch]
    ) -> None:
        size = sum(batch.nbytes for batch in batches)
        file = self._file(partition)
        if file.rows and self._size(file) + size * self._progress.ratio() > self._target:
            self._close(partition.values)
            file = self._file(partition)
        file.writer.append_batch(batch_id, pa.Table.from_batches(batches, schema=self._arrow))
        self._count(file, sum(batch.num_rows for batch in batches), size)

    def _size(self, file: _OpenFile) -> float:
        return file.raw_bytes * self._progress.ratio()

    def _count(self, file: _OpenFile, rows: int, raw_bytes: int) -> None:
        file.rows += rows
        file.raw_bytes += raw_bytes
        self._wait(file, rows, raw_bytes)
        if self._size(file) >= self._target:
            self._close(file.partition.values)
        waiting = {key: each.waiting_bytes for key, each in self._open.items()}
        if len(waiting) > 1 and sum(waiting.values()) > self._memory:
            self._close(max(waiting, key=waiting.__getitem__))

    def _wait(self, file: _OpenFile, rows: int, raw_bytes: int) -> None:
        """Count the rows that a file keeps in memory: those of the stripe it has not finished."""
        stripe = self._options
        stripe_bytes = stripe.stripe_bytes_for(len(self._arrow))
        file.waiting_bytes = (file.waiting_bytes + raw_bytes) % stripe_bytes
        file.waiting_rows += rows
        if file.waiting_rows >= stripe.stripe_rows:
            file.waiting_rows %= stripe.stripe_rows
            file.waiting_bytes = min(file.waiting_bytes, raw_bytes)

    def _file(self, partition: Partition) -> _OpenFile:
        """The file that a partition's rows go to now."""
        file = self._open.get(partition.values)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            path = data_path(unique_name(), partition.segments)
            self._written.paths.add(path)  # before: an interrupt must not lose it
            self._begun.add(path)
            writer = fermion.Writer(
                self._store.locate(path, for_writing=True),
                self._arrow,
                options=self._options,
                storage_options=self._store.storage_options,
            )
            file = self._open[partition.values] = _OpenFile(writer, path, partition)
        self._open.move_to_end(partition.values)
        return file

    def _close(self, key: tuple[Any, ...]) -> None:
        file = self._open[key]
        info = file.writer.close()
        self._progress.raw_bytes += file.raw_bytes
        self._progress.file_bytes += info.size
        self._progress.entries.append(
            self._entries.entry(
                info,
                file.path,
                partition=file.partition.values,
                source=self._settings.source,
                created_ms=now_ms(),
            )
        )
        del self._open[key]


def delete_files(store: AtomicStore, entries: Iterable[Entry]) -> None:
    """Delete data files that nothing refers to; what can't be deleted is left as an orphan."""
    for entry in entries:
        if entry.path:
            with contextlib.suppress(OSError):
                store.delete(entry.path)
