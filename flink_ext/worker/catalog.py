"""Requests of the catalog: namespaces are Flink's databases."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, Table
from fermion_table.engine import SchemaUpdate
from flink_ext.requests import Request
from flink_ext.types import arrow_field, flink_type, quoted
from flink_ext.worker.tables import (
    PARTITION_OPTION,
    SORT_OPTION,
    Worker,
    described,
    moment,
)

Answer = dict[str, Any]
DESCRIPTION = "comment"
"""The property that holds the comment of a table, as in Spark."""


class CatalogRequest(Request, kw_only=True):
    """A request of a catalog.

    warehouse: Its directory or URL.
    storage_options: For fsspec.
    """

    warehouse: str
    storage_options: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def catalog(self) -> Catalog:
        """The catalog; nothing is read yet."""
        return Catalog.open(self.warehouse, storage_options=self.storage_options or None)


class Namespaces(CatalogRequest, tag="namespaces", kw_only=True):
    """The names of all namespaces."""

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Ascending."""
        return {"names": self.catalog.namespaces()}


class CreateNamespace(CatalogRequest, tag="create_namespace", kw_only=True):
    """Make a namespace."""

    name: str

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Nothing to say."""
        self.catalog.create_namespace(self.name)
        return {}


class DropNamespace(CatalogRequest, tag="drop_namespace", kw_only=True):
    """Drop a namespace; with ``cascade`` its tables first."""

    name: str
    cascade: bool = False

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Nothing to say."""
        catalog = self.catalog
        if self.cascade:
            for name in catalog.tables(self.name):
                catalog.drop_table(name, purge=True)
        catalog.drop_namespace(self.name)
        return {}


class Tables(CatalogRequest, tag="tables", kw_only=True):
    """The names of the tables of a namespace, without it."""

    namespace: str

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Ascending."""
        start = len(self.namespace) + 1
        names = [name[start:] for name in self.catalog.tables(self.namespace)]
        plain = [name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names]
        return {"names": sorted(plain)}


class NamedRequest(CatalogRequest, kw_only=True):
    """A request about a table by its name."""

    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        """The name, as `Catalog` takes it."""
        return f"{self.namespace}.{quoted(self.name)}"


class GetTable(NamedRequest, tag="get_table", kw_only=True):
    """What a table is, now or at a time.

    timestamp_ms: In milliseconds since 1970 UTC; None: now.
    """

    timestamp_ms: int | None = None

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """As of `described`, or ``{"missing": true}``."""
        catalog = self.catalog
        if not catalog.table_exists(self.full_name):
            return {"missing": True}
        table = catalog.table(self.full_name)
        if self.timestamp_ms is None:
            return described(table)
        snapshot = table.scan(as_of=moment(self.timestamp_ms)).snapshot
        return described(catalog.table(self.full_name, version=snapshot.id))


class CreateTable(NamedRequest, tag="create_table", kw_only=True):
    """Make an empty table.

    columns: Names, types as Flink writes them, comments.
    primary_key, partition_by, properties: As of `Table.create`; properties may have
        `PARTITION_OPTION` and `SORT_OPTION`, and ``path``, which a table that this one is LIKE has.
    """

    columns: list[tuple[str, str, str]]
    primary_key: list[str] = msgspec.field(default_factory=list)
    partition_by: list[str] = msgspec.field(default_factory=list)
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    comment: str = ""

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """See `described`."""
        properties = dict(self.properties)
        path = properties.pop("path", None)
        if path is not None and not Table.exists(
            path, storage_options=self.storage_options or None
        ):
            raise InvalidArgumentError(
                f"table {self.full_name}: 'path' = {path!r}: tables of a catalog lie in its "
                "warehouse; leave the path out"
            )
        partition_by = listed(properties.pop(PARTITION_OPTION, "")) or self.partition_by
        sort_by = listed(properties.pop(SORT_OPTION, ""))
        if self.comment:
            properties[DESCRIPTION] = self.comment
        fields = [
            with_comment(arrow_field(name, text), comment) for name, text, comment in self.columns
        ]
        table = self.catalog.create_table(
            self.full_name,
            pa.schema(fields),
            primary_key=self.primary_key or None,
            partition_by=partition_by or None,
            sort_by=sort_by or None,
            properties=properties or None,
        )
        return described(table)


class DropTable(NamedRequest, tag="drop_table", kw_only=True):
    """Drop a table with its files; of a table that lies elsewhere only the name."""

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Nothing to say."""
        catalog = self.catalog
        inside = catalog.table(self.full_name).location.startswith(
            catalog.location.rstrip("/") + "/"
        )
        catalog.drop_table(self.full_name, purge=inside)
        return {}


class RenameTable(NamedRequest, tag="rename_table", kw_only=True):
    """Give a table another name in its namespace."""

    to: str

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Nothing to say."""
        self.catalog.rename_table(self.full_name, f"{self.namespace}.{quoted(self.to)}")
        return {}


class Change(msgspec.Struct, tag_field="change", forbid_unknown_fields=True, kw_only=True):
    """One of the changes of ALTER TABLE."""

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        raise NotImplementedError  # as in `Request`: each change has its own


class ColumnChange(Change, kw_only=True):
    """A change of a column."""

    name: str


class AddColumn(ColumnChange, tag="add", kw_only=True):
    """ADD: a new column, the last one unless it says where."""

    type: str
    comment: str = ""
    first: bool = False
    after: str | None = None

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        field = with_comment(arrow_field(self.name, self.type), self.comment)
        update.add_field((self.name,), field, first=self.first, after=self.after)


class DropColumn(ColumnChange, tag="drop", kw_only=True):
    """DROP."""

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        update.drop_column((self.name,))


class RenameColumn(ColumnChange, tag="rename", kw_only=True):
    """RENAME."""

    to: str

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        update.rename_column((self.name,), self.to)


class ModifyType(ColumnChange, tag="type", kw_only=True):
    """MODIFY: another type, or whether it may be null."""

    type: str

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        field, old = arrow_field(self.name, self.type), update.schema.find((self.name,))
        if arrow_field(self.name, flink_type(old.type, self.name)).type != field.type:
            update.alter_column((self.name,), type=field.type)
        if field.nullable != old.nullable:
            update.alter_column((self.name,), nullable=field.nullable)


class ModifyComment(ColumnChange, tag="comment", kw_only=True):
    """MODIFY: another comment."""

    comment: str

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        update.alter_column((self.name,), comment=self.comment)


class MoveColumn(ColumnChange, tag="move", kw_only=True):
    """MODIFY: another place, the first one or after a column."""

    after: str | None = None

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        if self.after is None:
            update.move_first((self.name,))
        else:
            update.move_after((self.name,), self.after)


class SetOption(Change, tag="set", kw_only=True):
    """SET: a property."""

    key: str
    value: str

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        if self.key == SORT_OPTION:
            update.set_sort_order(listed(self.value))
        else:
            update.set_properties({self.key: self.value})


class ResetOption(Change, tag="reset", kw_only=True):
    """RESET: a property back to its default."""

    key: str

    def apply(self, update: SchemaUpdate) -> None:
        """Make the change."""
        if self.key == SORT_OPTION:
            update.set_sort_order([])
        else:
            update.set_properties({}, remove=[self.key])


class AlterTable(NamedRequest, tag="alter_table", kw_only=True):
    """Change a table's columns and properties, as one snapshot."""

    changes: list[
        AddColumn
        | DropColumn
        | RenameColumn
        | ModifyType
        | ModifyComment
        | MoveColumn
        | SetOption
        | ResetOption
    ]

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """See `described`."""
        table = self.catalog.table(self.full_name)
        with table.update_schema() as update:
            for change in self.changes:
                change.apply(update)
        return described(table)


def with_comment(field: pa.Field, comment: str) -> pa.Field:
    """A field that says what it means; an empty comment says nothing."""
    return field.with_metadata({"comment": comment}) if comment else field


def listed(text: str) -> list[str]:
    """Names with commas between them, but for commas in parentheses."""
    parts: list[str] = []
    depth = 0
    for part in text.split(","):
        if depth:
            parts[-1] += f",{part}"
        elif part.strip():
            parts.append(part.strip())
        depth += part.count("(") - part.count(")")
    return parts
