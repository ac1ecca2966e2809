"""Reads a table into a data frame: the driver plans, tasks read splits and hand over Arrow."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fermion.errors import InvalidArgumentError
from fermion_table import Scan, ScanPlan, Split, SplitReader, StorageAccess, Table
from fermion_table.options import OPEN_COST_BYTES, TASK_BYTES
from spark_ext.exchange import convert_batches
from spark_ext.options import SourceOptions, absolute, chosen_access
from spark_ext.session import classic
from spark_ext.types import TIME_SETTING, exchange_schema, spark_schema

MAIN = "main"
"""The branch that is read and written where no other is named."""
RANGE_TASK_ROWS = 256 * 1024 * 1024
"""Rows without columns that one task counts: Spark makes those itself."""

_SPLITS = st.StructType([st.StructField("splits", st.BinaryType())])


class Sized(Protocol):
    """Something that is read whole."""

    @property
    def size(self) -> int:
        """Bytes."""


_Sized = TypeVar("_Sized", bound=Sized)


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str | Sequence[str]] | None = None,
    filter: Any = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of: datetime | str | None = None,
    batch_id: int | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> DataFrame:
    """Read a table, or a part of it, as a data frame.

    Only the columns and rows asked for leave the files. Spark's optimizer does not see into the
    tasks: a later ``select`` or ``where`` is right, but reads as much as this call said. The
    snapshot is chosen now, whenever the frame is used.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    columns, filter, snapshot_id, tag, as_of, batch_id, branch
        As for `fermion_table.Table.scan`. Without columns and filter (``columns=[]``) the frame
        has the number of rows, and no file is opened to count them.
    storage_options
        For fsspec.
    access
        How the storage is used, such as which other folders the table may name; see
        `fermion_table.StorageAccess`.

    Returns
    -------
    pyspark.sql.DataFrame
        Types as `spark_ext.types` lists them.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    TableNotFound, VersionNotFound, ColumnNotFoundError
        As the table says. A task of a later use of the frame raises VersionNotFound too, where the
        snapshot has expired by then.
    UnsupportedBySpark
        A column has no type in Spark, or the session is a Spark Connect client.
    """
    classic(spark, "read_table")
    scan = scan_of(
        SourceOptions(
            path=absolute(path),
            snapshot_id=snapshot_id,
            tag=tag,
            as_of=as_of,
            branch=branch,
            batch_id=batch_id,
            columns=columns,
            filter=filter,
            storage_options=storage_options,
            access=chosen_access(access),
        )
    )
    schema = spark_schema(
        scan.schema,
        time_enabled=spark.conf.get(TIME_SETTING, "false") == "true",
        where=f"table {os.fspath(path)}",
    )
    rows = rows_alone(scan)
    if rows is not None:
        return spark.range(0, rows, 1, 1 + rows // RANGE_TASK_ROWS).select()
    read = ReadTask(scan.reader, exchange_schema(schema))
    parts = tasks_of(scan.plan().splits, spark.sparkContext.defaultParallelism)
    return _splits_frame(spark, parts).mapInArrow(read, schema)


def _splits_frame(spark: SparkSession, parts: Sequence[list[Split]]) -> DataFrame:
    """A row, pickled, for each task, in a partition of its own.

    An RDD rather than a local relation: of that Spark would know the few bytes of the splits, and
    broadcast the table in every join. ``createDataFrame`` makes the same of an RDD, but has a
    Python worker look at every row first.
    """
    context: Any = spark.sparkContext
    rows = context.parallelize([(pickle.dumps(part),) for part in parts], max(1, len(parts)))
    python = context._jvm.SerDeUtil
    java = python.toJavaArray(python.pythonToJava(rows._jrdd, True))
    session: Any = spark._jsparkSession  # type: ignore[attr-defined]
    frame = DataFrame(session.applySchemaToPythonRDD(java.rdd(), _SPLITS.json()), spark)
    # Of one partition Spark knows that nothing has to be shuffled, once it is told.
    return frame.coalesce(1) if len(parts) < 2 else frame


def scan_of(options: SourceOptions) -> Scan:
    """The scan that options describe.

    Raises
    ------
    InvalidArgumentError
        More than one version is named, or a branch beside a tag.
    TableNotFound, VersionNotFound, ColumnNotFoundError
    """
    if options.tag is not None and options.branch is not None:
        raise InvalidArgumentError("tag and branch: expected one of them, as a tag has no branch")
    return open_branch(options).scan(
        columns=options.columns,
        filter=options.filter,
        snapshot_id=options.snapshot_id,
        tag=options.tag,
        as_of=options.as_of,
        batch_id=options.batch_id,
    )


def open_branch(options: SourceOptions) -> Table:
    """The table that options name, at the newest snapshot of their branch.

    Raises
    ------
    TableNotFound, VersionNotFound
    """
    branch = MAIN if options.branch is None else options.branch
    return Table.open(
        options.path,
        branch=branch,
        storage_options=options.storage_options,
        access=options.access,
    )


def open_version(options: SourceOptions) -> Table:
    """The table at the snapshot that options choose.

    Raises
    ------
    InvalidArgumentError, TableNotFound, VersionNotFound
    """
    scan = scan_of(replace(options, columns=[], filter=None, batch_id=None))
    branch = MAIN if options.branch is None else options.branch
    return Table(scan.store, scan.snapshot, branch=branch)


def rows_alone(scan: Scan) -> int | None:
    """How many rows a scan has that asks for nothing else: no column, no filter.

    Metadata say it, and no task has to open a file. None if the scan asks for more.
    """
    if len(scan.schema) or scan.filter is not None:
        return None
    return scan.plan().rows


def column_paths(schema: st.StructType) -> list[tuple[str, ...]]:
    """The columns of a Spark schema as a scan takes them: paths to the fields within structs."""
    paths: list[tuple[str, ...]] = []
    for field in schema:
        below = column_paths(field.dataType) if isinstance(field.dataType, st.StructType) else []
        paths += [(field.name, *path) for path in below] or [(field.name,)]
    return paths


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What a task does with its rows of pickled splits."""

    reader: SplitReader
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the splits of every row."""
        for batch in batches:
            for data in batch.column(0):
                yield from self.read(pickle.loads(data.as_py()))

    def read(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """The rows of some splits, in exactly the schema that Spark takes."""
        for split in splits:
            for batch in self.reader.read(split, threads=1):
                yield from convert_batches(batch, self.schema)


def tasks_of(splits: Sequence[Split], tasks_min: int) -> list[list[Split]]:
    """The splits of a plan as even tasks: small files together, big ones by ranges of rows.

    Parameters
    ----------
    splits
        In the order in which their rows come.
    tasks_min
        Tasks that can run at once: a small table is spread over that many.
    """
    full = _task_bytes([split.bytes for split in splits], tasks_min)
    return [list(task) for task in ScanPlan(snapshot_id=0, splits=splits).tasks(full)]


def bins(items: Iterable[_Sized], tasks_min: int) -> list[list[_Sized]]:
    """Put files together, in their order, into what one task reads.

    Parameters
    ----------
    items
        Their ``size`` is in bytes.
    tasks_min
        Tasks that can run at once: few files are spread over that many.
    """
    listed = list(items)
    full = _task_bytes([item.size for item in listed], tasks_min)
    parts: list[list[_Sized]] = []
    room = 0
    for item in listed:
        weight = item.size + OPEN_COST_BYTES
        if not parts or weight > room:
            parts.append([])
            room = full
        parts[-1].append(item)
        room -= weight
    return parts


def _task_bytes(sizes: Sequence[int], tasks_min: int) -> int:
    total = sum(size + OPEN_COST_BYTES for size in sizes)
    return max(OPEN_COST_BYTES, min(TASK_BYTES, -(-total // max(1, tasks_min))))
