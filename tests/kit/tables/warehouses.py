"""What tests of catalogs share: a schema, rows, and clients of a warehouse."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fermion_table import Catalog, Table

SCHEMA = pa.schema({"id": pa.int64()})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)})


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def again(catalog: Catalog) -> Catalog:
    """Another client of the same warehouse."""
    return Catalog.open(catalog.location, durability="fast")


def list_commits(catalog: Catalog) -> int:
    """The newest snapshot of the list."""
    return Table.open(Path(catalog.location) / "_catalog" / "tables").snapshot.id
