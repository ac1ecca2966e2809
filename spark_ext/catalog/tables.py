"""A table as Spark's catalog sees it: its columns, and how it is read, written and deleted from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from fermion.exports import dataclass
from fermion_table import Table
from fermion_table.engine import named_keys
from spark_ext.catalog.callbacks import Callback, Jvm, interfaces, texts
from spark_ext.catalog.described import CATALOG, DescribedTable, columns_of
from spark_ext.catalog.layout import KEY_PROPERTY, SORT_PROPERTY, names_text, transforms_of
from spark_ext.catalog.loading import check_loaded
from spark_ext.catalog.nodes import NotTheSame
from spark_ext.catalog.row_level import RowLevelOperation, commit_metadata
from spark_ext.catalog.scans import TableScanBuilder
from spark_ext.catalog.translator import Translator
from spark_ext.catalog.writes import TableWriteBuilder
from spark_ext.options import Use, known_options
from spark_ext.reading.row_places import FILE, POSITION, ROW_ID, places_of, sequences_of
from spark_ext.types import TIME_SETTING, spark_schema
from spark_ext.versions import SCHEMA_EVOLUTION, SPARK
from spark_ext.writing.job import commit_arguments

CAPABILITIES = (
    "BATCH_READ",
    "BATCH_WRITE",
    "MICRO_BATCH_READ",
    "STREAMING_WRITE",
    "TRUNCATE",
    "OVERWRITE_BY_FILTER",
    "OVERWRITE_DYNAMIC",
    *(["AUTOMATIC_SCHEMA_EVOLUTION"] if SPARK.has(SCHEMA_EVOLUTION) else []),
)
SCHEMAS_MAX = 32
"""Schemas that a catalog keeps."""
Schemas = dict[tuple[str, str, bool, str], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Virtual:
    """A column that rows have without storing it: its type in Spark, and what it is."""

    type: st.DataType
    is_nullable: bool
    comment: str


_OF_BATCHES = Virtual(st.LongType(), True, "of rows that were written in batches")
BATCH_COLUMNS = {"batch_id": _OF_BATCHES, "index_in_batch": _OF_BATCHES}
PLACES = {
    ROW_ID: Virtual(st.LongType(), False, "the row's id in the table"),
    FILE: Virtual(st.StringType(), False, "the row's data file"),
    POSITION: Virtual(st.LongType(), False, "the row's number in its data file"),
}


class VirtualColumn(Callback):
    """A column that rows have without storing it."""

    Java = interfaces(CATALOG + "MetadataColumn")

    def __init__(self, jvm: Jvm, name: str, column: Virtual) -> None:
        super().__init__(jvm)
        self._name = name
        self._column = column

    def name(self) -> str:
        """Of the column."""
        return self._name

    def dataType(self) -> Any:  # noqa: N802 - Java's name
        """Its type."""
        return self._jvm.kept_type(self._column.type.json())

    def isNullable(self) -> bool:  # noqa: N802 - Java's name
        """Whether rows may have no value, as those that were not written in batches."""
        return self._column.is_nullable

    def comment(self) -> str:
        """For ``DESCRIBE``."""
        return self._column.comment

    def transform(self) -> None:
        """None."""

    def metadataInJSON(self) -> None:  # noqa: N802 - Java's name
        """None."""


class CatalogTable(DescribedTable):
    """A table at one of its snapshots.

    schemas: The JVM's schemas that the catalog keeps, with their columns, by the file of a schema
        version, which never changes: to hand over a schema of 10,000 columns takes a quarter of a
        second.
    is_registered: Whether the table lies outside the warehouse.
    change_type: The column of change types, after those of the table, that rows to be written have.
    blobs: What is read of blobs.
    """

    Java = interfaces(
        CATALOG + "SupportsRead",
        CATALOG + "SupportsWrite",
        CATALOG + "SupportsDeleteV2",
        CATALOG + "SupportsMetadataColumns",
        CATALOG + "SupportsRowLevelOperations",
    )

    def __init__(
        self,
        jvm: Jvm,
        name: str,
        table: Table,
        schemas: Schemas,
        *,
        is_registered: bool = False,
        change_type: str | None = None,
        blobs: Any = "bytes",
    ) -> None:
        super().__init__(jvm, name)
        self._blobs = blobs
        self._is_registered = is_registered
        self._change_type = change_type
        self._table = table
        self._schemas = schemas

    def id(self) -> str:
        """The table's uuid: another table at the same place has another one."""
        return self._table.snapshot.table_uuid

    def version(self) -> str:
        """The snapshot."""
        return str(self._table.snapshot.id)

    @property
    def _schema(self) -> Any:
        return self._java[0]

    @property
    def _columns(self) -> Any:
        return self._java[1]

    @cached_property
    def _java(self) -> tuple[Any, Any]:
        """Spark's schema, made from one JSON text, however many columns there are; its columns."""
        enabled = self._jvm.spark.conf.get(TIME_SETTING, "false") == "true"
        key = (self._table.location, self._table.snapshot.schema.path, enabled, self._blobs)
        known = self._schemas.get(key)
        if known is None:
            if self._blobs == "bytes":
                arrow = self._table.schema.to_arrow(field_ids=False)
            else:
                arrow = self._table.scan(blobs=self._blobs).schema
            schema = spark_schema(arrow, time_enabled=enabled, where=f"table {self._name}")
            made = self._jvm.schema(schema.json())
            known = made, columns_of(self._jvm, made)
            while len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.pop(next(iter(self._schemas)), None)
            self._schemas[key] = known
        name, names = self._change_type, map(str.lower, self._table.schema.by_name)
        if name is None or name.lower() in names:  # which is an error of the write
            return known
        schema = known[0].add(name, "string")
        return schema, columns_of(self._jvm, schema)

    def metadataColumns(self) -> Any:  # noqa: N802 - Java's name
        """The virtual columns, which a query can select by name."""
        schema = self._table.schema
        virtual = {name: each for name, each in BATCH_COLUMNS.items() if name not in schema.by_name}
        virtual |= {name: PLACES[kind] for name, kind in places_of(schema).items()}
        for field in spark_schema(named_keys(schema), where=self._name):
            virtual[field.name] = Virtual(field.dataType, True, "a key of maps")
        for name, repeated in sequences_of(schema).items():
            arrow = pa.schema([schema.to_arrow(field_ids=False).field(repeated)])
            kind = spark_schema(arrow, where=self._name)[0].dataType
            virtual[name] = Virtual(kind, True, f"of the row, {repeated}")
        made = [VirtualColumn(self._jvm, name, column) for name, column in virtual.items()]
        return self._jvm.array(CATALOG + "MetadataColumn", made)

    def canRenameConflictingMetadataColumns(self) -> bool:  # noqa: N802 - Java's name
        """Whether Spark renames a virtual column of a column's name: no, it is left out."""
        return False

    def partitioning(self) -> Any:
        """The table's partitions, as Spark's transforms."""
        return transforms_of(self._jvm, self._table.schema)

    def properties(self) -> Any:
        """The table's properties, its location, its sort columns, and its primary key."""
        schema = self._table.schema
        properties = {
            **self._table.properties,
            "provider": "fermion",
            "location": self._table.location,
        }
        if self._is_registered:
            properties["external"] = "true"
        else:
            properties["is_managed_location"] = "true"  # SHOW CREATE TABLE leaves it out
        for key, ids in ((SORT_PROPERTY, schema.sort_by), (KEY_PROPERTY, schema.primary_key)):
            if ids:
                properties[key] = names_text([schema.by_id[field_id].name for field_id in ids])
        return self._jvm.hash_map(properties)

    def capabilities(self) -> Any:
        """The operations that the table supports."""
        return self._jvm.enum_set(CATALOG + "TableCapability", CAPABILITIES)

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a read."""
        given = known_options(
            texts(options.asCaseSensitiveMap()), Use.CATALOG_READ, Use.CATALOG_STREAM_READ
        )
        check_loaded(self._name, options)
        return TableScanBuilder(self._jvm, self._table, self._schema, given)

    def newWriteBuilder(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a write, to the branch that the options name."""
        given = known_options(
            texts(info.options().asCaseSensitiveMap()),
            Use.CATALOG_WRITE,
            Use.CATALOG_STREAM_WRITE,
        )
        check_loaded(self._name, info.options())
        return TableWriteBuilder(self._jvm, self._table, info, given)

    def canDeleteWhere(self, predicates: Sequence[Any]) -> bool:  # noqa: N802 - Java's name
        """Whether a filter selects exactly the rows that Spark means."""
        try:
            Translator(self._table).filter(predicates)
        except NotTheSame:
            return False
        return True

    def deleteWhere(self, predicates: Sequence[Any], *options: Any) -> None:  # noqa: N802 - Java's
        """Delete the rows that predicates select, on the driver."""
        chosen = Translator(self._table).filter(predicates)
        self._delete("TRUE" if chosen is None else chosen, options)

    def truncateTable(self, *options: Any) -> bool:  # noqa: N802 - Java's name
        """Delete all rows."""
        self._delete("TRUE", options)
        return True

    def _delete(self, filter: Any, options: Sequence[Any]) -> None:
        given = texts(options[0].asCaseSensitiveMap()) if options else {}
        metadata = commit_metadata(self._table, known_options(given, Use.CATALOG_CHANGE))
        self._table.delete(filter, **commit_arguments(metadata))

    def newRowLevelOperationBuilder(self, info: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan ``UPDATE``, ``MERGE``, or a ``DELETE`` that no filter can express."""
        check_loaded(self._name, info.options())
        return RowLevelOperation(self._jvm, self._table, self._schema, info)
