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


WAREHOUSES: dict[str, Callable[[Path], None]] = {"names": names}
