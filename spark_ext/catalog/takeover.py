"""Runs the query of a statement that changes rows in Python tasks, in place of Spark's writers.

Spark gives the rows of such a statement one by one to a writer of the JVM, and to a Python writer
not at all: they would be lost. Spark makes the write before it executes the query, so the query is
run here, as a data frame, and Spark's plan gets an empty one in its place.
`docs/design/0008-row-level-operations-on-spark.md` explains why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, functions

from spark_ext.catalog.callbacks import Callback, Jvm
from spark_ext.column_names import free_names, quoted
from spark_ext.errors import UnsupportedBySpark

_V2 = "org.apache.spark.sql.execution.datasources.v2."
NODE = _V2 + "WriteDeltaExec"
_EXECUTION_ID = "spark.sql.execution.id"


def check_takeover(jvm: Jvm) -> None:
    """Check that Spark's plans have what is replaced in them.

    Raises py4j.protocol.Py4JJavaError: A class or a field is not there, or can't be reached.
    """
    for name in ("query", "writingTask"):
        _field(jvm, jvm.type("java.lang.Class").forName(NODE), name)
    _plain_task(jvm)


def written_node(jvm: Jvm, write: Callback) -> Any:
    """The node of the running statement's plan that writes with `write`.

    Raises UnsupportedBySpark: There is none.
    """
    number = jvm.context.getLocalProperty(_EXECUTION_ID)
    execution = None
    if number is not None:
        execution = jvm.type("execution.SQLExecution").getQueryExecution(int(number))
    if execution is not None:
        for node in _nodes(execution.executedPlan()):
            if node.getClass().getName() == NODE and node.write().hashCode() == write.hashCode():
                return node
    raise UnsupportedBySpark("Spark runs no plan that writes this statement's rows")


class ChangeQuery:
    """The query of a statement that changes rows, given by its `written_node`, as a data frame.

    Its columns are known by their places. They are named by one text, however many there are: a
    call of the JVM for each column would take seconds in a wide table.
    """

    def __init__(self, jvm: Jvm, node: Any) -> None:
        self._jvm = jvm
        self._query = node.query()
        self._projections = node.projections()

    operation = 0
    """The place of what happens to each row, as Spark numbers it."""

    def row(self) -> dict[str, int] | None:
        """The columns of the table, by name; None: no row is written."""
        projection = self._projections.rowProjection()
        return _places(projection.get()) if projection.isDefined() else None

    def row_id(self) -> dict[str, int]:
        """The columns that tell which row is meant, by name."""
        return _places(self._projections.rowIdProjection())

    def before(self) -> dict[str, int]:
        """The same, and other columns of that row as it was."""
        projection = self._projections.metadataProjection()
        others = _places(projection.get()) if projection.isDefined() else {}
        return {**self.row_id(), **others}

    def frame(self, names: Mapping[str, int]) -> DataFrame:
        """Its rows, given the names of the columns with their places.

        Raises UnsupportedBySpark: A column of the table has the name that Spark gives to what
            happens to rows.
        """
        hidden = [name for name, place in names.items() if place == self.operation]
        if len(hidden) > 1:
            raise UnsupportedBySpark(
                f"column {hidden[0]!r}: in the plans of UPDATE and MERGE Spark has a column of its "
                "own of this name, and would write that; rename the column, or use "
                "fermion_table.Table.update and merge"
            )
        schema = json.loads(self._query.schema().json())
        first: dict[int, str] = {}
        for name, place in names.items():
            first.setdefault(place, name)
        unused = [place for place in range(len(schema["fields"])) if place not in first]
        free = free_names(names, *(f"unused_{place}" for place in unused))
        others = dict(zip(unused, free, strict=True))
        for place, field in enumerate(schema["fields"]):
            field["name"] = first.get(place, others.get(place))
        session: Any = self._jvm.spark._jsparkSession  # type: ignore[attr-defined]
        rows = session.internalCreateDataFrame(
            self._query.execute(), self._jvm.schema(json.dumps(schema)), False
        )
        frame = DataFrame(rows, self._jvm.spark)
        again = {name: first[place] for name, place in names.items() if first[place] != name}
        if again:
            frame = frame.withColumns({n: functions.col(quoted(o)) for n, o in again.items()})
        return frame.drop(*others.values())


def empty_query(jvm: Jvm, node: Any) -> None:
    """Put a query without rows in place of the one that has run."""
    nothing: Any = jvm.spark.range(0)._jdf.queryExecution().executedPlan()
    kind = jvm.type("java.lang.Class").forName(NODE)
    node.writingTask()  # a lazy value: later calls do not compute it again
    _field(jvm, kind, "writingTask").set(node, _plain_task(jvm))
    _field(jvm, kind, "query").set(node, nothing)
    if not node.query().equals(nothing):
        raise UnsupportedBySpark("Spark's plan still has its query, whose rows were written")


@contextmanager
def spark_errors(jvm: Jvm) -> Iterator[None]:
    """Raise errors of Spark jobs as what they were in the JVM, where the statement shows them."""
    try:
        yield
    except CapturedException as error:
        origin = error._origin
        if origin is None:
            raise
        raise jvm.answer(origin) from error
    except Py4JJavaError as error:
        raise jvm.answer(error.java_exception) from error


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes that may write, from the top."""
    yield plan
    children = plan.children()
    for place in range(children.length()):
        yield from _nodes(children.apply(place))


def _places(projection: Any) -> dict[str, int]:
    fields = json.loads(projection.schema().json())["fields"]
    places: Sequence[str] = projection.colOrdinals().mkString(",").split(",")
    return {field["name"]: int(place) for field, place in zip(fields, places, strict=True)}


def _field(jvm: Jvm, kind: Any, name: str) -> Any:
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field


def _plain_task(jvm: Jvm) -> Any:
    """Spark's task that gives every row to a writer as it is."""
    kind = jvm.type("java.lang.Class").forName(_V2 + "DataWritingSparkTask$")
    return kind.getField("MODULE$").get(None)
