"""Parquet files into a table and back, by Spark tasks, without the JVM looking at a row.

python examples/spark_conversion.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table

YEARS, ROWS_PER_FILE = (2023, 2024), 5_000


def main() -> int:
    """Convert there and back, compare; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    source, path, target = directory / "source", directory / "table", directory / "back"
    for year in YEARS:  # a directory such as Spark and Hive write
        (source / f"year={year}").mkdir(parents=True)
        for part in range(2):
            first = part * ROWS_PER_FILE
            rows = {"id": range(first, first + ROWS_PER_FILE), "half": [year / 2] * ROWS_PER_FILE}
            pq.write_table(pa.table(rows), source / f"year={year}" / f"{part}.parquet")

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        name = {"commit_user": "examples", "commit_identifier": "source"}
        snapshot = spark_ext.from_parquet(spark, source, path, partition_by="year", **name)
        again = spark_ext.from_parquet(spark, source, path, **name)  # a retry changes nothing
        result = spark_ext.to_parquet(spark, path, target, filter="year = 2024")
        # Any reader of Parquet takes it from here.
        total = spark.read.parquet(str(target)).selectExpr("sum(half)").collect()[0][0]
    finally:
        spark.stop()

    table = Table.open(path)
    totals = table.snapshot.totals
    print(f"{totals.files} files, {totals.live_rows:,} rows in the table")
    print(f"{result.files} files, {result.rows:,} rows back in Parquet")
    expected = 2 * ROWS_PER_FILE
    right = (
        (snapshot.id, again.id, table.snapshot.totals.live_rows) == (1, 1, 2 * expected)
        and (result.rows, total) == (expected, expected * 1012.0)
        and (target / "_SUCCESS").exists()
    )
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
