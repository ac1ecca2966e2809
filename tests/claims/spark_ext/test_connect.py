"""format("fermion") for a client of Spark Connect: reads, writes, and what is not offered there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.conftest import ON_CI
from tests.kit.spark.counting import destroyed_columns, files_away
from tests.kit.spark.served import served

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])

# A server on this machine, and its client: the process has no JVM of its own to reach into.
CLIENT = """
import sys
from pyspark.sql import SparkSession
import spark_ext
from spark_ext.errors import UnsupportedBySpark
from spark_ext.versions import BARE_ROWS, SPARK

path, url = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "localhost")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__
try:
    read = spark.read.format("fermion").option("columns", "id").option("filter", "id < 10")
    assert sorted(row.id for row in read.load(path).collect()) == list(range(10))
    assert sorted(row.id for row in read.load(url).collect()) == list(range(10))
    if SPARK.has(BARE_ROWS):
        counted = spark.read.format("fermion").option("columns", "[]").load(path).count()
        assert counted == 20, counted  # the file that is away too: no data file is opened
    frame = spark.range(100, 105).selectExpr("id", "concat('n', id) name")
    frame.write.format("fermion").mode("append").save(path)
    frame.write.format("fermion").mode("overwrite").option("replaceWhere", "id >= 100").save(path)
    schema = spark.read.format("fermion").load(path).schema.simpleString()
    assert schema == "struct<id:bigint,name:string>", schema
    for refused in (
        lambda: spark_ext.read_table(spark, path),
        lambda: spark_ext.append(frame, path),
        lambda: spark_ext.install_catalog(spark, "lake", path),
    ):
        try:
            refused()
        except UnsupportedBySpark as error:
            assert 'format("fermion")' in str(error)
        else:
            raise AssertionError("not refused")
finally:
    spark.stop()
"""


def test_a_client_reads_what_it_asks_for_and_writes(table_path, tmp_path, project_environment):
    """The second file is away, the first one's names are destroyed: neither is read.

    Over HTTP the requests for data files are those that a scan of the same rows makes.
    """
    if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None:
        (pytest.fail if ON_CI else pytest.skip)("Spark Connect needs grpcio (group dev)")
    table = Table.create(table_path, SCHEMA)
    for start in (0, 10):
        names = [f"n{i}" for i in range(start, start + 10)]
        table.append(pa.table({"id": range(start, start + 10), "name": names}, SCHEMA))
    with (
        destroyed_columns(table, [("id",)]),
        files_away(table, "id >= 10"),
        served(table_path.parent) as server,
    ):
        url = f"{server.url}/{table_path.name}"
        assert Table.open(url).scan(columns=["id"], filter="id < 10").to_arrow().num_rows == 10
        expected = server.taken()
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, str(table_path), url],
            cwd=tmp_path,
            env=project_environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.taken() == expected
    table.refresh()
    assert (table.snapshot.id, table.snapshot.kind) == (4, "overwrite")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*range(20), *range(100, 105)]
