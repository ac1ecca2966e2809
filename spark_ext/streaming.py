"""Streams of a table's appends, and micro-batches appended to a table exactly once.

The source counts in snapshots: an offset is the id of the last snapshot that was read. A stream
begins with the table's whole content (or after a snapshot that the user names), and goes on with
what each append adds. Compactions and schema changes add no rows and are passed over. A commit that
removes or replaces rows ends the stream with an error, as a stream cannot take rows back, unless
the option ``skipRewrites`` says to pass over it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fermion_table import Scan, Snapshot, Split, Table, WriterMessage
from spark_ext.errors import UnsupportedBySpark
from spark_ext.finished_tasks import delete_files
from spark_ext.reading import ReadTask, scan_of, tasks_of
from spark_ext.source_options import SourceOptions
from spark_ext.types import exchange_schema, spark_schema
from spark_ext.write_task import WriteTask
from spark_ext.writing import check_columns, files_of, writer_factory

BEFORE_ALL = -1
"""The offset of a stream that has not read anything: its first micro-batch is the whole table."""
TASKS_MIN = 8
QUIET_KINDS = frozenset({"create", "schema", "compact"})
"""Commits that add no rows."""

_OFFSET = "snapshot"
_QUERY_ID = "sql.streaming.queryId"


@dataclass(slots=True)
class StreamPartition(InputPartition):
    """The splits that one task reads, and how: a snapshot's files are read under its schema."""

    read: ReadTask
    splits: list[Split]


class FermionStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what commits append.

    Parameters
    ----------
    options
        What to read.
    schema
        The columns of the stream: those of the table when the query was started.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        columns = schema.names if options.columns is None else options.columns
        self._options = replace(options, columns=columns)
        self._schema = schema
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        start = self._options.starting_snapshot_id
        return {_OFFSET: BEFORE_ALL if start is None else start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much one micro-batch reads at most."""
        files = self._options.max_files
        return ReadAllAvailable() if files is None else ReadMaxFiles(files)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The last snapshot of the next micro-batch: at least one more, if there is one."""
        first = start[_OFFSET]
        last = self._newest().id if self._last is None else self._last
        if first == BEFORE_ALL or last <= first or not isinstance(limit, ReadMaxFiles):
            return {_OFFSET: max(first, last)}
        files = 0
        for snapshot_id in range(first + 1, last + 1):
            snapshot = self._snapshot(snapshot_id)
            files += snapshot.deltas.files_added if self.adds_rows(snapshot) else 0
            if files > limit.max_files and snapshot_id > first + 1:
                return {_OFFSET: snapshot_id - 1}
        return {_OFFSET: last}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The table's newest snapshot, for the query's progress."""
        return {_OFFSET: self._newest().id}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Go no further than the snapshot that is the newest now."""
        self._last = self._newest().id

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: snapshots after the start up to the end."""
        first, last = start[_OFFSET], end[_OFFSET]
        if first == BEFORE_ALL:
            scan = self._scan(last)
            return self._tasks(scan, scan.plan().splits)
        tasks: list[InputPartition] = []
        for snapshot_id in range(first + 1, last + 1):
            if self.adds_rows(self._snapshot(snapshot_id)):
                scan = self._scan(snapshot_id)
                entries, _ = scan.entries
                pairs = zip(entries, scan.plan().splits, strict=True)
                new = [split for entry, split in pairs if entry.added_snapshot == snapshot_id]
                tasks += self._tasks(scan, new)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, StreamPartition)
        return partition.read.read(partition.splits)

    def _tasks(self, scan: Scan, splits: Sequence[Split]) -> list[InputPartition]:
        where = f"{self._options.path}, snapshot {scan.snapshot.id}"
        found = spark_schema(scan.schema, where=where)
        if _shape(found) != _shape(self._schema):
            raise UnsupportedBySpark(
                f"{where}: the columns of the stream are {found.simpleString()} now, they were "
                f"{self._schema.simpleString()} when the query was started; start it again"
            )
        read = ReadTask(scan.reader, exchange_schema(self._schema))
        return [StreamPartition(read, part) for part in tasks_of(splits, TASKS_MIN)]

    def adds_rows(self, snapshot: Snapshot) -> bool:
        """Whether a commit appends; an error if it takes rows away."""
        if snapshot.kind == "append":
            return True
        if snapshot.kind in QUIET_KINDS or self._options.skip_rewrites:
            return False
        raise UnsupportedBySpark(
            f"{self._options.path}: snapshot {snapshot.id} is a commit of kind {snapshot.kind!r}, "
            "which removes or replaces rows: a stream cannot follow that. Set the option "
            "skipRewrites=true to pass over such commits, or start a new query"
        )

    def _scan(self, snapshot_id: int) -> Scan:
        return scan_of(replace(self._options, snapshot_id=snapshot_id, tag=None, as_of=None))

    def _newest(self) -> Snapshot:
        return _open(self._options).snapshot

    def _snapshot(self, snapshot_id: int) -> Snapshot:
        return _open(self._options, snapshot_id).snapshot


@dataclass(slots=True)
class StreamMessage(WriterCommitMessage):
    """What a task of a micro-batch wrote, and of which query it is."""

    messages: list[WriterMessage]
    query_id: str | None


class FermionStreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches: each is one snapshot, and a replayed one is none.

    The name of the commit is the query's id, which lives in its checkpoint, and the number of the
    micro-batch.

    Parameters
    ----------
    options
        The table; a ``commitUser`` takes the place of the query's id.
    schema
        Of the rows.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        table = _open(options)
        self._task = WriteTask(writer_factory(table), check_columns(table, schema, None))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        return StreamMessage(self._task.write(iterator), query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a micro-batch; one without rows makes no snapshot."""
        written = [each for each in messages if isinstance(each, StreamMessage)]
        entries = [message for each in written for message in each.messages]
        if not entries:
            return
        user = self._options.commit_user or written[0].query_id
        _open(self._options).commit(
            entries,
            message=f"micro-batch {batchId}",
            commit_user=user,
            commit_identifier=batchId if user is not None else None,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what a failed micro-batch wrote, if its commit was never tried."""
        if any(message is None for message in messages):
            written = [each for each in messages if isinstance(each, StreamMessage)]
            paths = [path for each in written for one in each.messages for path in files_of(one)]
            delete_files(_open(self._options), paths)


def _open(options: SourceOptions, snapshot_id: int | None = None) -> Table:
    return Table.open(
        options.path,
        version=snapshot_id,
        branch=options.branch or "main",
        storage_options=options.storage_options,
    )


def _shape(schema: StructType) -> Any:
    """Names and types, without regard to nullability."""
    return schema.simpleString()
