"""Names of tables in a warehouse, as SQL shows them, with a list of the catalog and without."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, Table, TableExists, TableNotFound
from fermion_table.catalog.directories import WarehouseNames


@pytest.fixture
def directory(tmp_path):
    """A warehouse with tables a.t and b.u, each with a row that has its name."""
    for space, name in (("a", "t"), ("b", "u")):
        table = Table.create(tmp_path / "w" / space / name, pa.schema([("name", pa.string())]))
        table.append({"name": [f"{space}.{name}"]})
    return WarehouseNames(str(tmp_path / "w"))


def content(directory, *parts: str) -> list:
    return directory.table(parts).scan().to_arrow()["name"].to_pylist()


def everything(directory) -> dict[str, list[str]]:
    """The tables of every namespace."""
    found = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        space = waiting.pop()
        found[".".join(space)] = directory.tables(space)
        waiting += [(*space, name) for name in directory.namespaces(space)]
    return {space: names for space, names in found.items() if names}


@pytest.mark.parametrize("name", ["a%b", "a%25b", "a#b", "a?b", "a*b", "a[b]", "a b", "a`b", "é"])
def test_a_table_that_sql_made_stays_visible_once_the_catalog_has_a_list(directory, name):
    """Under its name, and under another one; then the name is free again."""
    parts = ["a", name]

    def make() -> None:
        location = directory.place(parts)
        Table.create(location, {"name": ["mine"]})
        directory.register(parts, location)

    make()
    catalog = Catalog.open(directory.root)
    assert catalog.table(parts).count() == 1
    with pytest.raises(TableExists):
        catalog.create_table(parts, {"name": ["other"]})
    catalog.create_table("a.more", {"name": ["more"]})
    assert directory.tables(["a"]) == sorted([name, "more", "t"])
    assert len(catalog.tables("a")) == 3
    assert content(directory, *parts) == catalog.table(parts).to_arrow()["name"].to_pylist()
    directory.rename(parts, ["a", "x"])
    assert directory.tables(["a"]) == ["more", "t", "x"]
    assert not directory.exists(parts)
    make()
    assert directory.tables(["a"]) == sorted([name, "more", "t", "x"])
    catalog.drop_table(parts)
    assert directory.tables(["a"]) == ["more", "t", "x"]


def test_names_that_the_catalog_could_not_keep_are_refused_when_they_are_made(directory):
    for name in ("a:b", "a\nb"):
        with pytest.raises(InvalidArgumentError, match="not a name for a directory"):
            directory.place(["a", name])
    for space in ("a%b", "a?b", "a:b", "a#b"):
        with pytest.raises(InvalidArgumentError, match="can't be a namespace"):
            directory.make_namespace([space])
        with pytest.raises(InvalidArgumentError, match="can't be a namespace"):
            directory.place([space, "t"])
    assert everything(directory) == {"a": ["t"], "b": ["u"]}


def test_a_renamed_table_keeps_its_files_readers_and_writers(directory):
    """Into another namespace, to a name that was another's, and back, when no row is left."""
    reader = directory.table(["a", "t"])
    directory.rename(["a", "t"], ["new", "x"])
    assert everything(directory) == {"b": ["u"], "new": ["x"]}
    assert directory.is_namespace(["new"])
    assert not directory.exists(["a", "t"])
    with pytest.raises(TableNotFound, match=r"no table a\.t"):
        directory.table(["a", "t"])
    reader.append({"name": ["more"]})
    assert content(directory, "new", "x") == ["a.t", "more"]
    directory.rename(["b", "u"], ["a", "t"])
    directory.rename(["new", "x"], ["b", "u"])
    assert (content(directory, "a", "t"), content(directory, "b", "u")) == (
        ["b.u"],
        ["a.t", "more"],
    )
    directory.rename(["b", "u"], ["b", "v"])
    directory.rename(["a", "t"], ["b", "u"])
    directory.rename(["b", "v"], ["a", "t"])
    assert everything(directory) == {"a": ["t"], "b": ["u"]}
    assert Catalog.open(directory.root).tables() == ["a.t", "b.u"]


def test_python_and_sql_have_the_same_names(directory):
    """Those of the catalog in Python; also one whose name can't be that of a directory."""
    catalog = Catalog.open(directory.root)
    catalog.rename_table("a.t", "c.x")
    catalog.create_table(["c", "x/y.z"], pa.schema([("name", pa.string())]))
    catalog.drop_table("b.u")
    assert everything(directory) == {"c": ["x", "x/y.z"]}
    assert content(directory, "c", "x") == ["a.t"]
    assert content(directory, "c", "x/y.z") == []
    catalog.snapshots.create("q1", ["c.x"])
    directory.table(["c", "x"]).append({"name": ["more"]})
    assert directory.table(["c", "x"], "q1").scan().count() == 1
    with pytest.raises(InvalidArgumentError, match="snapshots of the catalog hold"):
        directory.drop(["c", "x"])
    directory.drop(["c", "x/y.z"])
    directory.make_namespace(["d"])
    assert (catalog.tables(), "d" in catalog.namespaces()) == (["c.x"], True)


def test_names_that_are_taken_or_impossible_are_refused(directory):
    directory.rename(["a", "t"], ["a", "x"])
    for old, new, error in (
        (["a", "x"], ["b", "u"], TableExists),
        (["b", "u"], ["a", "x"], TableExists),
        (["a", "x"], ["a", "x"], TableExists),
        (["a", "t"], ["a", "y"], TableNotFound),
        (["a", "none"], ["a", "y"], TableNotFound),
        (["a", "x"], ["b"], InvalidArgumentError),
        (["b", "u"], ["a", "x", "y"], InvalidArgumentError),
        (["b", "u"], ["a", "t", "y"], InvalidArgumentError),
        (["b", "u"], ["_catalog", "tables"], InvalidArgumentError),
        (["b", "u"], ["b", ".hidden"], InvalidArgumentError),
        (["b", "u"], ["b", "x/y"], InvalidArgumentError),
    ):
        with pytest.raises(error):
            directory.rename(old, new)
    assert everything(directory) == {"a": ["x"], "b": ["u"]}
    with pytest.raises(InvalidArgumentError, match=r"a\.t is a table"):
        directory.make_namespace(["a", "t"])  # its directory
    with pytest.raises(TableExists, match=r"inside the table a\.x"):
        directory.place(["a", "x", "y"], None)
    place = directory.place(["a", "t"], None)
    assert place.startswith(f"{directory.root}/_catalog/data/a.t-")
    Table.create(place, pa.schema([("name", pa.string())]))
    directory.register(["a", "t"], place)
    assert everything(directory) == {"a": ["t", "x"], "b": ["u"]}


def test_of_two_renames_at_once_one_wins(directory):
    """To one name from two tables, and of one table to two names; both threads begin together."""
    for attempts in (
        [(["a", "t"], ["c", "one"]), (["b", "u"], ["c", "one"])],
        [(["c", "one"], ["c", "two"]), (["c", "one"], ["c", "three"])],
    ):
        outcomes: list[str] = []
        barrier = threading.Barrier(2)

        def attempt(old, new, outcomes=outcomes, barrier=barrier) -> None:
            other = WarehouseNames(directory.root)
            barrier.wait()
            try:
                other.rename(old, new)
                outcomes.append("done")
            except (TableExists, TableNotFound):
                outcomes.append("refused")

        threads = [threading.Thread(target=attempt, args=each) for each in attempts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["done", "refused"]
        assert sum(len(names) for names in everything(directory).values()) == 2


def test_dropping_follows_the_names(directory, tmp_path):
    """Only the named table's files go; a namespace that holds another's files is not dropped."""
    directory.rename(["a", "t"], ["b", "x"])
    with pytest.raises(
        InvalidArgumentError, match=r"a/t \(a table of another name\) belong to no table"
    ):
        directory.drop_namespace(["a"])
    assert not directory.is_empty(["b"])
    Table.create(tmp_path / "out" / "r", pa.schema([("name", pa.string())]))
    directory.register(["b", "r"], str(tmp_path / "out" / "r"))
    assert not directory.is_inside(directory.find(["b", "r"]))
    with pytest.raises(InvalidArgumentError, match=r"registered.*PURGE"):
        directory.drop(["b", "r"], purge=True)
    directory.drop_namespace(["b"])
    assert everything(directory) == {}
    assert not (tmp_path / "w" / "a" / "t").exists()
    assert Table.exists(tmp_path / "out" / "r")
    assert directory.namespaces([]) == ["a"]


def test_a_registered_table_that_is_gone_can_be_dropped(directory, tmp_path):
    """Until then its name is taken, and the error says where it was."""
    there = tmp_path / "out"
    Table.create(there, pa.schema([("name", pa.string())]))
    directory.register(["a", "r"], str(there))
    there.rename(tmp_path / "moved")
    assert directory.exists(["a", "r"])
    with pytest.raises(TableNotFound, match=r"out, where no table lies any more"):
        directory.table(["a", "r"])
    directory.drop(["a", "r"])
    assert everything(directory) == {"a": ["t"], "b": ["u"]}


def test_places_that_can_not_be_registered(directory, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "w")
    for location, said in (
        (f"{tmp_path}/w/b/u", "lies in the warehouse"),
        (f"{tmp_path}/link/b/u", "lies in the warehouse"),
        (str(tmp_path), "or around it"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            directory.place(["a", "r"], location)
    assert directory.place(["a", "r"], f"{tmp_path}/w/a/r") == f"{tmp_path}/w/a/r"
    assert directory.place(["a", "r"], f"{tmp_path}/a b") == f"{tmp_path}/a b"
