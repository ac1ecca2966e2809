"""Parquet files into a table and a table into Parquet files, by Spark tasks, file by file.

No row passes through the JVM: tasks read and write the files themselves.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import SparkSession

import fermion
from fermion.arguments import mapping, several
from fermion.errors import InvalidArgumentError
from fermion.parquet.source import ParquetSource
from fermion_table import (
    CommitMetadata,
    DataWriter,
    FileSplit,
    Snapshot,
    Split,
    SplitReader,
    StagedTable,
    StorageAccess,
    Table,
    TableExists,
    WriterMessage,
    stage_table,
)
from spark_ext.finished_tasks import finished_messages
from spark_ext.options import SourceOptions, absolute, chosen_access
from spark_ext.reading import bins, scan_of
from spark_ext.session import classic
from spark_ext.writing.writer import (
    commit_staged,
    committed_before,
    files_of,
    words_of,
    writer_factory,
)

FOOTERS_AT_ONCE = 8
SUCCESS = "_SUCCESS"
"""An empty file that says an export is complete, as Spark's own writers leave it."""


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file to convert: where it is, its bytes, and the columns that its path holds."""

    path: str
    size: int
    path_columns: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What `to_parquet` wrote: files, rows, bytes, and the snapshot they come from."""

    snapshot_id: int
    files: int
    rows: int
    bytes: int


def from_parquet(
    spark: SparkSession,
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] | str | None = None,
    message: str | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> Snapshot:
    """Append Parquet files to a table, as one snapshot; create the table if it does not exist.

    A new table appears with its rows: a job that fails leaves none.

    Parameters
    ----------
    spark
        A classic session.
    source
        A Parquet file or a directory of them, at any depth; ``key=value`` in the names of
        directories is read as a column.
    path
        The table. A new one gets the columns of all files together.
    partition_by
        Of a new table.
    message
        For the table's history.
    commit_user, commit_identifier
        The same pair is appended once.
    storage_options
        For fsspec, for both.
    access
        As for `append`, of a table that exists.

    Raises
    ------
    InvalidArgumentError
        There are no Parquet files, or a table exists that is partitioned otherwise.
    TypeError
        Names the argument that is of another type; raised first.
    SchemaMismatch
        Files that do not fit an existing table.
    pyspark.errors.PySparkException
        A task failed; nothing was published.
    """
    classic(spark, "from_parquet")
    words = CommitMetadata(
        message=message, commit_user=commit_user, commit_identifier=commit_identifier
    )
    where = absolute(path)
    mapping(storage_options, "storage_options")
    if access is not None and not isinstance(access, StorageAccess):
        raise InvalidArgumentError(f"access={access!r:.80}: expected a StorageAccess")
    files, schema = parquet_files(source, storage_options=storage_options)
    words = replace(words, message=words.message or f"from Parquet: {len(files)} files")
    filesystem = _filesystem(source, storage_options)[0]
    if not Table.exists(where, storage_options=storage_options):
        with contextlib.suppress(TableExists):  # made meanwhile: then it is appended to
            staged = stage_table(
                where, schema, partition_by=partition_by, storage_options=storage_options
            )
            return _create(spark, staged, filesystem, files, schema, words)
    chosen = chosen_access(access)
    table = Table.open(where, storage_options=storage_options, access=chosen)
    _check_partitions(table, partition_by)
    earlier = committed_before(table, words)
    if earlier is not None:
        return earlier
    messages = _imported(spark, table, filesystem, files, schema)
    return table.commit(messages, **words_of(words))


def _create(
    spark: SparkSession,
    staged: StagedTable,
    filesystem: Any,
    files: Sequence[ParquetFile],
    schema: pa.Schema,
    words: CommitMetadata,
) -> Snapshot:
    try:
        messages = _imported(spark, staged, filesystem, files, schema)
    except BaseException:
        staged.discard()
        raise
    return commit_staged(staged, messages, words)


def _imported(
    spark: SparkSession,
    table: Table | StagedTable,
    filesystem: Any,
    files: Sequence[ParquetFile],
    schema: pa.Schema,
) -> list[WriterMessage]:
    """Run the tasks; what they wrote comes back, or is deleted if the job fails."""
    with table.writer() as writer:  # the check of the columns, before any task
        writer.write(
            pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        )
    context = spark.sparkContext
    parts = bins(files, context.defaultParallelism)
    with finished_messages(context, table, files_of) as finished:
        task = _Import(filesystem, writer_factory(table), finished)
        results = context.parallelize(parts, len(parts)).map(task).collect()
    return [each for messages in results for each in messages]


def to_parquet(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str | Sequence[str]] | None = None,
    filter: Any = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
    **parquet_options: Any,
) -> ExportResult:
    """Write a table's rows as Parquet files, one for each data file, into a new directory.

    The directory is complete when it holds ``_SUCCESS``. A failed job leaves none.

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
        Names the argument that is wrong; or there is something at the target.
    TableNotFound, VersionNotFound, ColumnNotFoundError
    pyspark.errors.PySparkException
        A task failed.
    """
    classic(spark, "to_parquet")
    where = absolute(target, "target")
    mapping(storage_options, "storage_options")
    options = {"coerce_timestamps": "us", **parquet_options}
    _check_parquet_options(options)
    filesystem, root = _filesystem(where, storage_options)
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


def parquet_files(
    source: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> tuple[list[ParquetFile], pa.Schema]:
    """The Parquet files below a path, and all their columns together.

    Raises
    ------
    InvalidArgumentError
        There are none, or a column has different types in two files.
    """
    import pyarrow.dataset as ds  # imports pandas, and every Python worker imports this module

    filesystem, root = _filesystem(source, storage_options)
    dataset = ds.dataset(root, format="parquet", partitioning="hive", filesystem=filesystem)
    fragments = sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)
    if not fragments:
        raise InvalidArgumentError(f"{root}: there are no Parquet files")
    files = [
        ParquetFile(
            fragment.path,
            filesystem.size(fragment.path),
            ds.get_partition_keys(fragment.partition_expression),
        )
        for fragment in fragments
    ]
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as executor:
        schemas = list(executor.map(partial(_arrow_schema, filesystem), files))
    try:
        return files, pa.unify_schemas(schemas).remove_metadata()
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"{root}: the files' columns do not agree: {error}") from error


def _filesystem(
    location: str | os.PathLike[str], storage_options: dict[str, Any] | None
) -> tuple[Any, str]:
    """An fsspec file system and a path on it."""
    url = absolute(location, "source")
    filesystem, path = fsspec.core.url_to_fs(url, **(storage_options or {}))
    return filesystem, path


def _arrow_schema(filesystem: Any, file: ParquetFile) -> pa.Schema:
    with filesystem.open(file.path) as stream, ParquetSource(stream, None) as parquet:
        schema = parquet.schema
    for name, value in file.path_columns.items():
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.scalar(value).type))
    return schema


def _check_partitions(table: Table, partition_by: Sequence[str] | str | None) -> None:
    """Refuse to append to a table that is partitioned otherwise than the caller says.

    Raises
    ------
    TypeError, InvalidArgumentError
    """
    if partition_by is None:
        return
    listed = [partition_by] if isinstance(partition_by, str) else partition_by
    wanted = list(several(listed, "partition_by", "a list of names"))
    names = [each.name for each in table.schema.partition_by]
    if wanted != names:
        raise InvalidArgumentError(
            f"{table.location}: partition_by={wanted}, but the table is partitioned by {names}"
        )


def _check_parquet_options(options: dict[str, Any]) -> None:
    """Let pyarrow say on the driver what is wrong with options, by a file without columns.

    Raises
    ------
    InvalidArgumentError
    """
    nothing = pa.table({"none": pa.array([], pa.int64())})
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "none.fermion"
        fermion.write_table(nothing, source)
        fermion.to_parquet(source, Path(scratch) / "none.parquet", **options)


@dataclass(frozen=True, slots=True)
class _Import:
    """What a task does with its Parquet files."""

    filesystem: Any
    open_writer: partial[DataWriter]
    finished: Accumulator[list[WriterMessage]]

    def __call__(self, files: Sequence[ParquetFile]) -> list[WriterMessage]:
        with self.open_writer() as writer:
            for file in files:
                for batch in self._batches(file):
                    writer.write(batch)
            messages = [message for message in writer.prepare_commit() if message.entries]
        self.finished.add(messages)
        return messages

    def _batches(self, file: ParquetFile) -> Iterator[pa.RecordBatch]:
        with self.filesystem.open(file.path) as stream, ParquetSource(stream, None) as parquet:
            for batch in parquet.batches():
                for name, value in file.path_columns.items():
                    if name not in batch.schema.names:
                        constant = pa.repeat(pa.scalar(value), batch.num_rows)
                        batch = batch.append_column(name, constant)
                yield batch


@dataclass(frozen=True, slots=True)
class _Export:
    """What a task does with a split: (rows, bytes) of its Parquet file come back."""

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
        # Another schema version, fewer columns or rows: they have to be a file before.
        with tempfile.TemporaryDirectory() as scratch:
            part = Path(scratch) / "part.fermion"
            options = fermion.WriteOptions(profile="fast", durable=False, threads=1)
            with fermion.Writer(part, self.reader.schema, options=options) as writer:
                for batch in self.reader.read(split, threads=1):
                    writer.write(batch)
            return self._convert(str(part), target)

    def _is_as_exported(self, split: FileSplit) -> bool:
        """Whether a file has the rows and the schema that are exported."""
        if split.row_range is not None:
            return False
        with fermion.open(split.location, storage_options=self.storage_options) as file:
            is_it = split.file_id in (None, file.file_id)  # the reader refuses another file
            return is_it and file.schema.equals(self.reader.schema)

    def _convert(self, source: str, target: str) -> tuple[int, int]:
        info = fermion.to_parquet(
            source, target, storage_options=self.storage_options, **self.parquet_options
        )
        return info.num_rows, info.size
