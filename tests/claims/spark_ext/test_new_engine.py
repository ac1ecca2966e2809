"""A merge engine that only a file of the tests has works in Spark's driver and tasks, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

REGISTER = "from tests.kit.greatest import register\n\nregister()\n"
PROGRAM = """
import sys

import pyarrow as pa
import spark_ext
from fermion_table import Catalog
from pyspark.sql import SparkSession

warehouse = sys.argv[1]
spark = spark_ext.configure(SparkSession.builder.master("local[2]")).getOrCreate()
spark_ext.install_catalog(spark, "lake", warehouse=warehouse)
spark.sql(
    "CREATE TABLE lake.db.t (id BIGINT, n BIGINT) TBLPROPERTIES ('primary_key' = 'id', "
    "'merge_engine' = 'greatest', 'greatest.remove_record_on_delete' = 'true', 'bucket' = '2')"
)
table = Catalog.open(warehouse).table("db.t")
spark_ext.upsert(spark.createDataFrame([(1, 5), (2, 1)], "id BIGINT, n BIGINT"), table.location)
spark.sql("INSERT INTO lake.db.t VALUES (1, 3), (2, 9), (3, 4)")


def rows():
    return [tuple(row) for row in spark.sql("SELECT * FROM lake.db.t ORDER BY id").collect()]


assert rows() == [(1, 5), (2, 9), (3, 4)], rows()
spark.sql(
    "MERGE INTO lake.db.t t USING (SELECT 1 AS id, 2 AS n UNION ALL SELECT 7, 7) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *"
)
spark.sql("DELETE FROM lake.db.t WHERE id = 3")
expected = [(1, 2), (2, 9), (7, 7)]
assert rows() == expected, rows()
spark_ext.compact(spark, table.location, full=True)
assert rows() == expected, rows()
assert spark.sql("SELECT max(n), count(*) FROM lake.db.t").first() == (9, 3)
print("right")
"""


def test_spark_reads_writes_merges_and_compacts_by_it(
    tmp_path: Path, project: Path, project_environment: dict[str, str]
):
    """In a process of its own, whose interpreters all register the engine when they start."""
    (tmp_path / "sitecustomize.py").write_text(REGISTER)
    paths = os.pathsep.join([str(tmp_path), str(project), project_environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "warehouse")],
        env={**project_environment, "PYTHONPATH": paths},
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["right"], done.stderr[-3000:]
