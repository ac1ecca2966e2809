"""Decimals of up to 18 digits as 64-bit integers, which is how rows of Spark hold them.

From a decimal of Arrow Spark makes three Java objects for each value, before it stores the integer
in the row. From an integer it makes none: of rows whose column is a decimal for the plan, and was a
long for the scan, every reader gets the decimal (`org.apache.spark.sql.catalyst.expressions.
UnsafeRow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import types as st

from fermion.exports import dataclass
from spark_ext.aggregation.expression import unscaled

DIGITS_MAX = 18
"""Of decimals that a row of Spark holds as an integer."""


def unscaled_schema(schema: st.StructType) -> st.StructType:
    """The same columns, decimals of up to 18 digits as LONG; the same object if there are none."""
    if not any(_is_short(field.dataType) for field in schema):
        return schema
    return st.StructType(
        [
            st.StructField(field.name, st.LongType(), field.nullable, field.metadata)
            if _is_short(field.dataType)
            else field
            for field in schema
        ]
    )


def _is_short(dtype: st.DataType) -> bool:
    return isinstance(dtype, st.DecimalType) and dtype.precision <= DIGITS_MAX


@dataclass(frozen=True, slots=True)
class UnscaledTask:
    """Runs a task; decimals become integers where `unscaled_schema` has them. Picklable."""

    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the task returns."""
        for batch in self.task(batches):
            columns = [
                unscaled(column) if pat.is_decimal(column.type) and pat.is_int64(dtype) else column
                for column, dtype in zip(batch.columns, self.schema.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
