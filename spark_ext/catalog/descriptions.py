"""What ``CREATE TABLE`` says: columns, layout, settings, place, and whose table it is to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Table
from fermion_table.engine import spelled_columns
from spark_ext.catalog.callbacks import Jvm, texts
from spark_ext.catalog.layout import (
    KEY_PROPERTY,
    SORT_PROPERTY,
    layout_of,
    names_in,
    spelling_of,
    transforms_of,
)
from spark_ext.column_names import is_case_sensitive
from spark_ext.datasource.source import FORMAT
from spark_ext.types import BINARY_COLLATION, spark_schema, table_schema
from spark_ext.writing.staged import StagedDefinition

_RESERVED = {"provider", "owner", "external", "is_managed_location", "collation", "location"}
_NO_SETTINGS = _RESERVED | {SORT_PROPERTY, KEY_PROPERTY}
_HIVE = ("hive.stored-as", "hive.input-format", "hive.output-format", "hive.serde")
_DEFAULT_SOURCE = "spark.sql.sources.default"


@dataclass(frozen=True, slots=True)
class Description:
    """A table as a statement describes it: Spark's transforms, and properties with Spark's own."""

    schema: StructType
    transforms: Any
    properties: Mapping[str, str]
    case_sensitive: bool = False

    @classmethod
    def of(cls, jvm: Jvm, described: Sequence[Any]) -> Description:
        """From the arguments of Spark's methods, of the older form or the newer."""
        if len(described) == 1:
            (info,) = described
            schema, transforms = info.schema(), info.partitions()
            properties = texts(info.properties())
        else:
            columns, transforms, properties = described[0], described[1], texts(described[2])
            schema = jvm.type("connector.catalog.CatalogV2Util").v2ColumnsToStructType(columns)
        columns = StructType.fromJson(json.loads(schema.json()))
        made = cls(columns, transforms, properties, is_case_sensitive(jvm.spark))
        made._check(jvm)
        return made

    @property
    def location(self) -> str | None:
        """What LOCATION says."""
        return self.properties.get("location")

    def definition(self, mode: str) -> StagedDefinition:
        """The table to be staged.

        Raises UnsupportedBySpark.
        """
        partition_by, primary_key, sort_by = self._layout()
        return StagedDefinition(
            mode=mode,
            schema=table_schema(self.schema),
            partition_by=partition_by,
            primary_key=primary_key,
            sort_by=sort_by,
            properties=self._settings(),
        )

    def check_same(self, jvm: Jvm, table: Table, name: str) -> None:
        """Check that a table that exists is the one described; without columns any table is.

        Raises InvalidArgumentError: Says what differs.
        """
        schema = table.schema
        columns = spark_schema(schema.to_arrow(field_ids=False), where=name)
        if self.schema.fields:
            _refuse_other(name, "columns", self.schema.simpleString(), columns.simpleString())
        partition_by, _ = layout_of(transforms_of(jvm, schema))
        primary_key = [schema.by_id[field_id].name for field_id in schema.primary_key]
        sort_by = [schema.by_id[field_id].name for field_id in schema.sort_by]
        clauses = ("PARTITIONED BY", KEY_PROPERTY, SORT_PROPERTY)
        layout = zip(clauses, self._layout(), (partition_by, primary_key, sort_by), strict=True)
        for what, given, there in layout:
            if given:
                _refuse_other(name, what, given, there)
        for key, value in self._settings().items():
            _refuse_other(name, f"property {key}", value, table.properties.get(key))

    def like(self, source: Mapping[str, str]) -> Description:
        """The table with the settings of another one, if its properties are a Fermion table's."""
        if source.get("provider") != FORMAT:
            return self
        settings = {key: value for key, value in source.items() if key not in _RESERVED}
        return replace(self, properties={**settings, **self.properties})

    def _check(self, jvm: Jvm) -> None:
        """Refuse tables of other formats, and strings that tables can't compare."""
        for key in _HIVE:
            if key in self.properties:
                raise InvalidArgumentError(
                    f"STORED AS {self.properties[key]}: this catalog has {FORMAT} tables only"
                )
        provider = self.properties.get("provider", FORMAT)
        if provider.lower() != FORMAT and not _is_default(jvm, provider):
            raise InvalidArgumentError(
                f"USING {provider}: this catalog has {FORMAT} tables only; write USING {FORMAT}, "
                "or nothing"
            )
        collation = self.properties.get("collation", BINARY_COLLATION)
        if collation != BINARY_COLLATION:
            raise InvalidArgumentError(
                f"DEFAULT COLLATION {collation}: tables hold strings of {BINARY_COLLATION} only"
            )

    def _layout(self) -> tuple[list[str], list[str], list[str]]:
        """Partitions, primary key and sort columns."""
        partition_by, sort_by = layout_of(self.transforms)
        if SORT_PROPERTY in self.properties:
            sort_by = self._listed(SORT_PROPERTY)
        return partition_by, self._listed(KEY_PROPERTY), sort_by

    def _listed(self, key: str) -> list[str]:
        """The columns that a property names, in Spark's way to treat upper case."""
        text, names = self.properties.get(key), self.schema.names
        if text is None:
            return []
        return names_in(text, key, names, case_sensitive=self.case_sensitive)

    def _settings(self) -> dict[str, str]:
        settings = {
            key: value
            for key, value in self.properties.items()
            if key not in _NO_SETTINGS and not key.startswith("option.")
        }
        return spelled_columns(settings, spelling_of(self.schema.names, self.case_sensitive))


def _is_default(jvm: Jvm, provider: str) -> bool:
    """Whether a format is only Spark's default: ``df.write.saveAsTable`` always names one.

    A statement in SQL names a format only if the user does.
    """
    if provider != jvm.spark.conf.get(_DEFAULT_SOURCE):
        return False
    execution = jvm.context.getLocalProperty("spark.sql.execution.id")
    if execution is None:
        return True
    plan = jvm.type("execution.SQLExecution").getQueryExecution(int(execution)).logical()
    if plan.getClass().getSimpleName().endswith("AsSelect"):
        nodes = [plan, plan.name()]  # not its query, which may be from SQL where it is not
    else:
        children = plan.children()
        nodes = [plan, *(children.apply(place) for place in range(children.size()))]
    return not any(node.origin().sqlText().isDefined() for node in nodes)


def _refuse_other(name: str, what: str, given: Any, own: Any) -> None:
    if given != own:
        raise InvalidArgumentError(
            f"{name}: {what}: expected {given}, but the table at this LOCATION has {own}; leave "
            "it out to register the table as it is"
        )
