"""Spark's own scans and writes of a Python data source, ours: streams, and rows that are written.

Spark gives the rows to overwrite as predicates; the data source gets them as options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.nodes import NotTheSame
from spark_ext.catalog.translator import Translator
from spark_ext.datasource.source import FORMAT
from spark_ext.options import options_of, parse_options
from spark_ext.versions import SOURCE_HOLDS_PLAN

_WRITE = "connector.write."
PYTHON = "execution.datasources.v2.python."


def python_source(jvm: Jvm) -> Any:
    """Our data source, as Spark holds those that are written in Python."""
    source = jvm.type(PYTHON + "PythonDataSourceV2")()
    source.setShortName(FORMAT)
    return source


def python_scan(jvm: Jvm, store: Any, schema: Any, options: Mapping[str, str]) -> Any:
    """Spark's own scan of our data source, which opens the table of a store by its path."""
    given = jvm.text_map({**options, **options_of(store)})
    filters = [jvm.array("sources.Filter")] if SOURCE_HOLDS_PLAN else []
    return jvm.type(PYTHON + "PythonScan")(python_source(jvm), FORMAT, schema, given, *filters)


def python_batch(jvm: Jvm, schema: Any, function: bytes, tasks: Sequence[bytes]) -> Any:
    """Spark's own batch of a Python data source, with a plan: what tasks run, and on what."""
    to_seq = jvm.static("org.apache.spark.api.python.PythonUtils", "toSeq")
    info = jvm.type(PYTHON + "PythonDataSourceReadInfo")(bytearray(function), to_seq(list(tasks)))
    source = python_source(jvm)
    if SOURCE_HOLDS_PLAN:
        source.setReadInfo(info)
    batch = jvm.type(PYTHON + "PythonBatch")(source, FORMAT, schema, jvm.text_map({}))
    if not SOURCE_HOLDS_PLAN:  # a lazy value, and the flag that says that it is known
        for name, value in (("infoInPython", info), ("bitmap$0", True)):
            field = batch.getClass().getDeclaredField(name)
            field.setAccessible(True)
            field.set(batch, value)
    return batch


def python_write(jvm: Jvm, info: Any, options: dict[str, str], *, overwrites: bool) -> Any:
    """Spark's own write of a Python data source: ours, with options."""
    nothing = jvm.type("java.util.Optional").empty()
    write_info = jvm.type(_WRITE + "LogicalWriteInfoImpl")(
        info.queryId(), info.schema(), jvm.text_map(options), nothing, nothing
    )
    return jvm.type(PYTHON + "PythonWrite")(python_source(jvm), FORMAT, write_info, overwrites)


class WriteBuilder(Callback, ABC):
    """Plans a write: subclasses have `build`."""

    @abstractmethod
    def build(self) -> Any:
        """Spark's own write of a Python data source."""

    def buildForBatch(self) -> Any:  # noqa: N802 - Java's name
        """The older form of `build`."""
        return self.build().toBatch()

    def buildForStreaming(self) -> Any:  # noqa: N802 - Java's name
        """The older form of `build`."""
        return self.build().toStreaming()


class TableWriteBuilder(WriteBuilder):
    """Plans a write to a table, at the snapshot that Spark has planned with."""

    Java = interfaces(
        _WRITE + "SupportsOverwriteV2",
        _WRITE + "SupportsDynamicOverwrite",
    )

    def __init__(self, jvm: Jvm, table: Table, info: Any, options: Mapping[str, str]) -> None:
        super().__init__(jvm)
        self._table = table
        self._info = info
        self._given = options
        self._options: dict[str, str] = {}
        self._overwrites = False

    def truncate(self) -> Any:
        """Replace all rows."""
        self._overwrites = True
        return self

    def canOverwrite(self, predicates: Sequence[Any]) -> bool:  # noqa: N802 - Java's name
        """Yes: a filter selects exactly the rows that Spark means, or it is an error."""
        try:
            Translator(self._table).filter(predicates)
        except NotTheSame as error:
            raise InvalidArgumentError(
                f"overwrite: no filter of the table selects exactly these rows ({error}): DELETE "
                "them and INSERT the new ones, or replace whole partitions with "
                "spark.sql.sources.partitionOverwriteMode=dynamic"
            ) from error
        return True

    def overwrite(self, predicates: Sequence[Any]) -> Any:
        """Replace the rows that predicates select."""
        self._overwrites = True
        chosen = Translator(self._table).filter(predicates)
        if chosen is not None:
            if "replaceWhere" in self._given:
                raise InvalidArgumentError(
                    "option replaceWhere: the statement itself names the rows that it replaces"
                )
            self._options["replaceWhere"] = chosen.to_sql()
        return self

    def overwriteDynamicPartitions(self) -> Any:  # noqa: N802 - Java's name
        """Replace all rows of the partitions that are written."""
        self._overwrites = True
        if self._given.get("partitionOverwriteMode", "dynamic").lower() != "dynamic":
            raise InvalidArgumentError(
                "option partitionOverwriteMode=static: the statement, or the setting "
                "spark.sql.sources.partitionOverwriteMode, replaces partitions"
            )
        if self._table.schema.partition_by:
            self._options["partitionOverwriteMode"] = "dynamic"
        return self

    def build(self) -> Any:
        """Spark's own write of a Python data source."""
        store = self._table.store
        named = options_of(store)
        options = {**self._given, **self._options, **named}
        parse_options(options)  # wrong options are an error before Spark runs anything
        return python_write(self._jvm, self._info, options, overwrites=self._overwrites)
