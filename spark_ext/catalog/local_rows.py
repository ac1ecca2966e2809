"""Rows that the driver has: an Arrow table as a scan that runs no Python task."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa

from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.exchange import convert_batch
from spark_ext.types import exchange_schema, spark_schema


class LocalRows(Callback):
    """An Arrow table as Spark's ``LocalScan``, its own builder; Spark converts the rows itself.

    Raises UnsupportedBySpark: Spark has no type for a column.
    """

    Java = interfaces(
        "connector.read.LocalScan",
        "connector.read.ScanBuilder",
    )

    def __init__(self, jvm: Jvm, table: pa.Table, what: str) -> None:
        super().__init__(jvm)
        self._what = what
        self._spark_schema = spark_schema(table.schema, where=what)
        target = exchange_schema(self._spark_schema)
        batches = [convert_batch(batch, target) for batch in table.to_batches()]
        self._table = pa.Table.from_batches(batches, target)

    @cached_property
    def _schema(self) -> Any:
        return self._jvm.schema(self._spark_schema.json())

    @cached_property
    def _rows(self) -> Any:
        frame = self._jvm.spark.createDataFrame(self._table, self._spark_schema)
        return frame._jdf.queryExecution().executedPlan().executeCollect()

    def build(self) -> Any:
        """All rows and columns."""
        return self

    def readSchema(self) -> Any:  # noqa: N802 - Java's name
        """All columns."""
        return self._schema

    def rows(self) -> Any:
        """All rows, in Spark's own form."""
        return self._rows

    def description(self) -> str:
        """For ``EXPLAIN``."""
        return self._what
