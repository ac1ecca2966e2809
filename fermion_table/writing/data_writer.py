"""Writes rows as data files of a table, and describes them by manifest entries.

Nothing it writes is visible before a commit names it: files have unique names, and
`DataWriter.prepare_commit` gives the entries. Giving up deletes the files it made, no others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fermion.arguments import INT64_MAX, INT64_MIN, flag, integer, integers, several
from fermion.engine import BatchCopier, is_in_memory
from fermion.errors import InvalidArgumentError
from fermion.progress import watched
from fermion.typing import TableLike
from fermion_table.argument_checks import check_kind
from fermion_table.metadata.manifest import KnownBlobs
from fermion_table.schema.properties import parse_properties
from fermion_table.schema.schema import TableSchema, has_buckets
from fermion_table.schema.selection import INDEX_IN_BATCH
from fermion_table.schema.sorting import RowOrder, sorted_rows
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore
from fermion_table.writing.data_files import DataFiles, OpenFile
from fermion_table.writing.incoming_rows import (
    UNPARTITIONED,
    IncomingRows,
    Partition,
    partition_columns,
    split_batch,
)
from fermion_table.writing.writer_message import OwningWriter, WriteSettings


class WriteBuffer:
    """Collects the rows of partitions, and gives them back sorted.

    bytes_max: Arrow bytes kept; sorting needs as much again.
    """

    def __init__(self, order: RowOrder, bytes_max: int) -> None:
        self._order = order
        self._bytes_max = bytes_max
        self._rows: dict[Partition, list[pa.RecordBatch]] = {}
        self.bytes = 0

    def add(self, partition: Partition, rows: pa.RecordBatch) -> None:
        """Keep rows of a partition."""
        self._rows.setdefault(partition, []).append(rows)
        self.bytes += rows.nbytes

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more."""
        return self.bytes >= self._bytes_max

    def drain(self) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """All rows, each partition's together and sorted; they are forgotten one by one."""
        while self._rows:
            partition = next(iter(self._rows))
            batches = self._rows.pop(partition)
            self.bytes -= sum(batch.nbytes for batch in batches)
            yield partition, sorted_rows(batches, self._order)


OPEN_FILES_MAX = 64
"""Partitions that are written to at once; more close the one not written to for longest."""

_SETTINGS = WriteSettings()
"""What a writer takes that gets none."""


def check_batches(batches: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of a batch's id and its data.

    Raises TypeError: No iterable of pairs.
    """
    for at, each in enumerate(several(batches, "batches", "pairs of id and data")):
        if not isinstance(each, (tuple, list)) or len(each) != 2:
            found = type(each).__name__
            raise TypeError(f"batches[{at}]: expected a pair of id and data, found {found}")
        yield each[0], each[1]


class DataWriter(OwningWriter):
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
    owned
        Those of a larger operation, which has the files of the writer, too.
    known_blobs
        See `DataFiles`.
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
        owned: OwnedFiles | None = None,
        known_blobs: KnownBlobs | None = None,
    ) -> None:
        if settings is not None:
            check_kind(settings, WriteSettings, "settings")
        if has_buckets(schema):
            raise InvalidArgumentError(
                f"{store.location}: a table with a primary key is written by a KeyWriter, which "
                "Table.writer() makes"
            )
        super().__init__(store, schema, table_uuid, base_id, branch, owned)
        self._settings = settings or _SETTINGS
        self._files = DataFiles(self._owned, schema, self._settings, known_blobs=known_blobs)
        self._arrow = self._files.arrow
        self._incoming = IncomingRows(schema, arrow=self._arrow)
        self._copier = BatchCopier(self._arrow)
        self._partitions = partition_columns(schema)
        self._open: OrderedDict[tuple[Any, ...], OpenFile] = OrderedDict()
        self._batch_mode: bool | None = None
        self._memory = parse_properties(schema.properties).write_buffer_bytes
        self._buffer = self._sorting_buffer()

    def _sorting_buffer(self) -> WriteBuffer | None:
        if not self.schema.sort_by or self._settings.keeps_order:
            return None
        names = (self.schema.by_id[each].name for each in self.schema.sort_by)
        return WriteBuffer(RowOrder(tuple(names)), self._memory)

    def write(self, data: TableLike, *, copy: bool = True) -> None:
        """Append rows from any Arrow producer.

        Parameters
        ----------
        data
            The rows.
        copy
            Rows that wait to be encoded are copied, so that the caller, or the producer's next
            batch, may change the memory. False: nobody changes it before `prepare_commit`.

        Raises
        ------
        SchemaMismatch
            The data does not fit the table's schema, field by field; or one value does not.
        InvalidArgumentError
            After `append_batch`: a file holds batches or plain rows.
        """
        copy = flag(copy, "copy")
        self._enter_mode(batches=False)
        for batch in watched(self._incoming.reader(data), "writing rows", data):
            for partition, rows in split_batch(self._incoming.convert(batch), self._partitions):
                if self._buffer is None:
                    self._write_rows(partition, rows, copy)
                else:
                    self._buffer.add(partition, self._copier.copy(rows) if copy else rows)
                    if self._buffer.is_full:
                        self._write_sorted(self._buffer)

    def append_batch(
        self, batch_id: int, data: TableLike, *, copy: bool = True, positions: Any = None
    ) -> None:
        """Append one batch; its rows are stored together and can be looked up by its id.

        In a partitioned table the rows of each partition are a batch of that id there, and their
        positions count from 0 in each.

        Parameters
        ----------
        batch_id
            Any int64.
        data
            All rows of the batch, from any Arrow producer.
        copy
            As of `write`.
        positions
            What ``index_in_batch`` is for each row, in whichever partition: integers from 0 on that
            ascend. None: it counts the rows.

        Raises
        ------
        SchemaMismatch
            As of `write`.
        InvalidArgumentError
            After `write`, for an id that is no int64, for positions that do not ascend or are not
            as many as the rows.
        """
        copy = flag(copy, "copy")
        number = integer(batch_id, "batch_id", minimum=INT64_MIN, maximum=INT64_MAX)
        places = None if positions is None else integers(positions, "positions")
        self._enter_mode(batches=True)
        given = map(self._incoming.convert, self._incoming.reader(data))
        if copy and not is_in_memory(data):
            given, copy = map(self._copier.copy, given), False
        table = pa.Table.from_batches(given, schema=self._arrow)
        if places is not None and len(places) != table.num_rows:
            raise InvalidArgumentError(
                f"positions: expected {table.num_rows} positions, one a row, found {len(places)}"
            )
        is_split = places is not None and bool(self._partitions)
        if is_split:  # the positions go with their rows
            table = table.append_column(INDEX_IN_BATCH.name, [pa.array(places)])
        schema = table.schema
        parts: dict[Partition, list[pa.RecordBatch]] = {}
        for batch in table.to_batches():
            for partition, rows in split_batch(batch, self._partitions):
                parts.setdefault(partition, []).append(rows)
        if not parts and not self._partitions:
            parts[UNPARTITIONED] = []
        for partition, batches in parts.items():
            part = pa.Table.from_batches(batches, schema=schema)
            if is_split:
                last = part.num_columns - 1
                part, places = part.remove_column(last), part.column(last).to_numpy()
            size = sum(batch.nbytes for batch in batches)
            file = self._file_for(partition, size)
            if file.blobs is not None:
                part = file.blobs.placed(part)
            file.writer.append_batch(number, part, copy=copy, positions=places)
            self._count(file, part.num_rows, size)

    def _finish(self) -> None:
        if self._buffer is not None:
            self._write_sorted(self._buffer)
        for key in list(self._open):
            self._close(key)

    def _forget(self) -> None:
        self._buffer = None
        self._open.clear()

    def _enter_mode(self, *, batches: bool) -> None:
        if self._finished:
            raise InvalidArgumentError("the writer is finished: create a new one")
        if self._batch_mode is not None and self._batch_mode != batches:
            raise InvalidArgumentError("a writer takes batches or plain rows, not both")
        self._batch_mode = batches

    def _write_sorted(self, buffer: WriteBuffer) -> None:
        """Write what is buffered; the next rows begin new files, so that each file is sorted."""
        for partition, rows in buffer.drain():
            self._write_rows(partition, rows, copy=False)
            if partition.values in self._open:
                self._close(partition.values)

    def _write_rows(self, partition: Partition, rows: pa.RecordBatch, copy: bool) -> None:
        while rows.num_rows:
            file, size = self._file(partition), rows.nbytes  # which looks at every column
            room = self._files.room(file, rows, size)
            if room >= rows.num_rows:
                self._write_to(file, rows, copy, size)
                return
            head = rows.slice(0, max(1, room))
            self._write_to(file, head, copy, head.nbytes)
            rows = rows.slice(head.num_rows)

    def _write_to(self, file: OpenFile, rows: pa.RecordBatch, copy: bool, size: int) -> None:
        if file.blobs is not None:
            rows = file.blobs.placed(rows)
        file.writer.write(rows, copy=copy)
        self._count(file, rows.num_rows, size)

    def _count(self, file: OpenFile, rows: int, raw_bytes: int) -> None:
        self._files.count(file, rows, raw_bytes)
        if self._files.size(file) >= self._files.target_bytes:
            self._close(file.partition.values)
        waiting = {key: each.waiting_bytes for key, each in self._open.items()}
        if len(waiting) > 1 and sum(waiting.values()) > self._memory:
            self._close(max(waiting, key=waiting.__getitem__))

    def _file(self, partition: Partition) -> OpenFile:
        """The file that a partition's rows go to now."""
        file = self._open.get(partition.values)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            file = self._open[partition.values] = self._files.open(partition)
        self._open.move_to_end(partition.values)
        return file

    def _file_for(self, partition: Partition, size: int) -> OpenFile:
        """The file that a batch of so many bytes goes to, which is never divided between files."""
        file, files = self._file(partition), self._files
        if file.rows and files.size(file) + size * files.ratio > files.target_bytes:
            self._close(partition.values)
            file = self._file(partition)
        return file

    def _close(self, key: tuple[Any, ...]) -> None:
        self._entries.append(self._files.close(self._open[key]))
        del self._open[key]
