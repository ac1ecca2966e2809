"""`write` makes a table that appears with its rows, or not at all; and writes go to branches."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, TableExists, VersionNotFound
from fermion_table.engine import StagedTable
from tests.kit.spark.counting import tasks_started

SCHEMA = pa.schema([("id", pa.int64())])


def ids(path, **which):
    return sorted(Table.open(path, **which).scan().to_arrow()["id"].to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_failing_query_leaves_no_new_table(spark, table_path, mode):
    """It fails late, after rows that were good; an empty folder would be found too."""
    frame = spark.range(0, 10, 1, 1).withColumn(
        "id", functions.expr("if(id = 9, raise_error('no good'), id)")
    )
    with pytest.raises(PySparkException, match="no good"):
        spark_ext.write(frame, table_path, mode=mode)
    assert not table_path.exists()


@pytest.mark.spark
def test_a_table_that_another_writer_makes_meanwhile_is_appended_to_or_kept(
    spark, table_path, monkeypatch
):
    """The table appears when the tasks are done: rows are written again, or it is an error."""
    commit = StagedTable.commit

    def late(staged, *arguments, **keywords):
        Table.create(table_path, SCHEMA, mode="overwrite").append({"id": [7]})
        return commit(staged, *arguments, **keywords)

    monkeypatch.setattr(StagedTable, "commit", late)
    assert spark_ext.write(spark.range(2), table_path, mode="append").id == 2
    assert ids(table_path) == [0, 1, 7]
    assert len(list((table_path / "data").iterdir())) == 3
    other = table_path.with_name("other")
    table_path = other
    with pytest.raises(TableExists):
        spark_ext.write(spark.range(2), other)
    assert ids(other) == [7]
    assert len(list((other / "data").iterdir())) == 1


@pytest.mark.spark
def test_a_frame_without_rows_makes_a_table_whose_commit_is_found_again(spark, table_path):
    words = {"commit_user": "job", "commit_identifier": 1, "properties": {"a": "b"}}
    made = spark_ext.write(spark.range(0), table_path, mode="append", **words)
    assert (made.id, made.properties) == (1, {"a": "b"})
    assert spark_ext.write(spark.range(3), table_path, mode="append", **words) == made


@pytest.mark.spark
def test_options_that_a_new_table_cannot_follow_are_refused_before_any_task(spark, table_path):
    def run():
        for error, mode, options in (
            (ColumnNotFoundError, "overwrite", {"filter": "nothing = 1"}),
            (InvalidArgumentError, "overwrite", {"dynamic": True}),
            (TypeError, "append", {"filter": "id = 1"}),
            (InvalidArgumentError, "append", {"branch": "dev"}),
            (InvalidArgumentError, "append", {"batch_id_column": "nothing"}),
        ):
            (name,) = options
            with pytest.raises(error, match=name):
                spark_ext.write(spark.range(2), table_path, mode=mode, **options)

    assert tasks_started(spark, run) == 0
    assert not table_path.exists()


@pytest.mark.spark
def test_functions_write_to_the_branch_that_they_are_told(spark, table_path):
    """Append, a merge of columns, and overwrite; main stays, and no branch is made."""
    table = Table.create(table_path, SCHEMA)
    table.append({"id": [1]})
    table.branches.create("dev")
    wider = spark.range(2, 3).withColumn("more", functions.lit(5))
    made = spark_ext.append(wider, table_path, branch="dev", schema_mode="merge")
    assert made.branch == "dev"
    assert ids(table_path, branch="dev") == [1, 2]
    spark_ext.overwrite(wider, table_path, filter="id = 1", branch="dev")
    assert ids(table_path, branch="dev") == [2, 2]
    spark_ext.write(wider, table_path, mode="append", branch="dev")
    assert ids(table_path, branch="dev") == [2, 2, 2]
    assert ids(table_path) == [1]
    assert table.refresh().id == 1
    for call in (spark_ext.append, spark_ext.overwrite):
        with pytest.raises(VersionNotFound, match="no branch 'other'"):
            call(wider, table_path, branch="other")
