"""A valid call of every public function and method of catalogs that takes arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fermion_table
from fermion_table import Catalog, StorageAccess
from tests.acceptance.table_calls import SCHEMA, free
from tests.acceptance.wrong_arguments import Case


def _of_catalog(make: Callable[[Catalog], Any], method: str, **arguments: Any) -> Any:
    """A method of the catalog of the directory, or of an object that is made of it."""

    def case(directory: Path) -> Case:
        catalog = Catalog.open(directory, durability="fast")

        def state() -> Any:
            return catalog.tables(), catalog.namespaces(), catalog.snapshots.list()

        placed = {
            name: directory / value if isinstance(value, Path) else value
            for name, value in arguments.items()
        }
        return Case(getattr(make(catalog), method), placed, state)

    return case


def _with_namespace(catalog: Catalog) -> Catalog:
    catalog.create_namespace("empty")
    return catalog


def _with_dropped_table(catalog: Catalog) -> Catalog:
    catalog.drop_table("k")
    return catalog


def _with_snapshot(catalog: Catalog) -> Any:
    catalog.snapshots.create("q2")
    return catalog.snapshots


CALLS: dict[str, Callable[[Path], Case]] = {
    "Catalog.create_namespace": _of_catalog(lambda c: c, "create_namespace", name="db"),
    "Catalog.create_table": _of_catalog(
        lambda c: c,
        "create_table",
        name="db.new",
        schema=SCHEMA,
        data=None,
        partition_by=["name"],
        primary_key=["id", "name"],
        sort_by=["id"],
        properties={"a.b": "c"},
        mode="error",
        message="why",
    ),
    "Catalog.drop_namespace": _of_catalog(_with_namespace, "drop_namespace", name="empty"),
    "Catalog.drop_table": _of_catalog(lambda c: c, "drop_table", name="t", purge=False),
    "Catalog.open": free(
        Catalog.open,
        warehouse=Path("warehouse"),
        storage_options={},
        durability="fast",
        access=StorageAccess(),
    ),
    "Catalog.register_table": _of_catalog(
        _with_dropped_table, "register_table", name="db.again", path=Path("k")
    ),
    "Catalog.read_at": _of_catalog(lambda c: c, "read_at", time=None),
    "Catalog.transaction": _of_catalog(
        lambda c: c,
        "transaction",
        commit_user="etl",
        commit_identifier=5,
        isolation="snapshot",
    ),
    "CatalogTransaction.table": _of_catalog(lambda c: c.transaction(), "table", name="t"),
    "CatalogView.sql": _of_catalog(lambda c: c.read_at(), "sql", query="FROM t"),
    "CatalogView.table": _of_catalog(lambda c: c.read_at(), "table", name="t"),
    "Catalog.rename_table": _of_catalog(lambda c: c, "rename_table", old="t", new="db.other"),
    "Catalog.repair": _of_catalog(lambda c: c, "repair", dry_run=False),
    "Catalog.sql": _of_catalog(lambda c: c, "sql", query="FROM t"),
    "Catalog.table": _of_catalog(lambda c: c, "table", name="t", version="first", branch="main"),
    "Catalog.table_exists": _of_catalog(lambda c: c, "table_exists", name="t"),
    "Catalog.tables": _of_catalog(_with_namespace, "tables", namespace="empty", pattern="t*"),
    "CatalogSnapshots.create": _of_catalog(
        lambda c: c.snapshots, "create", name="q3", tables=["t"], message="why"
    ),
    "CatalogSnapshots.delete": _of_catalog(_with_snapshot, "delete", name="q2"),
    "CatalogSnapshots.tables": _of_catalog(_with_snapshot, "tables", name="q2"),
    "repair_table": free(
        fermion_table.repair_table,
        path=Path("t"),
        storage_options={},
        dry_run=False,
        leave_out_missing=True,
        lost_deletions="leave_out",
    ),
}
