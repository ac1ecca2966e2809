"""A table that a statement creates or replaces: Spark writes to it, then says whether it is to be.

The data source publishes table and rows with its own commit; a table without a query is published
when Spark says so.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fermion_table import StagedTable
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.writes import python_write
from spark_ext.options import Use, known_options, options_of
from spark_ext.types import spark_schema
from spark_ext.writing.staged import STAGED_OPTION, StagedDefinition

_CATALOG = "connector.catalog."
_WRITE = "connector.write."


class StagedCatalogTable(Callback):
    """A table that is not there yet, or not yet as the statement has it.

    Parameters
    ----------
    name
        As Spark shows it.
    staged, definition
        The table, in this process and for the data source's.
    partitions
        Spark's transforms.
    """

    Java = interfaces(
        _CATALOG + "StagedTable",
        _CATALOG + "SupportsWrite",
    )

    def __init__(
        self,
        jvm: Jvm,
        name: str,
        staged: StagedTable,
        definition: StagedDefinition,
        partitions: Any,
    ) -> None:
        super().__init__(jvm)
        self._name = name
        self._staged = staged
        self._definition = definition
        self._partitions = partitions
        self._is_written = False

    def name(self) -> str:
        """As Spark shows it."""
        return self._name

    def id(self) -> None:
        """None yet."""

    def version(self) -> None:
        """None yet."""

    def toString(self) -> str:  # noqa: N802 - Java's name
        """The name."""
        return self._name

    @cached_property
    def _schema(self) -> Any:
        arrow = self._staged.schema.to_arrow(field_ids=False)
        return self._jvm.schema(spark_schema(arrow, where=f"table {self._name}").json())

    def schema(self) -> Any:
        """All columns."""
        return self._schema

    def columns(self) -> Any:
        """All columns, in the newer form."""
        return self._jvm.type(_CATALOG + "CatalogV2Util").structTypeToV2Columns(self._schema, False)

    def partitioning(self) -> Any:
        """As the statement has it."""
        return self._partitions

    def properties(self) -> Any:
        """As the statement has them."""
        made = self._jvm.type("java.util.HashMap")()
        for key, value in self._definition.properties.items():
            made.put(key, value)
        return made

    def capabilities(self) -> Any:
        """Writing, once."""
        names = ("BATCH_WRITE", "TRUNCATE")
        return self._jvm.enum_set(_CATALOG + "TableCapability", names)

    def constraints(self) -> Any:
        """None."""
        return self._jvm.array(_CATALOG + "constraints.Constraint")

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan the write of the query's rows."""
        self._is_written = True
        return StagedWriteBuilder(self._jvm, self._staged, self._definition, info)

    def commitStagedChanges(self) -> None:  # noqa: N802 - Java's name
        """Publish the table, unless the data source has done so with the rows."""
        if not self._is_written:
            self._staged.commit(message=self._definition.message)

    def abortStagedChanges(self) -> None:  # noqa: N802 - Java's name
        """Leave what was there as it was."""
        self._staged.discard()

    def reportDriverMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomTaskMetric")


class StagedWriteBuilder(Callback):
    """Writes the rows of a table that is created or replaced.

    Parameters
    ----------
    staged, definition
        The table, in this process and for the data source's.
    info
        Spark's: schema, query id, options of the query.
    """

    Java = interfaces(
        _WRITE + "SupportsTruncate",
    )

    def __init__(
        self, jvm: Jvm, staged: StagedTable, definition: StagedDefinition, info: Any
    ) -> None:
        super().__init__(jvm)
        self._staged = staged
        self._definition = definition
        self._info = info

    def truncate(self) -> Any:
        """The table has no rows but those that are written."""
        return self

    def build(self) -> Any:
        """Spark's own write of a Python data source.

        Raises
        ------
        InvalidArgumentError
            Options that creating or replacing a table does not have.
        """
        given = known_options(dict(self._info.options().asCaseSensitiveMap()), Use.CATALOG_CREATE)
        store = self._staged.store
        named = options_of(store)
        options = {**given, **named, STAGED_OPTION: self._definition.to_text()}
        return python_write(self._jvm, self._info, options, overwrites=False)

    def buildForBatch(self) -> Any:  # noqa: N802 - Java's name
        """The older way of `build`."""
        return self.build().toBatch()

    def buildForStreaming(self) -> Any:  # noqa: N802 - Java's name
        """The older way of `build`."""
        return self.build().toStreaming()
