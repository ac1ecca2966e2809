"""Reads the changes between two snapshots into a data frame: tasks read what the driver planned."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fermion.exports import dataclass
from fermion.typing import FilterLike
from fermion_table import StorageAccess
from fermion_table.engine import CHANGE_FIELDS, Split
from spark_ext.opening import open_table
from spark_ext.options import absolute
from spark_ext.reading.table import splits_frame
from spark_ext.reading.task import Reader, ReadTask
from spark_ext.session import classic
from spark_ext.types import TIME_SETTING, exchange_schema, spark_schema


def read_changes(
    spark: SparkSession,
    path: str | os.PathLike[str],
    start: int | str | date | datetime,
    end: int | str | date | datetime | None = None,
    *,
    columns: Sequence[str | Sequence[str]] | None = None,
    filter: FilterLike | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> DataFrame:
    """Read the rows that commits added and removed, as a data frame.

    The rows are those of `fermion_table.Table.scan_changes`, with the columns ``_change_type``,
    ``_commit_version`` and ``_commit_timestamp``. Tasks read files, or trees of a primary-key
    table, of the commits. Tasks and their rows are in an order in which the changes can be
    replayed: `spark_ext.upsert` with ``change_type="_change_type"`` does that.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    start, end
        Versions, start exclusive and end inclusive: ids of snapshots, tags, times. None: the
        newest snapshot of the branch. The commits are chosen by this call.
    columns, filter
        As for `fermion_table.Table.scan_changes`, under the schema of the end. The columns of the
        change are always there.
    branch
        None: ``main``.
    storage_options
        For fsspec.
    access
        How the storage is used; see `fermion_table.StorageAccess`.

    Returns
    -------
    pyspark.sql.DataFrame
        Types as `spark_ext.types` lists them.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong; or the end does not descend from the start.
    TableNotFound, VersionNotFound, ColumnNotFoundError
        As `fermion_table.Table.scan_changes`. A task raises VersionNotFound too, if a snapshot has
        expired when the frame is used.
    UnsupportedBySpark
        Spark has no type for a column, or the session is a Spark Connect client.
    """
    classic(spark, "read_changes")
    table = open_table(
        absolute(path), branch=branch, storage_options=storage_options, access=access
    )
    changes = table.scan_changes(start, end, columns=columns, filter=filter)
    time_enabled = spark.conf.get(TIME_SETTING, "false") == "true"
    where = f"table {os.fspath(path)}"
    schema = spark_schema(changes.schema, time_enabled=time_enabled, where=where)
    tasks = changes.plan().tasks(tasks_min=spark.sparkContext.defaultParallelism)
    read = ReadTask(changes.reader, exchange_schema(schema))
    return splits_frame(spark, tasks).mapInArrow(read, schema)


@dataclass(frozen=True, slots=True)
class InsertReader:
    """Reads the rows of a snapshot as changes: all are insertions of this snapshot. Picklable.

    The time of the snapshot is in milliseconds since 1970 UTC.
    """

    reader: Reader
    snapshot_id: int
    time_ms: int

    def read(self, split: Split, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        values = ("insert", self.snapshot_id, self.time_ms)
        labels = [
            pa.scalar(value, field.type) for value, field in zip(values, CHANGE_FIELDS, strict=True)
        ]
        for batch in self.reader.read(split, threads=threads):
            columns = [*batch.columns, *(pa.repeat(label, batch.num_rows) for label in labels)]
            schema = pa.schema([*batch.schema, *CHANGE_FIELDS])
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
