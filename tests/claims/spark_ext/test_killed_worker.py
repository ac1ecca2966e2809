"""Python workers killed without warning, when their files are written and nobody knows of them yet.

Spark runs their tasks again. What the killed ones wrote is left over, and nothing refers to it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.kit.spark.programs import run_program

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
ROWS = 1_000

# Classes of the program itself travel to the workers by value.
DRIVER = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
import spark_ext
from spark_ext.maintenance import compaction
from spark_ext.writing import job as writing
from spark_ext.datasource.source import FermionDataSource
from spark_ext.options import parse_options
from spark_ext.datasource.stream import FermionStreamWriter

directory = sys.argv[1]

def die_once(where):
    marker = Path(directory, where + ".died")
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

class DyingWriteTask(writing.WriteTask):
    def write(self, batches):
        messages = super().write(batches)
        die_once("append")
        return messages

class DyingRewrite(compaction._Rewrite):
    def __call__(self, number):
        message = super().__call__(number)
        die_once("compact")
        return message

class DyingStreamWriter(FermionStreamWriter):
    def write(self, iterator):
        message = super().write(iterator)
        die_once("stream")
        return message

class DyingSource(FermionDataSource):
    def streamWriter(self, schema, overwrite):
        return DyingStreamWriter(parse_options(self.options), schema)

builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "localhost").config("spark.driver.memory", "512m")
spark = spark_ext.configure(builder).getOrCreate()
writing.WriteTask = DyingWriteTask
compaction._Rewrite = DyingRewrite
spark.dataSource.register(DyingSource)

spark_ext.append(spark.range(0, 1_000, numPartitions=2), f"{directory}/table")
stream = spark.readStream.format("fermion").load(f"{directory}/table")
writer = stream.writeStream.format("fermion").option("path", f"{directory}/copy")
writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
spark_ext.compact(spark, f"{directory}/table")
spark.stop()
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory, project_environment) -> Path:
    """Where the program has run to its end, and which worker died where."""
    made = tmp_path_factory.mktemp("killed")
    for name in ("table", "copy"):
        Table.create(made / name, SCHEMA)
    run_program(["-c", DRIVER, str(made)], made, project_environment)
    return made


@pytest.mark.parametrize(
    ("where", "name", "version", "snapshots", "left_over"),
    [
        ("append", "table", 1, 2, 2),
        ("stream", "copy", 1, 1, 1),
        ("compact", "table", 2, 2, 2),
    ],
)
def test_rows_are_there_once_after_a_worker_was_killed(
    directory, where, name, version, snapshots, left_over
):
    """In the table both the append and the compaction left a file that nothing refers to."""
    assert (directory / f"{where}.died").exists()
    table = Table.open(directory / name, version=version)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(ROWS))
    latest = Table.open(directory / name)
    assert latest.snapshot.id == snapshots
    assert latest.verify(data=True).ok
    known = {
        entry.path
        for number in range(snapshots + 1)
        for entry in latest.scan(snapshot_id=number).entries[0]
    }
    found = [file for file in (directory / name / "data").rglob("*.fermion") if file.is_file()]
    assert len(found) - len(known) == left_over
