"""Reads mirrors with Spark and the jars of Delta and Iceberg, in an environment of its own.

``python read_with_spark.py JOBS.json JAR ...``: jobs as those of `read_with_duckdb`; of Delta
``snapshot`` is a version. It imports nothing of this project.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.jars", ",".join(sys.argv[2:]))
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    .config("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")  # dates before 1582
    .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    .getOrCreate()
)
for job in json.loads(Path(sys.argv[1]).read_text()):
    reader = spark.read.format(job["kind"])
    if job["snapshot"] is not None:
        name = "versionAsOf" if job["kind"] == "delta" else "snapshot-id"
        reader = reader.option(name, job["snapshot"])
    rows = reader.load(job["location"])
    if job.get("where"):
        rows = rows.where(job["where"])
    rows.coalesce(1).write.parquet(job["out"])
spark.stop()
