"""Classes that a Spark driver loads, in an archive that later drivers map into memory.

``python -m tools.spark_classes FILE`` makes it, by a small session of all that tests do
most. To its first answers a driver's JVM took 6.4 s of CPU time with the archive and 12.7 s without
it. Java ignores an archive that another Java, or another version of Spark, has made.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
ARCHIVE = PROJECT / "build" / "spark-classes.jsa"

# Theirs are short lives, mostly spent on compiling: the first compiler alone, and one thread for
# garbage, take 40 % less CPU time. An archive that does not fit is no matter for a warning.
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def driver_options() -> str:
    """The options of a driver's JVM; with the archive, if it was made."""
    return f"{OPTIONS} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else OPTIONS


def make(path: Path) -> None:
    """Use tables in a session whose JVM writes an archive of its classes as it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{OPTIONS} -XX:ArchiveClassesAtExit={draft}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import spark_ext

    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        spark = spark_ext.configure(builder).getOrCreate()
        jvm = spark.sparkContext._gateway.proc
        spark.sparkContext.setLogLevel("OFF")
        rows = spark.range(10).selectExpr("id", "cast(id as string) as name")
        rows.write.format("fermion").mode("append").save(f"{folder}/t")
        read = spark.read.format("fermion").load(f"{folder}/t")
        read.where("id > 3").groupBy("name").count().collect()
        spark.stop()
        jvm.stdin.close()  # its end
        jvm.wait()
    draft.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An archive of the classes of a Spark driver.")
    parser.add_argument("file", type=Path, help="where the archive is written")
    make(parser.parse_args().file)
