"""Parquet files into a table: Spark tasks convert the files, the driver commits once.

No row passes through the JVM: tasks read and write the files themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import SparkSession

from fermion.arguments import mapping, several
from fermion.engine import ParquetSource
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Snapshot, StorageAccess, Table, TableExists
from fermion_table.engine import (
    CommitMetadata,
    DataWriter,
    KeyWriter,
    StagedTable,
    WriterMessage,
    stage_table,
)
from spark_ext.conversion.files import ParquetFile, files_of_tasks, filesystem_of, parquet_files
from spark_ext.opening import open_table
from spark_ext.options import absolute, chosen_access
from spark_ext.session import classic
from spark_ext.writing.columns import check_batches, task_writer
from spark_ext.writing.finished_tasks import finished_messages
from spark_ext.writing.job import commit_arguments, committed_before, create_with_rows, files_of


def from_parquet(
    spark: SparkSession,
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] | str | None = None,
    message: str | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Snapshot:
    """Append Parquet files to a table, as one snapshot; create the table if it does not exist.

    A new table and its rows become visible together: a job that fails leaves no table.

    Parameters
    ----------
    spark
        A classic session.
    source
        A Parquet file, or a directory with Parquet files at any depth; ``key=value`` in the names
        of directories is read as a column.
    path
        The table. A new table gets the columns of all files.
    partition_by
        Of a new table.
    message
        For the table's history.
    commit_user, commit_identifier
        The same pair is appended once.
    storage_options
        For fsspec, for both.
    access
        As for `append`, of a table that exists.

    Raises
    ------
    InvalidArgumentError
        There are no Parquet files, or the table exists and has other partitions.
    TypeError
        Names the argument that is of another type; raised first.
    SchemaMismatch
        Files that do not fit an existing table.
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed, the second where workers died; nothing was published.
    """
    classic(spark, "from_parquet")
    metadata = CommitMetadata(
        message=message, commit_user=commit_user, commit_identifier=commit_identifier
    )
    where = absolute(path)
    mapping(storage_options, "storage_options")
    chosen_access(access)
    files, schema = parquet_files(source, storage_options=storage_options)
    metadata = replace(metadata, message=metadata.message or f"from Parquet: {len(files)} files")
    filesystem = filesystem_of(source, storage_options)[0]
    if not Table.exists(where, storage_options=storage_options):
        with contextlib.suppress(TableExists):  # made meanwhile: append to it
            staged = stage_table(
                where, schema, partition_by=partition_by, storage_options=storage_options
            )
            imported = partial(_imported, spark, staged, filesystem, files, schema)
            return create_with_rows(staged, imported, metadata)
    table = open_table(where, storage_options=storage_options, access=access)
    _check_partitions(table, partition_by)
    earlier = committed_before(table, metadata)
    if earlier is not None:
        return earlier
    messages = _imported(spark, table, filesystem, files, schema)
    return table.commit(messages, **commit_arguments(metadata))


def _imported(
    spark: SparkSession,
    table: Table | StagedTable,
    filesystem: Any,
    files: Sequence[ParquetFile],
    schema: pa.Schema,
) -> list[WriterMessage]:
    """Run the tasks and return what they wrote; if the job fails, their files are deleted."""
    open_writer = task_writer(table)
    check_batches(open_writer, schema)
    context = spark.sparkContext
    tasks = files_of_tasks(files, context.defaultParallelism)
    with finished_messages(context, table, files_of) as finished:
        task = _Import(filesystem, open_writer, finished)
        results = context.parallelize(tasks, len(tasks)).map(task).collect()
    return [message for messages in results for message in messages]


def _check_partitions(table: Table, partition_by: Sequence[str] | str | None) -> None:
    """Refuse to append to a table whose partitions are not those that the caller gave."""
    if partition_by is None:
        return
    listed = [partition_by] if isinstance(partition_by, str) else partition_by
    wanted = list(several(listed, "partition_by", "a list of names"))
    names = [field.name for field in table.schema.partition_by]
    if wanted != names:
        raise InvalidArgumentError(
            f"{table.location}: partition_by={wanted}, but the table is partitioned by {names}"
        )


@dataclass(frozen=True, slots=True)
class _Import:
    """Converts the Parquet files of one task. Picklable."""

    filesystem: Any
    open_writer: partial[DataWriter | KeyWriter]
    finished: Accumulator[list[WriterMessage]]

    def __call__(self, files: Sequence[ParquetFile]) -> list[WriterMessage]:
        with self.open_writer() as writer:
            for file in files:
                for batch in self._batches(file):
                    writer.write(batch, copy=False)
            messages = [message for message in writer.prepare_commit() if message.entries]
        self.finished.add(messages)
        return messages

    def _batches(self, file: ParquetFile) -> Iterator[pa.RecordBatch]:
        with self.filesystem.open(file.path) as stream, ParquetSource(stream, None) as parquet:
            for batch in parquet.batches():
                for name, value in file.path_columns.items():
                    if name not in batch.schema.names:
                        constant = pa.repeat(pa.scalar(value), batch.num_rows)
                        batch = batch.append_column(name, constant)
                yield batch
