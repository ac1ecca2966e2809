"""A stream into a table and a stream out of it: each row once, also when a query starts again.

python examples/spark_streams.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import spark_ext
from fermion_table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("kind", pa.string())])


def rows(start: int, stop: int) -> pa.Table:
    """Some events."""
    return pa.table({"id": range(start, stop), "kind": ["even", "odd"] * ((stop - start) // 2)})


def run(frame: DataFrame, target: Path, checkpoint: Path) -> None:
    """Append what a stream has now to a table, and stop."""
    writer = frame.writeStream.format("fermion").option("path", str(target))
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> int:
    """Copy the odd events as they come; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    events = Table.create(directory / "events", SCHEMA)
    odd = Table.create(directory / "odd", SCHEMA)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        for number in range(3):  # three runs of the query; each goes on where the last one stopped
            events.append(rows(number * 100, number * 100 + 100))
            stream = spark.readStream.format("fermion").option("maxFilesPerTrigger", 1)
            frame = stream.load(str(directory / "events")).where("kind = 'odd'")
            run(frame, directory / "odd", directory / "checkpoint")
            odd.refresh()
            print(f"run {number + 1}: {odd.snapshot.totals.live_rows} rows, {odd.snapshot.message}")
        run(frame, directory / "odd", directory / "checkpoint")  # nothing new: nothing is written
    finally:
        spark.stop()

    odd.refresh()
    found = sorted(odd.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    right = (found, odd.snapshot.id) == (list(range(1, 300, 2)), 3)
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
