"""Two attempts of one task, both of which write their files: the rows are in the table once.

Spark starts second attempts on other hosts alone, so there is a cluster: a master and two workers,
at two addresses of the loopback interface, each with an executor of one core.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from fermion_table import Table
from tests.kit.spark.programs import run_program

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.int64())])
ROWS = 1_000
HOSTS = ("127.0.0.1", "127.0.0.2")

# Classes of the program itself travel to the workers by value.
DRIVER = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession, functions
import spark_ext
from spark_ext.maintenance import compaction
from spark_ext.writing import job as writing

master, directory = sys.argv[1], Path(sys.argv[2])

def wait_for_the_other_attempt(job):
    context = TaskContext.get()
    if context.partitionId() != 0:
        return
    directory.joinpath(f"{job}.{context.attemptNumber()}").touch()
    deadline = time.monotonic() + 60
    while len(list(directory.glob(f"{job}.*"))) < 2:
        assert time.monotonic() < deadline, "there was no second attempt"
        time.sleep(0.02)

class TwiceWritten(writing.WriteTask):
    def write(self, batches):
        messages = super().write(batches)
        wait_for_the_other_attempt("append")
        return messages

class TwiceRewritten(compaction._Rewrite):
    def __call__(self, number):
        message = super().__call__(number)
        wait_for_the_other_attempt("compact")
        return message

builder = SparkSession.builder.master(master)
for name, value in {
    "ui.enabled": "false",
    "driver.host": "127.0.0.1",
    "driver.memory": "512m",
    "executor.memory": "512m",
    "executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "scheduler.minRegisteredResourcesRatio": "1",
    "cores.max": "2",
    "locality.wait": "0",
    "speculation": "true",
    "speculation.interval": "50ms",
    "speculation.minTaskRuntime": "50ms",
    "speculation.multiplier": "1.1",
    "speculation.quantile": "0.5",
}.items():
    builder = builder.config("spark." + name, value)
spark = spark_ext.configure(builder).getOrCreate()
writing.WriteTask = TwiceWritten
compaction._Rewrite = TwiceRewritten
path = str(directory / "table")
rows = spark.range(0, 1_000, numPartitions=2).selectExpr("id", "id % 2 part")
spark_ext.append(rows, path, cluster=False)
spark_ext.compact(spark, path)

@functions.udf("long")
def met(number):
    if number == 499:  # the last of its task
        wait_for_the_other_attempt("format")
    return number

rows = rows.withColumn("id", met("id"))
rows.write.format("fermion").mode("append").save(str(directory / "copy"))
spark.stop()
"""


@contextmanager
def cluster(scratch: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a master that has two workers."""
    with socket.create_server((HOSTS[0], 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://{HOSTS[0]}:{port}"
    started = environment | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": environment["SPARK_SUBMIT_OPTS"],
    }
    place = "org.apache.spark.deploy"
    worker = ["--cores", "1", "--memory", "1g", "--work-dir", str(scratch / "work"), master]
    commands = [[f"{place}.master.Master", "--host", HOSTS[0], "--port", str(port)]]
    commands += [[f"{place}.worker.Worker", "--host", host, *worker] for host in HOSTS]
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context(open(scratch / f"{number}.log", "w"))
            process = subprocess.Popen(
                [
                    Path(started["SPARK_HOME"]) / "bin" / "spark-class",
                    *command,
                    "--webui-port",
                    "0",
                ],
                env=started,
                cwd=scratch,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield master


def test_two_finished_attempts_of_a_task_count_once(tmp_path, project_environment):
    """Of an append, a compaction, and an append by `format`; the other attempts' files are orphans.

    Attempts of the first two jobs wait for each other when their files are written, of the third
    at their last rows.
    """
    if sys.platform != "linux":
        pytest.skip("one machine has two hosts where all of 127.0.0.0/8 is its own")
    table, copy = (
        Table.create(tmp_path / name, SCHEMA, partition_by="part") for name in ("table", "copy")
    )
    with cluster(tmp_path, project_environment) as master:
        run_program(["-c", DRIVER, master, str(tmp_path)], tmp_path, project_environment)
    for job in ("append", "compact", "format"):
        assert len(list(tmp_path.glob(f"{job}.*"))) == 2, job
    assert (table.refresh().id, copy.refresh().id) == (2, 1)
    for each in (table, copy):
        assert sorted(each.scan().to_arrow()["id"].to_pylist()) == list(range(ROWS))
    written = {file.name for file in (tmp_path / "table" / "data").rglob("*.fermion")}
    assert len(written) == 4 + 2 + 2 + 1
    orphans = table.remove_orphan_files(older_than=timedelta(0))
    assert orphans.files == 3
    assert table.verify(data=True).ok
    assert table.scan(snapshot_id=1).count() == ROWS
