"""``format("fermion")``: the data source that Spark's own readers and writers use.

Spark makes a `FermionDataSource` in a Python process beside the driver, pickles it, and calls its
reader in others; so everything here pickles. Filters are never taken from Spark: its plan is one
object for all queries on a frame, and a filter pushed for one would show in the others. The option
``filter`` does what is needed, and Spark applies its own filters to what comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion_table import Scan, SchemaMerge, Split, Table
from spark_ext.datasource.streaming import FermionStreamReader, FermionStreamWriter
from spark_ext.errors import UnsupportedBySpark
from spark_ext.exchange import bare_rows
from spark_ext.finished_tasks import delete_files
from spark_ext.options import SourceOptions, Use, parse_options
from spark_ext.reading import (
    ReadTask,
    column_paths,
    open_branch,
    rows_alone,
    scan_of,
    tasks_of,
)
from spark_ext.session import is_connect
from spark_ext.types import exchange_schema, spark_schema
from spark_ext.writing.staged import FermionStagedWriter, split_staged
from spark_ext.writing.task import TaskMessage, WriteTask, messages_of
from spark_ext.writing.writer import (
    check_columns,
    check_overwrite,
    commit_overwrite,
    files_of,
    planned_merge,
    renamed_columns,
    writer_factory,
)

FORMAT = "fermion"
TASKS_MIN = 8
"""Tasks over which a small table is spread: here nobody knows how many can run at once."""


def register(spark: SparkSession) -> None:
    """Make ``format("fermion")`` known to a session.

    Where this package is installed, Spark finds the format by itself, except for writes from
    another thread than the one that made the session: Spark 4.3 looks for formats written in Python
    in the thread's active session, which other threads lack (DATA_SOURCE_NOT_FOUND). Call this in
    the thread, and its writes find the format.

    Raises
    ------
    InvalidArgumentError
        The session is none.
    """
    if not hasattr(spark, "dataSource"):
        raise InvalidArgumentError(f"register: spark: expected a SparkSession, found {spark!r:.80}")
    spark.dataSource.register(FermionDataSource)
    if not is_connect(spark):
        spark.createDataFrame([], "none int")  # makes the session the active one of this thread


class FermionDataSource(DataSource):
    """A table as Spark's ``format("fermion")``.

    Parameters
    ----------
    options
        Those that `spark_ext.options` lists.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options, self._staged = split_staged(options)
        self._path = parse_options(self.options).path
        self._snapshot_id: int | None = None

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(...)``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns asked for; from here on the snapshot is fixed."""
        scan = scan_of(self._options_of(Use.READ, Use.STREAM_READ))
        self._snapshot_id = scan.snapshot.id
        return spark_schema(scan.schema, where=f"table {self._path}")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the columns of a schema: this source's, or one that the user gave."""
        return FermionReader(self._options_of(Use.READ), self._snapshot_id, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Appends rows of a schema, or puts them in the place of others, perhaps of a table."""
        options = self._options_of(Use.WRITE)
        if self._staged is not None:
            return FermionStagedWriter(options, self._staged, schema)
        return FermionWriter(options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Reads what commits append."""
        return FermionStreamReader(self._options_of(Use.STREAM_READ), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Appends micro-batches."""
        if overwrite:
            raise UnsupportedBySpark(
                f"{self._path}: output mode complete is not supported; use append"
            )
        return FermionStreamWriter(self._options_of(Use.STREAM_WRITE), schema)

    def _options_of(self, *uses: Use) -> SourceOptions:
        """The options, if all of them have a meaning in one of these uses."""
        return parse_options(self.options, *uses)


@dataclass(slots=True)
class SplitsPartition(InputPartition):
    """The splits that one task reads."""

    value: list[Split]


@dataclass(slots=True)
class RowsPartition(InputPartition):
    """So many rows without columns."""

    value: int


class FermionReader(DataSourceReader):
    """Plans on the driver, reads in tasks.

    Parameters
    ----------
    options
        What to read.
    snapshot_id
        The snapshot that the schema was taken from; None: what the options say, now.
    schema
        The columns wanted, perhaps fewer or in another order than the table's.
    """

    def __init__(self, options: SourceOptions, snapshot_id: int | None, schema: StructType) -> None:
        if snapshot_id is None:  # the schema is the user's own
            options = replace(options, columns=column_paths(schema))
        elif options.tag is None:  # a tag stays where it is, and outlives its snapshot's slot
            options = replace(options, snapshot_id=snapshot_id, as_of=None)
        self._scan: Scan | None = scan_of(options)
        self._read = ReadTask(self._scan.reader, exchange_schema(schema))

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each task."""
        assert self._scan is not None
        rows = rows_alone(self._scan)
        if rows is not None:
            return [RowsPartition(rows)]
        return [SplitsPartition(part) for part in tasks_of(self._scan.plan().splits, TASKS_MIN)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of a partition."""
        if isinstance(partition, RowsPartition):
            return bare_rows(partition.value)
        return self._read.read(partition.value or [])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scan": None}  # tasks need its reader alone


class FermionWriter(DataSourceArrowWriter):
    """Checks on the driver, writes in tasks, commits once.

    Parameters
    ----------
    options
        The table, its branch, the commit's name, and what is overwritten.
    schema
        Of the rows.
    overwrite
        Whether rows go when these come.

    Raises
    ------
    TableNotFound, SchemaMismatch, ColumnNotFoundError, InvalidArgumentError
    """

    def __init__(self, options: SourceOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        table = self._table()
        if overwrite:
            check_overwrite(table, options.replace_where, options.dynamic)
        elif options.replace_where is not None or options.dynamic:
            raise InvalidArgumentError(
                "options replaceWhere and partitionOverwriteMode=dynamic need mode overwrite"
            )
        self._merge: SchemaMerge | None = None
        if options.merge_schema:
            self._merge = planned_merge(table, schema, None)
        written = table.schema if self._merge is None else self._merge.schema
        columns = check_columns(table, schema, None, schema=written)
        renamed = renamed_columns(schema, written)
        self._task = WriteTask(writer_factory(table, written), columns, renamed=renamed)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return TaskMessage(self._task.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote."""
        options = self._options
        name: dict[str, Any] = {
            "commit_user": options.commit_user,
            "commit_identifier": options.commit_identifier,
        }
        table, written = self._table(), messages_of(messages)
        if self._overwrite:
            where, dynamic = options.replace_where, options.dynamic
            commit_overwrite(table, written, where, dynamic, self._merge, **name)
        else:
            table.commit(written, merge=self._merge, **name)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks of a failed job wrote.

        Spark aborts after a failed commit too. Then every task has a message, and the files stay:
        the table has deleted them if it proved that they were not published, and only then.
        """
        if any(message is None for message in messages):
            paths = [path for each in messages_of(messages) for path in files_of(each)]
            delete_files(self._table(), paths)

    def _table(self) -> Table:
        return open_branch(self._options)
