"""Every type's values pass through Spark itself, there and back."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from fermion.columns.exchange import convert
from spark_ext.exchange import convert_batch
from spark_ext.types import arriving_schema, exchange_schema, spark_schema
from tests.kit.arrow_samples import CASES

pytestmark = pytest.mark.spark


def padded(dtype: pa.DataType, values: list, rows: int) -> pa.Array:
    return pa.array(values + [None] * (rows - len(values)), dtype)


@pytest.fixture
def far_zone(spark: SparkSession) -> Iterator[None]:
    """A session zone that would show if any time were shifted by it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("far_zone")
def test_every_type_passes_through_spark_there_and_back(spark: SparkSession) -> None:
    """One record batch of all types goes in by one task and out by the next."""
    rows = max(len(values) for _, values in CASES)
    sent = pa.record_batch(
        {f"c{i}": padded(dtype, values, rows) for i, (dtype, values) in enumerate(CASES)}
    )
    schema = spark_schema(sent.schema, where="test")
    exchanged = exchange_schema(schema)
    data = convert_batch(sent, exchanged).serialize().to_pybytes()

    def into_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.ipc.read_record_batch(data, exchanged)

    def out_of_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({"data": [stream.getvalue().to_pybytes()]})

    frame = spark.range(1, numPartitions=1).mapInArrow(into_spark, schema)
    whole = frame.select(functions.struct("*").alias("row"))
    (row,) = whole.mapInArrow(out_of_spark, "data binary").collect()
    table = pa.ipc.open_stream(row.data).read_all().combine_chunks()
    received = pa.RecordBatch.from_struct_array(table.column("row").chunk(0))

    assert arriving_schema(frame.schema, sent.schema) == sent.schema
    for field, column in zip(sent.schema, received.columns, strict=True):
        back = convert(column, field.type)
        assert back.to_pylist() == sent.column(field.name).to_pylist(), field
