"""Executors and Python workers killed without warning in the middle of jobs.

A job says by a property, which Spark hands to its tasks, that one of them dies, who dies with it
and when. Of the files of dead attempts nothing is known; `remove_orphan_files` finds them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import spark_ext
from fermion_table import Table
from fermion_table.engine import CompactionMessage, Split, WriterMessage
from spark_ext.conversion import from_parquet, to_parquet
from spark_ext.datasource.batch import FermionWriter
from spark_ext.datasource.source import FermionDataSource
from spark_ext.datasource.stream import FermionStreamWriter
from spark_ext.maintenance import compaction
from spark_ext.options import parse_options
from spark_ext.reading import table as reading
from spark_ext.reading.task import ReadTask
from spark_ext.writing import job as writing
from spark_ext.writing import row_changes
from tests.kit.spark.on_cluster.uses import ROWS, SCHEMA, expect, frame, ids, keyed

DEATH = "test.death"
"""The property: who dies, and the file that it makes before."""
WORKER, EXECUTOR, ALWAYS = "worker", "executor", "always"


def die_if_told() -> None:
    """Kill this worker, or the executor that started it: once, or each that comes here.

    Who dies once is the second task that comes here on its executor, so that an executor takes with
    it what a finished task left there for others.
    """
    context = TaskContext.get()
    told = context.getLocalProperty(DEATH) if context is not None else None
    if told is None:
        return
    victim, _, marker = told.partition(":")
    if victim != ALWAYS:
        first = Path(f"{marker}.{executor()}")
        if not first.exists():
            first.touch()
            return
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return
    elif context.partitionId() == 0:
        return
    if victim == EXECUTOR:
        os.kill(executor(), signal.SIGKILL)
        time.sleep(60)  # Spark ends its workers
    os.kill(os.getpid(), signal.SIGKILL)


def executor() -> int:
    """The process id of the JVM whose daemon started this worker."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    parent = int(status.rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{parent}/cmdline").read_bytes()
    return parent


class DyingWrite(writing.WriteTask):
    """Dies when its rows are written."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WriterMessage]:
        messages = super().write(batches)
        if messages:
            die_if_told()
        return messages


class DyingRead(ReadTask):
    """Dies when it has read some rows."""

    def read(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        for batch in super().read(splits):
            yield batch
            die_if_told()


class DyingRewrite(compaction._Rewrite):
    """Dies when its files are written."""

    def __call__(self, number: int) -> CompactionMessage:
        message = super().__call__(number)
        die_if_told()
        return message


class DyingImport(from_parquet._Import):
    """Dies when its files are written."""

    def __call__(self, files: Sequence) -> list[WriterMessage]:
        messages = super().__call__(files)
        die_if_told()
        return messages


class DyingExport(to_parquet._Export):
    """Dies when its Parquet file is written."""

    def __call__(self, numbered: tuple) -> tuple[int, int]:
        result = super().__call__(numbered)
        die_if_told()
        return result


class DyingStreamWriter(FermionStreamWriter):
    """Dies when its rows are written."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        die_if_told()
        return message


class DyingWriter(FermionWriter):
    """Dies when its rows are written."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        die_if_told()
        return message


class DyingSource(FermionDataSource):
    """``format("fermion")``, whose tasks die."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingStreamWriter:  # noqa: N802
        return DyingStreamWriter(parse_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DyingWriter:
        return DyingWriter(parse_options(self.options), schema, overwrite)


DYING = {
    (writing, "WriteTask"): DyingWrite,
    (row_changes, "WriteTask"): DyingWrite,
    (reading, "ReadTask"): DyingRead,
    (compaction, "_Rewrite"): DyingRewrite,
    (from_parquet, "_Import"): DyingImport,
    (to_parquet, "_Export"): DyingExport,
}


@contextmanager
def killed(spark: SparkSession, victim: str, name: str) -> Iterator[None]:
    """Kill somebody in a task of the jobs of a block; check that it was done."""
    marker = Path(f"{name}.died").absolute()
    with ExitStack() as stack:
        for (module, attribute), dying in DYING.items():
            stack.enter_context(mock.patch.object(module, attribute, dying))
        spark.sparkContext.setLocalProperty(DEATH, f"{victim}:{marker}")
        stack.callback(spark.sparkContext.setLocalProperty, DEATH, None)
        yield
    assert victim == ALWAYS or marker.exists(), "no task came to where it should die"


def check(table: Table, rows: Iterable[int], *, leftovers: bool = True) -> None:
    """Every row is there once; what dead attempts left is found, and nothing else."""
    expected = sorted(rows)
    expect(ids(table), expected)
    found = table.remove_orphan_files(older_than=timedelta(0))
    assert not leftovers or found.files, "the files of the dead attempt are not there"
    expect(ids(table), expected)
    assert table.verify(data=True).ok


def in_append(spark: SparkSession) -> None:
    """An executor with shuffle files that others still need; then the next append."""
    table = Table.create("append", SCHEMA, partition_by=["part"])
    with killed(spark, EXECUTOR, "append"):
        spark_ext.append(frame(spark), "append", commit_user="nightly", commit_identifier=1)
    check(table, range(ROWS))
    spark_ext.append(frame(spark), "append", commit_user="nightly", commit_identifier=1)
    spark_ext.append(frame(spark, ROWS, ROWS + 10), "append")
    check(table, range(ROWS + 10), leftovers=False)
    expect(table.snapshot.id, 2)


def in_upsert(spark: SparkSession) -> None:
    """An executor, when half of the trees are written; the last row of a key still wins."""
    table = keyed("upsert")
    spark_ext.upsert(frame(spark), "upsert")
    twice = (
        frame(spark)
        .withColumn("part", functions.lit(5))
        .union(frame(spark).withColumn("part", functions.lit(6)))
    )
    with killed(spark, EXECUTOR, "upsert"):
        spark_ext.upsert(twice, "upsert")
    check(table, range(ROWS))
    expect(set(table.scan(columns=["part"]).to_arrow()["part"].to_pylist()), {6})
    spark_ext.upsert(frame(spark, ROWS, ROWS + 10), "upsert")
    check(table, range(ROWS + 10), leftovers=False)


def in_merge(spark: SparkSession) -> None:
    """An executor that has written rows of MERGE, of which half are new."""
    spark_ext.install_catalog(spark, "merges", ".")
    table = Table.create("merged", SCHEMA)
    spark_ext.append(frame(spark), "merged")
    half = ROWS // 2
    frame(spark, half, ROWS + half).withColumn("part", functions.lit(9)).createTempView("changes")
    statement = (
        "MERGE INTO merges.merged t USING changes s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    with killed(spark, EXECUTOR, "merged"):
        spark.sql(statement)
    for leftovers in (True, False):
        check(table, range(ROWS + half), leftovers=leftovers)
        expect(table.scan(filter="part = 9").count(), ROWS)
        spark.sql(statement)


def in_compaction(spark: SparkSession) -> None:
    """A worker that compacts an append table, and an executor that merges sorted runs."""
    for name, victim, table in (
        ("compaction", WORKER, Table.create("compaction", SCHEMA, partition_by=["part"])),
        ("trees", EXECUTOR, keyed("trees")),
    ):
        for start in range(0, ROWS, ROWS // 2):
            spark_ext.append(frame(spark, start, start + ROWS // 2), name)
        with killed(spark, victim, name):
            expect(spark_ext.compact(spark, name, full=name == "trees").groups, 8)
        check(table, range(ROWS))
        expect(table.snapshot.totals.files, 8)
        expect(spark_ext.compact(spark, name, full=name == "trees").groups, 0)


def in_stream(spark: SparkSession) -> None:
    """An executor, in a micro-batch of upserts; then the stream goes on."""
    source = str(Path("stream").absolute())
    spark_ext.write(frame(spark), source, cluster=False)
    table = keyed("sink")

    def run() -> None:
        writer = spark.readStream.format("fermion").load(source).writeStream.format("fermion")
        writer = writer.option("checkpointLocation", f"{Path.cwd()}/sink.checkpoint")
        writer = writer.option("path", str(Path("sink").absolute())).trigger(availableNow=True)
        writer.start().awaitTermination()

    spark.dataSource.register(DyingSource)
    try:
        with killed(spark, EXECUTOR, "sink"):
            run()
    finally:
        spark.dataSource.register(FermionDataSource)
    check(table, range(ROWS))
    spark_ext.append(frame(spark, ROWS, ROWS + 10), source)
    run()
    check(table, range(ROWS + 10), leftovers=False)
    expect(table.snapshot.id, 2)


def in_format(spark: SparkSession) -> None:
    """A worker that overwrites rows."""
    table = Table.create("format", SCHEMA)
    path = str(Path("format").absolute())
    spark_ext.append(frame(spark, 0, 10), path)
    spark.dataSource.register(DyingSource)
    try:
        with killed(spark, WORKER, "format"):
            frame(spark).write.format("fermion").mode("overwrite").save(path)
    finally:
        spark.dataSource.register(FermionDataSource)
    check(table, range(ROWS))


def in_overwrite_and_read(spark: SparkSession) -> None:
    """Workers: one that reads the table, and one that writes in place of its rows."""
    spark_ext.write(frame(spark), "replaced", cluster=False)
    with killed(spark, WORKER, "read"):
        expect(ids(spark_ext.read_table(spark, "replaced")), list(range(ROWS)))
    with killed(spark, WORKER, "overwrite"):
        spark_ext.overwrite(frame(spark, 5, ROWS), "replaced")
    check(Table.open("replaced"), range(5, ROWS))


def in_conversion(spark: SparkSession) -> None:
    """Workers, when their files are written: the next attempts write the same Parquet files."""
    spark_ext.write(frame(spark), "exported-from", cluster=False)
    with killed(spark, WORKER, "export"):
        expect(spark_ext.to_parquet(spark, "exported-from", "export").rows, ROWS)
    names = sorted(file.name for file in Path("export").iterdir())
    expect(names, ["_SUCCESS", *(f"part-{number:05}.parquet" for number in range(4))])
    expect(ids(spark.read.parquet(str(Path("export").absolute()))), list(range(ROWS)))
    with killed(spark, WORKER, "import"):
        spark_ext.from_parquet(spark, "export", "imported")
    check(Table.open("imported"), range(ROWS))


def always(spark: SparkSession) -> None:
    """Workers of all attempts: the job fails, nothing is published, and the next run is right."""
    table = keyed("always")
    for _ in range(2):
        spark_ext.upsert(frame(spark), "always", cluster=False)
    before = table.refresh().id
    jobs: dict[str, Callable[[], object]] = {
        "upsert": lambda: spark_ext.upsert(frame(spark, 0, ROWS + 10), "always"),
        "compact": lambda: spark_ext.compact(spark, "always", full=True),
    }
    for name, job in jobs.items():
        failure: Exception | None = None
        with killed(spark, ALWAYS, name):
            try:
                job()
            except (PySparkException, Py4JJavaError) as error:
                failure = error
        assert failure is not None, f"{name} did not fail"
        assert "Python worker exited unexpectedly" in str(failure), str(failure)[:1000]
        assert "nothing of this job was published" in str(failure.__notes__), failure.__notes__
        expect(table.refresh().id, before)
        check(table, range(ROWS))
    for job in jobs.values():
        job()
    check(table, range(ROWS + 10), leftovers=False)
    expect(table.snapshot.totals.files, 8)


CASES = (in_append, in_upsert, in_merge, in_compaction, in_stream)
SLOW_CASES = (in_format, in_overwrite_and_read, in_conversion, always)
