"""The changes of a table as a table of the catalog: what a read with readChangeFeed loads.

The read itself is that of ``format("fermion")`` with the same option. Nothing is pushed down: rows
that a commit carries over are told by the columns that are read, so these must not depend on what
else a query does with the changes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fermion_table import Table
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces, texts
from spark_ext.catalog.described import ReadTable
from spark_ext.catalog.writes import python_scan
from spark_ext.datasource.changes import check_start
from spark_ext.datasource.source import FORMAT
from spark_ext.options import Use, known_options, parse_options
from spark_ext.types import TIME_SETTING, spark_schema

_READ = "connector.read."


class ChangeFeed(ReadTable):
    """What commits have changed in a table up to a snapshot, or to the newest."""

    can = ("BATCH_READ", "MICRO_BATCH_READ")

    def __init__(self, jvm: Jvm, name: str, table: Table, last: int | None) -> None:
        super().__init__(jvm, name)
        self._table = table
        self._last = table.snapshot.id if last is None else last

    @cached_property
    def _schema(self) -> Any:
        changes = self._table.scan_changes(self._last, self._last)
        enabled = self._jvm.spark.conf.get(TIME_SETTING, "false") == "true"
        schema = spark_schema(changes.schema, time_enabled=enabled, where=f"table {self._name}")
        return self._jvm.schema(schema.json())

    def id(self) -> None:
        """None: changes have no identity of their own."""

    def version(self) -> str:
        """The last snapshot."""
        return str(self._last)

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a read."""
        given = known_options(
            texts(options.asCaseSensitiveMap()), Use.CATALOG_READ, Use.CATALOG_STREAM_READ
        )
        return ChangeFeedScan(self._jvm, self._table, self._last, self._schema, given)


class ChangeFeedScan(Callback):
    """A read of changes, which is its own builder; the schema is the JVM's."""

    Java = interfaces(
        _READ + "ScanBuilder",
        _READ + "Scan",
    )

    def __init__(
        self, jvm: Jvm, table: Table, last: int, schema: Any, options: dict[str, str]
    ) -> None:
        super().__init__(jvm)
        self._table = table
        self._last = last
        self._schema = schema
        self._options = options

    def build(self) -> Any:
        """The scan."""
        return self

    def readSchema(self) -> Any:  # noqa: N802 - Java's name
        """All columns."""
        return self._schema

    def description(self) -> str:
        """For ``EXPLAIN``."""
        return f"{FORMAT} {self._table.location}, changes"

    def toBatch(self) -> Any:  # noqa: N802 - Java's name
        """The changes after the snapshot that the options name."""
        known_options(self._options, Use.CATALOG_READ)
        given = {**self._options, "endingSnapshotId": str(self._last)}
        check_start(parse_options({**given, "path": self._table.location}))
        return python_scan(self._jvm, self._table.store, self._schema, given).toBatch()

    def toMicroBatchStream(self, checkpoint: str) -> Any:  # noqa: N802 - Java's name
        """The rows of the table as insertions, and then the changes of each commit."""
        known_options(self._options, Use.CATALOG_STREAM_READ)
        scan = python_scan(self._jvm, self._table.store, self._schema, self._options)
        return scan.toMicroBatchStream(checkpoint)
