"""Reads a table into a data frame: the driver plans, tasks read splits and return Arrow data."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fermion.typing import FilterLike
from fermion_table import Scan, StorageAccess
from spark_ext.opening import scan_of
from spark_ext.options import SourceOptions, absolute, chosen_access
from spark_ext.reading.task import ReadTask, rows_alone
from spark_ext.session import classic
from spark_ext.types import TIME_SETTING, exchange_schema, spark_schema

RANGE_TASK_ROWS = 256 * 1024 * 1024
"""Rows without columns that one task counts: Spark makes these rows itself."""

_SPLITS = st.StructType([st.StructField("splits", st.BinaryType())])


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str | Sequence[str]] | None = None,
    filter: FilterLike | None = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of: datetime | str | None = None,
    batch_id: int | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> DataFrame:
    """Read a table, or a part of it, as a data frame.

    Only the selected columns and rows are read from the files. Spark's optimizer cannot push a
    later ``select`` or ``where`` into the tasks: the result is right, but these arguments alone
    decide what is read. The snapshot is chosen by this call, whenever the frame is used.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    columns, filter, snapshot_id, tag, as_of, batch_id, branch
        As for `fermion_table.Table.scan`. With ``columns=[]`` and no filter the frame has the
        number of rows, and no file is opened to count them.
    storage_options
        For fsspec.
    access
        How the storage is used, such as which other folders the table may name; see
        `fermion_table.StorageAccess`.

    Returns
    -------
    pyspark.sql.DataFrame
        Types as `spark_ext.types` lists them.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    TableNotFound, VersionNotFound, ColumnNotFoundError
        As `fermion_table.Table.scan`. A task raises VersionNotFound too, if the snapshot has
        expired when the frame is used.
    UnsupportedBySpark
        Spark has no type for a column, or the session is a Spark Connect client.
    """
    classic(spark, "read_table")
    scan = scan_of(
        SourceOptions(
            path=absolute(path),
            snapshot_id=snapshot_id,
            tag=tag,
            as_of=as_of,
            branch=branch,
            batch_id=batch_id,
            columns=columns,
            filter=filter,
            storage_options=storage_options,
            access=chosen_access(access),
        )
    )
    return frame_of(spark, scan)


def schema_of(spark: SparkSession, scan: Scan) -> st.StructType:
    """The columns of a scan as Spark has them.

    Raises UnsupportedBySpark.
    """
    return spark_schema(
        scan.schema,
        time_enabled=spark.conf.get(TIME_SETTING, "false") == "true",
        where=f"table {scan.store.location}",
    )


def frame_of(spark: SparkSession, scan: Scan) -> DataFrame:
    """The rows of a scan, read by tasks when the frame is used.

    Raises UnsupportedBySpark.
    """
    schema = schema_of(spark, scan)
    rows = rows_alone(scan)
    if rows is not None:
        return spark.range(0, rows, 1, 1 + rows // RANGE_TASK_ROWS).select()
    read = ReadTask(scan.reader, exchange_schema(schema))
    tasks = scan.plan().tasks(tasks_min=spark.sparkContext.defaultParallelism)
    return splits_frame(spark, tasks).mapInArrow(read, schema)


def splits_frame(spark: SparkSession, tasks: Sequence[Sequence[Any]]) -> DataFrame:
    """A frame with the pickled splits of one task in each partition.

    It is made from an RDD. Of a local relation Spark would estimate the few bytes of the splits,
    and broadcast the table in every join. ``createDataFrame`` makes the same frame, but a Python
    worker checks every row first.
    """
    context: Any = spark.sparkContext
    rows = context.parallelize([(pickle.dumps(list(task)),) for task in tasks], max(1, len(tasks)))
    python = context._jvm.SerDeUtil
    java = python.toJavaArray(python.pythonToJava(rows._jrdd, True))
    session: Any = spark._jsparkSession  # type: ignore[attr-defined]
    frame = DataFrame(session.applySchemaToPythonRDD(java.rdd(), _SPLITS.json()), spark)
    # If Spark knows that there is one partition, it does not shuffle.
    return frame.coalesce(1) if len(tasks) < 2 else frame
