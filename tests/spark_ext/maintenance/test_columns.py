"""Columns with values on Spark: a task a file, failures, and every way of reading the result."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import ColumnFunctionError, Table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
NEW = pa.schema([("twice", pa.int64())])
FILES, ROWS = 6, 4
BROKEN = 4


def made(path: Path, files: int) -> Table:
    """Files of four rows each, made by one commit; row 1 is deleted."""
    table = Table.create(path, SCHEMA, partition_by="part", durability="fast")
    ids = range(files * ROWS)
    table.append(pa.table({"id": ids, "part": [f"{each // ROWS:03}" for each in ids]}, SCHEMA))
    table.delete("id = 1")
    return table


def double(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"twice": pc.multiply(rows["id"], 2)}


def test_one_file_of_many_fails_and_is_computed_later(spark, table_path, tmp_path):
    """What fails is named; nothing is published; the other files are not computed again."""
    table = made(table_path, FILES)
    before = table.snapshot
    calls = tmp_path / "calls"
    calls.mkdir()

    def broken(rows: pa.RecordBatch) -> dict[str, pa.Array]:
        first = rows["id"][0].as_py()
        (calls / f"{first // ROWS}-{uuid.uuid4()}").touch()
        if first == BROKEN * ROWS + 2:
            raise RuntimeError("no values")
        return double(rows)

    def called() -> list[int]:
        found = sorted(int(each.name.partition("-")[0]) for each in calls.iterdir())
        for each in calls.iterdir():
            each.unlink()
        return found

    arguments = {"read": ["id"], "schema": NEW, "batch_rows": 2}
    with pytest.raises(ColumnFunctionError, match="RuntimeError: no values") as caught:
        spark_ext.add_columns_with(spark, table_path, broken, **arguments)
    error = caught.value
    assert error.file in str(error)
    assert f"part={BROKEN:03}" in error.file
    assert error.rows == (2, 4)
    assert len(error.finished) == FILES - 1
    assert Table.open(table_path).snapshot == before
    assert set(called()) == set(range(FILES))

    steps = []
    snapshot = spark_ext.add_columns_with(
        spark, table_path, double, resume=error.finished, message="doubled",
        progress=lambda done, total: steps.append((done, total)), **arguments,
    )  # fmt: skip
    assert called() == []
    assert steps == [(FILES, FILES)]
    assert (snapshot.kind, snapshot.message) == ("upsert", "doubled")
    expected = {each: 2 * each for each in range(FILES * ROWS) if each != 1}
    table.refresh()
    columns = table.scan(columns=["id", "twice"]).to_arrow().to_pydict()
    assert dict(zip(columns["id"], columns["twice"], strict=True)) == expected
    assert table.verify(data=True).ok


def test_tasks_compute_sql(spark, table_path):
    """What is read follows from it; a value that does not fit names the file and the rows."""
    table = made(table_path, 3)
    spark_ext.add_columns_with(spark, table_path, {"twice": "id + len(part) - 3 + id"}, schema=NEW)
    table.refresh()
    columns = table.scan(columns=["id", "twice"]).to_arrow().to_pydict()
    assert columns["twice"] == [2 * each for each in columns["id"]]
    small = pa.schema([("small", pa.int8())])
    with pytest.raises(ColumnFunctionError, match="rows 0 to 3 of data/part=002"):
        spark_ext.add_columns_with(spark, table_path, {"small": "id * 13"}, schema=small)
    with pytest.raises(InvalidArgumentError, match="aggregate"):
        spark_ext.add_columns_with(spark, table_path, {"small": "sum(id)"}, schema=small)


def test_rows_change_meanwhile(spark, table_path):
    """The driver plans again for files that changed; wrong arguments are refused."""
    table = made(table_path, 3)
    path = str(table_path)

    def delays(rows: pa.RecordBatch) -> dict[str, pa.Array]:
        other = Table.open(path, durability="fast")
        if other.snapshot.id == 2:
            try:
                other.update("id = 4", {"id": 104}, commit_user="u", commit_identifier=1)
            except Exception as error:  # another task did it
                raise AssertionError("not concurrent") from error
        return double(rows)

    spark_ext.add_columns_with(spark, table_path, delays, read=["id"], schema=NEW)
    table.refresh()
    columns = table.scan(columns=["id", "twice"]).to_arrow().to_pydict()
    assert columns["twice"] == [2 * each for each in columns["id"]]
    assert 104 in columns["id"]
    with pytest.raises(InvalidArgumentError, match="'twice' is there already"):
        spark_ext.add_columns_with(spark, table_path, double, read=["id"], schema=NEW)
    with pytest.raises(TypeError, match="function"):
        spark_ext.add_columns_with(spark, table_path, None, read=["id"], schema=NEW)
    files = {each.path for each in table.store.list("data")}
    live = {
        each.path
        for number in range(table.snapshot.id + 1)
        for entry in table.scan(snapshot_id=number).entries[0]
        for each in (entry, *entry.column_files)
    }
    assert len(files - live) <= 1  # the columns of the file that changed, at most


@pytest.mark.services
def test_functions_the_format_and_streams_read_column_files(spark, table_path, tmp_path):
    table = made(table_path, 2)
    spark_ext.add_columns_with(spark, table_path, double, read=["id"], schema=NEW)
    table.refresh()
    columns = table.scan(columns=["id", "twice"]).to_arrow()
    for frame in (
        spark.read.format("fermion").load(str(table_path)).filter("twice < 8"),
        spark_ext.read_table(spark, table_path, columns=["id", "twice"], filter="twice < 8"),
    ):
        found = frame.select("id", "twice").collect()
        assert sorted(map(tuple, found)) == [(0, 0), (2, 4), (3, 6)]
    stream = spark.readStream.format("fermion").load(str(table_path))
    writer = stream.writeStream.format("fermion").option("path", str(tmp_path / "copy"))
    Table.create(tmp_path / "copy", table.scan().schema)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    copied = Table.open(tmp_path / "copy").scan(columns=["id", "twice"]).to_arrow()
    assert copied.sort_by("id") == columns.sort_by("id")


@pytest.mark.services
def test_sql_reads_and_changes_column_files(spark, tmp_path):
    """Filters and aggregates in tasks, and every statement that changes rows."""
    table = made(tmp_path / "lake" / "t", 3)
    spark_ext.add_columns_with(spark, table.location, double, read=["id"], schema=NEW)
    spark_ext.install_catalog(spark, "evolved", tmp_path / "lake")
    model = {each: 2 * each for each in range(3 * ROWS) if each != 1}

    def check() -> None:
        found = spark.sql("SELECT id, twice FROM evolved.t").collect()
        assert dict(map(tuple, found)) == model
        few = spark.sql("SELECT count(*), sum(id) FROM evolved.t WHERE twice > 9").collect()[0]
        chosen = [key for key, value in model.items() if value > 9]
        assert tuple(few) == (len(chosen), sum(chosen))

    check()
    spark.sql("UPDATE evolved.t SET twice = twice + 1 WHERE id % 2 = 0")
    model.update({key: value + 1 for key, value in model.items() if key % 2 == 0})
    check()
    spark.sql("DELETE FROM evolved.t WHERE twice = 6")
    del model[3]
    check()
    spark.sql(
        "MERGE INTO evolved.t USING (SELECT 4L id, 0L value UNION SELECT 99L, 1L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET twice = value "
        "WHEN NOT MATCHED THEN INSERT (id, part, twice) VALUES (s.id, 'new', value)"
    )
    model.update({4: 0, 99: 1})
    check()
    table.refresh()
    assert table.verify(data=True).ok


@pytest.mark.services
def test_a_killed_worker_takes_the_job_with_it_or_nothing(spark, table_path):
    """In a local session tasks are not tried again: the job fails, and publishes nothing."""
    table = made(table_path, 3)
    before = table.snapshot

    def dies(rows: pa.RecordBatch) -> dict[str, pa.Array]:
        if 5 in rows["id"].to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return double(rows)

    with pytest.raises(Exception, match=r"Job aborted|crashed") as caught:
        spark_ext.add_columns_with(spark, table_path, dies, read=["id"], schema=NEW)
    assert any("nothing of this job was published" in note for note in caught.value.__notes__)
    assert Table.open(table_path).snapshot == before
    spark_ext.add_columns_with(spark, table_path, double, read=["id"], schema=NEW)
    assert Table.open(table_path).scan(filter="twice = 10").count() == 1
