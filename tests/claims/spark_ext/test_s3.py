"""Spark jobs on tables of Ceph's S3 gateway, by their URLs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions

import spark_ext
from fermion_table import Table

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.int64())])


def test_appends_upserts_compactions_and_reads(ceph_folder, ceph_cluster, spark):
    """Workers connect by themselves, with the storage options."""
    options = ceph_cluster.options()
    ids = spark.range(0, 400, numPartitions=4)
    frame = ids.select("id", (functions.col("id") % 8).alias("part"))
    plain, keyed = f"{ceph_folder}/plain", f"{ceph_folder}/keyed"
    Table.create(plain, SCHEMA, storage_options=options)
    for _ in range(2):
        spark_ext.append(frame, plain, storage_options=options)
    spark_ext.compact(spark, plain, storage_options=options)
    some = spark_ext.read_table(spark, plain, filter="id >= 390", storage_options=options)
    assert sorted(row.id for row in some.collect()) == sorted([*range(390, 400)] * 2)
    Table.create(
        keyed, SCHEMA, primary_key=["id"], properties={"bucket": "2"}, storage_options=options
    )
    spark_ext.upsert(frame, keyed, storage_options=options)
    changed = frame.where("id < 100").withColumn("part", functions.lit(-1))
    spark_ext.upsert(changed, keyed, storage_options=options)
    spark_ext.compact(spark, keyed, storage_options=options)
    read = spark_ext.read_table(spark, keyed, storage_options=options)
    found = {row.id: row.part for row in read.collect()}
    assert found == {n: -1 if n < 100 else n % 8 for n in range(400)}
    assert Table.open(keyed, storage_options=options).verify(data=True).ok
