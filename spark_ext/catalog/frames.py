"""Reads a table into a data frame, which Spark plans as it plans the tables of a catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from fermion.redaction import logger
from fermion.typing import FilterLike
from fermion_table import Scan, StorageAccess, Table
from spark_ext.catalog.callbacks import Jvm
from spark_ext.catalog.described import ReadTable
from spark_ext.catalog.install import listen
from spark_ext.catalog.scans import TableScanBuilder
from spark_ext.catalog.sessions import add_format_alone
from spark_ext.opening import scan_of
from spark_ext.options import SourceOptions, absolute, chosen_access
from spark_ext.reading.table import frame_of, schema_of
from spark_ext.session import classic
from spark_ext.versions import SPARK

NAMED_COLUMNS_MAX = 1_000
"""Columns that a caller names and Spark plans: its time grows with their square, and who names so
many wants them all."""
SESSIONS_MAX = 8
"""Sessions whose classes of the JVM are kept."""
_log = logger(__name__)


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str | Sequence[str]] | None = None,
    filter: FilterLike | None = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of: datetime | str | None = None,
    batch_id: int | None = None,
    branch: str | None = None,
    blobs: Literal["bytes", "handles"] = "bytes",
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> DataFrame:
    """Read a table, or a part of it, as a data frame.

    Only the selected columns and rows are read from the files. What later parts of a query need is
    pushed down as through a catalog: columns, filters, limits and aggregates (see
    `install_catalog`, and its interfaces of Spark). With a version of Spark that `install_catalog`
    refuses, and with more than 1,000 names in ``columns``, these arguments alone decide what is
    read. The snapshot is chosen by this call, whenever the frame is used.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    columns, filter, snapshot_id, tag, as_of, batch_id, branch
        As for `fermion_table.Table.scan`. With ``columns=[]`` and no filter the frame has the
        number of rows, and no file is opened to count them.
    blobs
        ``handles``: a column of blobs is a struct of ``file``, ``offset``, ``size`` and others,
        which `fermion.blobs.Handle.of` makes a handle that reads the value.
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
        As `fermion_table.Table.scan`. A task raises VersionNotFound too, if the snapshot has
        expired when the frame is used.
    UnsupportedBySpark
        Spark has no type for a column, or the session is a Spark Connect client.
    """
    classic(spark, "read_table")
    options = SourceOptions(
        path=absolute(path),
        snapshot_id=snapshot_id,
        tag=tag,
        as_of=as_of,
        branch=branch,
        batch_id=batch_id,
        columns=columns,
        filter=filter,
        blobs=blobs,
        storage_options=storage_options,
        access=chosen_access(access),
    )
    scan = scan_of(options)
    named = 0 if columns is None else len(columns)
    jvm = _planning_jvm(spark) if len(scan.schema) and named <= NAMED_COLUMNS_MAX else None
    if jvm is None:
        return frame_of(spark, scan)
    table = FrameTable(jvm, scan, options, jvm.schema(schema_of(spark, scan).json()))
    nothing = jvm.static("scala.Option", "empty")()
    create = jvm.static("execution.datasources.v2.DataSourceV2Relation", "create")
    plan = create(table, nothing, nothing)
    session: Any = spark._jsparkSession  # type: ignore[attr-defined]
    return DataFrame(jvm.static("classic.Dataset", "ofRows")(session, plan), spark)


@lru_cache(SESSIONS_MAX)
def _planning_jvm(spark: SparkSession) -> Jvm | None:
    """The JVM of a session, which can call this process from now on; None: tasks alone read."""
    if not SPARK.is_known:
        return None
    try:
        add_format_alone(spark)
        listen(spark)
    except Exception as error:  # noqa: BLE001 (the frame has the same rows)
        _log.warning("nothing is pushed down to frames of read_table: %s", error)
        return None
    return Jvm(spark)


class FrameTable(ReadTable):
    """The columns and rows of a scan as a table.

    options: Those of the scan.
    schema: The JVM's, of its columns.
    """

    def __init__(self, jvm: Jvm, scan: Scan, options: SourceOptions, schema: Any) -> None:
        super().__init__(jvm, scan.store.location)
        self._table = Table(scan.store, scan.snapshot)
        self._options = options
        self._java_schema = schema

    @property
    def _schema(self) -> Any:
        return self._java_schema

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a read."""
        return TableScanBuilder(self._jvm, self._table, self._schema, {}, self._options)
