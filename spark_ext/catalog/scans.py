"""Plans a read for Spark: columns, filters, limits and aggregates are pushed down.

The driver makes the plan here. Tasks run Spark's own scan of a Python data source, with our
function and the splits of each task.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from fermion.predicate import Expression, parse_filter
from fermion_table import Scan, ScanPlan, Table
from spark_ext.catalog.aggregates import Answer, AnswerScan, answers
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.predicates import filters_of
from spark_ext.datasource.source import FORMAT
from spark_ext.options import Use, known_options, options_of, parse_options
from spark_ext.reading.task import ReadTask, column_paths
from spark_ext.types import exchange_schema

_READ = "connector.read."
_PYTHON = "execution.datasources.v2.python."


class TableScanBuilder(Callback):
    """Collects what Spark pushes down, and makes the scan.

    Parameters
    ----------
    table
        At the snapshot to read.
    schema
        Spark's schema of all columns: the JVM's.
    options
        Of the query.
    """

    Java = interfaces(
        _READ + "SupportsPushDownRequiredColumns",
        _READ + "SupportsPushDownV2Filters",
        _READ + "SupportsPushDownLimit",
        _READ + "SupportsPushDownAggregates",
    )

    def __init__(self, jvm: Jvm, table: Table, schema: Any, options: dict[str, str]) -> None:
        super().__init__(jvm)
        self._table = table
        self._schema = schema
        self._options = options
        self._given = parse_options({**options, "path": table.location})
        self._pushed: list[tuple[Any, Expression]] = []
        self._limit: int | None = None
        self._answered: list[Answer] | None = None

    def pruneColumns(self, schema: Any) -> None:  # noqa: N802 - Java's name
        """The columns, and fields within structs, that the query needs."""
        self._schema = schema

    def pushPredicates(self, predicates: Sequence[Any]) -> Any:  # noqa: N802 - Java's name
        """Accept the filters that have an exact counterpart; Spark applies all of them again."""
        listed = list(predicates)
        self._pushed = filters_of(listed, self._table.schema.to_arrow(field_ids=False))
        return self._jvm.array("connector.expressions.filter.Predicate", listed)

    def pushedPredicates(self) -> Any:  # noqa: N802 - Java's name
        """The filters that were accepted."""
        accepted = [predicate for predicate, _ in self._pushed]
        return self._jvm.array("connector.expressions.filter.Predicate", accepted)

    def supportsIterativePushdown(self) -> bool:  # noqa: N802 - Java's name
        """Whether Spark may push filters several times: no, once."""
        return False

    def pushLimit(self, limit: int) -> bool:  # noqa: N802 - Java's name
        """Read only the first files that hold this many rows; Spark applies the limit itself."""
        self._limit = limit
        return True

    def isPartiallyPushed(self) -> bool:  # noqa: N802 - Java's name
        """Whether Spark still has to apply the limit."""
        return True

    def supportCompletePushDown(self, aggregation: Any) -> bool:  # noqa: N802 - Java's name
        """Whether metadata alone can answer an aggregation."""
        return self._answers(aggregation) is not None

    def pushAggregation(self, aggregation: Any) -> bool:  # noqa: N802 - Java's name
        """Answer from the snapshot's metadata; Spark calls this if no filter is left to it."""
        self._answered = self._answers(aggregation)
        return self._answered is not None

    def build(self) -> Any:
        """The scan."""
        if self._answered is not None:
            return AnswerScan(self._jvm, f"{FORMAT} {self._table.location}", self._answered)
        filters = [expression for _, expression in self._pushed]
        given = parse_filter(self._given.filter)
        if given is not None:
            filters.append(given)
        schema = StructType.fromJson(json.loads(self._schema.json()))
        scan = self._table.scan(
            columns=column_paths(schema),
            filter=reduce(and_, filters) if filters else None,
            batch_id=self._given.batch_id,
        )
        return TableScan(self._jvm, scan, schema, self._schema, self._limit, self._options)

    def _answers(self, aggregation: Any) -> list[Answer] | None:
        if self._pushed or list(aggregation.groupByExpressions()):
            return None
        known_options(self._options, Use.CATALOG_READ)
        given = self._given
        scan = self._table.scan(columns=[], filter=given.filter, batch_id=given.batch_id)
        return answers(scan, list(aggregation.aggregateExpressions()))


class TableScan(Callback):
    """A planned read.

    Parameters
    ----------
    scan
        Of the table.
    schema, java_schema
        The columns that Spark gets, in Python and in the JVM.
    limit
        The number of rows that Spark needs; None: all.
    options
        Of the query.
    """

    Java = interfaces(
        _READ + "SupportsReportStatistics",
    )

    def __init__(
        self,
        jvm: Jvm,
        scan: Scan,
        schema: StructType,
        java_schema: Any,
        limit: int | None,
        options: Mapping[str, str],
    ) -> None:
        super().__init__(jvm)
        self._scan = scan
        self._schema = schema
        self._java_schema = java_schema
        self._limit = limit
        self._options = options
        self._batch: Any = None

    def readSchema(self) -> Any:  # noqa: N802 - Java's name
        """The columns of the result."""
        return self._java_schema

    def description(self) -> str:
        """For ``EXPLAIN``: how many files are read, and what was pushed down."""
        scan = self._scan
        parts = [
            f"{FORMAT} {scan.store.location}",
            f"snapshot {scan.snapshot.id}",
            f"{len(self._plan.splits):,} of {scan.snapshot.totals.files:,} files",
        ]
        if scan.filter is not None:
            parts.append(f"filter {scan.filter.to_sql()}")
        if self._limit is not None:
            parts.append(f"limit {self._limit}")
        return ", ".join(parts)

    def toBatch(self) -> Any:  # noqa: N802 - Java's name
        """Spark's own scan of a Python data source, with our plan in it."""
        if self._batch is None:
            known_options(self._options, Use.CATALOG_READ)
            jvm = self._jvm
            planned = self._plan.tasks(tasks_min=jvm.context.defaultParallelism)
            read = ReadTask(self._scan.reader, exchange_schema(self._schema))
            function = CloudPickleSerializer().dumps((read, self._schema))
            utilities = jvm.type("org.apache.spark.api.python.PythonUtils")
            tasks = utilities.toSeq([pickle.dumps(list(splits)) for splits in planned])
            source = jvm.type(_PYTHON + "PythonDataSourceV2")()
            source.setShortName(FORMAT)
            source.setReadInfo(
                jvm.type(_PYTHON + "PythonDataSourceReadInfo")(bytearray(function), tasks)
            )
            self._batch = jvm.type(_PYTHON + "PythonBatch")(
                source, FORMAT, self._java_schema, jvm.text_map({})
            )
        return self._batch

    def toMicroBatchStream(self, checkpoint: str) -> Any:  # noqa: N802 - Java's name
        """Spark's own stream of a Python data source: ours, which opens the table by its path."""
        known_options(self._options, Use.CATALOG_STREAM_READ)
        jvm, store = self._jvm, self._scan.store
        options = {**self._options, **options_of(store)}
        source = jvm.type(_PYTHON + "PythonDataSourceV2")()
        source.setShortName(FORMAT)
        filters = jvm.array("sources.Filter")
        made = jvm.type(_PYTHON + "PythonScan")(
            source, FORMAT, self._java_schema, jvm.text_map(options), filters
        )
        return made.toMicroBatchStream(checkpoint)

    def estimateStatistics(self) -> Any:  # noqa: N802 - Java's name
        """The numbers of rows and bytes, from which Spark chooses joins."""
        rows = self._plan.rows
        if self._limit is not None:
            rows = min(rows, self._limit)
        row_bytes = self._java_schema.defaultSize()
        return TableStatistics(self._jvm, rows, max(1, rows * row_bytes))

    def estimateSizeInBytes(self) -> Any:  # noqa: N802 - Java's name
        """The number of bytes."""
        return self.estimateStatistics().sizeInBytes()

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802 - Java's name
        """Whether the statistics count only rows that filters select: they count files."""
        return False

    def supportedCustomMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:  # noqa: N802 - Java's name
        """Rows: Spark's scan of Python sources supports nothing else."""
        return self._jvm.type(_READ + "Scan$ColumnarSupportMode").UNSUPPORTED

    @property
    def _plan(self) -> ScanPlan:
        """The plan, without the files beyond a limit."""
        plan = self._scan.plan()
        if self._limit is None or self._scan.filter is not None:
            return plan
        rows = 0
        for number, split in enumerate(plan.splits):
            if rows >= self._limit:
                return replace(plan, splits=plan.splits[:number])
            rows += split.rows_wanted if split.is_exact else 0
        return plan


class TableStatistics(Callback):
    """Estimates of a scan before it runs."""

    Java = interfaces(
        _READ + "Statistics",
    )

    def __init__(self, jvm: Jvm, rows: int, size: int) -> None:
        super().__init__(jvm)
        self._rows = rows
        self._size = size

    def sizeInBytes(self) -> Any:  # noqa: N802 - Java's name
        """In Spark's own form, of the columns read."""
        return self._jvm.type("java.util.OptionalLong").of(self._size)

    def numRows(self) -> Any:  # noqa: N802 - Java's name
        """Before filters."""
        return self._jvm.type("java.util.OptionalLong").of(self._rows)

    def columnStats(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.type("java.util.HashMap")()
