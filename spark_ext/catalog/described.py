"""What Spark asks of every table of a catalog, also of one that is not published yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.versions import COLUMN_ARGUMENTS

CATALOG = "connector.catalog."


class DescribedTable(Callback, ABC):
    """The name, as Spark shows it, and the columns of a table."""

    def __init__(self, jvm: Jvm, name: str) -> None:
        super().__init__(jvm)
        self._name = name

    def name(self) -> str:
        """As Spark shows it."""
        return self._name

    def toString(self) -> str:  # noqa: N802 - Java's name
        """The name."""
        return self._name

    @property
    @abstractmethod
    def _schema(self) -> Any:
        """Spark's schema: the JVM's."""

    @property
    def _columns(self) -> Any:
        return columns_of(self._jvm, self._schema)

    def schema(self) -> Any:
        """All columns."""
        return self._schema

    def columns(self) -> Any:
        """All columns, in the newer form."""
        return self._columns

    def constraints(self) -> Any:
        """None."""
        return self._jvm.array(CATALOG + "constraints.Constraint")


class ReadTable(DescribedTable, ABC):
    """A table that can only be read."""

    Java = interfaces(CATALOG + "SupportsRead")
    can: tuple[str, ...] = ("BATCH_READ",)

    def partitioning(self) -> Any:
        """None."""
        return self._jvm.array("connector.expressions.Transform")

    def properties(self) -> Any:
        """None."""
        return self._jvm.hash_map({})

    def capabilities(self) -> Any:
        """The ways to read it."""
        return self._jvm.enum_set(CATALOG + "TableCapability", self.can)


def columns_of(jvm: Jvm, schema: Any) -> Any:
    """The columns of one of the JVM's schemas, in the newer form."""
    return jvm.type(CATALOG + "CatalogV2Util").structTypeToV2Columns(schema, *COLUMN_ARGUMENTS)
