"""Batches written by Spark: each whole, in one file, in the frame's order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import fermion
import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.session import settings

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())])
BATCHES, ROWS = 20, 2_000


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """A table of 20 batches of 100 rows, which the frame held interleaved in 4 partitions."""
    path = tmp_path_factory.mktemp("batches") / "table"
    Table.create(path, SCHEMA)
    frame = spark.range(0, ROWS, numPartitions=4).select(
        functions.col("id").alias("n"),
        (functions.col("id") % BATCHES).cast("int").alias("group"),
        functions.format_string("t%d", "id").alias("text"),
    )
    # Spark would put partitions this small together again.
    with settings(spark, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        spark_ext.append(frame, path, batch_id_column="group")
    return Table.open(path)


def test_every_batch_is_found_by_its_id_in_the_frames_order(written):
    for number in range(BATCHES):
        batch = written.lookup_batch(number)
        assert batch["n"].to_pylist() == list(range(number, ROWS, BATCHES))
        assert batch["text"].to_pylist() == [f"t{n}" for n in range(number, ROWS, BATCHES)]


def test_each_batch_lies_in_one_file_and_files_span_disjoint_ids(written):
    spans = []
    for split in written.scan().plan().splits:
        with fermion.open(split.location) as file:
            ids = set(file.read(["batch_id"])["batch_id"].to_pylist())
        spans.append((min(ids), max(ids), len(ids)))
    spans.sort()
    assert len(spans) == 2
    assert sum(count for _, _, count in spans) == BATCHES
    assert spans[0][1] < spans[1][0]


def test_the_column_that_only_numbers_batches_is_not_stored(written):
    assert written.schema.names == ["n", "text"]
    assert written.snapshot.totals.rows == ROWS


def test_a_batch_is_read_into_a_frame_alone(spark, written):
    frame = spark_ext.read_table(
        spark, written.location, batch_id=7, columns=["batch_id", "index_in_batch", "n"]
    )
    found = sorted(tuple(row) for row in frame.collect())
    assert found == [(7, place, 7 + BATCHES * place) for place in range(ROWS // BATCHES)]


def test_the_column_is_stored_too_if_the_table_has_it(spark, table_path):
    table = Table.create(table_path, pa.schema([("year", pa.int16()), ("n", pa.int64())]))
    frame = spark.createDataFrame([(2001, 1), (2000, 2), (2001, 3)], "year short, n long")
    spark_ext.append(frame, table_path, batch_id_column="year")
    table.refresh()
    assert table.lookup_batch(2001).to_pylist() == [{"year": 2001, "n": 1}, {"year": 2001, "n": 3}]


def test_rows_need_batch_ids_and_ids_are_integers(spark, table_path):
    table = Table.create(table_path, pa.schema([("n", pa.int64())]))
    frame = spark.createDataFrame([(1, 5), (None, 6)], "b int, n long")
    with pytest.raises(PySparkException, match="'b' holds 1 nulls"):
        spark_ext.append(frame, table_path, batch_id_column="b")
    with pytest.raises(InvalidArgumentError, match="no such column; it has b, n"):
        spark_ext.append(frame, table_path, batch_id_column="c")
    with pytest.raises(InvalidArgumentError, match="'b' is string; expected integers"):
        spark_ext.append(frame.withColumn("b", functions.lit("x")), table_path, batch_id_column="b")
    assert table.refresh().id == 0
