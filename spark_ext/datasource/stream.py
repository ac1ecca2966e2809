"""Streams of a table's appends, and micro-batches appended to a table exactly once.

The source counts snapshots, and files where a limit divides a snapshot into several micro-batches:
see `offsets`. A stream begins with all rows of the table (or after a snapshot that the user names),
and goes on with the rows of each append. Compactions and schema changes add no rows and are
skipped. A commit that removes or replaces rows ends the stream with an error, because a stream
cannot take rows back; the option ``skipRewrites`` skips such commits too. A primary-key table can't
be read so: its commits replace rows. `changes` has the streams that give all changes of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Scan, ScanPlan, Snapshot, Table
from fermion_table.engine import Split
from spark_ext.datasource.offsets import (
    BEFORE_ALL,
    Portion,
    StreamOffset,
    check_table,
    next_offset,
    parse_offset,
    portions,
)
from spark_ext.datasource.tasks import TASKS_MIN, delete_unfinished, frame_task
from spark_ext.errors import UnsupportedBySpark
from spark_ext.opening import changes_of, open_branch, scan_of
from spark_ext.options import SourceOptions
from spark_ext.reading.task import ReadTask, column_paths
from spark_ext.types import exchange_schema, spark_schema
from spark_ext.versions import (
    READ_LIMITS,
    SPARK,
    DataSourceStreamArrowWriter,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from spark_ext.writing.task import TaskMessage, all_messages

QUIET_KINDS = frozenset({"create", "schema", "compact"})
"""Commits that add no rows."""

_QUERY_ID = "sql.streaming.queryId"


@dataclass(slots=True)
class StreamPartition(InputPartition):
    """The splits that one task reads, with the schema of their snapshot."""

    read: ReadTask
    splits: list[Split]


class FermionStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what commits append.

    options: What to read.
    schema: The columns of the stream: those of the table when the query was started.
    """

    divides_commits = True
    """Whether a limit of files may divide a commit."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.max_files is not None:
            SPARK.require(READ_LIMITS, options.path)
        columns = column_paths(schema) if options.columns is None else options.columns
        self._options = replace(options, columns=columns)
        self._schema = schema
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        newest = self._newest()
        start = self._options.starting_snapshot_id
        if start is not None and start > newest.id:
            raise InvalidArgumentError(
                f"option startingSnapshotId={start}: the newest snapshot of {self._options.path} "
                f"is {newest.id}"
            )
        begin = BEFORE_ALL if start is None else start
        return StreamOffset(begin, newest.table_uuid).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The most files that one micro-batch reads."""
        files = self._options.max_files
        return ReadAllAvailable() if files is None else ReadMaxFiles(files)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next micro-batch ends: at least one file further, if there is one.

        Spark without limits does not say where it begins: such a micro-batch reads all.
        """
        if start is None:
            return self.reportLatestOffset()
        read, newest = parse_offset(start), self._newest()
        check_table(read, newest.table_uuid, newest.id, self._options.path)
        last = newest.id if self._last is None else self._last
        files_max = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        end = next_offset(
            read,
            last,
            files_max,
            newest.table_uuid,
            self._files_in,
            divides_commits=self.divides_commits,
        )
        nothing_new = (end.snapshot, end.files) == (read.snapshot, read.files)
        return start if nothing_new else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The table's newest snapshot, for the query's progress."""
        newest = self._newest()
        return StreamOffset(newest.id, newest.table_uuid).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End at the snapshot that is the newest now."""
        self._last = self._newest().id

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: what lies between two offsets."""
        first, last, newest = parse_offset(start), parse_offset(end), self._newest()
        for offset in (first, last):
            check_table(offset, newest.table_uuid, newest.id, self._options.path)
        return self.batch_tasks(first, last)

    def batch_tasks(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The tasks of a micro-batch between two offsets of this table."""
        tasks: list[InputPartition] = []
        for portion in portions(start, end):
            if portion.initial or self.adds_rows(self._commit(portion.snapshot)):
                scan = self._scan(portion.snapshot)
                self.check_columns(scan.schema, scan.snapshot.id)
                read = ReadTask(scan.reader, exchange_schema(self._schema))
                for splits in self.split_tasks(scan, portion):
                    tasks.append(StreamPartition(read, list(splits)))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, StreamPartition)
        return partition.read.read(partition.splits)

    def _files_in(self, snapshot_id: int, initial: bool) -> int:
        """The number of files that a snapshot has for the stream, without regard to the filter."""
        snapshot = self._commit(snapshot_id)
        if snapshot is None:
            return 0
        if initial:
            return snapshot.totals.files
        return snapshot.deltas.files_added if self.adds_rows(snapshot) else 0

    def _splits(self, scan: Scan, portion: Portion) -> list[Split]:
        """The splits of a portion that the filter keeps.

        Positions of files count all files, as the filter may change between micro-batches.
        """
        entries, _ = scan.entries
        pairs = list(zip(entries, scan.plan().splits, strict=True))
        if not portion.initial:
            pairs = [pair for pair in pairs if pair[0].added_snapshot == portion.snapshot]
        if portion.is_whole:
            return [split for _, split in pairs]
        listed, _ = replace(scan, filter=None).entries
        if not portion.initial:
            listed = [entry for entry in listed if entry.added_snapshot == portion.snapshot]
        wanted = {entry.file for entry in listed[portion.start : portion.stop]}
        return [split for entry, split in pairs if entry.file in wanted]

    def split_tasks(self, scan: Scan, portion: Portion) -> list[tuple[Split, ...]]:
        """The splits of a portion, divided among tasks."""
        plan = ScanPlan(snapshot_id=scan.snapshot.id, splits=self._splits(scan, portion))
        return plan.tasks(tasks_min=TASKS_MIN)

    def check_columns(self, columns: pa.Schema, snapshot_id: int) -> None:
        """Check that the columns of a snapshot are those of the stream.

        Raises UnsupportedBySpark.
        """
        where = f"{self._options.path}, snapshot {snapshot_id}"
        schema = spark_schema(columns, where=where)
        if _shape(schema) != _shape(self._schema):
            raise UnsupportedBySpark(
                f"{where}: the columns of the stream are {schema.simpleString()} now, they were "
                f"{self._schema.simpleString()} when the query was started; start it again"
            )

    def adds_rows(self, snapshot: Snapshot | None) -> bool:
        """Whether a commit appends rows; None: it was given up.

        Raises UnsupportedBySpark: It removes or replaces rows.
        """
        if snapshot is None:
            return False
        if snapshot.kind == "append":
            return True
        if snapshot.kind in QUIET_KINDS or self._options.skip_rewrites:
            return False
        raise UnsupportedBySpark(
            f"{self._options.path}: snapshot {snapshot.id} is a commit of kind {snapshot.kind!r}, "
            "which removes or replaces rows: a stream cannot follow that. Set the option "
            "skipRewrites=true to pass over such commits, or readChangeFeed=true, in a new query, "
            "to get all changes of rows"
        )

    def _scan(self, snapshot_id: int) -> Scan:
        return scan_of(self._at(snapshot_id))

    def _at(self, snapshot_id: int) -> SourceOptions:
        return replace(self._options, snapshot_id=snapshot_id)

    def _newest(self) -> Snapshot:
        """The newest snapshot."""
        table = open_branch(self._options)
        self.check_source(table)
        return table.snapshot

    def check_source(self, table: Table) -> None:
        """Check that the table can be read so.

        Raises UnsupportedBySpark: A primary-key table, whose commits replace rows.
        """
        if table.scan().key is not None:
            raise UnsupportedBySpark(
                f"{self._options.path} is a primary-key table: its commits replace rows, which a "
                "stream of appended rows cannot follow. Set the option readChangeFeed=true to get "
                "all changes of rows, each with its _change_type"
            )

    def _commit(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, also where only its changelog is kept; None: its transaction was given up."""
        bare = replace(self._options, columns=None, filter=None)
        found = changes_of(bare, snapshot_id, snapshot_id).snapshot
        return found if found.id == snapshot_id else None


@dataclass(slots=True)
class StreamMessage(TaskMessage):
    """What a task of a micro-batch wrote, and the id of its query."""

    query_id: str | None


class FermionStreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches exactly once: each is one snapshot, also when Spark repeats it.

    To a primary-key table they are upserted, by the change types of the option ``changeType``. Rows
    of one key are in the order of the tasks' numbers, and within a task in its order.

    The commit's user is the query's id, which its checkpoint keeps, and the identifier is the
    number of the micro-batch. With the option ``commitUser`` the user is that one, and the
    identifier has the query's id and the number.

    options: The table, its branch, and a ``commitUser``.
    schema: Of the rows.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        table = open_branch(options)
        self._task = frame_task(table, schema, change_type=options.change_type)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        return StreamMessage(self._task.write(iterator), query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a micro-batch; one without rows makes no snapshot.

        Raises UnsupportedBySpark: A task did not get its rows.
        """
        written = all_messages(messages, self._options.path)
        if not written:
            return
        tasks = (message for message in messages if isinstance(message, StreamMessage))
        user, identifier = self._identity(next(tasks).query_id, batchId)
        open_branch(self._options).commit(
            written,
            message=f"micro-batch {batchId}",
            commit_user=user,
            commit_identifier=identifier,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what the tasks of a failed micro-batch wrote."""
        delete_unfinished(self._options, messages)

    def _identity(self, query_id: str | None, batch_id: int) -> tuple[str, int | str]:
        """The user and the identifier of a micro-batch's commit, unique to its query.

        Raises UnsupportedBySpark: The tasks do not know their query's id: the micro-batch could be
            appended twice.
        """
        if query_id is None:
            raise UnsupportedBySpark(
                f"{self._options.path}: the tasks of micro-batch {batch_id} have no {_QUERY_ID}; "
                "without it a micro-batch that Spark repeats would be appended twice"
            )
        user = self._options.commit_user
        return (query_id, batch_id) if user is None else (user, f"{query_id}/{batch_id}")


def _shape(schema: StructType) -> Any:
    """The names and types of columns, without their nullability."""
    return schema.simpleString()
