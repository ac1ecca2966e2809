"""Adds columns whose values a function computes: the driver plans and commits, a task a file.

Spark only schedules. Tasks read the data files and write the column files themselves, so no row
passes through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, SparkContext
from pyspark.sql import SparkSession

from fermion.arguments import integer
from fermion.exports import dataclass
from fermion_table import ColumnFunctionError, Snapshot, StorageAccess, Table
from fermion_table.engine import ColumnTask, FinishedColumns, FinishedFile
from spark_ext.opening import Written, open_written
from spark_ext.session import classic
from spark_ext.writing.finished_tasks import finished_messages

BATCH_ROWS = 65_536
Progress = Callable[[int, int], None]
"""Called with the number of files done, and of all files."""


def add_columns_with(
    spark: SparkSession,
    path: Written,
    function: Callable[[pa.RecordBatch], Any] | Mapping[str, Any],
    *,
    read: Sequence[str] | None = None,
    schema: pa.Schema,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
    resume: FinishedColumns | None = None,
    message: str | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Snapshot:
    """Add columns whose values a function computes from other columns, as one snapshot.

    As `fermion_table.Table.add_columns_with`, with a Spark task for each data file. Rows that
    others append meanwhile are null in the new columns.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    function
        Takes a record batch of the columns in `read`, and returns the new columns of its rows. It
        runs in the tasks, so Spark has to be able to pickle it. Or a dict from each new column to
        an expression: SQL of DuckDB, which the workers need then, ``fermion.col`` or a
        ``pyarrow.compute.Expression``.
    read
        Columns that it is given: names, dotted paths, ``_row_id``. None: those that the expressions
        of a dict name.
    schema
        The new columns.
    batch_rows
        Rows a call, at most.
    progress
        Called with the files done and the files in all.
    resume
        The ``finished`` of a `fermion_table.ColumnFunctionError`: its files are not computed again.
    message
        For the history.
    branch
        None: ``main``.
    storage_options
        For fsspec.
    access
        As for `read_table`.

    Returns
    -------
    Snapshot
        The new one.

    Raises
    ------
    TableNotFound, VersionNotFound
    TypeError, InvalidArgumentError, ColumnNotFoundError
        Also where a column is there already, or the table has a primary key.
    ColumnFunctionError
        The function raised, or returned other columns, types or another number of rows. Names the
        file and the rows; nothing was published. Other files were computed to their end, and are in
        its ``finished``.
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed, the second where workers died; nothing was published.
    CommitConflict, CommitStateUnknown
    """
    classic(spark, "add_columns_with")
    batch_rows = integer(batch_rows, "batch_rows", minimum=1)
    table = open_written(path, branch=branch, storage_options=storage_options, access=access)
    return table.add_columns_with(
        function,
        read=read,
        schema=schema,
        batch_rows=batch_rows,
        progress=progress,
        resume=resume,
        runner=_Runner(spark.sparkContext, table),
        message=message,
    )


class _Runner:
    """Computes files, each in a Spark task."""

    def __init__(self, context: SparkContext, table: Table) -> None:
        self._context, self._table = context, table

    def __call__(self, task: ColumnTask, entries: Sequence[Any]) -> Generator[FinishedFile]:
        if not entries:
            return
        with finished_messages(self._context, self._table, _files) as finished:
            compute = _Compute(task, finished)
            results = self._context.parallelize(entries, len(entries)).map(compute).collect()
        failed = None
        for result in results:
            if isinstance(result, FinishedFile):
                yield result
            else:
                failed = failed or result
        if failed is not None:
            raise ColumnFunctionError(failed.message, file=failed.file, rows=failed.rows)


@dataclass(frozen=True, slots=True)
class _Failure:
    """What a `ColumnFunctionError` says. Its cause is in the text: not every error has a pickle."""

    message: str
    file: str
    rows: tuple[int, int]


class _Compute:
    """Computes the columns of a file; a function that fails is an answer, not tried again."""

    def __init__(self, task: ColumnTask, finished: Accumulator[list[FinishedFile]]) -> None:
        self.task = task
        self.finished = finished

    def __call__(self, entry: Any) -> FinishedFile | _Failure:
        try:
            made = self.task.compute(entry)
        except ColumnFunctionError as error:
            return _Failure(str(error), error.file, error.rows)
        self.finished.add([made])
        return made


def _files(finished: FinishedFile) -> list[str]:
    """The file that a task wrote."""
    return [finished.made.path]
