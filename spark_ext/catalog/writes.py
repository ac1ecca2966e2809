"""Writing through the catalog: Spark's own write of a Python data source, told what goes.

Spark says what is overwritten by predicates; the data source hears of it through options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.predicates import NotTheSame, filter_of
from spark_ext.datasource.datasource import FORMAT
from spark_ext.options import options_of, parse_options

_WRITE = "connector.write."
_PYTHON = "execution.datasources.v2.python."


def python_write(jvm: Jvm, info: Any, options: dict[str, str], *, overwrites: bool) -> Any:
    """Spark's own write of a Python data source: ours, with options.

    Parameters
    ----------
    info
        Spark's: schema and query id.
    overwrites
        Whether rows go when these come.
    """
    source = jvm.type(_PYTHON + "PythonDataSourceV2")()
    source.setShortName(FORMAT)
    nothing = jvm.type("java.util.Optional").empty()
    told = jvm.type(_WRITE + "LogicalWriteInfoImpl")(
        info.queryId(), info.schema(), jvm.text_map(options), nothing, nothing
    )
    return jvm.type(_PYTHON + "PythonWrite")(source, FORMAT, told, overwrites)


class TableWriteBuilder(Callback):
    """What Spark tells a write before it is made.

    Parameters
    ----------
    table
        The table, at the snapshot that Spark has planned with.
    info
        Spark's: schema, query id.
    options
        Of the query, under the names of `spark_ext.options.OPTIONS`.
    """

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
        """All rows go."""
        self._overwrites = True
        return self

    def canOverwrite(self, predicates: Sequence[Any]) -> bool:  # noqa: N802 - Java's name
        """Whether predicates say exactly which rows go."""
        try:
            self._filter(predicates)
        except NotTheSame:
            return False
        return True

    def overwrite(self, predicates: Sequence[Any]) -> Any:
        """The rows that predicates select go."""
        self._overwrites = True
        chosen = self._filter(predicates)
        if chosen is not None:
            if "replaceWhere" in self._given:
                raise InvalidArgumentError(
                    "option replaceWhere: the statement says by itself which rows it replaces"
                )
            self._options["replaceWhere"] = chosen
        return self

    def overwriteDynamicPartitions(self) -> Any:  # noqa: N802 - Java's name
        """All rows go of the partitions that are written."""
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
        parse_options(options)  # what is wrong with them is said before Spark runs anything
        return python_write(self._jvm, self._info, options, overwrites=self._overwrites)

    def buildForBatch(self) -> Any:  # noqa: N802 - Java's name
        """The older way of `build`."""
        return self.build().toBatch()

    def buildForStreaming(self) -> Any:  # noqa: N802 - Java's name
        """The older way of `build`."""
        return self.build().toStreaming()

    def _filter(self, predicates: Sequence[Any]) -> str | None:
        listed = [each for each in predicates if each.name() != "ALWAYS_TRUE"]
        chosen = filter_of(listed, self._table.schema.to_arrow(field_ids=False))
        return None if chosen is None else chosen.to_sql()
