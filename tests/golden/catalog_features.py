"""Warehouses with what a catalog's files can hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from fermion_table import Catalog, Table

SCHEMA = pa.schema({"id": pa.int64()})


def names(path: Path) -> None:
    """Tables in their directories and elsewhere, renamed, dropped, not listed; a namespace."""
    catalog = Catalog.open(path, durability="fast")
    for number, name in enumerate(("db.events", "db.`a.b/ß`", "cities.old town", "top", "db.gone")):
        catalog.create_table(name, SCHEMA).append(pa.table({"id": [number]}))
    catalog.rename_table("db.events", "new.visits")
    catalog.create_table("db.events", SCHEMA).append(pa.table({"id": [10]}))
    catalog.drop_table("db.gone")
    catalog.create_namespace("empty.below")
    Table.create(path / "db" / "loose", SCHEMA)


def snapshots(path: Path) -> None:
    """Two snapshots, one without a message and with another table of a name than today's."""
    catalog = Catalog.open(path, durability="fast")
    for name in ("a", "b.c"):
        catalog.create_table(name, SCHEMA).append(pa.table({"id": [1]}))
    catalog.snapshots.create("q1")
    catalog.table("a").append(pa.table({"id": [2]}))
    catalog.snapshots.create("q2", ["a"], message="the second")
    catalog.rename_table("b.c", "b.d")
    catalog.create_table("b.c", SCHEMA).append(pa.table({"id": [3]}))


WAREHOUSES: dict[str, Callable[[Path], None]] = {"names": names, "snapshots": snapshots}
