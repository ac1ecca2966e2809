"""``UPDATE``, ``DELETE`` and ``MERGE INTO`` a table of the catalog, each as one snapshot.

Spark decides which rows change how, and reads the table with the scan planned here. The rows of the
decision come back through `takeover`: tasks delete by row id, and write new values to new files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion_table import Scan, Table
from fermion_table.engine import CommitMetadata, FileSplit, FoundRows, primary_key_of
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces, texts
from spark_ext.catalog.scans import TableScanBuilder
from spark_ext.catalog.takeover import ChangeQuery, empty_query, spark_errors, written_node
from spark_ext.catalog.writes import WriteBuilder
from spark_ext.column_names import quoted
from spark_ext.errors import UnsupportedBySpark
from spark_ext.options import Use, known_options, parse_options
from spark_ext.reading.row_places import sequences_of
from spark_ext.writing.finished_tasks import delete_files
from spark_ext.writing.job import commit_arguments, files_of
from spark_ext.writing.keyed_changes import run_keyed_changes
from spark_ext.writing.row_changes import (
    ChangeColumns,
    RowChanges,
    run_changes,
    why_unfit,
)

_WRITE = "connector.write."
_REFERENCE = "connector.expressions.NamedReference"


class RowLevelOperation(Callback):
    """One statement, its own builder: how it reads the table, and how it writes to it.

    table, schema: The table at the snapshot that Spark plans with, and Spark's schema: the JVM's.
    info: Spark's: command and options.

    Attributes:
    action, scans: The command in lower case, and what Spark reads of the table for it.
    """

    Java = interfaces(
        _WRITE + "RowLevelOperationBuilder",
        _WRITE + "SupportsDelta",
    )

    def __init__(self, jvm: Jvm, table: Table, schema: Any, info: Any) -> None:
        super().__init__(jvm)
        self.table = table
        self._schema = schema
        self._command = info.command()
        self.action: str = self._command.toString().lower()
        self.scans: list[Scan] = []

    def build(self) -> Any:
        """The operation."""
        return self

    def description(self) -> str:
        """For plans."""
        return f"{self.action} {self.table.location}"

    def command(self) -> Any:
        """What the statement is."""
        return self._command

    def rowId(self) -> Any:  # noqa: N802 - Java's name
        """The columns that tell rows of the table apart."""
        key = primary_key_of(self.table.schema)
        names = [self.table.schema.row_id_name] if key is None else key.names
        return self._references(list(map(quoted, names)))

    def requiredMetadataAttributes(self) -> Any:  # noqa: N802 - Java's name
        """Of a primary-key table the sequence fields of the row as it is."""
        return self._references(list(map(quoted, sequences_of(self.table.schema))))

    def representUpdateAsDeleteAndInsert(self) -> bool:  # noqa: N802 - Java's name
        """Whether an updated row comes as two: no."""
        return False

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan what is read of the table."""
        known_options(texts(options.asCaseSensitiveMap()), Use.CATALOG_CHANGE)
        return RowLevelScanBuilder(self._jvm, self, self._schema)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan the write."""
        given = known_options(texts(info.options().asCaseSensitiveMap()), Use.CATALOG_CHANGE)
        return RowLevelWriteBuilder(self._jvm, self, given)

    def found(self, done: RowChanges) -> FoundRows:
        """What the statement's tasks have decided."""
        relied_on: set[str] = set()
        is_keyed = primary_key_of(self.table.schema) is not None
        # The partners of rows that stay are not known.
        if self.action == "merge" and done.counts.inserted and not is_keyed:
            relied_on = {file.file for scan in self.scans for file in scanned_files(scan)}
        return FoundRows(
            base=self.table.snapshot,
            action=self.action,
            filters=tuple(scan.filter for scan in self.scans),
            gone=done.gone,
            moved=done.moved,
            relied_on=frozenset(relied_on),
            kind="delete" if self.action == "delete" else "upsert",
        )

    def _references(self, names: list[str]) -> Any:
        make = self._jvm.type("connector.expressions.Expressions").column
        return self._jvm.array(_REFERENCE, [make(name) for name in names])


def commit_metadata(table: Table, options: Mapping[str, str]) -> CommitMetadata:
    """The identity that the options of a statement give its commit.

    Raises InvalidArgumentError: It is half of one.
    """
    given = parse_options({**options, "path": table.location})
    return CommitMetadata(commit_user=given.commit_user, commit_identifier=given.commit_identifier)


def scanned_files(scan: Scan) -> Iterator[FileSplit]:
    """The files that a scan reads."""
    return (file for split in scan.plan().splits for file in split.files)


class RowLevelScanBuilder(TableScanBuilder):
    """Plans what a statement reads of the table that it changes, and tells it."""

    Java = TableScanBuilder.Java

    def __init__(self, jvm: Jvm, operation: RowLevelOperation, schema: Any) -> None:
        super().__init__(jvm, operation.table, schema, {})
        self._operation = operation

    def pushLimit(self, limit: int) -> bool:  # noqa: N802 - Java's name
        """Read all rows: each may change."""
        return False

    def supportCompletePushDown(self, aggregation: Any) -> bool:  # noqa: N802 - Java's name
        """No: rows are wanted."""
        return False

    def pushAggregation(self, aggregation: Any) -> bool:  # noqa: N802 - Java's name
        """No: rows are wanted."""
        return False

    def build(self) -> Any:
        """The scan."""
        made = super().build()
        self._operation.scans.append(made.scan)
        return made

    def _scan(self, columns: Sequence[tuple[str, ...]]) -> Scan:
        return replace(super()._scan(columns), merges_level0=True)


class RowLevelWriteBuilder(WriteBuilder):
    """Plans the write of a statement."""

    Java = interfaces(_WRITE + "DeltaWriteBuilder")

    def __init__(self, jvm: Jvm, operation: RowLevelOperation, options: dict[str, str]) -> None:
        super().__init__(jvm)
        self._operation = operation
        self._options = options

    def build(self) -> Any:
        """The write.

        Raises UnsupportedBySpark: Statements that change rows do not work with this Spark.
        """
        reason = self._jvm.row_level_refusal
        if reason is not None:
            action = self._operation.action.upper()
            raise UnsupportedBySpark(
                f"{action}: changing rows by SQL does not work with this Spark ({reason}); use "
                "spark_ext.merge, or Table.update, Table.delete and Table.merge"
            )
        return RowLevelWrite(self._jvm, self._operation, self._options)


class RowLevelWrite(Callback):
    """The write of a statement: it runs the query before Spark would."""

    # The first interface decides what `toBatch` gives: a batch write of plain rows.
    Java = interfaces(
        _WRITE + "Write",
        _WRITE + "DeltaWrite",
    )

    def __init__(self, jvm: Jvm, operation: RowLevelOperation, options: dict[str, str]) -> None:
        super().__init__(jvm)
        self._operation = operation
        self._options = options

    def description(self) -> str:
        """For plans."""
        return self._operation.description()

    def toBatch(self) -> Any:  # noqa: N802 - Java's name
        """Run the statement's query in tasks, and leave Spark nothing to write."""
        jvm, table, action = self._jvm, self._operation.table, self._operation.action
        metadata = commit_metadata(table, self._options)
        unfit = why_unfit(table)
        if unfit is not None and action == "update":
            raise UnsupportedBySpark(unfit)
        node = written_node(jvm, self)
        with spark_errors(jvm):
            query = ChangeQuery(jvm, node)
            done = self._run(query)
        batch = RowLevelBatch(jvm, self._operation, done, metadata)
        try:
            empty_query(jvm, node)
        except BaseException:
            batch.abort(())
            raise
        return batch

    def _run(self, query: ChangeQuery) -> RowChanges:
        """Carry out the changes that a query tells of, in tasks."""
        table, row = self._operation.table, query.row()
        if row is not None:  # Spark gives it virtual columns, too, where a condition names one
            row = {name: place for name, place in row.items() if name in table.schema.by_name}
        columns = ChangeColumns.of(table)
        names = {**(row or {}), columns.operation: query.operation}
        if primary_key_of(table.schema) is None:
            (names[columns.row],) = query.row_id().values()
            return run_changes(query.frame(names), table, None if row is None else list(row))
        fields = sequences_of(table.schema)
        for name, place in query.before().items():
            names[columns.old[fields.get(name, name)]] = place
        return run_keyed_changes(query.frame(names), table, self._operation.action)

    def toStreaming(self) -> Any:  # noqa: N802 - Java's name
        """Refuse a stream."""
        raise InvalidArgumentError(f"{self._operation.action}: a statement is no stream")


class RowLevelBatch(Callback):
    """What is left to Spark once tasks are done: no rows, and then to commit or to abort."""

    Java = interfaces(_WRITE + "BatchWrite")

    def __init__(
        self, jvm: Jvm, operation: RowLevelOperation, done: RowChanges, metadata: CommitMetadata
    ) -> None:
        super().__init__(jvm)
        self._operation = operation
        self._done = done
        self._metadata = metadata
        self._is_over = False

    def createBatchWriterFactory(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """A writer for no rows."""
        name = "org.apache.spark.sql.execution.datasources.noop.NoopWriterFactory$"
        return self._jvm.type("java.lang.Class").forName(name).getField("MODULE$").get(None)

    def useCommitCoordinator(self) -> bool:  # noqa: N802 - Java's name
        """No: tasks have nothing to commit."""
        return False

    def onDataWriterCommit(self, message: Any) -> None:  # noqa: N802 - Java's name
        """Nothing to do."""

    def commit(self, messages: Any, *summary: Any) -> None:
        """Publish the statement's changes as one snapshot."""
        self._is_over = True
        operation, done = self._operation, self._done
        rows = operation.found(done)
        operation.table.commit_found(rows, done.messages, **commit_arguments(self._metadata))

    def abort(self, messages: Any) -> None:
        """Delete what tasks wrote, unless the commit has begun, which deletes its files itself."""
        if not self._is_over:
            self._is_over = True
            written = [path for message in self._done.messages for path in files_of(message)]
            delete_files(self._operation.table, written)
