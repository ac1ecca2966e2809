"""The rows of the list of tables: one a name, with all that the catalog knows of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.schema import KIND_COLUMN

RowKind = Literal["table", "namespace", "unused"]
TIME = pa.timestamp("us", tz="UTC")
KEY = ("namespace", "name")
DROPPED = pa.struct([("table_uuid", pa.string()), ("path", pa.string()), ("dropped", TIME)])
LIST_SCHEMA = pa.schema(
    [
        ("namespace", pa.string()),
        ("name", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        ("table_uuid", pa.string()),
        ("path", pa.string()),
        ("created", TIME),
        ("properties", pa.map_(pa.string(), pa.string())),
        pa.field("directories", pa.int32(), nullable=False),
        ("dropped", pa.list_(DROPPED)),
    ]
)
"""The columns of the list. They are part of the format: see docs/catalog_format.md."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFiles:
    """A table that was dropped, and whose files are there.

    table_uuid, path: Which it is, and where it lies (see `CatalogRow.path`).
    """

    table_uuid: str
    path: str
    dropped: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRow:
    """What the catalog knows of a name.

    namespace, name: The key; the name of a namespace's own row is empty.
    kind: ``table``; ``namespace``; or ``unused``: no table has the name, but one had.
    table_uuid, path: The table, and where it lies: relative to the warehouse, or its location
        elsewhere.
    created: When the table was put into the list.
    properties: For later use.
    directories: How many directories of its own the name has used (see `names.directory_of`).
    dropped: Tables that had the name, and were dropped without purge.
    """

    namespace: str
    name: str
    kind: RowKind
    table_uuid: str | None = None
    path: str | None = None
    created: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    directories: int = 0
    dropped: tuple[DroppedFiles, ...] = ()

    @property
    def key(self) -> Key:
        """Of the list."""
        return self.namespace, self.name

    @property
    def is_table(self) -> bool:
        """Whether a table has the name."""
        return self.kind == "table"


def bare(row: CatalogRow) -> CatalogRow:
    """A row that says that no table has the name."""
    return replace(row, kind="unused", table_uuid=None, path=None, created=None, properties={})


def time_now() -> datetime:
    """Now, as the list keeps times."""
    return datetime.now(UTC)


def rows_of(data: pa.Table | pa.RecordBatch) -> list[CatalogRow]:
    """Rows from Arrow.

    Raises CorruptMetadata: A row of the list is of no known kind, or a table without a path.
    """
    return [_row_of(values) for values in data.select(LIST_SCHEMA.names).to_pylist()]


def changes_of(written: Iterable[CatalogRow], removed: Iterable[Key]) -> pa.RecordBatch:
    """What is written to the list: rows, and removals of keys, told apart by `KIND_COLUMN`."""
    rows: list[dict[str, Any]] = []
    for row in written:
        values = {**asdict(row), KIND_COLUMN: "+I"}
        values["properties"] = list(row.properties.items()) or None
        values["dropped"] = values["dropped"] or None
        rows.append(values)
    for namespace, name in removed:
        removal = {"namespace": namespace, "name": name, "kind": "unused", "directories": 0}
        rows.append({**removal, KIND_COLUMN: "-D"})
    schema = LIST_SCHEMA.append(pa.field(KIND_COLUMN, pa.string()))
    return pa.RecordBatch.from_pylist(rows, schema)


def _row_of(values: dict[str, Any]) -> CatalogRow:
    kind, path = values["kind"], values["path"]
    if kind not in ("table", "namespace", "unused") or (kind == "table") != (path is not None):
        raise CorruptMetadata(
            f"row {values['namespace']!r}, {values['name']!r} of the list of tables",
            "kind 'table' with a path, 'namespace' or 'unused'",
            f"kind {kind!r} with path {path!r}",
        )
    dropped = tuple(DroppedFiles(**each) for each in values["dropped"] or ())
    return CatalogRow(
        **{**values, "properties": dict(values["properties"] or ()), "dropped": dropped}
    )
