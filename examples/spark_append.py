"""Append a Spark data frame: tasks write the files, the driver commits once, a retry is harmless.

python examples/spark_append.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession, functions

import spark_ext
from fermion_table import Table
from fermion_table.errors import SchemaMismatch

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


def main() -> int:
    """Append events twice, once successfully; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    path = directory / "events"
    Table.create(path, SCHEMA)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        events = spark.range(0, 100_000, numPartitions=4).select(
            "id",
            functions.when(functions.col("id") % 10 == 0, "open").otherwise("read").alias("kind"),
            functions.timestamp_seconds(functions.col("id")).alias("at"),
        )
        snapshot = spark_ext.append(
            events, path, commit_user="examples/spark_append", commit_identifier="2024-02-29"
        )
        again = spark_ext.append(
            events, path, commit_user="examples/spark_append", commit_identifier="2024-02-29"
        )
        print(f"snapshot {snapshot.id}, and {again.id} when the same run is repeated")
        try:
            spark_ext.append(events.withColumnRenamed("kind", "sort"), path)
        except SchemaMismatch as error:
            print(f"refused before any task ran: {error}")
        opened = spark_ext.read_table(spark, path, columns=["id"], filter="kind = 'open'").count()
    finally:
        spark.stop()

    totals = Table.open(path).snapshot.totals
    print(f"{totals.files} files, {totals.live_rows:,} rows, of which {opened:,} opened something")
    right = (snapshot.id, again.id, totals.live_rows, opened) == (1, 1, 100_000, 10_000)
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
