"""Append with batch ids: each batch lies whole in one file, and is found again by its id.

python examples/spark_batch_append.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession, functions

import spark_ext
from fermion_table import Table

SCHEMA = pa.schema([pa.field("sensor", pa.int64(), nullable=False), ("value", pa.float64())])
BATCHES, ROWS_PER_BATCH = 100, 500


def main() -> int:
    """Append readings in batches and look one up; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    path = directory / "readings"
    Table.create(path, SCHEMA)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", 4)
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        readings = spark.range(BATCHES * ROWS_PER_BATCH, numPartitions=4).select(
            (functions.col("id") % BATCHES).alias("minute"),  # interleaved: Spark clusters them
            functions.col("id").alias("sensor"),
            (functions.col("id") / 7).alias("value"),
        )
        # The table has no column "minute": it only numbers the batches.
        spark_ext.append(readings, path, batch_id_column="minute")
        from_spark = spark_ext.read_table(spark, path, batch_id=42).count()
    finally:
        spark.stop()

    table = Table.open(path)
    batch = table.lookup_batch(42)
    print(f"batch 42 has {batch.num_rows} rows, the first of sensor {batch['sensor'][0]}")
    virtual = table.scan(columns=["batch_id", "index_in_batch", "sensor"], batch_id=42).head(2)
    print(virtual.to_pylist())
    expected = list(range(42, BATCHES * ROWS_PER_BATCH, BATCHES))
    right = batch["sensor"].to_pylist() == expected and from_spark == ROWS_PER_BATCH
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
