"""What batches and streams of the data source share: the tasks that write, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from fermion_table import Table
from fermion_table.engine import SchemaMerge, required_key
from spark_ext.opening import open_branch
from spark_ext.options import SourceOptions
from spark_ext.writing.columns import (
    check_columns,
    renamed_columns,
    task_writer,
    without_change_type,
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
    change_type: str | None = None,
) -> WriteTask:
    """The task that writes rows of a schema to a table.

    merge, overwrites, filter: See `task_writer`.
    change_type: See `spark_ext.upsert`.
    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError: The rows do not fit.
    """
    frame = rows_of(table, schema, change_type)
    columns = check_columns(table, frame, merge=merge)
    if change_type is not None:
        columns = columns.append(pa.field(change_type, pa.string()))
    renamed = renamed_columns(schema, written_schema(table, merge))
    open_writer = task_writer(table, merge, overwrites=overwrites, filter=filter)
    return WriteTask(open_writer, columns, renamed=renamed, change_type=change_type)


def rows_of(table: Table, schema: StructType, change_type: str | None) -> StructType:
    """The columns of a schema that become columns of the table.

    Raises InvalidArgumentError: There are change types, but the table has no primary key by which
        rows are merged; or no such column, or it is no text.
    """
    if change_type is not None:
        required_key(table.schema, table.location, "option changeType")
    return without_change_type(schema, change_type, table.schema, case_sensitive=False)


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
