"""Upserts from Spark: rows of a primary-key table are inserted, replaced and deleted by key.

python examples/spark_upsert.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("price", pa.float64())]
)
CHANGES = [
    (1, None, None, "delete"),
    (2, "Oslo", 1.0, "update_postimage"),
    (2, "Bergen", 2.0, "update_postimage"),  # the later row of a key is the newer one
    (5_000, "Turku", 3.0, "insert"),
]


def main() -> int:
    """Upsert offers, then changes of them, and check the table; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    path = directory / "offers"
    Table.create(path, SCHEMA, primary_key=["id"], properties={"bucket": "4"})

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        offers = spark.range(1_000).selectExpr("id", "'Bonn' AS city", "id * 0.5D AS price")
        spark_ext.upsert(offers, path, message="first load")

        changes = spark.createDataFrame(CHANGES, "id long, city string, price double, op string")
        job = {"commit_user": "offers", "commit_identifier": 1}  # a repeated job changes nothing
        for _ in range(2):
            snapshot = spark_ext.upsert(changes.coalesce(1), path, change_type="op", **job)
            print(f"snapshot {snapshot.id}: {snapshot.deltas.rows_added} rows written")

        rows = spark_ext.read_table(spark, path, filter="city != 'Bonn' OR id < 2")
        found = sorted(tuple(row) for row in rows.collect())
        spark_ext.compact(spark, path, full=True)  # merges what was written, a task a bucket
        count = spark_ext.read_table(spark, path, columns=["id"]).count()
    finally:
        spark.stop()

    print(f"{found}; {count} rows")
    expected = [(0, "Bonn", 0.0), (2, "Bergen", 2.0), (5_000, "Turku", 3.0)]
    right = (found, count, snapshot.id) == (expected, 1_000, 2)
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
