"""``format("fermion")``: the data source that Spark's own readers and writers use.

Spark makes a `FermionDataSource` in a Python process beside the driver, pickles it, and calls its
reader in other processes, so everything here can be pickled. It does not accept filters from Spark:
Spark's plan is one object for all queries on a frame, and a filter pushed by one query would affect
the others. Use the option ``filter``; Spark applies its own filters to the rows that it gets.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from spark_ext.datasource.batch import FermionReader, FermionWriter
from spark_ext.datasource.changes import (
    ChangeStreamReader,
    FermionChangesReader,
    changes_schema,
)
from spark_ext.datasource.stream import FermionStreamReader, FermionStreamWriter
from spark_ext.errors import UnsupportedBySpark
from spark_ext.opening import scan_of
from spark_ext.options import SourceOptions, Use, parse_options
from spark_ext.session import is_connect
from spark_ext.types import spark_schema
from spark_ext.versions import DataSourceStreamArrowWriter
from spark_ext.workers import keep_modules
from spark_ext.writing.staged import FermionStagedWriter, split_staged

FORMAT = "fermion"


def register(spark: SparkSession) -> None:
    """Register ``format("fermion")`` in a session.

    If this package is installed, Spark finds the format by itself, except for writes from another
    thread than the one that made the session: Spark 4.3 looks for formats written in Python in the
    thread's active session, and other threads have none (DATA_SOURCE_NOT_FOUND). Call this function
    in such a thread before it writes.

    Raises
    ------
    InvalidArgumentError
        Not a session.
    """
    if not hasattr(spark, "dataSource"):
        raise InvalidArgumentError(f"register: spark: expected a SparkSession, found {spark!r:.80}")
    add_format(spark)
    if not is_connect(spark):
        spark.createDataFrame([], "none int")  # makes the session the active one of this thread


def add_format(spark: SparkSession) -> None:
    """Add the format to a session; Spark 4.0 refuses one that it has found by itself."""
    try:
        spark.dataSource.register(FermionDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class FermionDataSource(DataSource):
    """A table as Spark's ``format("fermion")``.

    Parameters
    ----------
    options
        Those that `spark_ext.options` lists.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        keep_modules()
        self.options, self._staged = split_staged(options)
        self._path = parse_options(self.options).path
        self._snapshot_id: int | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The selected columns. This call chooses the snapshot that is read."""
        options = self._options_of(Use.READ, Use.STREAM_READ)
        if options.read_change_feed:
            schema, self._snapshot_id = changes_schema(options)
            return schema
        scan = scan_of(options)
        self._snapshot_id = scan.snapshot.id
        return spark_schema(scan.schema, where=f"table {self._path}")

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema: that of this source, or one that the user gave."""
        keep_modules()
        options = self._options_of(Use.READ)
        if options.read_change_feed:
            return FermionChangesReader(options, self._snapshot_id, schema)
        return FermionReader(options, self._snapshot_id, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer that appends rows, replaces rows, or creates or replaces a table."""
        options = self._options_of(Use.WRITE)
        if self._staged is not None:
            return FermionStagedWriter(options, self._staged, schema)
        return FermionWriter(options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of the rows that commits append, or of all changes of rows."""
        options = self._options_of(Use.STREAM_READ)
        if options.read_change_feed:
            return ChangeStreamReader(options, schema)
        return FermionStreamReader(options, schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A writer that appends or upserts micro-batches."""
        if overwrite:
            raise UnsupportedBySpark(
                f"{self._path}: output mode complete is not supported; use append"
            )
        return FermionStreamWriter(self._options_of(Use.STREAM_WRITE), schema)

    def _options_of(self, *uses: Use) -> SourceOptions:
        """The parsed options; each must be allowed in one of these uses."""
        return parse_options(self.options, *uses)
