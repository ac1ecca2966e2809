"""Catalog: a million names, one of them, a snapshot of a thousand tables. Ours alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import harness, tables
from benchmarks.layers import FAST, FULL, Layer
from benchmarks.question import Action, Case, Question, Size, Target

NAMES = {"full": 1_000_000, "quick": 10_000, "tiny": 100}
TABLES = {"full": 1_000, "quick": 50, "tiny": 5}
NAMESPACES = 100
FOUND = range(7, 100, 9)
"""Tables that are looked up, and therefore there."""
WARM = 5
"""So many lookups come before those that are timed."""
SCHEMA = pa.schema({"id": pa.int64()})
SNAPSHOT = "q3"


def name_of(number: int) -> str:
    """One of many tables."""
    return f"db{number % NAMESPACES}.table_{number}"


def open_catalog(path: str) -> Any:
    """A catalog that doesn't wait for the disk."""
    from fermion_table import Catalog

    return Catalog.open(path, durability="fast")


def make_table(path: str, number: int) -> None:
    """One of the tables, where its name says, not in the list yet."""
    from fermion_table import Table

    Table.create(str(Path(path, *name_of(number).split("."))), SCHEMA, durability="fast")


def list_names(path: str, count: int) -> None:
    """A catalog whose list holds many names; their tables are made up, but for a few."""
    from fermion_table import Table
    from fermion_table.catalog.names import TABLES_PATH

    open_catalog(path).create_table("db.first", SCHEMA)
    for number in FOUND:
        make_table(path, number)
    names = [name_of(number).split(".") for number in range(count)]
    Table.open(f"{path}/{TABLES_PATH}", durability="fast").upsert(
        pa.table(
            {
                "namespace": [namespace for namespace, _ in names],
                "name": [name for _, name in names],
                "kind": ["table"] * count,
                "table_uuid": [f"{number:032x}" for number in range(count)],
                "path": ["/".join(parts) for parts in names],
                "created": pa.array(range(count), pa.timestamp("us", tz="UTC")),
                "directories": pa.array([1] * count, pa.int32()),
            }
        )
    )


def stored_names(size: Size) -> str:
    """Where such a catalog lies; made once."""
    count = NAMES[size]
    return tables.stored(FAST, size, f"names-{count}", lambda path: list_names(path, count))


def make_tables(path: str, count: int) -> None:
    """A warehouse of small tables, and the list of them."""
    for number in range(count):
        make_table(path, number)
    open_catalog(path).repair()


def copied_tables(size: Size) -> str:
    """A copy of such a warehouse, to be changed."""
    count = TABLES[size]
    stored = tables.stored(FAST, size, f"tables-{count}", lambda path: make_tables(path, count))
    target = tables.fresh(FAST, size)
    shutil.copytree(stored, target)
    return target


def list_all(layer: Layer, size: Size) -> Action:
    """List all names; the catalog was used before."""
    catalog = open_catalog(stored_names(size))
    catalog.tables()
    return lambda: {"names": len(catalog.tables())}


def find_one(layer: Layer, size: Size) -> Action:
    """Look up a name that was not asked for before; the catalog was used."""
    catalog = open_catalog(stored_names(size))
    numbers = iter(FOUND)
    for _ in range(WARM):
        catalog.table_exists(name_of(next(numbers)))
    return lambda: {"names": int(catalog.table_exists(name_of(next(numbers))))}


def keep_all(layer: Layer, size: Size) -> Action:
    """Make a snapshot of all tables."""
    catalog = open_catalog(copied_tables(size))
    return lambda: {"names": catalog.snapshots.create(SNAPSHOT).table_count}


def open_kept(layer: Layer, size: Size) -> Action:
    """Open one table as it was in a snapshot of all."""
    catalog = open_catalog(copied_tables(size))
    catalog.snapshots.create(SNAPSHOT)
    name = name_of(TABLES[size] // 2)
    return lambda: {"names": int(catalog.table(name, version=SNAPSHOT).snapshot.id > 0)}


QUESTION = Question(
    module="benchmarks.catalog",
    title="Catalog  1,000,000 names; a snapshot of 1,000 tables",
    cases={
        "list 1,000,000 names": Case(list_all, calls=3),
        "find one of 1,000,000 names": Case(find_one, calls=5),
        "snapshot of 1,000 tables": Case(keep_all),
        "open a table of the snapshot": Case(open_kept),
    },
    libraries=(FULL,),
    targets=(
        Target("list 1,000,000 names", 0.5),
        Target("find one of 1,000,000 names", 0.005),
        Target("snapshot of 1,000 tables", 5.0),
    ),
    rounds={"full": 3},
    metrics=("names",),
    notes="The tables of the million names are made up: listing reads the catalog alone. The "
    "catalog is on local disk and doesn't wait for it.",
)

if __name__ == "__main__":
    harness.main(QUESTION)
