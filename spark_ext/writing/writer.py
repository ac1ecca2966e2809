"""Writes data frames to tables: tasks write the files, the driver commits once.

`docs/design/spark_writes.md` says why it is done this way.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as st

import fermion
from fermion.arguments import flag, text
from fermion.errors import InvalidArgumentError
from fermion_table import (
    CommitMetadata,
    DataWriter,
    SchemaMerge,
    Snapshot,
    StagedTable,
    StorageAccess,
    Table,
    TableSchema,
    WriterMessage,
    WriteSettings,
)
from spark_ext.column_names import is_case_sensitive, renamed_fields, spelled
from spark_ext.finished_tasks import finished_messages
from spark_ext.options import chosen_access
from spark_ext.reading import MAIN
from spark_ext.session import batch_settings, classic_frame, settings
from spark_ext.types import arriving_schema
from spark_ext.writing.clustering import arranged, clustered
from spark_ext.writing.task import MESSAGE_SCHEMA, WriteTask

PROFILE_PROPERTY = "file.profile"
_ROW = "row"
WORDS = ("message", "properties", "commit_user", "commit_identifier")


def append(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    batch_id_column: str | None = None,
    schema_mode: Literal["merge"] | None = None,
    cluster: bool = True,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Snapshot:
    """Append the rows of a data frame to a table, as one snapshot.

    A job that fails leaves nothing visible, and deletes the files it knows of. The table has to
    exist: `fermion_table.Table.create` makes it, with the types and the partitioning meant (or
    `spark_ext.write`, with the frame's types).

    Parameters
    ----------
    df
        Columns are matched by name, in any order (and in any case unless
        ``spark.sql.caseSensitive`` is true), and cast where no value can change; nullable ones
        that the frame lacks are null.
    path
        The table.
    batch_id_column
        A column of integers without nulls that numbers batches. Rows of one batch are brought
        together, in the frame's order, and written with that batch id into one file. The column
        itself is written too if the table has it. In a partitioned table the rows of each
        partition are a batch of that id there.
    schema_mode
        ``merge`` adds the frame's unknown columns to the table, in the same snapshot.
    cluster
        Bring rows together by the table's partitions, and by its sort order, before they are
        written, which takes a shuffle; False writes each task's rows as they come.
    message, properties
        For the table's history.
    commit_user, commit_identifier
        Who commits, and which of its commits this is: the same pair is appended once. When the
        table has it already, no task runs and that snapshot is returned.
    branch
        Which history the rows go to, one that exists; None: ``main``.
    storage_options
        For fsspec.
    access
        How the storage is used: see `fermion_table.StorageAccess`.

    Returns
    -------
    fermion_table.Snapshot
        What was published. A frame without rows makes an empty snapshot.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong, such as half of an identity; raised before any task runs.
    TableNotFound, VersionNotFound
        There is no table, or no such branch.
    SchemaMismatch
        The frame does not fit the table; raised before any task runs.
    UnsupportedBySpark
        A column's type cannot leave Spark; or the session is a Spark Connect client.
    pyspark.errors.PySparkException
        A task failed; nothing was published.
    CommitConflict, CommitStateUnknown
        As `fermion_table.Table.commit`.
    """
    classic_frame(df, "append")
    check_schema_mode(schema_mode)
    check_batch_id(batch_id_column)
    cluster = flag(cluster, "cluster")
    words = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    table = _opened(path, branch, storage_options, access)
    earlier = committed_before(table, words)
    if earlier is not None:
        return earlier
    merge = None
    if schema_mode == "merge":
        sensitive = is_case_sensitive(df.sparkSession)
        merge = planned_merge(table, df.schema, batch_id_column, case_sensitive=sensitive)
    schema = table.schema if merge is None else merge.schema
    messages = write_files(df, table, schema, batch_id_column, cluster)
    return table.commit(messages, **words_of(words), merge=merge)


def overwrite(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    filter: Any = None,
    dynamic: bool = False,
    batch_id_column: str | None = None,
    schema_mode: Literal["merge"] | None = None,
    cluster: bool = True,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Snapshot:
    """Replace rows of a table by those of a data frame, as one snapshot.

    The frame may read the table itself: what it reads goes when the new rows are there.

    Parameters
    ----------
    df, path
        As for `append`.
    filter
        Which rows go: anything that `fermion` takes as a filter; None: all. The new ones need not
        be among those it selects.
    dynamic
        All rows go of those partitions that the frame's rows fall into.
    batch_id_column, cluster, message, properties, commit_user, commit_identifier
        As for `append`.
    branch, storage_options, access
        As for `append`.
    schema_mode
        ``merge`` adds the frame's unknown columns to the table, in the same snapshot.

    Raises
    ------
    InvalidArgumentError
        Both a filter and dynamic, or dynamic on a table without partitions.
    ColumnNotFoundError
        The filter names a column that the table lacks.
    TypeError, TableNotFound, VersionNotFound, SchemaMismatch, UnsupportedBySpark
    pyspark.errors.PySparkException, CommitConflict, CommitStateUnknown
        As for `append`.
    """
    classic_frame(df, "overwrite")
    check_schema_mode(schema_mode)
    check_batch_id(batch_id_column)
    cluster = flag(cluster, "cluster")
    words = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    table = _opened(path, branch, storage_options, access)
    earlier = committed_before(table, words)
    if earlier is not None:
        return earlier
    check_overwrite(table, filter, dynamic)
    merge = None
    if schema_mode == "merge":
        sensitive = is_case_sensitive(df.sparkSession)
        merge = planned_merge(table, df.schema, batch_id_column, case_sensitive=sensitive)
    schema = table.schema if merge is None else merge.schema
    messages = write_files(df, table, schema, batch_id_column, cluster)
    return commit_overwrite(table, messages, filter, dynamic, merge, **words_of(words))


def committed_before(table: Table, words: CommitMetadata) -> Snapshot | None:
    """The snapshot that a commit of this identity made earlier, None if there is none.

    Raises
    ------
    CommitConflict
        There was one, whose snapshot has expired since.
    """
    if words.commit_user is None or words.commit_identifier is None:
        return None
    return table.find_commit(words.commit_user, words.commit_identifier)


def words_of(words: CommitMetadata) -> dict[str, Any]:
    """What `fermion_table.Table.commit` and `transaction` take of a commit's words."""
    return {name: getattr(words, name) for name in WORDS}


def check_overwrite(table: Table, filter: Any, dynamic: bool) -> None:
    """Refuse an overwrite that cannot be done, before any task runs.

    Raises
    ------
    InvalidArgumentError, ColumnNotFoundError
    """
    check_layout(table, filter, dynamic)
    table.scan(columns=[], filter=filter)


def check_layout(table: Table | StagedTable, filter: Any, dynamic: bool) -> None:
    """Refuse an overwrite that says twice which rows go, or has no partitions to replace.

    Raises
    ------
    TypeError, InvalidArgumentError
    """
    if flag(dynamic, "dynamic") and filter is not None:
        raise InvalidArgumentError("overwrite: expected filter= or dynamic=True, not both")
    if dynamic and not table.schema.partition_by:
        raise InvalidArgumentError(
            f"{table.store.location}: dynamic=True replaces partitions, but the table has none"
        )


def commit_overwrite(
    table: Table,
    messages: Sequence[WriterMessage],
    filter: Any,
    dynamic: bool,
    merge: SchemaMerge | None,
    **words: Any,
) -> Snapshot:
    """Publish what tasks wrote in the place of other rows."""
    with table.transaction(**words) as transaction:
        transaction.overwrite_written(messages, filter=filter, dynamic=dynamic, merge=merge)
    return table.snapshot


def commit_staged(
    staged: StagedTable, messages: Sequence[WriterMessage], words: CommitMetadata
) -> Snapshot:
    """Publish a new table with what tasks wrote; one without rows has an empty append as well.

    Raises
    ------
    TableExists
        Another writer has made it meanwhile.
    CommitConflict, CommitStateUnknown
    """
    if any(message.entries for message in messages):
        return staged.commit(messages, **words_of(words))
    staged.commit()
    store = staged.store
    made = Table.open(store.location, storage_options=store.storage_options)
    return made.commit([], **words_of(words))


def planned_merge(
    table: Table,
    frame: st.StructType,
    batch_id_column: str | None,
    *,
    case_sensitive: bool = False,
) -> SchemaMerge:
    """What becomes of a table's schema when a frame adds its columns; not published yet.

    Raises
    ------
    SchemaMismatch, UnsupportedBySpark, InvalidArgumentError
    """
    if batch_id_column is not None:
        frame = _without_id(frame, batch_id_column, table)
    known = table.schema.to_arrow(field_ids=False)
    frame = spelled(frame, known, case_sensitive=case_sensitive)
    return table.plan_merge(arriving_schema(frame, known))


def check_columns(
    table: Table | StagedTable,
    frame: st.StructType,
    batch_id_column: str | None,
    *,
    schema: TableSchema | None = None,
    case_sensitive: bool = False,
) -> pa.Schema:
    """How rows of a frame reach the table's writer; an error if they do not fit.

    Parameters
    ----------
    frame
        Schema of the data frame.
    batch_id_column
        Left out unless the table has a column of that name.
    schema
        What files are written with; None: the table's.
    case_sensitive
        Whether names that differ in case alone are different names.

    Returns
    -------
    pyarrow.Schema
        Under the table's names: see `column_names.renamed_fields`.

    Raises
    ------
    SchemaMismatch, UnsupportedBySpark, InvalidArgumentError
    """
    if batch_id_column is not None:
        frame = _without_id(frame, batch_id_column, table)
    schema = schema or table.schema
    known = schema.to_arrow(field_ids=False)
    frame = spelled(frame, known, case_sensitive=case_sensitive)
    columns = arriving_schema(frame, known)
    check_batches(partial(DataWriter, table.store, schema), columns)
    return columns


def renamed_columns(frame: st.StructType, schema: TableSchema) -> dict[str, pa.Field]:
    """What a data source's task renames, which knows of no setting: Spark's default holds."""
    return renamed_fields(
        frame, spelled(frame, schema.to_arrow(field_ids=False), case_sensitive=False)
    )


def check_batches(open_writer: Callable[[], DataWriter], columns: pa.Schema) -> None:
    """Let a writer say whether batches of a schema fit it, before there are any.

    Raises
    ------
    SchemaMismatch
    """
    nothing = pa.RecordBatch.from_arrays(
        [pa.nulls(0, each.type) for each in columns], schema=columns
    )
    with open_writer() as writer:  # makes no file, as there are no rows
        writer.write(nothing)


def writer_factory(
    table: Table | StagedTable, schema: TableSchema | None = None
) -> partial[DataWriter]:
    """Makes the table's writer in a task: picklable, one thread, as Spark counts cores itself."""
    place: dict[str, Any]
    if isinstance(table, StagedTable):
        properties, base = table.definition.properties or {}, table.base
        place = {"table_uuid": "" if base is None else base.table_uuid}
    else:
        properties = table.properties
        place = {"table_uuid": table.snapshot.table_uuid, "branch": table.branch}
    profile: Any = properties.get(PROFILE_PROPERTY, "balanced")
    options = fermion.WriteOptions(profile=profile, threads=1)
    settings = WriteSettings(file_options=options)
    return partial(DataWriter, table.store, schema or table.schema, settings=settings, **place)


def files_of(message: WriterMessage) -> list[str]:
    """The data files that a message names, relative to the table."""
    return [entry.path for entry in message.entries]


def write_files(
    df: DataFrame,
    table: Table | StagedTable,
    schema: TableSchema,
    batch_id_column: str | None,
    cluster: bool,
) -> list[WriterMessage]:
    """Run the tasks; what they wrote comes back, or is deleted if the job fails.

    Parameters
    ----------
    schema
        What files are written with.

    Raises
    ------
    SchemaMismatch, UnsupportedBySpark, InvalidArgumentError
        The frame does not fit; raised before any task runs.
    pyspark.errors.PySparkException
    """
    spark = df.sparkSession
    sensitive = is_case_sensitive(spark)
    columns = check_columns(
        table, df.schema, batch_id_column, schema=schema, case_sensitive=sensitive
    )
    known = schema.to_arrow(field_ids=False)
    found = spelled(df.schema, known, case_sensitive=sensitive)
    if found is not df.schema:
        if batch_id_column is not None:
            batch_id_column = found.names[df.schema.names.index(batch_id_column)]
        df = df.toDF(*found.names)
    renamed = renamed_fields(df.schema, found)
    rows, id_index = df, None
    if batch_id_column is not None:
        rows, id_index = clustered(df, batch_id_column)
    elif cluster:
        rows = arranged(df, schema)
    whole = rows.select(functions.struct("*").alias(_ROW))
    with (
        finished_messages(spark.sparkContext, table, files_of) as finished,
        settings(spark, batch_settings(spark, columns)),
    ):
        task = WriteTask(writer_factory(table, schema), columns, id_index, finished, renamed)
        results = whole.mapInArrow(task, MESSAGE_SCHEMA).collect()
    return [each for result in results for each in pickle.loads(result[0])]


def check_schema_mode(schema_mode: str | None) -> None:
    """Refuse what is no mode of `append`: InvalidArgumentError."""
    if schema_mode not in (None, "merge"):
        raise InvalidArgumentError(f"schema_mode={schema_mode!r}: expected None or 'merge'")


def check_batch_id(batch_id_column: str | None) -> None:
    """Refuse what is no name: TypeError."""
    if batch_id_column is not None:
        text(batch_id_column, "batch_id_column")


def _opened(
    path: str | os.PathLike[str],
    branch: str | None,
    storage_options: dict[str, Any] | None,
    access: StorageAccess | None,
) -> Table:
    return Table.open(
        path,
        branch=MAIN if branch is None else branch,
        storage_options=storage_options,
        access=chosen_access(access),
    )


def _without_id(
    frame: st.StructType, batch_id_column: str, table: Table | StagedTable
) -> st.StructType:
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
