"""Compaction of primary-key tables on Spark: a tree is a task."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import spark_ext
from fermion_table import Table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def table_of_runs(path) -> Table:
    """Two buckets of three runs; of the first one two files overlap no others."""
    table = Table.create(path, SCHEMA, primary_key=["k"], properties={"bucket": "2"})
    for n in range(3):
        table.upsert({"k": range(100 * n, 100 * n + 10), "v": [n] * 10})
    table.upsert({"k": range(10), "v": [7] * 10})
    return table


def data_files(path) -> set[str]:
    return {str(file.relative_to(path)) for file in (path / "data").rglob("*") if file.is_file()}


def test_runs_of_every_tree_become_one(spark, table_path):
    table = table_of_runs(table_path)
    before = table.scan().to_arrow().sort_by("k")
    assert spark_ext.compact(spark, table_path).groups == 0
    planned = spark_ext.compact(spark, table_path, full=True, target_size=1, dry_run=True)
    assert (planned.groups, planned.files_upgraded) == (2, 4)
    result = spark_ext.compact(spark, table_path, full=True, target_size=1)
    assert (result.groups, result.files_upgraded, len(result.snapshots)) == (2, 4, 1)
    table.refresh()
    assert table.scan().to_arrow().sort_by("k").equals(before)
    assert spark_ext.compact(spark, table_path, full=True).groups == 0
    assert table.verify(data=True).ok


def test_a_failing_task_deletes_no_file_that_only_moved(spark, table_path):
    """One tree is done and the other one's file is corrupt: all files that there were stay."""
    table = table_of_runs(table_path)
    before = data_files(table_path)
    (_, task) = table.plan_compaction(full=True, target_size=1)
    assert task.upgraded
    broken = task.group.entries[0].path
    content = (table_path / broken).read_bytes()
    (table_path / broken).write_bytes(b"x" * len(content))
    with pytest.raises(PySparkException):
        spark_ext.compact(spark, table_path, full=True, target_size=1)
    # Files of a task whose result the driver never got are orphans: they may be left.
    assert before <= data_files(table_path)
    (table_path / broken).write_bytes(content)
    assert Table.open(table_path).verify(data=True).ok
