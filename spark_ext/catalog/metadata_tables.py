"""Metadata tables: ``SELECT * FROM catalog.db.t.snapshots``. They read no data file.

Columns have the names of Iceberg's or Paimon's metadata tables where they hold the same thing, else
those of `fermion_table.Table.inspect`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fermion_table import Table
from spark_ext.catalog.callbacks import Jvm
from spark_ext.catalog.described import ReadTable
from spark_ext.catalog.loading import check_loaded
from spark_ext.catalog.local_rows import LocalRows
from spark_ext.errors import UnsupportedBySpark
from spark_ext.types import spark_schema

SEPARATOR = "$"
"""The other spelling: a table's name and a metadata table's in one, as in Paimon."""

_NAMES = {
    "snapshots": {"kind": "operation", "properties": "summary"},
    "history": {"committed_at": "made_current_at", "kind": "operation"},
    "files": {
        "path": "file_path",
        "bytes": "file_size_in_bytes",
        "created_at": "creation_time",
        "source": "file_source",
    },
    "manifests": {"size": "length"},
    "partitions": {"files": "file_count", "bytes": "total_data_file_size_in_bytes"},
    "tags": {"name": "tag_name", "created_at": "create_time"},
    "branches": {"name": "branch_name", "created_at": "create_time"},
}
"""Columns of `Table.inspect` that have another name here."""


def properties(table: Table) -> pa.Table:
    """The table's settings at the snapshot."""
    settings = sorted(table.properties.items())
    keys, values = zip(*settings, strict=True) if settings else ((), ())
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})


def tags(table: Table) -> pa.Table:
    """Tags by name."""
    columns = ["name", "snapshot_id", "created_at", "expires_at", "message"]
    return _renamed(_references(table, "tag").select(columns), "tags")


def branches(table: Table) -> pa.Table:
    """Branches, main first."""
    columns = ["name", "snapshot_id", "parent", "left_after", "created_at", "message"]
    return _renamed(_references(table, "branch").select(columns), "branches")


METADATA_TABLES: dict[str, Callable[[Table], pa.Table]] = {
    "snapshots": lambda table: _renamed(table.inspect.snapshots(), "snapshots"),
    "history": lambda table: _renamed(table.inspect.history(), "history"),
    "files": lambda table: _renamed(_with_record_count(table.inspect.files()), "files"),
    "manifests": lambda table: _renamed(table.inspect.manifests(), "manifests"),
    "partitions": lambda table: _renamed(
        _with_record_count(table.inspect.partitions()), "partitions"
    ),
    "schemas": lambda table: table.inspect.schemas(),
    "properties": properties,
    "refs": lambda table: table.inspect.refs(),
    "tags": tags,
    "branches": branches,
    "consumers": lambda table: table.inspect.consumers(),
}
UNVERSIONED = ("refs", "tags", "branches", "consumers")
"""Those that belong to no snapshot, so that they can't be read as of one."""


def metadata_of(parts: Sequence[str]) -> tuple[list[str], str] | None:
    """The table and the metadata table that a name may mean: ``db.t.files`` or ``db.t$files``."""
    *above, last = parts
    table, _, kind = last.rpartition(SEPARATOR)
    if table and kind.lower() in METADATA_TABLES:
        return [*above, table], kind.lower()
    if above and last.lower() in METADATA_TABLES:
        return above, last.lower()
    return None


class MetadataTable(ReadTable):
    """A metadata table, one of `METADATA_TABLES`."""

    def __init__(self, jvm: Jvm, name: str, table: Table, kind: str) -> None:
        super().__init__(jvm, name)
        self._table = table
        self._kind = kind

    @cached_property
    def _scan(self) -> LocalRows:
        made = METADATA_TABLES[self._kind](self._table)
        return LocalRows(self._jvm, _shown(made), self._name)

    @cached_property
    def _schema(self) -> Any:
        return self._scan.readSchema()

    def id(self) -> None:
        """None: it has no identity of its own."""

    def version(self) -> str:
        """The snapshot that is described."""
        return str(self._table.snapshot.id)

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802 - Java's name
        """Begin to plan a read."""
        check_loaded(self._name, options)
        return self._scan


def _renamed(table: pa.Table, kind: str) -> pa.Table:
    names: Mapping[str, str] = _NAMES[kind]
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def _with_record_count(table: pa.Table) -> pa.Table:
    """``record_count`` instead of ``rows``: elsewhere it counts deleted rows too."""
    place = table.column_names.index("rows")
    count = pc.add(table["rows"], table["rows_deleted"])
    return table.set_column(place, "record_count", count)


def _references(table: Table, kind: str) -> pa.Table:
    references = table.inspect.refs()
    return references.filter(pc.equal(references["type"], kind))


def _shown(table: pa.Table) -> pa.Table:
    """The table without what Spark has no type for, within its columns of partitions and bounds."""
    for place, field in enumerate(table.schema):
        if not pat.is_struct(field.type):
            continue
        kept = [child for child in field.type if _is_supported(child)]
        if len(kept) == len(field.type):
            continue
        column = table.column(place)
        arrays = [pc.struct_field(column, child.name) for child in kept]
        if not arrays:
            table = table.drop_columns([field.name])
            return _shown(table)
        made = pa.StructArray.from_arrays(
            [array.combine_chunks() for array in arrays], names=[child.name for child in kept]
        )
        table = table.set_column(place, field.name, made)
    return table


def _is_supported(field: pa.Field) -> bool:
    try:
        spark_schema(pa.schema([field]), time_enabled=False, where=field.name)
    except UnsupportedBySpark:
        return False
    return True
