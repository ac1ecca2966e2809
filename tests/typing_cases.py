# mypy: warn-unused-ignores
# pyright: reportUnnecessaryTypeIgnoreComment=error
"""What type checkers say of calls of the public API. Checked by tests/test_typing.py, never run.

Each `type: ignore` stands where a checker has to find an error: if it finds none, the comment is
one. mypy and pyright both take it.
"""

from __future__ import annotations

from typing import assert_type

import polars

import fermion
from fermion.typing import TableLike
from fermion_table import Catalog, Scan, Snapshot, Table


def files(data: TableLike) -> None:
    """Options are known by name and by type."""
    assert_type(fermion.write_table(data, "a.fermion", profile="compact"), fermion.FileInfo)
    fermion.write_table(data, "a.fermion", encodings={"a": "plain"}, sorted_by=["a"], threads=2)
    fermion.write_table(data, "a.fermion", profil="compact")  # type: ignore[call-arg]
    fermion.write_table(data, "a.fermion", profile="smallest")  # type: ignore[arg-type]
    fermion.write_table(data, "a.fermion", stripe_rows="many")  # type: ignore[arg-type]
    fermion.add_columns("a.fermion", data, profil="compact")  # type: ignore[call-arg]
    fermion.WriteOptions(profil="compact")  # type: ignore[call-arg]
    with fermion.open("a.fermion") as file:
        assert_type(file, fermion.FermionFile)
        assert_type(file.count("a > 1"), int)
        file.read(colums=["a"])  # type: ignore[call-arg]


def frames(scan: Scan, is_lazy: bool) -> None:
    """What `to_polars` gives depends on `lazy`."""
    assert_type(scan.to_polars(), polars.DataFrame)
    assert_type(scan.to_polars(lazy=False), polars.DataFrame)
    assert_type(scan.to_polars(lazy=True), polars.LazyFrame)
    assert_type(scan.to_polars(lazy=is_lazy), polars.DataFrame | polars.LazyFrame)
    scan.to_polars().collect()  # type: ignore[attr-defined]


def tables(data: TableLike) -> None:
    """A table from rows, its scans and its commits."""
    table = Table.create("t", data)
    assert_type(table, Table)
    assert_type(Table.create("t", data, mode="overwrite"), Table)
    assert_type(table.append(data), Snapshot)
    assert_type(table.scan(columns=["a"], filter="a > 1"), Scan)
    assert_type(Catalog.open("w").table("db.t"), Table)
    table.alter_column("a", nullable=True, comment="why")
    table.alter_column("a", nulable=True)  # type: ignore[call-arg]
    table.append(data, schema_mode="replace")  # type: ignore[arg-type]
    table.scan(colums=["a"])  # type: ignore[call-arg]
    Table.create("t", data, mode="replace")  # type: ignore[arg-type]
