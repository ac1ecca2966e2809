"""Batches of ``format("fermion")``: a reader that plans splits, a writer that commits once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Scan
from fermion_table.engine import ScanPart, SchemaMerge, Split, StagedTable, check_overwrite
from spark_ext.datasource.tasks import TASKS_MIN, delete_unfinished, frame_task, rows_of
from spark_ext.exchange import bare_rows
from spark_ext.opening import open_branch, scan_of
from spark_ext.options import SourceOptions
from spark_ext.reading.task import ReadTask, column_paths, parts_of, rows_alone, splits_of
from spark_ext.types import exchange_schema
from spark_ext.writing.columns import planned_merge
from spark_ext.writing.job import commit_overwrite
from spark_ext.writing.new_table import created, open_or_stage
from spark_ext.writing.task import TaskMessage, all_messages


@dataclass(slots=True)
class SplitsPartition(InputPartition):
    """The splits that one task reads, or the part of the scan."""

    value: list[Split | ScanPart[Scan]]


@dataclass(slots=True)
class RowsPartition(InputPartition):
    """A number of rows without columns."""

    value: int


class FermionReader(DataSourceReader):
    """Plans on the driver, reads in tasks.

    options: What to read.
    snapshot_id: The snapshot that the schema was taken from; None: the one that the options choose
        now.
    schema: The columns to read: the table's, some of them, or in another order.
    """

    def __init__(self, options: SourceOptions, snapshot_id: int | None, schema: StructType) -> None:
        if snapshot_id is None:  # the schema is the user's own
            options = replace(options, columns=column_paths(schema))
        elif options.tag is None:  # a tag does not move, and outlives its snapshot's file
            options = replace(options, snapshot_id=snapshot_id, as_of=None)
        self._scan: Scan | None = scan_of(options)
        self._read = ReadTask(self._scan.reader, exchange_schema(schema))

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each task."""
        assert self._scan is not None
        rows = rows_alone(self._scan)
        if rows is not None:
            return [RowsPartition(rows)]
        parts = parts_of(self._scan, TASKS_MIN)
        if parts is not None:
            return [SplitsPartition([part]) for part in parts[1]]
        tasks = self._scan.plan().tasks(tasks_min=TASKS_MIN)
        return [SplitsPartition(list(splits)) for splits in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of a partition."""
        if isinstance(partition, RowsPartition):
            return bare_rows(partition.value)
        splits = partition.value or []
        return self._read.read(splits if self._scan is None else splits_of(self._scan, splits))

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: the reader of the scan, or to make splits the scan."""
        parts = None if self._scan is None else parts_of(self._scan)
        return {**self.__dict__, "_scan": None if parts is None else parts[0]}


class FermionWriter(DataSourceArrowWriter):
    """Checks on the driver, writes in tasks, commits once; creates the table if there is none.

    options: The table, its branch, the commit's identity, and what is overwritten.
    schema: Of the rows.
    overwrite: Whether the rows replace others.
    Raises TableNotFound, TableExists, SchemaMismatch, ColumnNotFoundError, InvalidArgumentError,
        CommitStateUnknown.
    """

    def __init__(self, options: SourceOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        change_type = options.change_type
        if overwrite and change_type is not None:
            raise InvalidArgumentError("option changeType needs mode append")
        table = open_or_stage(options, schema)
        if overwrite:
            where, dynamic = options.replace_where, options.dynamic
            check_overwrite(table.schema, where, dynamic, where=table.store.location)
        elif options.replace_where is not None or options.dynamic:
            raise InvalidArgumentError(
                "options replaceWhere and partitionOverwriteMode=dynamic need mode overwrite"
            )
        if isinstance(table, StagedTable):
            table = created(table, options)
        self._merge: SchemaMerge | None = None
        if options.merge_schema:
            self._merge = planned_merge(table, rows_of(table, schema, change_type))
        self._task = frame_task(
            table,
            schema,
            self._merge,
            overwrites=overwrite,
            filter=options.replace_where,
            change_type=change_type,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return TaskMessage(self._task.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote."""
        options = self._options
        identity: dict[str, Any] = {
            "commit_user": options.commit_user,
            "commit_identifier": options.commit_identifier,
        }
        table, written = open_branch(options), all_messages(messages, options.path)
        if self._overwrite:
            where, dynamic = options.replace_where, options.dynamic
            commit_overwrite(table, written, where, dynamic, self._merge, **identity)
        else:
            table.commit(written, merge=self._merge, **identity)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks of a failed job wrote."""
        delete_unfinished(self._options, messages)
