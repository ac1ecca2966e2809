"""Gathers the rows that are written together: by batch, by partition, by the sort order.

A task writes a file for every partition that it has rows of, so rows of a partition are gathered
first. A table with a sort order gets files of disjoint ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions

from fermion_table import PartitionTransform, TableSchema
from spark_ext.column_names import quoted

_POSITION = "__fermion_position__"
_KEY = "__fermion_partition_{}__"


def clustered(df: DataFrame, batch_id_column: str) -> tuple[DataFrame, int]:
    """Gather rows by batch id: ids ascend, and rows of a batch keep the frame's order.

    Returns
    -------
    tuple
        The frame, and the index of its id column.
    """
    # A hash would gather batches too, but spread every range of ids over all files.
    numbered = df.withColumn(_POSITION, functions.monotonically_increasing_id())
    id_column = quoted(batch_id_column)
    rows = numbered.repartitionByRange(id_column).sortWithinPartitions(id_column, _POSITION)
    return rows.drop(_POSITION), df.columns.index(batch_id_column)


def arranged(df: DataFrame, schema: TableSchema) -> DataFrame:
    """Gather the rows of a frame by a table's partitions and sort order.

    Without a sort order Spark balances the partitions by a hash: tasks share a big partition, and
    small ones share a task. With a sort order each task gets a range of partitions and of the
    sort columns.
    """
    keys = {}
    for number, field in enumerate(schema.partition_by):
        name = schema.by_id[field.source_id].name
        if name in df.columns:
            transform = PartitionTransform(name, field.transform, field.parameter)
            keys[_KEY.format(number)] = _partition_key(transform)
    names = [schema.by_id[field_id].name for field_id in schema.sort_by]
    order = [functions.col(quoted(name)).asc_nulls_last() for name in names if name in df.columns]
    if not keys and not order:
        return df
    rows = df.withColumns(keys) if keys else df
    if order:
        order = [*(functions.col(key).asc_nulls_last() for key in keys), *order]
        rows = rows.repartitionByRange(*order).sortWithinPartitions(*order)
    else:
        rows = rows.hint("rebalance", *keys)
    return rows.drop(*keys)


def _partition_key(transform: PartitionTransform) -> Column:
    """A column that is equal for rows of one partition.

    It only decides which task gets a row: in sessions far from UTC it may have more values.
    """
    column = functions.col(quoted(transform.column))
    if transform.kind == "identity":
        return column
    if transform.kind in ("year", "month", "day", "hour"):
        return functions.date_trunc(transform.kind, column)
    make: Any = functions.arrow_udf  # its type stubs accept only functions over pandas
    return make(_values_of(transform), "string")(column)


def _values_of(transform: PartitionTransform) -> Callable[[pa.Array], pa.Array]:
    def values(column: pa.Array) -> pa.Array:
        return transform.values(column).cast(pa.string())

    return values
