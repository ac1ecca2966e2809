"""Gathers the rows that are written together: by batch, by partition, bucket or sort order.

A task writes a file for every partition that it has rows of, so rows of a partition are gathered
first. A table with a sort order gets files of disjoint ranges. Rows of a tree, the partition and
bucket of a primary-key table, get to one task in the frame's order: the last row of a key wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import types as st

from fermion_table import TableSchema
from fermion_table.engine import PartitionTransform, PrimaryKey, primary_key_of
from spark_ext.column_names import free_names, quoted
from spark_ext.versions import ARROW_FUNCTIONS, SPARK


def clustered(df: DataFrame, batch_id_column: str) -> tuple[DataFrame, int]:
    """Gather rows by batch id: ids ascend, and rows of a batch keep the frame's order.

    Returns the frame, and the index of its id column.
    """
    # A hash would gather batches too, but spread every range of ids over all files.
    numbered, position = _numbered(df)
    id_column = quoted(batch_id_column)
    rows = numbered.repartitionByRange(id_column).sortWithinPartitions(id_column, position)
    return rows.drop(position), df.columns.index(batch_id_column)


def arranged(
    df: DataFrame,
    schema: TableSchema,
    bucket_counts: Mapping[tuple[Any, ...], int] | None = None,
    *,
    first: Column | None = None,
) -> DataFrame:
    """Gather the rows of a frame by a table's partitions and sort order.

    Without a sort order Spark balances the partitions by a hash: tasks share a big partition, and
    small ones share a task. With a sort order each task gets a range of partitions and of the
    sort columns. Of a primary-key table each tree goes to one task.

    bucket_counts: Of partitions of a primary-key table that have another number of buckets than its
        settings say.
    first: Which rows of a tree come before the others.
    """
    rows, keys = _with_partition_keys(df, schema)
    primary_key = primary_key_of(schema)
    if primary_key is not None:
        settings = primary_key.options.bucket
        count = _common_count(settings, bucket_counts or {}, is_partitioned=bool(keys))
        if count > 1:
            (bucket,) = free_names(rows.columns, "bucket")
            rows = _with_bucket(rows, bucket, primary_key, schema, count)
            keys = [*keys, bucket]
        return _arranged_trees(rows, keys, first)
    names = [schema.by_id[field_id].name for field_id in schema.sort_by]
    order = [functions.col(quoted(name)).asc_nulls_last() for name in names if name in df.columns]
    if not keys and not order:
        return df
    if order:
        order = [*(functions.col(key).asc_nulls_last() for key in keys), *order]
        rows = rows.repartitionByRange(*order).sortWithinPartitions(*order)
    else:
        rows = rows.hint("rebalance", *keys)
    return rows.drop(*keys)


def _numbered(df: DataFrame) -> tuple[DataFrame, str]:
    """The frame with a column that grows in the order of its rows, and the column's name."""
    (position,) = free_names(df.columns, "position")
    return df.withColumn(position, functions.monotonically_increasing_id()), position


def _arranged_trees(df: DataFrame, keys: Sequence[str], first: Column | None) -> DataFrame:
    """The rows of each tree in one task, without the columns that tell trees apart."""
    rows, position = _numbered(df)
    rows = rows.repartition(*keys) if keys else rows.repartition(1)
    order = [functions.col(position)] if first is None else [first.desc(), functions.col(position)]
    return rows.sortWithinPartitions(*order).drop(position, *keys)


def _common_count(
    setting: int, counts: Mapping[tuple[Any, ...], int], *, is_partitioned: bool
) -> int:
    """A number of buckets by which no tree of any partition is cut, if there is one.

    A bucket modulo a divisor of the number of buckets is a function of the bucket.
    """
    if not is_partitioned:
        return counts.get((), setting)
    common = math.gcd(setting, *counts.values())
    return common if common > 1 else setting


def _with_bucket(
    df: DataFrame, name: str, primary_key: PrimaryKey, schema: TableSchema, count: int
) -> DataFrame:
    """The frame with a column of bucket numbers, from those of the bucket key."""
    names = primary_key.options.bucket_key
    types = [schema.by_name[name].type for name in names]

    def numbers(*columns: pa.Array) -> pa.Array:
        if any(column.null_count for column in columns):
            return pa.array(np.zeros(len(columns[0]), np.int32))  # the writer refuses the row
        stored = [column.cast(dtype) for column, dtype in zip(columns, types, strict=True)]
        rows = pa.RecordBatch.from_arrays(stored, names=list(names))
        return pa.array(primary_key.buckets(rows, count))

    return _with_computed(df, name, st.IntegerType(), numbers, names)


def _with_partition_keys(df: DataFrame, schema: TableSchema) -> tuple[DataFrame, list[str]]:
    """The frame with columns that are equal for rows of one partition, and their names.

    They only decide which task gets a row: in sessions far from UTC they may have more values.
    """
    transforms = [
        PartitionTransform(name, field.transform, field.parameter)
        for field in schema.partition_by
        if (name := schema.by_id[field.source_id].name) in df.columns
    ]
    names = free_names(df.columns, *(f"partition_{place}" for place in range(len(transforms))))
    for name, transform in zip(names, transforms, strict=True):
        column = functions.col(quoted(transform.column))
        if transform.kind == "identity":
            df = df.withColumn(name, column)
        elif transform.kind in ("year", "month", "day", "hour"):
            df = df.withColumn(name, functions.date_trunc(transform.kind, column))
        else:
            values = _values_of(transform)
            df = _with_computed(df, name, st.StringType(), values, [transform.column])
    return df, names


def _values_of(transform: PartitionTransform) -> Callable[[pa.Array], pa.Array]:
    def values(column: pa.Array) -> pa.Array:
        return transform.values(column).cast(pa.string())

    return values


def _with_computed(
    df: DataFrame,
    name: str,
    dtype: st.DataType,
    function: Callable[..., pa.Array],
    names: Sequence[str],
) -> DataFrame:
    """The frame with one more column, last, computed from the Arrow arrays of others."""
    if SPARK.has(ARROW_FUNCTIONS):
        make: Any = functions.arrow_udf  # its type stubs accept only functions over pandas
        columns = [functions.col(quoted(column)) for column in names]
        return df.withColumn(name, make(function, dtype)(*columns))
    schema = st.StructType([*df.schema, st.StructField(name, dtype)])
    places = [schema.names.index(column) for column in names]

    def extended(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = batch.column(0).flatten()
            columns.append(function(*(columns[place] for place in places)))
            yield pa.RecordBatch.from_arrays(columns, names=schema.names)

    # Of columns whose names have dots Spark finds none, unless they are within another one.
    return df.select(functions.struct("*").alias("row")).mapInArrow(extended, schema)
