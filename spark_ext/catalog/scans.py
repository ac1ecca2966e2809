"""Plans a read for Spark: columns, filters, limits and aggregates are pushed down.

The driver makes the plan here. Tasks run Spark's own scan of a Python data source, with our
function and the splits of each task.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property, reduce
from itertools import takewhile
from operator import and_
from types import MappingProxyType
from typing import Any
from weakref import finalize

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from fermion.engine import PrunedVariant, parse_path
from fermion.errors import InvalidArgumentError
from fermion.predicate import Expression, parse_filter
from fermion_table import Scan, ScanPlan, Table
from fermion_table.engine import ScanPart, Split, first_rows
from spark_ext.aggregation.groups import Grouping
from spark_ext.aggregation.task import AggregateTask
from spark_ext.aggregation.whole import are_sums_held, whole_schema
from spark_ext.catalog.aggregates import Answer, AnswerScan, answers
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces, listed
from spark_ext.catalog.nodes import Function, NotTheSame
from spark_ext.catalog.translator import Translator
from spark_ext.catalog.writes import python_batch, python_scan
from spark_ext.datasource.source import FORMAT
from spark_ext.options import SourceOptions, Use, known_options, parse_options
from spark_ext.reading.first_rows import SORTED_ROWS_MAX, FirstRowsTask, SortKey
from spark_ext.reading.row_places import Parts, read_task, scanned_paths
from spark_ext.reading.task import PartsTask, ReadTask, parts_of, splits_of
from spark_ext.reading.unscaled import UnscaledTask, unscaled_schema
from spark_ext.session import settings
from spark_ext.types import exchange_schema, spark_schema
from spark_ext.versions import BARE_ROWS, SPARK, VARIANT_PARTS

ONE_TASK_VALUES_MAX, ONE_TASK_SPLITS_MAX = 8_000_000, 8
"""Values and files that one task reads of an aggregation without keys: if many tasks can run at
once, in less time than Spark needs for a second stage. Two tasks would take half of it at best."""
NESTED_PRUNING = "spark.sql.optimizer.nestedSchemaPruning.enabled"
_READ = "connector.read."


class TableScanBuilder(Callback):
    """Collects what Spark pushes down to a table at a snapshot, and makes the scan.

    schema: The JVM's, of all columns.
    given: What the options say: their filter and batch are part of the read.
    """

    Java = interfaces(
        _READ + "SupportsPushDownRequiredColumns",
        _READ + "SupportsPushDownV2Filters",
        _READ + "SupportsPushDownLimit",
        _READ + "SupportsPushDownTopN",
        _READ + "SupportsPushDownAggregates",
        *([_READ + "SupportsPushDownVariantExtractions"] if SPARK.has(VARIANT_PARTS) else []),
    )

    def __init__(
        self,
        jvm: Jvm,
        table: Table,
        schema: Any,
        options: dict[str, str],
        given: SourceOptions | None = None,
    ) -> None:
        super().__init__(jvm)
        self._table = table
        self._translator = Translator(table)
        self._schema = schema
        self._options = options
        self._given = given or parse_options({**options, "path": table.location})
        self._pushed: list[tuple[Any, Expression]] = []
        self._wide: list[Expression] = []
        self._limit: int | None = None
        self._order: tuple[SortKey, ...] = ()
        self._answered: list[Answer] | None = None
        self._is_aggregated = True
        self._grouping: Grouping | None = None
        self._is_whole = False
        self._shown: list[str] = []
        self._parts: dict[str, str] = {}
        self._held = ExitStack()
        if self._given.columns is None and self._translator.is_wide_and_flat:
            self._prune_whole_columns()

    def _prune_whole_columns(self) -> None:
        """Let Spark compare no fields within columns, until it has told the columns of the query.

        Of tables that have only columns it finds the same, but compares each with each. The setting
        comes back in any case: if Spark gives up, when it forgets this object.
        """
        self._held.enter_context(settings(self._jvm.spark, {NESTED_PRUNING: "false"}))
        finalize(self, self._held.close)

    def pruneColumns(self, schema: Any) -> None:  # noqa: N802 - Java's name
        """The columns, and fields within structs, that the query needs."""
        self._held.close()
        if SPARK.has(BARE_ROWS) or schema.length():
            self._schema = schema
        else:
            first = self._jvm.array("types.StructField", listed(self._schema.fields())[:1])
            self._schema = self._jvm.type("types.StructType")(first)

    def supportsDeferCastError(self) -> bool:  # noqa: N802 - Java's name
        """Yes: Spark casts all values itself."""
        return True

    def pushVariantExtractions(self, extractions: Sequence[Any]) -> Any:  # noqa: N802 - Java's name
        """Read only the parts of Variant columns that the query needs, and accept none.

        So Spark takes them out of values that lack the other parts, by its own rules.
        """
        paths: dict[str, set[tuple[str, ...]]] = {}
        with_nulls: set[str] = set()
        for each in extractions:
            name, *below = each.columnName()
            metadata = json.loads(each.metadata().json())["__VARIANT_METADATA_KEY"]
            if below or "castErrorFor" in metadata:  # the latter would be texts of errors
                continue
            steps: Sequence[str | int] = ()
            with suppress(InvalidArgumentError):
                steps = parse_path(metadata["path"])
            names = takewhile(lambda step: isinstance(step, str), steps)
            paths.setdefault(name, set()).add(tuple(map(str, names)))
            if each.expectedDataType().typeName() == "variant":
                with_nulls.add(name)
        for name, wanted in paths.items():
            if () not in wanted:
                self._parts[name] = PrunedVariant(name, wanted, name in with_nulls).to_sql()
        return self._jvm.flags(len(extractions))

    def pushPredicates(self, predicates: Sequence[Any]) -> Any:  # noqa: N802 - Java's name
        """Accept the filters that have an exact counterpart; Spark applies only the others.

        Those of parts of Variant columns select rows here, too, and are not accepted.
        """
        left = []
        for predicate in listed(predicates):
            try:
                self._pushed.append((predicate, self._translator.scan_filter(predicate)))
            except NotTheSame:
                left.append(predicate)
                with suppress(NotTheSame):
                    self._wide.append(self._translator.wide_filter(predicate))
        return self._jvm.array("connector.expressions.filter.Predicate", left)

    def pushedPredicates(self) -> Any:  # noqa: N802 - Java's name
        """The filters that were accepted."""
        accepted = [predicate for predicate, _ in self._pushed]
        return self._jvm.array("connector.expressions.filter.Predicate", accepted)

    def supportsIterativePushdown(self) -> bool:  # noqa: N802 - Java's name
        """Whether Spark may push filters several times: no, once."""
        return False

    def pushLimit(self, limit: int) -> bool:  # noqa: N802 - Java's name
        """Read only the first rows of the first files; Spark applies the limit itself."""
        self._limit = limit
        return True

    def pushTopN(self, orders: Sequence[Any], limit: int) -> bool:  # noqa: N802 - Java's name
        """Let each task return its first rows in an order of columns; Spark sorts these."""
        if self._is_whole or not 0 < limit <= SORTED_ROWS_MAX:
            return False
        try:
            self._order = tuple(map(self._translator.sort_key, listed(orders)))
        except NotTheSame:
            return False
        return self.pushLimit(limit)

    def isPartiallyPushed(self) -> bool:  # noqa: N802 - Java's name
        """Whether Spark still has to sort and to apply the limit."""
        return True

    def supportCompletePushDown(self, aggregation: Any) -> bool:  # noqa: N802 - Java's name
        """Whether metadata alone can answer an aggregation, or one task.

        Of others Spark asks for partial results, where an average is a sum and a count: only here
        it still says so.
        """
        has_keys = bool(len(aggregation.groupByExpressions()))
        try:
            functions = self._translator.functions(aggregation)
        except NotTheSame:
            self._is_aggregated = False
            return False
        if not has_keys:
            self._answered = self._answers(functions)
            if self._answered is None:
                self._grouping = self._whole(functions)
        if self._answered is not None or self._grouping is not None:
            self._is_whole = True
            return True
        self._is_aggregated &= self._translator.averages_fit(functions)
        return False

    def pushAggregation(self, aggregation: Any) -> bool:  # noqa: N802 - Java's name
        """Answer from metadata, or let the tasks aggregate, if no filter is left to Spark."""
        if self._is_whole:
            return True
        if not self._is_aggregated:
            return False
        try:
            functions = self._translator.functions(aggregation)
            keys = self._translator.keys(aggregation)
            if not (functions or keys):
                return False
            self._grouping = self._translator.grouping(keys, functions)
        except NotTheSame:
            return False
        self._shown = [function.text for function in functions]
        if keys:
            by = listed(aggregation.groupByExpressions())
            self._shown.append(f"by {', '.join(key.toString() for key in by)}")
        return True

    def build(self) -> Any:
        """The scan."""
        self._held.close()
        if self._answered is not None:
            return AnswerScan(self._jvm, f"{FORMAT} {self._table.location}", self._answered)
        if self._grouping is not None:
            return self._aggregated(self._grouping)
        schema = StructType.fromJson(json.loads(self._schema.json()))
        scan = self._scan(scanned_paths(schema, self._table.schema, self._parts))
        ordered = (self._limit, self._order)
        return TableScan(
            self._jvm, scan, schema, self._schema, self._options, *ordered, self._parts
        )

    def _aggregated(self, grouping: Grouping) -> AggregatedScan:
        scan = self._scan(sorted(grouping.columns()))
        return AggregatedScan(
            self._jvm, scan, grouping, self._shown, self._options, is_whole=self._is_whole
        )

    def _scan(self, columns: Sequence[tuple[str, ...]]) -> Scan:
        filters = [*(expression for _, expression in self._pushed), *self._wide]
        given = parse_filter(self._given.filter)
        if given is not None:
            filters.append(given)
        return self._table.scan(
            columns=columns,
            filter=reduce(and_, filters) if filters else None,
            batch_id=self._given.batch_id,
            blobs=self._given.blobs,
        )

    def _whole(self, functions: Sequence[Function]) -> Grouping | None:
        """What one task computes of all rows; None if it would read too much.

        Averages are left to Spark.
        """
        if not functions or any(function.kind == "Avg" for function in functions):
            return None
        plan = self._scan([]).plan()
        rows, tasks = plan.rows, self._jvm.context.defaultParallelism
        most = ONE_TASK_VALUES_MAX * tasks // max(tasks - 1, 1)
        if rows > most or len(plan.splits) > ONE_TASK_SPLITS_MAX or not self._is_aggregated:
            return None
        try:
            grouping = self._translator.grouping([], functions)
        except NotTheSame:
            return None
        if rows * len(grouping.columns()) > most:
            return None
        if not are_sums_held(grouping, rows, self._translator.bounds):
            return None
        self._shown = [function.text for function in functions]
        return grouping

    def _answers(self, functions: Sequence[Function]) -> list[Answer] | None:
        """What metadata say of all rows."""
        if self._pushed:
            return None
        known_options(self._options, Use.CATALOG_READ)
        given = self._given
        scan = self._table.scan(columns=[], filter=given.filter, batch_id=given.batch_id)
        return answers(scan, functions)


class TableScan(Callback):
    """A planned read of a scan.

    limit, order: The number of rows that Spark needs (None: all), and by what they are the first.
    parts: See `spark_ext.reading.row_places`.
    """

    Java = interfaces(_READ + "SupportsReportStatistics")

    def __init__(
        self,
        jvm: Jvm,
        scan: Scan,
        schema: StructType,
        java_schema: Any,
        options: Mapping[str, str],
        limit: int | None = None,
        order: tuple[SortKey, ...] = (),
        parts: Parts = MappingProxyType({}),
    ) -> None:
        super().__init__(jvm)
        self._scan = scan
        self._schema = schema
        self._java_schema = java_schema
        self._limit = limit
        self._order = order
        self._parts = parts
        self._options = options
        self._batch: Any = None

    @property
    def scan(self) -> Scan:
        """Of the table."""
        return self._scan

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
            by = f" by {', '.join(map(str, self._order))}" if self._order else ""
            parts.append(f"limit {self._limit}{by}")
        parts += self._parts.values()
        return ", ".join(parts)

    def toBatch(self) -> Any:  # noqa: N802 - Java's name
        """Spark's own scan of a Python data source, with our plan in it."""
        if self._batch is None:
            known_options(self._options, Use.CATALOG_READ)
            jvm = self._jvm
            task: Any = self._task()
            parts = self._planned_parts if self._is_all else None
            if parts is not None:
                task = PartsTask(task, parts[0])
            planned = self._tasks() if parts is None else [[part] for part in parts[1]]
            schema, java_schema = unscaled_schema(self._schema), self._java_schema
            if schema is not self._schema:
                task = UnscaledTask(task, exchange_schema(schema))
                java_schema = jvm.schema(schema.json())
            function = CloudPickleSerializer().dumps((task, schema))
            tasks = [pickle.dumps(list(splits)) for splits in planned]
            self._batch = python_batch(jvm, java_schema, function, tasks)
        return self._batch

    def toMicroBatchStream(self, checkpoint: str) -> Any:  # noqa: N802 - Java's name
        """Spark's own stream of a Python data source: ours, which opens the table by its path."""
        known_options(self._options, Use.CATALOG_STREAM_READ)
        scan = python_scan(self._jvm, self._scan.store, self._java_schema, self._options)
        return scan.toMicroBatchStream(checkpoint)

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

    def _task(self) -> ReadTask | FirstRowsTask | AggregateTask:
        """What a task does with its splits."""
        task = read_task(self._scan, self._schema, exchange_schema(self._schema), self._parts)
        if self._limit is None:
            return task
        keys, paths = None, list(dict.fromkeys(key.path for key in self._order))
        scanned = scanned_paths(self._schema, self._scan.table_schema, self._parts)
        if paths and {*scanned} != {*paths}:
            scan = self._scan.select(paths)
            where = f"table {scan.store.location}"
            keys = ReadTask(scan.reader, exchange_schema(spark_schema(scan.schema, where=where)))
        return FirstRowsTask(task, keys, self._order, self._limit)

    @property
    def _planned_parts(self) -> tuple[Scan, Iterator[ScanPart[Scan]]] | None:
        """See `parts_of`."""
        return parts_of(self._scan, self._jvm.context.defaultParallelism)

    @property
    def _is_all(self) -> bool:
        """Whether all files are read, as any of them may hold rows that are wanted."""
        return self._limit is None or bool(self._order) or self._scan.filter is not None

    def _tasks(self) -> list[tuple[Split, ...]]:
        """The splits of each task."""
        return self._plan.tasks(tasks_min=self._jvm.context.defaultParallelism)

    @cached_property
    def _plan(self) -> ScanPlan:
        """The plan, without what is beyond a limit."""
        plan = self._scan.plan()
        if self._is_all:
            return plan
        assert self._limit is not None
        parts = self._planned_parts
        splits = plan.splits if parts is None else splits_of(*parts)
        return replace(plan, splits=tuple(first_rows(splits, self._limit)))


class AggregatedScan(TableScan):
    """A planned read whose tasks return partial results of aggregates, or one task the result.

    The scan has the columns of the expressions; what is shown is for ``EXPLAIN``.
    """

    Java = TableScan.Java

    def __init__(
        self,
        jvm: Jvm,
        scan: Scan,
        grouping: Grouping,
        shown: Sequence[str],
        options: Mapping[str, str],
        *,
        is_whole: bool,
    ) -> None:
        schema = whole_schema(grouping) if is_whole else grouping.schema()
        super().__init__(jvm, scan, schema, jvm.schema(schema.json()), options)
        self._grouping = grouping
        self._shown = shown
        self._is_whole = is_whole

    def description(self) -> str:
        """For ``EXPLAIN``: as of a scan, and what the tasks aggregate."""
        where = "one task" if self._is_whole else "tasks"
        return f"{super().description()}, aggregated in {where}: {', '.join(self._shown)}"

    def estimateStatistics(self) -> Any:  # noqa: N802 - Java's name
        """The number of rows: without keys one for each task, else at most those read."""
        rows = self._plan.rows if self._grouping.keys else self._jvm.context.defaultParallelism
        return TableStatistics(self._jvm, rows, max(1, rows * self._java_schema.defaultSize()))

    def _task(self) -> AggregateTask:
        where = f"table {self._scan.store.location}"
        columns = exchange_schema(spark_schema(self._scan.schema, where=where))
        return AggregateTask(
            self._scan.reader,
            columns,
            self._grouping,
            exchange_schema(self._schema),
            self._is_whole,
        )

    def _tasks(self) -> list[tuple[Split, ...]]:
        """As of a scan; without keys at least one task returns the aggregates of no row."""
        if self._is_whole:
            return [tuple(self._plan.splits)]
        return super()._tasks() or [()] * (not self._grouping.keys)


class TableStatistics(Callback):
    """Estimates of a scan before it runs."""

    Java = interfaces(_READ + "Statistics")

    def __init__(self, jvm: Jvm, rows: int, size: int) -> None:
        super().__init__(jvm)
        self._rows = rows
        self._size = size

    def sizeInBytes(self) -> Any:  # noqa: N802 - Java's name
        """In Spark's own form, of the columns read."""
        return self._jvm.static("java.util.OptionalLong", "of")(self._size)

    def numRows(self) -> Any:  # noqa: N802 - Java's name
        """Before filters."""
        return self._jvm.static("java.util.OptionalLong", "of")(self._rows)

    def columnStats(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.type("java.util.HashMap")()
