"""What batches and streams of the data source share: the tasks that write, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from fermion_table import SchemaMerge, Table
from spark_ext.opening import open_branch
from spark_ext.options import SourceOptions
from spark_ext.writing.columns import (
    check_columns,
    renamed_columns,
    task_writer,
    written_schema,
)
from spark_ext.writing.finished_tasks import delete_files
from spark_ext.writing.job import files_of
from spark_ext.writing.task import WriteTask, messages_of

TASKS_MIN = 8
"""Tasks that a small table is spread over: the data source does not know how many can run."""


def frame_task(
    table: Table,
    schema: StructType,
    merge: SchemaMerge | None = None,
    *,
    overwrites: bool = False,
    filter: Any = None,
) -> WriteTask:
    """The task that writes rows of a schema to a table.

    Parameters
    ----------
    merge, overwrites, filter
        See `task_writer`.

    Raises
    ------
    SchemaMismatch, UnsupportedBySpark, InvalidArgumentError
        The rows do not fit.
    """
    columns = check_columns(table, schema, merge=merge)
    renamed = renamed_columns(schema, written_schema(table, merge))
    open_writer = task_writer(table, merge, overwrites=overwrites, filter=filter)
    return WriteTask(open_writer, columns, renamed=renamed)


def delete_unfinished(
    options: SourceOptions, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Delete what the tasks of a failed job wrote.

    Spark aborts after a failed commit too. Then every task has a message, and the files are kept:
    if the table could prove that they were not published, it has deleted them itself.
    """
    if any(message is None for message in messages):
        paths = [path for message in messages_of(messages) for path in files_of(message)]
        delete_files(open_branch(options), paths)
