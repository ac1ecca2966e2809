"""The Spark job that writes a data frame: tasks write the files, the driver commits once.

`docs/design/spark_writes.md` explains why.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from fermion.arguments import flag, text
from fermion.exports import dataclass
from fermion_table import Snapshot, Table
from fermion_table.argument_checks import check_schema_mode
from fermion_table.engine import (
    CommitMetadata,
    SchemaMerge,
    StagedTable,
    TransactionTable,
    WriterMessage,
)
from spark_ext.column_names import is_case_sensitive, renamed_fields, spelled
from spark_ext.session import batch_settings, settings
from spark_ext.writing.clustering import arranged, clustered
from spark_ext.writing.columns import (
    check_columns,
    planned_merge,
    task_writer,
    without_change_type,
    written_schema,
)
from spark_ext.writing.finished_tasks import finished_messages
from spark_ext.writing.task import MESSAGE_SCHEMA, WriteTask

COMMIT_ARGUMENTS = ("message", "properties", "commit_user", "commit_identifier")
_ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """How the rows of a data frame are written, checked.

    batch_id_column, schema_mode, cluster: As for `append`.
    change_type: As for `upsert`.
    Raises TypeError, InvalidArgumentError: Names the argument that is wrong.
    """

    batch_id_column: str | None = None
    schema_mode: Literal["merge"] | None = None
    cluster: bool = True
    change_type: str | None = None

    def __post_init__(self) -> None:
        check_schema_mode(self.schema_mode)
        if self.change_type is not None:
            text(self.change_type, "change_type")
        if self.batch_id_column is not None:
            text(self.batch_id_column, "batch_id_column")
        object.__setattr__(self, "cluster", flag(self.cluster, "cluster"))


def planned_columns(df: DataFrame, table: Table, options: FrameOptions) -> SchemaMerge | None:
    """The schema with the columns that the frame adds; None unless the options say to merge.

    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError.
    """
    if options.schema_mode is None:
        return None
    sensitive = is_case_sensitive(df.sparkSession)
    frame = without_change_type(
        df.schema, options.change_type, table.schema, case_sensitive=sensitive
    )
    return planned_merge(table, frame, options.batch_id_column, case_sensitive=sensitive)


def row_columns(
    df: DataFrame,
    table: Table | StagedTable,
    options: FrameOptions,
    merge: SchemaMerge | None = None,
) -> pa.Schema:
    """The columns of the rows that a frame would write, which are checked; see `check_columns`.

    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError.
    """
    sensitive = is_case_sensitive(df.sparkSession)
    schema = written_schema(table, merge)
    frame = without_change_type(df.schema, options.change_type, schema, case_sensitive=sensitive)
    return check_columns(
        table, frame, options.batch_id_column, merge=merge, case_sensitive=sensitive
    )


def write_files(
    df: DataFrame,
    table: Table | StagedTable,
    options: FrameOptions,
    merge: SchemaMerge | None = None,
    *,
    overwrites: bool = False,
    filter: Any = None,
) -> list[WriterMessage]:
    """Run the tasks. If the job fails, the files that its tasks wrote are deleted.

    merge: Of `planned_columns`.
    overwrites, filter: Whether the rows replace others, and which: see `Table.writer_factory`.
    Returns: What the tasks wrote, to be committed.
    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError: The frame does not fit; raised
        before any task runs.
    Raises pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError.
    """
    spark = df.sparkSession
    sensitive = is_case_sensitive(spark)
    batch_id_column, schema = options.batch_id_column, written_schema(table, merge)
    columns = row_columns(df, table, options, merge)
    if options.change_type is not None:
        columns = columns.append(pa.field(options.change_type, pa.string()))
    known = schema.to_arrow(field_ids=False)
    renamed_schema = spelled(df.schema, known, case_sensitive=sensitive)
    if renamed_schema is not df.schema:
        if batch_id_column is not None:
            batch_id_column = renamed_schema.names[df.schema.names.index(batch_id_column)]
        df = df.toDF(*renamed_schema.names)
    renamed = renamed_fields(df.schema, renamed_schema)
    rows, id_index = df, None
    open_writer = task_writer(table, merge, overwrites=overwrites, filter=filter)
    if batch_id_column is not None:
        rows, id_index = clustered(df, batch_id_column)
    elif options.cluster:
        rows = arranged(df, schema, open_writer.keywords.get("bucket_counts"))
    structs = rows.select(functions.struct("*").alias(_ROW))
    with (
        finished_messages(spark.sparkContext, table, files_of) as finished,
        settings(spark, batch_settings(spark, columns)),
    ):
        task = WriteTask(open_writer, columns, id_index, finished, renamed, options.change_type)
        results = structs.mapInArrow(task, MESSAGE_SCHEMA).collect()
    return [message for result in results for message in pickle.loads(result[0])]


def files_of(message: WriterMessage) -> list[str]:
    """The data files that a message names, relative to the table."""
    return [entry.path for entry in message.entries]


def committed_before(table: Table, metadata: CommitMetadata) -> Snapshot | None:
    """The snapshot that a commit of this identity published before; None if there is none.

    Raises CommitConflict: There was one, and its snapshot has expired.
    """
    return None if metadata.identity is None else table.find_commit(*metadata.identity)


def commit_arguments(metadata: CommitMetadata) -> dict[str, Any]:
    """The keyword arguments that `fermion_table.Table.commit` and `transaction` take."""
    return {name: getattr(metadata, name) for name in COMMIT_ARGUMENTS}


def create_with_rows(
    staged: StagedTable, write: Callable[[], list[WriterMessage]], metadata: CommitMetadata
) -> Snapshot:
    """Publish a new table with what tasks write; if they fail, nothing is left of it."""
    try:
        messages = write()
    except BaseException:
        staged.discard()
        raise
    return staged.commit(messages, **commit_arguments(metadata))


def commit_overwrite(
    table: Table,
    messages: Sequence[WriterMessage],
    filter: Any,
    dynamic: bool,
    merge: SchemaMerge | None,
    **metadata: Any,
) -> Snapshot:
    """Publish what tasks wrote in place of other rows."""
    if isinstance(table, TransactionTable):
        return table.overwrite_written(
            messages, filter=filter, dynamic=dynamic, merge=merge, message=metadata["message"]
        )
    with table.transaction(**metadata) as transaction:
        transaction.overwrite_written(messages, filter=filter, dynamic=dynamic, merge=merge)
    return table.snapshot
