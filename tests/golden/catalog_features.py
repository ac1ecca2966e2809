"""Warehouses with what a catalog's files can hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa

from fermion_table import Catalog, Table
from fermion_table.catalog import tables
from fermion_table.catalog.names import CREATED_PATH
from fermion_table.catalog.transactions import CatalogTransaction

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


def transactions(path: Path) -> None:
    """Two transactions over tables at several depths; a table has a commit behind the last one."""
    catalog = Catalog.open(path, durability="fast")
    for name in ("a", "db.b", "db.`c.d`"):
        catalog.create_table(name, SCHEMA).append(pa.table({"id": [1]}))
    with catalog.transaction(commit_user="golden", commit_identifier=1) as tx:
        for name in ("a", "db.b", "db.`c.d`"):
            tx.table(name).append(pa.table({"id": [2, 3]}))
        tx.table("a").delete("id = 1")
    with catalog.transaction() as tx:
        tx.table("a").append(pa.table({"id": [4]}))
        tx.table("db.b").add_columns({"x": pa.int32()})
    catalog.table("a").append(pa.table({"id": [5]}))


def void_snapshots(path: Path) -> None:
    """A transaction that was given up: one of its tables has a commit behind it."""
    catalog = Catalog.open(path, durability="fast")
    for name in ("a", "db.b"):
        catalog.create_table(name, SCHEMA).append(pa.table({"id": [1]}))
    failing = mock.patch.object(CatalogTransaction, "_decided", side_effect=OSError)
    with suppress(OSError), failing, catalog.transaction() as tx:
        for name in ("a", "db.b"):
            tx.table(name).append(pa.table({"id": [2]}))
    catalog.table("a").append(pa.table({"id": [3]}))


def created(path: Path) -> None:
    """Tables with and without rows; notes of tables that have one, were purged, or renamed."""
    with mock.patch.object(tables, "ENTERED_EVERY", 2**33):
        catalog = Catalog.open(path, durability="fast")
        for number, name in enumerate(("db.first", "db.old town", "db.`a.b`", "gone", "a.b.c.d")):
            catalog.create_table(name, SCHEMA).append(pa.table({"id": [number]}))
        notes = {each: each.read_bytes() for each in (path / CREATED_PATH).iterdir()}
        catalog.rename_table("db.`a.b`", "db.renamed")
        catalog.drop_table("gone", purge=True)
        for note, data in notes.items():
            note.write_bytes(data)
        for number, name in enumerate(("top", "new.space.ß", "db.noted")):
            catalog.create_table(name, SCHEMA).append(pa.table({"id": [10 + number]}))


WAREHOUSES: dict[str, Callable[[Path], None]] = {
    "names": names,
    "snapshots": snapshots,
    "transactions": transactions,
    "void_snapshots": void_snapshots,
    "created": created,
}
