"""Scans as data frames: the driver plans, tasks read splits and return Arrow data."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fermion_table import Scan
from spark_ext.reading.task import PartsTask, ReadTask, parts_of, rows_alone
from spark_ext.types import TIME_SETTING, exchange_schema, spark_schema

RANGE_TASK_ROWS = 256 * 1024 * 1024
"""Rows without columns that one task counts: Spark makes these rows itself."""

_SPLITS = st.StructType([st.StructField("splits", st.BinaryType())])


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
    read: Any = ReadTask(scan.reader, exchange_schema(schema))
    tasks_min = spark.sparkContext.defaultParallelism
    if (parts := parts_of(scan, tasks_min)) is not None:
        read = PartsTask(read, parts[0])
    tasks = (
        scan.plan().tasks(tasks_min=tasks_min) if parts is None else [[each] for each in parts[1]]
    )
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
