"""Compact many small files with Spark: tasks rewrite groups of files, no row passes the JVM.

python examples/spark_compaction.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table

FILES, ROWS_PER_FILE = 24, 1_000


def main() -> int:
    """Make small files, compact them, compare; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    path = directory / "small"
    table = Table.create(
        path, pa.schema([("n", pa.int64()), ("half", pa.int64())]), partition_by="half"
    )
    for number in range(FILES):
        values = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        table.append(pa.table({"n": values, "half": [number % 2] * ROWS_PER_FILE}))
    before = table.snapshot

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        plan = spark_ext.compact(spark, path, dry_run=True)
        print(f"planned: {plan}")
        result = spark_ext.compact(spark, path)
        print(f"done:    {result}")
        total = spark_ext.read_table(spark, path, columns=["n"]).groupBy().sum("n").collect()[0][0]
    finally:
        spark.stop()

    table = Table.open(path)
    after = table.snapshot
    print(f"{before.totals.files} files became {after.totals.files}, one for each partition")
    rows = FILES * ROWS_PER_FILE
    same_before = table.scan(snapshot_id=before.id).count() == rows
    right = (after.totals.files, total, same_before) == (2, rows * (rows - 1) // 2, True)
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
