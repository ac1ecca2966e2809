"""Spark jobs on tables of a real HDFS, by their URLs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions

import spark_ext
from fermion_table import Table

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.int64())])


def test_appends_upserts_compactions_and_reads(hdfs_folder, spark):
    """Workers connect by themselves; nothing but the URL is handed to them."""
    ids = spark.range(0, 400, numPartitions=4)
    frame = ids.select("id", (functions.col("id") % 8).alias("part"))
    Table.create(f"{hdfs_folder}/plain", SCHEMA)
    for _ in range(2):
        spark_ext.append(frame, f"{hdfs_folder}/plain")
    spark_ext.compact(spark, f"{hdfs_folder}/plain")
    some = spark_ext.read_table(spark, f"{hdfs_folder}/plain", filter="id >= 390")
    assert sorted(row.id for row in some.collect()) == sorted([*range(390, 400)] * 2)
    keyed = f"{hdfs_folder}/keyed"
    Table.create(keyed, SCHEMA, primary_key=["id"], properties={"bucket": "2"})
    spark_ext.upsert(frame, keyed)
    spark_ext.upsert(frame.where("id < 100").withColumn("part", functions.lit(-1)), keyed)
    spark_ext.compact(spark, keyed)
    found = {row.id: row.part for row in spark_ext.read_table(spark, keyed).collect()}
    assert found == {n: -1 if n < 100 else n % 8 for n in range(400)}
    assert Table.open(keyed).verify(data=True).ok
