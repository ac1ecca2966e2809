"""Changes of a primary-key table: read between two snapshots, and followed by a stream into a copy.

python examples/spark_changes.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.int64())])
LABELS = ("_commit_version", "_commit_timestamp")


def follow(spark: SparkSession, directory: Path) -> None:
    """Bring the copy up to date with what the table has now, and stop."""
    feed = spark.readStream.format("fermion").option("readChangeFeed", "true")
    changes = feed.load(str(directory / "offers")).drop(*LABELS)
    writer = changes.writeStream.format("fermion").option("changeType", "_change_type")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer = writer.option("path", str(directory / "copy")).trigger(availableNow=True)
    writer.start().awaitTermination()


def rows(table: Table) -> list[tuple[int, int]]:
    """What a table holds."""
    table.refresh()
    return sorted((row["id"], row["price"]) for row in table.scan().to_arrow().to_pylist())


def main() -> int:
    """Change a table, read what changed, keep a copy of it equal; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    offers, copy = (
        Table.create(directory / name, SCHEMA, primary_key=["id"], properties={"bucket": "2"})
        for name in ("offers", "copy")
    )
    offers.upsert({"id": range(100), "price": range(100)})

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        follow(spark, directory)  # the first run inserts all rows
        offers.upsert({"id": [1, 200], "price": [10, 20]})
        offers.delete_keys([2])
        changes = spark_ext.read_changes(spark, directory / "offers", 1)
        found = sorted(changes.drop("_commit_timestamp").collect())
        print(*found, sep="\n")
        follow(spark, directory)  # the second run goes on from the checkpoint
    finally:
        spark.stop()

    expected = [
        (1, 1, "update_preimage", 2),
        (1, 10, "update_postimage", 2),
        (2, 2, "delete", 3),
        (200, 20, "insert", 2),
    ]
    right = found == expected and rows(copy) == rows(offers) and copy.snapshot.id == 2
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
