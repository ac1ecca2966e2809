"""What a worker keeps between requests, and requests about one table."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec
import pyarrow as pa

from fermion_table import Scan, Table
from fermion_table.engine import ChangeScan, ChangeSplit
from flink_ext.requests import Request
from flink_ext.types import arrow_field, flink_type

Columns = list[tuple[str, str]]
"""Names, and types as Flink writes them."""


PARTITION_OPTION, SORT_OPTION = "partition_by", "sort_by"
"""Options of CREATE TABLE beside properties: names as `Table.create` has them, with commas."""


class Worker(AbstractContextManager["Worker"]):
    """What the requests of one task share.

    scans: The last scan, by what it was asked for: the splits of a scan come one after the other.
    changes: The same of changes, with their splits by place.
    sink: What rows are written to; None: nothing was opened.
    """

    def __init__(self) -> None:
        self.scans: dict[bytes, Scan] = {}
        self.changes: dict[bytes, tuple[ChangeScan, dict[str, list[ChangeSplit]]]] = {}
        self.sink: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Delete the files that no commit will name."""
        if self.sink is not None:
            self.sink.abort()


class TableRequest(Request, kw_only=True):
    """A request about a table.

    path: Where it lies: a local path or a URL.
    storage_options: For fsspec.
    branch: Which branch is read or written.
    """

    path: str
    storage_options: dict[str, Any] = msgspec.field(default_factory=dict)
    branch: str = "main"

    def open(self, version: int | None = None) -> Table:
        """The table, at its latest snapshot or at an older one."""
        return Table.open(
            self.path,
            version=version,
            branch=self.branch,
            storage_options=self.storage_options or None,
        )


class Describe(TableRequest, tag="describe", kw_only=True):
    """What a table is."""

    def answer(self, worker: Worker, rows: pa.Table | None) -> dict[str, Any]:
        """See `described`."""
        return described(self.open())


def described(table: Table) -> dict[str, Any]:
    """A table in Flink's terms.

    ``columns`` are names, types of Flink and comments. A partition by a function of a column is in
    the properties, as is the sort order: Flink has neither.

    Raises UnsupportedByFlink: Flink has no type for a column.
    """
    schema = table.schema
    properties = dict(table.properties)
    identity = [name for name in table.partition_by if name in schema.by_name]
    if len(identity) < len(table.partition_by):
        properties[PARTITION_OPTION] = ",".join(table.partition_by)
        identity = []
    if schema.sort_by:
        properties[SORT_OPTION] = ",".join(schema.by_id[each].name for each in schema.sort_by)
    columns = []
    for field in schema.to_arrow(field_ids=False):
        text = flink_type(field.type, f"{table.location}: column {field.name!r}")
        comment = (field.metadata or {}).get(b"comment", b"").decode()
        columns.append([field.name, text + ("" if field.nullable else " NOT NULL"), comment])
    return {
        "columns": columns,
        "primary_key": table.primary_key,
        "partition_by": identity,
        "properties": properties,
        "location": table.location,
        "snapshot": table.snapshot.id,
    }


def travelling(columns: Columns) -> pa.Schema:
    """The schema in which rows of some columns go to Flink, and come from it.

    Raises UnsupportedByFlink.
    """
    return pa.schema([arrow_field(name, text).with_nullable(True) for name, text in columns])


def moment(milliseconds: int) -> datetime:
    """A time in milliseconds since 1970 UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
