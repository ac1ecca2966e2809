"""`Catalog`: tables created, found, listed, renamed, dropped and registered by name."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion_table
from fermion.errors import InvalidArgumentError
from fermion_table import (
    Catalog,
    Table,
    TableExists,
    TableNotFound,
    UnsafeStorage,
    drop_table,
)
from fermion_table.catalog.tables import Tables
from fermion_table.catalog.warehouse import Warehouse
from tests.golden.catalog_features import WAREHOUSES
from tests.golden.write_golden_catalogs import FOLDER, expectations
from tests.kit.tables.warehouses import SCHEMA, again, ids, list_commits, rows


def test_a_table_is_found_by_its_name(catalog: Catalog) -> None:
    """A table costs two commits; it lies where its name says, with its namespaces listed."""
    assert catalog.tables() == []
    assert catalog.namespaces() == []
    made = catalog.create_table("a.b.events", SCHEMA, properties={"target_file_size": "1MB"})
    made.append(rows(1))
    assert list_commits(catalog) == 1
    for client in (catalog, again(catalog), pickle.loads(pickle.dumps(catalog))):
        assert ids(client.table("a.b.events")) == [1]
        assert client.tables() == ["a.b.events"] == client.tables("a.b")
        assert client.tables("a") == []
        assert client.namespaces() == ["a", "a.b"]
        assert client.table_exists("a.b.events")
        assert not client.table_exists("a.b.other")
    assert ids(catalog.table("a.b.events", version=0)) == []
    made.branches.create("dev")
    assert catalog.table("a.b.events", branch="dev").branch == "dev"
    assert made.location == str(Path(catalog.location, "a", "b", "events"))
    assert made.properties["target_file_size"] == "1MB"


def test_a_table_that_is_there_is_refused_opened_or_replaced(catalog: Catalog) -> None:
    made = catalog.create_table("db.t", SCHEMA)
    made.append(rows(1))
    with pytest.raises(TableExists, match=r"db\.t"):
        catalog.create_table("db.t", SCHEMA)
    assert ids(catalog.create_table("db.t", SCHEMA, mode="ignore")) == [1]
    assert ids(catalog.create_table("db.t", pa.schema({"id": pa.int32()}), mode="overwrite")) == []
    assert ids(catalog.table("db.t", version=1)) == [1]
    assert catalog.tables() == ["db.t"]


def test_a_missing_table_is_told_with_the_closest_names(catalog: Catalog) -> None:
    catalog.create_table("db.events", SCHEMA)
    for act in (catalog.table, catalog.drop_table, lambda name: catalog.rename_table(name, "x")):
        with pytest.raises(TableNotFound, match=r"no table db\.event; .*db\.events"):
            act("db.event")
    with pytest.raises(TableNotFound, match="no namespace nothing"):
        catalog.tables("nothing")


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        ({"mode": "replace"}, InvalidArgumentError, "mode="),
        ({"schema": {"id": "int"}}, TypeError, "schema"),
        ({"message": 7}, TypeError, "message"),
        ({"primary_key": "nope"}, KeyError, "nope"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_made(
    catalog: Catalog, words: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        catalog.create_table("db.t", **{"schema": SCHEMA, **words})
    assert not Path(catalog.location).exists()


def test_other_wrong_arguments_are_named(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(TypeError, match="purge"):
        catalog.drop_table("db.t", purge="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pattern"):
        catalog.tables(pattern=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path"):
        Catalog.open(7)  # type: ignore[arg-type]
    with pytest.raises(UnsafeStorage, match="no storage is known"):
        Catalog.open("nothing://x")
    with pytest.raises(TableExists, match="lies inside"):
        catalog.create_table("db.t.inner", SCHEMA)
    assert catalog.tables() == ["db.t"]


def test_names_are_listed_by_namespace_and_pattern(catalog: Catalog) -> None:
    """Percent and underscore are plain characters; a name with a dot is quoted."""
    names = ["a_b", "axb", "a%b", "x.y", "x`y", "top"]
    for name in names:
        catalog.create_table(("db", name) if name != "top" else name, SCHEMA)
    listed = ["db.a%b", "db.a_b", "db.axb", "db.`x.y`", "db.`x``y`", "top"]
    assert sorted(catalog.tables()) == sorted(listed)
    assert all(catalog.table_exists(name) for name in catalog.tables())
    assert catalog.tables(pattern="a_*") == ["db.a_b"]
    assert catalog.tables(pattern="a%b") == ["db.a%b"]
    assert catalog.tables("db", pattern="a?b") == ["db.a%b", "db.a_b", "db.axb"]
    assert catalog.tables(pattern="x[.]y") == []


def test_a_renamed_table_keeps_its_files_and_frees_its_name(catalog: Catalog) -> None:
    """There and back again, with another table of the name in between."""
    first = catalog.create_table("db.t", SCHEMA)
    first.append(rows(1))
    catalog.rename_table("db.t", "other.`u/v`")
    assert catalog.tables() == ["other.u/v"]
    assert catalog.namespaces() == ["db", "other"]
    assert not catalog.table_exists("db.t")
    assert catalog.table("other.`u/v`").location == first.location
    catalog.create_table("db.t", SCHEMA).append(rows(2))
    for old, new in (("other.`u/v`", "db.t"), ("db.t", "db.t"), ("db.t", "other.`u/v`")):
        with pytest.raises(TableExists, match="this name already"):
            catalog.rename_table(old, new)
    catalog.rename_table("db.t", "db.second")
    catalog.rename_table("other.`u/v`", "db.t")
    assert {name: ids(again(catalog).table(name)) for name in catalog.tables()} == {
        "db.second": [2],
        "db.t": [1],
    }


def test_a_dropped_table_is_hidden_until_it_is_registered(catalog: Catalog) -> None:
    """Also while a new table has the name; dropping that brings the first one not back."""
    location = (
        catalog.create_table("db.t", SCHEMA).append(rows(1)) and catalog.table("db.t").location
    )
    assert catalog.drop_table("db.t") is None
    assert not catalog.table_exists("db.t")
    assert catalog.tables() == []
    with pytest.raises(TableNotFound):
        catalog.table("db.t")
    catalog.create_table("db.t", SCHEMA).append(rows(2))
    assert ids(catalog.table("db.t")) == [2]
    assert catalog.drop_table("db.t", purge=True) is not None
    assert not catalog.table_exists("db.t")
    assert ids(catalog.register_table("db.back", location)) == [1]
    assert catalog.tables() == ["db.back"]
    assert ids(again(catalog).table("db.back")) == [1]


def test_purge_deletes_the_files_and_the_name_is_as_new(catalog: Catalog) -> None:
    for _ in range(2):
        made = catalog.create_table("db.t", SCHEMA)
        made.append(rows(1))
        assert made.location == str(Path(catalog.location, "db", "t"))
        removed = catalog.drop_table("db.t", purge=True)
        assert removed is not None
        assert removed.files > 0
        assert os.listdir(Path(catalog.location, "db")) == []
    assert catalog._names.row(fermion_table.catalog.names.table_name("db.t")) is None


def test_a_table_with_clones_is_dropped_but_its_files_are_not_deleted(
    catalog: Catalog, tmp_path: Path
) -> None:
    made = catalog.create_table("db.t", SCHEMA)
    made.append(rows(1))
    clone = made.clone(tmp_path / "clone")
    commits = list_commits(catalog)
    with pytest.raises(InvalidArgumentError, match=r"db\.t: clones share .*clone"):
        catalog.drop_table("db.t", purge=True)
    assert list_commits(catalog) == commits
    assert catalog.table_exists("db.t")
    catalog.drop_table("db.t")
    assert ids(clone) == [1]


def test_a_clone_made_at_the_last_moment_keeps_the_files(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the catalog has looked for clones: the table is dropped, its files stay."""
    made = catalog.create_table("db.t", SCHEMA)
    made.append(rows(1))
    look = Tables._refuse_shared

    def then_clone(tables: Tables, *given: Any) -> None:
        look(tables, *given)
        made.clone(tmp_path / "clone")

    monkeypatch.setattr(Tables, "_refuse_shared", then_clone)
    with pytest.raises(InvalidArgumentError, match="clone"):
        catalog.drop_table("db.t", purge=True)
    assert ids(Table.open(tmp_path / "clone")) == [1]
    assert not catalog.table_exists("db.t")
    assert catalog.tables() == []


def test_a_link_is_not_dropped_with_what_it_leads_to(catalog: Catalog, tmp_path: Path) -> None:
    Table.create(tmp_path / "elsewhere", SCHEMA).append(rows(1))
    catalog.create_namespace("db")
    os.symlink(tmp_path / "elsewhere", Path(catalog.location, "db", "link"))
    assert ids(catalog.table("db.link")) == [1]
    with pytest.raises(UnsafeStorage, match="symbolic link"):
        catalog.drop_table("db.link", purge=True)
    assert ids(catalog.table("db.link")) == [1]


def test_a_table_elsewhere_is_registered_and_let_go(catalog: Catalog, tmp_path: Path) -> None:
    outside = Table.create(tmp_path / "outside", SCHEMA)
    outside.append(rows(1))
    assert ids(catalog.register_table("db.out", tmp_path / "outside")) == [1]
    with pytest.raises(TableExists, match=r"listed already, as db\.out"):
        catalog.register_table("db.again", tmp_path / "outside")
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(TableExists, match=r"db\.t"):
        catalog.register_table("db.t", Table.create(tmp_path / "more", SCHEMA).location)
    with pytest.raises(TableNotFound):
        catalog.register_table("db.no", tmp_path / "nothing")
    catalog.rename_table("db.out", "db.o")
    catalog.drop_table("db.o")
    assert ids(outside) == [1]
    assert catalog.tables() == ["db.t"]
    catalog.register_table("db.o", tmp_path / "outside")
    catalog.drop_table("db.o", purge=True)
    assert not Table.exists(tmp_path / "outside")


@pytest.mark.parametrize("path", ["_catalog/tables", "_catalog/snapshots", "link"])
def test_a_catalog_does_not_register_its_own_lists(catalog: Catalog, path: str) -> None:
    """Nor those of another catalog, nor a link to one."""
    catalog.create_table("db.t", SCHEMA)
    catalog.snapshots.create("q")
    os.symlink(Path(catalog.location, "_catalog", "tables"), Path(catalog.location, "link"))
    other = Catalog.open(Path(catalog.location).parent / "other", durability="fast")
    for each in (catalog, other):
        with pytest.raises(InvalidArgumentError, match="a list that a catalog keeps of itself"):
            each.register_table("mine", Path(catalog.location, path))
        assert "mine" not in each.tables()
    assert catalog.tables() == ["db.t"]


def test_a_list_that_was_registered_is_not_purged_and_repair_takes_it_out(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions did it."""
    catalog.create_table("db.t", SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "is_own", lambda self, path: False)
        catalog.register_table("mine", Path(catalog.location, "_catalog", "tables"))
    with pytest.raises(InvalidArgumentError, match="Nothing was dropped"):
        catalog.drop_table("mine", purge=True)
    assert again(catalog).tables() == ["db.t", "mine"]
    assert catalog.repair().actions == (
        "mine: taken out of the list, as the catalog's own list lies at _catalog/tables",
    )
    assert again(catalog).tables() == ["db.t"]


def test_a_catalog_of_the_catalogs_directory_does_not_purge_the_lists(catalog: Catalog) -> None:
    catalog.create_table("db.t", SCHEMA)
    inner = Catalog.open(Path(catalog.location, "_catalog"), durability="fast")
    with pytest.raises(InvalidArgumentError, match="a list that a catalog keeps of itself"):
        inner.drop_table("tables", purge=True)
    assert again(catalog).tables() == ["db.t"]


def test_tables_in_the_catalogs_data_are_registered_and_purged(catalog: Catalog) -> None:
    table = catalog.create_table("db.`a/b`", SCHEMA)
    assert "/_catalog/data/" in table.location
    catalog.drop_table("db.`a/b`")
    catalog.register_table("db.c", table.location)
    catalog.drop_table("db.c", purge=True)
    assert not Table.exists(table.location)


@pytest.mark.parametrize("inner", ["inner", "branch/inner", "warehouse/db/inner"])
def test_a_table_that_holds_another_table_or_a_warehouse_is_not_purged(
    catalog: Catalog, tmp_path: Path, inner: str
) -> None:
    """A directory that was moved there: tables are not made within others."""
    outer = Table.create(tmp_path / "outer", SCHEMA)
    outer.append(rows(1))
    catalog.register_table("db.outer", outer.location)
    Table.create(tmp_path / "moved", SCHEMA).append(rows(2))
    place = Path(outer.location, inner)
    place.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "moved").rename(place)
    with pytest.raises(InvalidArgumentError, match=f"other tables lie in .*: {inner}; drop"):
        catalog.drop_table("db.outer", purge=True)
    assert again(catalog).tables() == ["db.outer"]
    assert drop_table(outer.location, dry_run=True).tables == (inner,)
    with pytest.raises(InvalidArgumentError, match=f"other tables lie in .*: {inner}. Drop"):
        drop_table(outer.location)
    assert ids(catalog.table("db.outer")) == [1]
    assert ids(Table.open(place)) == [2]
    drop_table(place)
    catalog.drop_table("db.outer", purge=True)
    assert not Table.exists(outer.location)


def test_a_table_without_a_row_opens_and_is_changed_by_its_name(catalog: Catalog) -> None:
    """Made without the catalog, after the list was begun."""
    catalog.create_table("db.first", SCHEMA)
    for name in ("loose", "gone", "kept"):
        Table.create(Path(catalog.location, "db", name), SCHEMA).append(rows(7))
    assert ids(catalog.table("db.loose")) == [7]
    assert catalog.table_exists("db.loose")
    with pytest.raises(TableExists):
        catalog.create_table("db.loose", SCHEMA)
    with pytest.raises(TableExists):
        catalog.rename_table("db.first", "db.loose")
    assert catalog.tables() == ["db.first"]
    catalog.rename_table("db.loose", "db.listed")
    assert not catalog.table_exists("db.loose")
    catalog.drop_table("db.gone")
    assert not catalog.table_exists("db.gone")
    catalog.register_table("db.kept", Path(catalog.location, "db", "kept"))
    assert catalog.tables() == ["db.first", "db.kept", "db.listed"]


def test_a_warehouse_of_directories_is_listed_before_and_after_the_first_change(
    tmp_path: Path,
) -> None:
    """As Spark's catalog makes them: tables at any depth, namespaces without tables."""
    for path in ("db/t", "db/deep/er/u", "top"):
        Table.create(tmp_path / path, SCHEMA)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    catalog = Catalog.open(tmp_path, durability="fast")
    tables, spaces = ["db.deep.er.u", "db.t", "top"], ["db", "db.deep", "db.deep.er", "empty"]
    assert (catalog.tables(), catalog.namespaces()) == (tables, spaces)
    assert not (tmp_path / "_catalog").exists()
    with pytest.raises(TableNotFound):
        catalog.drop_table("nothing")
    assert (catalog.tables(), catalog.namespaces()) == (tables, spaces)
    catalog.create_table("new.v", SCHEMA)
    assert (catalog.tables(), catalog.namespaces()) == (
        sorted([*tables, "new.v"]),
        sorted([*spaces, "new"]),
    )


def test_the_list_is_told_that_a_table_has_gone(catalog: Catalog) -> None:
    """Dropped by its path: opening says so, and dropping the name works."""
    made = catalog.create_table("db.t", SCHEMA)
    fermion_table.drop_table(made.location)
    assert not catalog.table_exists("db.t")
    assert catalog.tables() == ["db.t"]
    with pytest.raises(TableNotFound, match="no table lies any more"):
        catalog.table("db.t")
    assert catalog.drop_table("db.t", purge=True) is None
    assert catalog.tables() == []
    assert catalog.create_table("db.t", SCHEMA).location == made.location


def test_namespaces_are_made_and_dropped(catalog: Catalog) -> None:
    catalog.create_namespace("a.b")
    assert catalog.namespaces() == ["a", "a.b"]
    assert Path(catalog.location, "a", "b").is_dir()
    for name in ("a", "a.b"):
        with pytest.raises(InvalidArgumentError, match="exists already"):
            catalog.create_namespace(name)
    catalog.create_table("a.b.t", SCHEMA)
    with pytest.raises(InvalidArgumentError, match=r"a\.b\.t is the directory of a table"):
        catalog.create_namespace("a.b.t.c")
    with pytest.raises(InvalidArgumentError, match=r"not empty: a\.b"):
        catalog.drop_namespace("a")
    catalog.drop_table("a.b.t")
    with pytest.raises(InvalidArgumentError, match=r"not empty: a\.b\.t"):
        catalog.drop_namespace("a.b")
    catalog.register_table("a.b.t", Path(catalog.location, "a", "b", "t"))
    catalog.drop_table("a.b.t", purge=True)
    Path(catalog.location, "a", "b", "notes.txt").touch()
    with pytest.raises(InvalidArgumentError, match="directory is not empty"):
        catalog.drop_namespace("a.b")
    Path(catalog.location, "a", "b", "notes.txt").unlink()
    catalog.drop_namespace("a.b")
    assert catalog.namespaces() == ["a"]
    assert not Path(catalog.location, "a", "b").exists()
    with pytest.raises(TableNotFound, match=r"no namespace a\.b"):
        catalog.drop_namespace("a.b")
    assert catalog.tables("a") == []


def test_a_warehouse_may_be_a_url() -> None:
    catalog = Catalog.open("memory://warehouse-of-tests/here")
    catalog.create_table("a.b.c", SCHEMA).append(rows(1))
    catalog.rename_table("a.b.c", "x.y")
    assert ids(Catalog.open("memory://warehouse-of-tests/here").table("x.y")) == [1]
    assert catalog.drop_table("x.y", purge=True) is not None
    catalog.drop_namespace("a.b")
    assert (catalog.tables(), catalog.namespaces()) == ([], ["a", "x"])


def test_a_list_that_was_replaced_is_opened_again(catalog: Catalog) -> None:
    catalog.create_table("a", SCHEMA)
    client = again(catalog)
    assert client.tables() == ["a"]
    shutil.rmtree(Path(catalog.location, "_catalog"))
    again(catalog).create_table("b", SCHEMA)
    assert client.tables() == ["a", "b"]


def test_a_row_that_leaves_the_warehouse_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    """Whoever can write the list could otherwise make a purge delete a table anywhere."""
    made = Table.create(tmp_path / "outside", SCHEMA)
    catalog.create_table("t", SCHEMA)
    catalog._names.change(
        [("", "t")],
        lambda there: [fermion_table.catalog.tables.replace(there["", "t"], path="../outside")],
        "evil",
    )
    for act in (catalog.table, catalog.drop_table):
        with pytest.raises(UnsafeStorage, match=r"\.\./outside"):
            act("t")
    assert Table.exists(made.location)


@pytest.mark.parametrize("name", WAREHOUSES)
def test_a_golden_warehouse_says_what_it_said(
    name: str, unpacked: Callable[[Path, str], Path]
) -> None:
    """And it can be changed."""
    path = unpacked(FOLDER, name)
    assert expectations(path) == json.loads((FOLDER / f"{name}.json").read_text())
    catalog = Catalog.open(path, durability="fast")
    for each in catalog.snapshots.list():
        catalog.snapshots.delete(each.name)
    for table in catalog.tables():
        assert catalog.table(table).tags.list() == []
        assert catalog.drop_table(table, purge=True) is not None
    assert catalog.tables() == []
    catalog.create_table("db.events", SCHEMA)
    assert catalog.tables() == ["db.events"]
