"""The program that tries cases on a small cluster: ``python -m ...program CASE ...``.

It runs in a directory that holds the tables, whose paths are relative: executors work elsewhere.
What each case raised, or null, is written to ``results.json``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import spark_ext
from tests.kit.spark.on_cluster import kills, uses

Case = Callable[[SparkSession], None]
CASES: dict[str, Case] = {
    case.__name__: case for case in (*uses.CASES, *kills.CASES, *kills.SLOW_CASES)
}
RESULTS = "results.json"
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_home(folder: Path) -> Path:
    """A Spark whose executors work below a folder, and not in the one that is installed.

    It lacks the archive of PySpark, from which each Python process would compile it again.
    """
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (folder / entry.name).symlink_to(entry)
    return folder


def session(scratch: Path) -> SparkSession:
    """Two executors of one core: JVMs of their own with a folder of their own for temporary files.

    They share nothing but the storage with the driver, and with each other.
    """
    os.environ["SPARK_HOME"] = str(spark_home(scratch / "home"))
    os.environ["SPARK_SCALA_VERSION"] = "2.13"
    temporary = scratch / "temporary"
    temporary.mkdir()
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {
        "ui.enabled": "false",
        "ui.showConsoleProgress": "false",
        "driver.host": "localhost",
        "driver.bindAddress": "127.0.0.1",
        "driver.memory": "512m",
        "executor.memory": "512m",
        "executor.extraJavaOptions": SMALL_JVM,
        "executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "executorEnv.TMPDIR": str(temporary),
        "local.dir": str(scratch / "local"),
        "locality.wait": "0",
        "task.maxFailures": "3",
        "scheduler.minRegisteredResourcesRatio": "1",
        "sql.execution.arrow.maxRecordsPerBatch": "500",
        "sql.adaptive.coalescePartitions.enabled": "false",
        "sql.shuffle.partitions": "4",
        "sql.warehouse.dir": str(scratch / "warehouse"),
    }.items():
        builder = builder.config("spark." + name, value)
    return spark_ext.configure(builder).getOrCreate()


def main(names: list[str]) -> None:
    """Try cases one after the other on one session."""
    scratch = Path("scratch").absolute()
    scratch.mkdir()
    spark = session(scratch)
    results = {}
    for name in names:
        started = time.monotonic()
        try:
            CASES[name](spark)
            results[name] = None
        except Exception:  # noqa: BLE001 - the test shows it
            results[name] = traceback.format_exc()
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        Path(RESULTS).write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
