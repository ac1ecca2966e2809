"""A table into Parquet files: Spark tasks convert the data files, one by one.

No row passes through the JVM: tasks read and write the files themselves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import fermion
from fermion.arguments import mapping
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.typing import FilterLike
from fermion_table import StorageAccess
from fermion_table.engine import FileSplit, Split, SplitReader
from spark_ext.conversion.files import filesystem_of
from spark_ext.opening import scan_of
from spark_ext.options import SourceOptions, absolute, chosen_access
from spark_ext.session import classic

SUCCESS = "_SUCCESS"
"""An empty file that marks a complete export, as Spark's own writers make it."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What `to_parquet` wrote: files, rows, bytes, and the snapshot they come from."""

    snapshot_id: int
    files: int
    rows: int
    bytes: int


def to_parquet(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str | Sequence[str]] | None = None,
    filter: FilterLike | None = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
    **parquet_options: Any,
) -> ExportResult:
    """Write a table's rows as Parquet files, one for each data file, into a new directory.

    The directory is complete when it holds ``_SUCCESS``. A failed job deletes the directory.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    target
        A directory that does not exist yet, or is empty.
    columns, filter, snapshot_id, tag
        As for `read_table`.
    storage_options
        For fsspec, for both.
    access
        As for `read_table`.
    parquet_options
        Of `fermion.to_parquet`: ``compression="zstd"``. Spark can't read nanoseconds, so
        ``coerce_timestamps="us"`` is the default; a timestamp that would lose digits is an error.
        ``coerce_timestamps=None`` writes nanoseconds, and ``allow_truncated_timestamps=True``
        drops the digits.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong; or the target is not empty.
    TableNotFound, VersionNotFound, ColumnNotFoundError
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed; the second where workers died.
    """
    classic(spark, "to_parquet")
    where = absolute(target, "target")
    mapping(storage_options, "storage_options")
    options = {"coerce_timestamps": "us", **parquet_options}
    _check_parquet_options(options)
    filesystem, root = filesystem_of(where, storage_options)
    if filesystem.exists(root) and filesystem.ls(root):
        raise InvalidArgumentError(f"{target}: expected a new or empty directory")
    scan = scan_of(
        SourceOptions(
            path=absolute(path),
            snapshot_id=snapshot_id,
            tag=tag,
            columns=columns,
            filter=filter,
            storage_options=storage_options,
            access=chosen_access(access),
        )
    )
    filesystem.makedirs(root, exist_ok=True)
    task = _Export(scan.reader, where, filter is None, storage_options, options)
    splits = list(enumerate(scan.plan().splits))
    context = spark.sparkContext
    try:
        written = context.parallelize(splits, max(1, len(splits))).map(task).collect()
    except BaseException:
        filesystem.rm(root, recursive=True)
        raise
    filesystem.touch(f"{root}/{SUCCESS}")
    return ExportResult(
        snapshot_id=scan.snapshot.id,
        files=len(written),
        rows=sum(rows for rows, _ in written),
        bytes=sum(size for _, size in written),
    )


def _check_parquet_options(options: dict[str, Any]) -> None:
    """Check options of Parquet on the driver: convert an empty file with them."""
    nothing = pa.table({"none": pa.array([], pa.int64())})
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "none.fermion"
        fermion.write_table(nothing, source)
        fermion.to_parquet(source, Path(scratch) / "none.parquet", **options)


@dataclass(frozen=True, slots=True)
class _Export:
    """Converts one split to a Parquet file, and returns its rows and bytes. Picklable."""

    reader: SplitReader
    target: str
    whole: bool
    storage_options: dict[str, Any] | None
    parquet_options: dict[str, Any]

    def __call__(self, numbered: tuple[int, Split]) -> tuple[int, int]:
        number, split = numbered
        with self.reader.guard():
            return self._exported(split, f"{self.target}/part-{number:05}.parquet")

    def _exported(self, split: Split, target: str) -> tuple[int, int]:
        if self.whole and isinstance(split, FileSplit) and self._is_as_exported(split):
            return self._convert(split.location, target)
        # Another schema version, fewer columns or rows: write them to a file first.
        with tempfile.TemporaryDirectory() as scratch:
            part = Path(scratch) / "part.fermion"
            options = fermion.WriteOptions(profile="fast", durable=False, threads=1)
            with fermion.Writer(part, self.reader.schema, options=options) as writer:
                for batch in self.reader.read(split, threads=1):
                    writer.write(batch)
            return self._convert(str(part), target)

    def _is_as_exported(self, split: FileSplit) -> bool:
        """Whether a file has the rows and the schema that are exported."""
        if split.row_range is not None or split.deletion is not None:
            return False
        if split.column_files or split.blob_files:
            return False
        with fermion.open(split.location, storage_options=self.storage_options) as file:
            is_it = split.file_id in (None, file.file_id)  # the reader refuses another file
            return is_it and file.schema.equals(self.reader.schema)

    def _convert(self, source: str, target: str) -> tuple[int, int]:
        info = fermion.to_parquet(
            source, target, storage_options=self.storage_options, **self.parquet_options
        )
        return info.num_rows, info.size
