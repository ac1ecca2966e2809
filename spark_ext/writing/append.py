"""Appends the rows of data frames to tables, upserts them, and overwrites rows with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame

from fermion_table import Snapshot, StorageAccess, Table, TableSchema
from fermion_table.engine import CommitMetadata, changes_in, check_overwrite, required_key
from spark_ext.exchange import convert_batch
from spark_ext.opening import Written, open_written
from spark_ext.session import classic_frame
from spark_ext.types import TIME_SETTING, arriving_schema, exchange_schema, spark_schema
from spark_ext.writing.job import (
    FrameOptions,
    commit_arguments,
    commit_overwrite,
    committed_before,
    planned_columns,
    write_files,
)


def append(
    df: DataFrame,
    path: Written,
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

    If the job fails nothing is published, and the files that its tasks wrote are deleted. The table
    must exist: `fermion_table.Table.create` makes one with the types and partitions that you
    choose, `spark_ext.write` makes one with the frame's types.

    Parameters
    ----------
    df
        Columns are matched by name, in any order (and in any case unless
        ``spark.sql.caseSensitive`` is true), and cast where no value can change. Nullable columns
        that the frame lacks are null.
    path
        The table: where it lies, or ``tx.table(name)`` of a `fermion_table.Catalog.transaction`,
        which commits what the tasks write together with its other changes.
    batch_id_column
        A column of integers without nulls that numbers batches. Rows of one batch are gathered in
        the frame's order, and written with this batch id into one file. The column itself is
        written too if the table has it. In a partitioned table the rows of each partition are a
        batch of this id.
    schema_mode
        ``merge`` adds the columns that the table lacks, in the same snapshot.
    cluster
        Gather rows by the table's partitions and sort order before they are written, which needs
        a shuffle. False writes the rows of each task as they come. Of a primary-key table: see
        `upsert`.
    message, properties
        For the table's history.
    commit_user, commit_identifier
        Who commits, and which of its commits this is: the same pair is appended once. If the table
        has this commit already, no task runs and its snapshot is returned.
    branch
        An existing branch to write to; None: ``main``.
    storage_options
        For fsspec.
    access
        How the storage is used; see `fermion_table.StorageAccess`.

    Returns
    -------
    fermion_table.Snapshot
        The new snapshot. It has no rows if the frame has none. In a transaction the one that the
        transaction began with.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong, such as half of an identity; raised before any task runs.
    TableNotFound, VersionNotFound
        There is no table, or no such branch.
    SchemaMismatch
        The frame does not fit the table; raised before any task runs.
    UnsupportedBySpark
        Spark cannot hand over a column's type, or the session is a Spark Connect client.
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed, the second where workers died; nothing was published.
    CommitConflict, CommitStateUnknown
        As `fermion_table.Table.commit`.
    """
    classic_frame(df, "append")
    options = FrameOptions(
        batch_id_column=batch_id_column, schema_mode=schema_mode, cluster=cluster
    )
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    table = open_written(
        path, metadata, branch=branch, storage_options=storage_options, access=access
    )
    return _appended(df, table, options, metadata)


def upsert(
    df: DataFrame,
    path: Written,
    *,
    change_type: str | None = None,
    format: Literal["debezium"] | None = None,
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
    """Insert the rows of a data frame, or replace those of their keys, as one snapshot.

    The table has a primary key and buckets. Nothing of it is read: rows of one key are merged when
    they are read, and by compaction. On such a table `append` does the same without change types.

    Parameters
    ----------
    df
        As for `append`. The last row of a key in the frame's order is the newest.
    path
        As for `append`.
    change_type
        The column of the frame that says what each row is: ``insert``, ``update_preimage``,
        ``update_postimage`` or ``delete``, or ``+I``, ``-U``, ``+U``, ``-D``. It is not stored.
        None: all rows are insertions.
    format
        ``debezium``: the frame has changes as Debezium gives them, as for
        `fermion_table.Table.upsert`: envelopes or flat rows, whose column ``op`` (or
        ``change_type``) is ``c``, ``r``, ``u`` or ``d``. Tasks take them apart in Python first.
    cluster
        Gather the rows of each tree (a partition and bucket) in one task, in the frame's order,
        which needs a shuffle. False writes the rows of each task as they come: more files, and
        which of several rows of a key is the newest is not defined (sequence fields decide).
    schema_mode, message, properties, commit_user, commit_identifier
        As for `append`.
    branch, storage_options, access
        As for `append`.

    Returns
    -------
    fermion_table.Snapshot
        The new snapshot. It has no rows if the frame has none.

    Raises
    ------
    InvalidArgumentError
        The table has no primary key by which rows are merged, or the frame no such column of
        change types, or the format is unknown; raised before any task runs.
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed, for example at a change type that the merge engine does not take; the second
        where workers died. Nothing was published.
    TypeError, TableNotFound, VersionNotFound, SchemaMismatch, UnsupportedBySpark
    CommitConflict, CommitStateUnknown
        As for `append`.
    """
    classic_frame(df, "upsert")
    options = FrameOptions(schema_mode=schema_mode, cluster=cluster, change_type=change_type)
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    table = open_written(
        path, metadata, branch=branch, storage_options=storage_options, access=access
    )
    required_key(table.schema, table.location, "upsert")
    if format is not None:
        df, options = flat_changes(df, options, format, table.schema)
    return _appended(df, table, options, metadata)


def flat_changes(
    df: DataFrame, options: FrameOptions, format: str, schema: TableSchema
) -> tuple[DataFrame, FrameOptions]:
    """Changes of another system as rows with change types, in their order."""
    given = arriving_schema(df.schema, pa.schema([]))
    no_rows = pa.Table.from_batches([], given)
    flat, kind = changes_in(no_rows, options.change_type, format, schema)
    time_enabled = df.sparkSession.conf.get(TIME_SETTING, "false") == "true"
    frame = spark_schema(flat.schema, time_enabled=time_enabled, where="changes")
    columns = exchange_schema(frame)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arriving = (convert_batch(batch, given) for batch in batches)
        reader = pa.RecordBatchReader.from_batches(given, arriving)
        for batch in changes_in(reader, options.change_type, format, schema)[0]:
            yield convert_batch(batch, columns)

    return df.mapInArrow(rows, frame), replace(options, change_type=kind)


def _appended(
    df: DataFrame, table: Table, options: FrameOptions, metadata: CommitMetadata
) -> Snapshot:
    earlier = committed_before(table, metadata)
    if earlier is not None:
        return earlier
    merge = planned_columns(df, table, options)
    messages = write_files(df, table, options, merge)
    return table.commit(messages, **commit_arguments(metadata), merge=merge)


def overwrite(
    df: DataFrame,
    path: Written,
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

    The frame may read the table itself: the old rows are removed when the new ones are published.

    Parameters
    ----------
    df, path
        As for `append`.
    filter
        Which rows are removed: anything that `fermion` takes as a filter; None: all. It need not
        select the new rows.
    dynamic
        Remove all rows of the partitions that the frame has rows for.
    batch_id_column, cluster, message, properties, commit_user, commit_identifier
        As for `append`.
    branch, storage_options, access
        As for `append`.
    schema_mode
        ``merge`` adds the columns that the table lacks, in the same snapshot.

    Raises
    ------
    InvalidArgumentError
        Both a filter and dynamic, or dynamic on a table without partitions.
    ColumnNotFoundError
        The filter names a column that the table lacks.
    TypeError, TableNotFound, VersionNotFound, SchemaMismatch, UnsupportedBySpark
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
    CommitConflict, CommitStateUnknown
        As for `append`.
    """
    classic_frame(df, "overwrite")
    options = FrameOptions(
        batch_id_column=batch_id_column, schema_mode=schema_mode, cluster=cluster
    )
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    table = open_written(
        path, metadata, branch=branch, storage_options=storage_options, access=access
    )
    earlier = committed_before(table, metadata)
    if earlier is not None:
        return earlier
    check_overwrite(table.schema, filter, dynamic, where=table.location)
    merge = planned_columns(df, table, options)
    messages = write_files(df, table, options, merge, overwrites=True, filter=filter)
    return commit_overwrite(table, messages, filter, dynamic, merge, **commit_arguments(metadata))
