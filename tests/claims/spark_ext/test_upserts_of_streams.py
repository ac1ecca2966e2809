"""Streams into primary-key tables: each micro-batch is upserted once, in a defined order."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.datasource import stream
from spark_ext.datasource.source import FermionDataSource
from spark_ext.datasource.stream import FermionStreamWriter
from spark_ext.types import spark_schema
from spark_ext.versions import READ_LIMITS, SPARK
from tests.kit.tables.change_histories import SCHEMA as HISTORY
from tests.kit.tables.change_histories import random_table

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
CHANGES = pa.schema([*SCHEMA, ("op", pa.string())])
FRAME = spark_schema(CHANGES, where="test")


def keyed(path: Path, **properties: str) -> Table:
    return Table.create(path, SCHEMA, primary_key=["k"], properties={"bucket": "2", **properties})


def sink(table: Table, schema: Any = FRAME, **options: str) -> FermionStreamWriter:
    source = FermionDataSource({"path": table.location, "changeType": "op", **options})
    writer = source.streamWriter(schema, overwrite=False)
    assert isinstance(writer, FermionStreamWriter)
    return writer


def changes(*rows: tuple[int, int | None, str]) -> list[pa.RecordBatch]:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGES, strict=True)]
    return [pa.RecordBatch.from_arrays(arrays, schema=CHANGES)]


def rows(table: Table) -> dict[int, int]:
    table.refresh()
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def files(table: Table) -> int:
    return len([item for item in table.store.list("data") if not item.path.endswith("/")])


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers find themselves in tasks of one query."""
    context = SimpleNamespace(getLocalProperty=lambda _: "query")
    monkeypatch.setattr(stream, "TaskContext", SimpleNamespace(get=lambda: context))


def test_later_tasks_are_newer_and_the_same_micro_batch_is_written_once(table_path, in_task):
    """Both tasks write all trees; their messages come in the order of the tasks' numbers."""
    table = keyed(table_path)
    writer = sink(table)
    keys = range(20)
    second = writer.write(iter(changes(*((k, 20 + k, "+U") for k in keys), (3, None, "-D"))))
    first = writer.write(iter(changes(*((k, k, "+I") for k in keys), (5, 99, "+U"))))
    writer.commit([first, writer.write(iter([])), second], 4)
    expected = {k: 20 + k for k in keys if k != 3}
    assert rows(table) == expected
    assert (table.snapshot.id, table.snapshot.commit_user) == (1, "query")
    known = files(table)
    again = [writer.write(iter(changes((k, 7, "+I")))) for k in keys]
    sink(table).commit(again, 4)  # after a restart, with other files
    assert (rows(table), table.snapshot.id, files(table)) == (expected, 1, known)
    sink(table).commit([writer.write(iter(changes((7, 0, "delete"))))], 5)
    assert rows(table) == {k: v for k, v in expected.items() if k != 7}
    writer.commit([writer.write(iter([]))], 6)
    assert table.refresh().id == 2


def test_sequence_fields_decide_between_tasks(table_path, in_task):
    table = keyed(table_path, **{"sequence.field": "v"})
    writer = sink(table)
    tasks = [writer.write(iter(changes((1, v, "+I"), (2, v, "+I")))) for v in (3, 9, 5)]
    writer.commit(tasks, 0)
    assert rows(table) == {1: 9, 2: 9}


def test_a_micro_batch_of_which_a_task_fails_leaves_nothing(table_path, in_task):
    table = keyed(table_path)
    writer = sink(table)
    done = writer.write(iter(changes((1, 1, "+I"))))
    with pytest.raises(InvalidArgumentError, match="renamed"):
        writer.write(iter(changes((2, 2, "+I"), (3, 3, "renamed"))))
    assert files(table) == 1
    writer.abort([done, None], 0)
    assert (rows(table), table.snapshot.id, files(table)) == ({}, 0, 0)


def test_a_change_type_that_does_not_fit_is_refused_before_any_task(tmp_path):
    table = keyed(tmp_path / "keyed")
    plain = Table.create(tmp_path / "plain", SCHEMA)
    for target, options, said in (
        (plain, {}, "option changeType.*primary key"),
        (table, {"changeType": "kind"}, "change_type='kind'.*one column of this name"),
        (table, {"changeType": "v"}, "change_type='v'.*beside those of the table"),
        (table, {"mergeSchema": "true"}, "mergeSchema has no meaning in a stream write"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            sink(target, **options)
    batch = FermionDataSource({"path": table.location, "changeType": "op"})
    with pytest.raises(InvalidArgumentError, match="changeType needs mode append"):
        batch.writer(FRAME, overwrite=True)


@pytest.mark.long
@pytest.mark.spark
def test_a_stream_of_changes_upserted_into_a_copy_keeps_it_equal(spark, tmp_path):
    """The second run repeats a micro-batch first: Spark has forgotten that it was committed."""
    source = random_table(tmp_path / "source", "deduplicate", commits=3, seed=5)
    settings = {"bucket": "3"}
    copy = Table.create(tmp_path / "copy", HISTORY, primary_key=["p", "k"], properties=settings)

    def run_once() -> None:
        feed = spark.readStream.format("fermion").option("readChangeFeed", "true")
        rows = feed.load(source.location).drop("_commit_version", "_commit_timestamp")
        writer = rows.writeStream.format("fermion")
        writer = writer.option("changeType", "_change_type").option("path", copy.location)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    def compare() -> None:
        copy.refresh()
        found, wanted = (sorted(map(repr, t.scan().to_arrow().to_pylist())) for t in (copy, source))
        assert found == wanted

    run_once()
    compare()
    assert copy.snapshot.id == 1
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    source.upsert({"p": [0, 1], "k": [1, 2], "v": [7, 8], "s": ["x", "y"]})
    source.delete("k = 1")
    run_once()
    if not SPARK.has(READ_LIMITS):  # a run that has repeated a micro-batch ends after it
        assert copy.refresh().id == 1
        run_once()
    compare()
    assert [each.commit_identifier for each in copy.snapshots()] == [None, 0, 1]


@pytest.mark.spark
def test_batches_take_changes_and_give_them(spark, table_path):
    table = keyed(table_path)
    frame = spark.createDataFrame([(k, k * 10) for k in range(4)], "k long, v long")
    frame = frame.withColumn("op", functions.lit("+I")).coalesce(1)
    write = frame.write.format("fermion").mode("append").option("changeType", "op")
    write.save(table.location)
    gone = frame.where("k = 2").withColumn("op", functions.lit("delete"))
    gone.write.format("fermion").mode("append").option("changeType", "op").save(table.location)
    assert rows(table) == {0: 0, 1: 10, 3: 30}
    waiting = functions.udf(lambda v: time.sleep(2) if v == 100 else None, "string")
    several = spark.range(100, 116).selectExpr("id % 4 AS k", "id AS v")  # k in every task
    several = several.repartitionByRange(4, "v").withColumn("op", waiting("v"))
    several = several.withColumn("op", functions.coalesce("op", functions.lit("+U")))
    several.write.format("fermion").mode("append").option("changeType", "op").save(table.location)
    assert rows(table) == {k: 112 + k for k in range(4)}  # the first task ends last
    feed = spark.read.format("fermion").option("readChangeFeed", "true")
    feed = feed.option("startingSnapshotId", 1).option("endingSnapshotId", 2).load(table.location)
    assert feed.select("k", "v", "_change_type", "_commit_version").collect() == [
        (2, 20, "delete", 2)
    ]
    with pytest.raises(PySparkException, match="needs startingSnapshotId"):
        spark.read.format("fermion").option("readChangeFeed", "true").load(table.location).count()
    with pytest.raises(PySparkException, match="startingSnapshotId of a batch read needs readCh"):
        spark.read.format("fermion").option("startingSnapshotId", 1).load(table.location).count()
