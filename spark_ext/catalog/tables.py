"""A table as Spark's catalog sees it: its columns, and how it is read, written and deleted from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from fermion_table import Table
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces
from spark_ext.catalog.predicates import NotTheSame, filter_of
from spark_ext.catalog.scans import TableScanBuilder
from spark_ext.catalog.writes import TableWriteBuilder
from spark_ext.options import Use, known_options
from spark_ext.types import TIME_SETTING, spark_schema

_CATALOG = "connector.catalog."
CAPABILITIES = (
    "BATCH_READ",
    "BATCH_WRITE",
    "MICRO_BATCH_READ",
    "STREAMING_WRITE",
    "TRUNCATE",
    "OVERWRITE_BY_FILTER",
    "OVERWRITE_DYNAMIC",
)
SCHEMAS_MAX = 32
"""Schemas that a catalog remembers."""
SORT_PROPERTY = "sort_by"
"""What a table is sorted by, as Spark sees it: `CREATE TABLE` takes it too."""
VIRTUAL_COLUMNS = ("batch_id", "index_in_batch")
Schemas = dict[tuple[str, str, bool], Any]
_TRANSFORMS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


class VirtualColumn(Callback):
    """A column that files in batch mode have without storing it."""

    Java = interfaces(
        _CATALOG + "MetadataColumn",
    )

    def __init__(self, jvm: Jvm, name: str) -> None:
        super().__init__(jvm)
        self._name = name

    def name(self) -> str:
        """Of the column."""
        return self._name

    def dataType(self) -> Any:  # noqa: N802 - Java's name
        """Whole numbers."""
        return self._jvm.schema('"long"')

    def isNullable(self) -> bool:  # noqa: N802 - Java's name
        """Null where rows were not written in batches."""
        return True

    def comment(self) -> str:
        """For ``DESCRIBE``."""
        return "of rows that were written in batches"

    def transform(self) -> None:
        """None."""

    def metadataInJSON(self) -> None:  # noqa: N802 - Java's name
        """None."""


class CatalogTable(Callback):
    """A table at one of its snapshots.

    Parameters
    ----------
    name
        As Spark shows it.
    table
        At the snapshot to read.
    schemas
        The JVM's schemas that the catalog remembers, by the file of a schema version, which never
        changes: one of 10,000 columns takes a quarter of a second to hand over.
    """

    Java = interfaces(
        _CATALOG + "SupportsRead",
        _CATALOG + "SupportsWrite",
        _CATALOG + "SupportsDeleteV2",
        _CATALOG + "SupportsMetadataColumns",
    )

    def __init__(self, jvm: Jvm, name: str, table: Table, schemas: Schemas) -> None:
        super().__init__(jvm)
        self._name = name
        self._table = table
        self._schemas = schemas

    def name(self) -> str:
        """As Spark shows it."""
        return self._name

    def id(self) -> str:
        """What tells the table from one that took its place."""
        return self._table.snapshot.table_uuid

    def version(self) -> str:
        """The snapshot."""
        return str(self._table.snapshot.id)

    def toString(self) -> str:  # noqa: N802 - Java's name
        """The name."""
        return self._name

    @cached_property
    def _schema(self) -> Any:
        """Spark's schema, from one text however many columns there are."""
        enabled = self._jvm.spark.conf.get(TIME_SETTING, "false") == "true"
        key = (self._table.location, self._table.snapshot.schema.path, enabled)
        known = self._schemas.get(key)
        if known is None:
            arrow = self._table.schema.to_arrow(field_ids=False)
            found = spark_schema(arrow, time_enabled=enabled, where=f"table {self._name}")
            known = self._jvm.schema(found.json())
            while len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.pop(next(iter(self._schemas)), None)
            self._schemas[key] = known
        return known

    @cached_property
    def _columns(self) -> Any:
        return self._jvm.type(_CATALOG + "CatalogV2Util").structTypeToV2Columns(self._schema, False)

    def schema(self) -> Any:
        """All columns."""
        return self._schema

    def columns(self) -> Any:
        """All columns, in the newer form."""
        return self._columns

    def metadataColumns(self) -> Any:  # noqa: N802 - Java's name
        """The virtual columns of batches, to be asked for by name."""
        names = [name for name in VIRTUAL_COLUMNS if name not in self._table.schema.by_name]
        made = [VirtualColumn(self._jvm, name) for name in names]
        return self._jvm.array(_CATALOG + "MetadataColumn", made)

    def canRenameConflictingMetadataColumns(self) -> bool:  # noqa: N802 - Java's name
        """Whether a column of the table may hide one: it is left out then."""
        return False

    def partitioning(self) -> Any:
        """What the table is partitioned by."""
        expressions = self._jvm.type("connector.expressions.Expressions")
        schema = self._table.schema
        made = []
        for each in schema.partition_by:
            column = schema.by_id[each.source_id].name
            reference = expressions.column(f"`{column.replace('`', '``')}`")
            arguments = [reference]
            if each.parameter:
                arguments.insert(0, expressions.literal(each.parameter))
            listed = self._jvm.array("connector.expressions.Expression", arguments)
            kind = _TRANSFORMS.get(each.transform, each.transform)
            made.append(expressions.apply(kind, listed))
        return self._jvm.array("connector.expressions.Transform", made)

    def properties(self) -> Any:
        """The table's settings, where it lies, and what it is sorted by."""
        schema = self._table.schema
        found = {
            **self._table.properties,
            "provider": "fermion",
            "location": self._table.location,
            "is_managed_location": "true",  # SHOW CREATE TABLE leaves it out: it is not given
        }
        if schema.sort_by:
            found[SORT_PROPERTY] = ", ".join(schema.by_id[each].name for each in schema.sort_by)
        made = self._jvm.type("java.util.HashMap")()
        for key, value in found.items():
            made.put(key, value)
        return made

    def capabilities(self) -> Any:
        """What can be done with it."""
        return self._jvm.enum_set(_CATALOG + "TableCapability", CAPABILITIES)

    def constraints(self) -> Any:
        """None."""
        return self._jvm.array(_CATALOG + "constraints.Constraint")

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a read."""
        given = known_options(
            dict(options.asCaseSensitiveMap()), Use.CATALOG_READ, Use.CATALOG_STREAM_READ
        )
        return TableScanBuilder(self._jvm, self._table, self._schema, given)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a write, to the branch that the options name."""
        given = known_options(
            dict(info.options().asCaseSensitiveMap()),
            Use.CATALOG_WRITE,
            Use.CATALOG_STREAM_WRITE,
        )
        return TableWriteBuilder(self._jvm, self._table, info, given)

    def canDeleteWhere(self, predicates: Sequence[Any]) -> bool:  # noqa: N802 - Java's name
        """Whether predicates say exactly which rows go."""
        try:
            self._filter(predicates)
        except NotTheSame:
            return False
        return True

    def deleteWhere(self, predicates: Sequence[Any], *options: Any) -> None:  # noqa: N802 - Java's
        """Delete the rows that predicates select, on the driver."""
        self._table.delete(self._filter(predicates))

    def truncateTable(self, *options: Any) -> bool:  # noqa: N802 - Java's name
        """Delete all rows."""
        self._table.delete("TRUE")
        return True

    def supportedCustomMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802 - Java's name
        """None."""
        return self._jvm.array("connector.metric.CustomTaskMetric")

    def _filter(self, predicates: Sequence[Any]) -> Any:
        listed = [each for each in predicates if each.name() != "ALWAYS_TRUE"]
        chosen = filter_of(listed, self._table.schema.to_arrow(field_ids=False))
        return "TRUE" if chosen is None else chosen
