"""A table that a statement creates or replaces: Spark writes to it, then commits or aborts it.

The data source publishes the table and its rows in one commit. A table without a query is published
when Spark commits it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fermion_table.engine import StagedTable
from spark_ext.catalog.callbacks import Jvm, interfaces, texts
from spark_ext.catalog.described import CATALOG, DescribedTable
from spark_ext.catalog.writes import WriteBuilder, python_write
from spark_ext.options import Use, known_options, options_of
from spark_ext.types import spark_schema
from spark_ext.writing.staged import STAGED_OPTION, StagedDefinition

_WRITE = "connector.write."


class StagedCatalogTable(DescribedTable):
    """A table that the statement creates or replaces, not published yet.

    `staged` is for this process, `definition` for the data source's. `published` is called when the
    table is there; what it raises is the statement's error.
    """

    Java = interfaces(
        CATALOG + "StagedTable",
        CATALOG + "SupportsWrite",
    )

    def __init__(
        self,
        jvm: Jvm,
        name: str,
        staged: StagedTable,
        definition: StagedDefinition,
        partitions: Any,
        published: Callable[[], object],
    ) -> None:
        super().__init__(jvm, name)
        self._published = published
        self._staged = staged
        self._definition = definition
        self._partitions = partitions
        self._is_written = False

    def id(self) -> None:
        """None yet."""

    def version(self) -> None:
        """None yet."""

    @cached_property
    def _schema(self) -> Any:
        arrow = self._staged.schema.to_arrow(field_ids=False)
        return self._jvm.schema(spark_schema(arrow, where=f"table {self._name}").json())

    def partitioning(self) -> Any:
        """The partitions of the statement."""
        return self._partitions

    def properties(self) -> Any:
        """The properties of the statement."""
        return self._jvm.hash_map(self._definition.properties)

    def capabilities(self) -> Any:
        """Writing, once."""
        names = ("BATCH_WRITE", "TRUNCATE")
        return self._jvm.enum_set(CATALOG + "TableCapability", names)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan the write of the query's rows."""
        self._is_written = True
        return StagedWriteBuilder(self._jvm, self._staged, self._definition, info)

    def commitStagedChanges(self) -> None:  # noqa: N802 - Java's name
        """Publish the table, unless the data source has published it with the rows."""
        if not self._is_written:
            self._staged.commit(message=self._definition.message)
        self._published()

    def abortStagedChanges(self) -> None:  # noqa: N802 - Java's name
        """Give up; an existing table does not change."""
        self._staged.discard()


class StagedWriteBuilder(WriteBuilder):
    """Writes the rows of a table that is created or replaced."""

    Java = interfaces(_WRITE + "SupportsTruncate")

    def __init__(
        self, jvm: Jvm, staged: StagedTable, definition: StagedDefinition, info: Any
    ) -> None:
        super().__init__(jvm)
        self._staged = staged
        self._definition = definition
        self._info = info

    def truncate(self) -> Any:
        """Nothing to do: the table has only the rows that are written."""
        return self

    def build(self) -> Any:
        """Spark's own write of a Python data source.

        Raises InvalidArgumentError: An option that has no meaning when a table is created or
            replaced.
        """
        given = known_options(texts(self._info.options().asCaseSensitiveMap()), Use.CATALOG_CREATE)
        options = {
            **given,
            **options_of(self._staged.store),
            STAGED_OPTION: self._definition.to_text(),
        }
        return python_write(self._jvm, self._info, options, overwrites=False)
