"""Which rows of a data frame are written together: by batch, by partition, by the table's order.

A task writes a file for every partition that its rows fall into, so rows of a partition are first
brought together; a table with a sort order gets files that span disjoint ranges of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions

from fermion_table import PartitionTransform, TableSchema

_POSITION = "__fermion_position__"
_KEY = "__fermion_partition_{}__"


def clustered(df: DataFrame, batch_id_column: str) -> tuple[DataFrame, int]:
    """The rows brought together by batch id, each batch in the frame's order, ids ascending.

    Returns
    -------
    tuple
        The frame, and the ordinal of the id column in it.
    """
    # A hash would bring a batch together too, but spread every range of ids over all files.
    numbered = df.withColumn(_POSITION, functions.monotonically_increasing_id())
    id_column = quoted(batch_id_column)
    rows = numbered.repartitionByRange(id_column).sortWithinPartitions(id_column, _POSITION)
    return rows.drop(_POSITION), df.columns.index(batch_id_column)


def arranged(df: DataFrame, schema: TableSchema) -> DataFrame:
    """The rows of a frame as a table's partitions and sort order want them.

    Partitions alone are gathered by a hash that Spark balances: a big partition is split over
    tasks, small ones share one. A sort order takes ranges of the partitions and its columns.
    """
    keys = {}
    for number, field in enumerate(schema.partition_by):
        name = schema.by_id[field.source_id].name
        if name in df.columns:
            transform = PartitionTransform(name, field.transform, field.parameter)
            keys[_KEY.format(number)] = _partition_key(transform)
    names = [schema.by_id[each].name for each in schema.sort_by]
    order = [functions.col(quoted(name)).asc_nulls_last() for name in names if name in df.columns]
    if not keys and not order:
        return df
    rows = df.withColumns(keys) if keys else df
    if order:
        whole = [*(functions.col(key).asc_nulls_last() for key in keys), *order]
        rows = rows.repartitionByRange(*whole).sortWithinPartitions(*whole)
    else:
        rows = rows.hint("rebalance", *keys)
    return rows.drop(*keys)


def quoted(name: str) -> str:
    """A column's name in Spark's backquotes."""
    return f"`{name.replace('`', '``')}`"


def _partition_key(transform: PartitionTransform) -> Column:
    """What is equal for rows of one partition; sessions far from UTC may see more days than are."""
    column = functions.col(quoted(transform.column))
    if transform.kind == "identity":
        return column
    if transform.kind in ("year", "month", "day", "hour"):
        return functions.date_trunc(transform.kind, column)
    make: Any = functions.arrow_udf  # its stubs know the functions of pandas only
    return make(_values_of(transform), "string")(column)


def _values_of(transform: PartitionTransform) -> Callable[[pa.Array], pa.Array]:
    def values(column: pa.Array) -> pa.Array:
        return transform.values(column).cast(pa.string())

    return values
