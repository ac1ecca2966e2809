"""Appends a data frame to a table: tasks write its files, the driver commits once.

`docs/design/spark_writes.md` says why it is done this way.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import DataWriter, SchemaMismatch, Snapshot, Table, WriterMessage, WriteSettings
from spark_ext.finished_tasks import finished_messages
from spark_ext.session import batch_settings, classic, settings
from spark_ext.types import arriving_schema
from spark_ext.write_task import MESSAGE_SCHEMA, WriteTask

PROFILE_PROPERTY = "file.profile"
_POSITION = "__fermion_position__"
_ROW = "row"


def append(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    batch_id_column: str | None = None,
    schema_mode: Literal["merge"] | None = None,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Snapshot:
    """Append the rows of a data frame to a table, as one snapshot.

    A job that fails leaves nothing visible, and deletes the files it knows of. The table has to
    exist: `fermion_table.Table.create` makes it, with the types and the partitioning meant.

    Parameters
    ----------
    df
        Columns are matched by name, in any order, and cast where no value can change; nullable
        ones that the frame lacks are null.
    path
        The table.
    batch_id_column
        A column of integers without nulls that numbers batches. Rows of one batch are brought
        together, in the frame's order, and written with that batch id into one file. The column
        itself is written too if the table has it. In a partitioned table the rows of each
        partition are a batch of that id there.
    schema_mode
        ``merge`` adds the frame's unknown columns to the table first, in a snapshot before.
    message, properties
        For the table's history.
    commit_user, commit_identifier
        Who commits, and which of its commits this is: the same pair is appended once. When the
        table has it already, no task runs and that snapshot is returned.
    storage_options
        For fsspec.

    Returns
    -------
    fermion_table.Snapshot
        What was published. A frame without rows makes an empty snapshot.

    Raises
    ------
    TableNotFound
        There is no table.
    SchemaMismatch
        The frame does not fit the table; raised before any task runs.
    UnsupportedBySpark
        A column's type cannot leave Spark; or the session is a Spark Connect client.
    pyspark.errors.PySparkException
        A task failed; nothing was published.
    CommitConflict, CommitStateUnknown
        As `fermion_table.Table.commit`.
    """
    spark = classic(df.sparkSession, "append")
    if (commit_user is None) != (commit_identifier is None):
        raise InvalidArgumentError("commit_user and commit_identifier come together")
    if schema_mode not in (None, "merge"):
        raise InvalidArgumentError(f"schema_mode={schema_mode!r}: expected None or 'merge'")
    table = Table.open(path, storage_options=storage_options)
    if commit_user is not None and commit_identifier is not None:
        earlier = committed(table, commit_user, commit_identifier)
        if earlier is not None:
            return earlier
    columns = check_columns(table, df.schema, batch_id_column, merge=schema_mode == "merge")

    rows, id_index = (df, None) if batch_id_column is None else clustered(df, batch_id_column)
    whole = rows.select(functions.struct("*").alias(_ROW))
    with (
        finished_messages(spark.sparkContext, table, files_of) as finished,
        settings(spark, batch_settings(spark, columns)),
    ):
        task = WriteTask(writer_factory(table), columns, id_index, finished)
        results = whole.mapInArrow(task, MESSAGE_SCHEMA).collect()
    messages = [each for result in results for each in pickle.loads(result[0])]
    return table.commit(
        messages,
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )


def committed(table: Table, user: str, identifier: int | str) -> Snapshot | None:
    """The snapshot that a commit of this name made earlier, None if there is none."""
    for snapshot in reversed(table.snapshots()):
        if (snapshot.commit_user, snapshot.commit_identifier) == (user, identifier):
            return snapshot
    return None


def check_columns(
    table: Table, frame: st.StructType, batch_id_column: str | None, *, merge: bool = False
) -> pa.Schema:
    """How rows of a frame reach the table's writer; an error if they do not fit.

    Parameters
    ----------
    frame
        Schema of the data frame.
    batch_id_column
        Left out unless the table has a column of that name.
    merge
        Add unknown columns to the table.

    Raises
    ------
    SchemaMismatch, UnsupportedBySpark, InvalidArgumentError
    """
    if batch_id_column is not None:
        frame = _without_id(frame, batch_id_column, table)
    columns = arriving_schema(frame, table.schema.to_arrow(field_ids=False))
    nothing = pa.RecordBatch.from_arrays(
        [pa.nulls(0, each.type) for each in columns], schema=columns
    )
    try:
        with table.writer() as writer:  # makes no file, as there are no rows
            writer.write(nothing)
    except SchemaMismatch:
        if not merge:
            raise
        table.append(nothing, schema_mode="merge", message="columns of a data frame to append")
        columns = arriving_schema(frame, table.schema.to_arrow(field_ids=False))
    return columns


def clustered(df: DataFrame, batch_id_column: str) -> tuple[DataFrame, int]:
    """The rows brought together by batch id, each batch in the frame's order, ids ascending.

    Returns
    -------
    tuple
        The frame, and the ordinal of the id column in it.
    """
    # A hash would bring a batch together too, but spread every range of ids over all files.
    numbered = df.withColumn(_POSITION, functions.monotonically_increasing_id())
    id_column = f"`{batch_id_column.replace('`', '``')}`"
    rows = numbered.repartitionByRange(id_column).sortWithinPartitions(id_column, _POSITION)
    return rows.drop(_POSITION), df.columns.index(batch_id_column)


def writer_factory(table: Table) -> partial[DataWriter]:
    """Makes the table's writer in a task: picklable, one thread, as Spark counts cores itself."""
    profile: Any = table.properties.get(PROFILE_PROPERTY, "balanced")
    options = fermion.WriteOptions(profile=profile, threads=1)
    return partial(
        DataWriter,
        table.store,
        table.schema,
        settings=WriteSettings(file_options=options),
        table_uuid=table.snapshot.table_uuid,
    )


def files_of(message: WriterMessage) -> list[str]:
    """The data files that a message names, relative to the table."""
    return [entry.path for entry in message.entries]


def _without_id(frame: st.StructType, batch_id_column: str, table: Table) -> st.StructType:
    if batch_id_column not in frame.names:
        raise InvalidArgumentError(
            f"batch_id_column={batch_id_column!r}: the frame has no such column; "
            f"it has {', '.join(frame.names)}"
        )
    dtype = frame[batch_id_column].dataType
    if not isinstance(dtype, st.IntegralType):
        raise InvalidArgumentError(
            f"batch_id_column={batch_id_column!r} is {dtype.simpleString()}; expected integers"
        )
    if batch_id_column in table.schema.by_name:
        return frame
    return st.StructType([field for field in frame if field.name != batch_id_column])
