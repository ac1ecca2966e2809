"""What is read of a long list of tables: the rows that a change is about, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Catalog, Table, TableExists
from fermion_table.catalog import rows as catalog_rows
from fermion_table.catalog import tables
from fermion_table.catalog.names import TABLES_PATH
from fermion_table.catalog.rows import LIST_SCHEMA
from fermion_table.catalog.table_list import TableList
from fermion_table.lookup.lookup import Lookups

SCHEMA = pa.schema([("x", pa.int64())])
NAMES = 3_000


def filled(warehouse: Path, *, dropped: bool = False) -> Catalog:
    """A catalog whose list has many names; none of their tables exists.

    Parameters
    ----------
    dropped
        Whether each name had a table that was dropped without purge.
    """
    catalog = Catalog.open(warehouse, durability="fast")
    catalog.create_table("small.first", SCHEMA)
    numbers = range(NAMES)
    gone = [{"table_uuid": f"d{number}", "path": f"p{number}"} for number in numbers]
    columns: dict[str, Any] = {
        "namespace": ["big"] * NAMES,
        "name": [f"t{number}" for number in numbers],
        "kind": ["table"] * NAMES,
        "table_uuid": [f"{number:032x}" for number in numbers],
        "path": [f"big/t{number}" for number in numbers],
        "created": [None] * NAMES,
        "properties": [None] * NAMES,
        "directories": [1] * NAMES,
        "dropped": [[each] if dropped else None for each in gone],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in LIST_SCHEMA]
    Table.open(warehouse / TABLES_PATH, durability="fast").upsert(
        pa.Table.from_arrays(arrays, schema=LIST_SCHEMA)
    )
    return Catalog.open(warehouse, durability="fast")


CALLS: dict[str, Callable[[Catalog, Path], object]] = {
    "register_table": lambda catalog, path: catalog.register_table("new.one", path),
    "create_table": lambda catalog, path: catalog.create_table("new.two", SCHEMA),
    "rename_table": lambda catalog, path: catalog.rename_table("small.first", "new.first"),
    "drop_table": lambda catalog, path: catalog.drop_table("small.first"),
    "create_namespace": lambda catalog, path: catalog.create_namespace("new.space"),
    "drop_namespace": lambda catalog, path: catalog.drop_namespace("small"),
}


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_change_of_one_name_decodes_no_other_rows_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, dropped: bool
) -> None:
    """Rows of Arrow that become objects are counted; the list has 3,000."""
    catalog = filled(tmp_path / "warehouse", dropped=dropped)
    path = tmp_path / "outside"
    Table.create(path, SCHEMA, durability="fast")
    if call == "drop_namespace":
        catalog.drop_table("small.first", purge=True)
    decoded = []
    decode = catalog_rows._row_of
    monkeypatch.setattr(
        catalog_rows, "_row_of", lambda values: decoded.append(values) or decode(values)
    )
    CALLS[call](catalog, path)
    monkeypatch.undo()
    assert 0 <= len(decoded) <= 10
    names = set(catalog.tables())
    assert len(names) >= NAMES
    assert ("new.one" in names) == (call == "register_table")
    assert ("new" in catalog.namespaces()) == (not call.startswith("drop"))
    assert ("small" in catalog.namespaces()) == (call != "drop_namespace")


def test_a_table_of_a_long_list_is_not_registered_twice(tmp_path: Path) -> None:
    """Nor is one whose name was given to it by a rename; one that was dropped comes back."""
    catalog = filled(tmp_path / "warehouse")
    path = tmp_path / "outside"
    Table.create(path, SCHEMA, durability="fast")
    catalog.register_table("a.one", path)
    catalog.rename_table("a.one", "b.two")
    with pytest.raises(TableExists, match=r"listed already, as b\.two"):
        catalog.register_table("c.three", path)
    inside = Path(catalog.table("small.first").location)
    catalog.drop_table("small.first")
    catalog.register_table("c.three", inside)
    row = TableList(catalog._warehouse).find([("small", "first")]).get(("small", "first"))
    assert row is not None
    assert row.dropped == ()
    assert catalog.table("c.three").location == str(inside)


def test_of_two_clients_that_register_a_table_under_two_names_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one commits while the first has decided; it reads the list again."""
    catalog, other = (filled(tmp_path / "warehouse"), Catalog.open(tmp_path / "warehouse"))
    path = tmp_path / "outside"
    Table.create(path, SCHEMA, durability="fast")
    change = TableList.change
    done: list[str] = []

    def late(self: TableList, keys: Any, decide: Any, message: str, **words: Any) -> None:
        def deciding(there: Any) -> Any:
            made = list(decide(there))
            if not done:
                done.append(message)
                other.register_table("other.name", path)
            return made

        change(self, keys, deciding, message, **words)

    monkeypatch.setattr(TableList, "change", late)
    with pytest.raises(TableExists, match=r"listed already, as other\.name"):
        catalog.register_table("own.name", path)
    assert done == ["register own.name"]
    assert "own.name" not in catalog.tables()


def test_a_create_looks_its_rows_up_once(tmp_path, monkeypatch):
    """Also those of its namespaces; and again where another client has changed the list since."""
    catalog, other = filled(tmp_path), Catalog.open(tmp_path, durability="fast")
    asked: list[int] = []
    find, create = Lookups.find, tables.create_defined

    def counted(self: Lookups, scan: Any, keys: pa.RecordBatch) -> pa.Table:
        asked.append(keys.num_rows)
        return find(self, scan, keys)

    monkeypatch.setattr(Lookups, "find", counted)
    catalog.create_table("small.second", SCHEMA)
    assert asked == [2]

    def overtaken(*values: Any, **options: Any) -> Any:
        monkeypatch.setattr(tables, "create_defined", create)
        other.drop_namespace("empty")
        asked.clear()
        return create(*values, **options)

    other.create_namespace("empty")
    asked.clear()
    monkeypatch.setattr(tables, "create_defined", overtaken)
    catalog.create_table("empty.table", SCHEMA)
    assert asked == [2]
    assert "empty" in catalog.namespaces()
    assert catalog.tables("empty") == ["empty.table"]
