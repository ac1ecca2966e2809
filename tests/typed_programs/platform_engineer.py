"""What a platform engineer writes: catalogs, storages. Checked by `mypy --strict`, never run."""

from __future__ import annotations

from typing import assert_type

import fermion
from fermion_table import (
    Catalog,
    CommitConflict,
    StorageAccess,
    Table,
    TableError,
    VerifyReport,
)


def nightly(warehouse: str, secrets: dict[str, str]) -> list[str]:
    """Verify every table of a warehouse, and name those that are damaged."""
    catalog = Catalog.open(warehouse, storage_options=secrets)
    damaged: list[str] = []
    for name in catalog.tables():
        table = catalog.table(name)
        assert_type(table, Table)
        report = table.verify(data=True)
        assert_type(report, VerifyReport)
        try:
            table.compact(dry_run=True)
        except CommitConflict:
            continue
        except (TableError, fermion.FermionError) as error:
            damaged.append(f"{name}: {error}")
    return damaged


def settings(table: Table) -> fermion.WriteOptions:
    """Options are known by name and by type."""
    StorageAccess(timeout="a minute")  # type: ignore[call-arg]
    table.tags.create(5)  # type: ignore[arg-type]
    table.restore()  # type: ignore[call-arg]
    Catalog.open(5)  # type: ignore[arg-type]
    fermion.WriteOptions(profil="compact")  # type: ignore[call-arg]
    return fermion.WriteOptions(profile="compact", encodings={"id": "plain"})
