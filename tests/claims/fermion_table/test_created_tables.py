"""Tables that are created without a commit of the list: notes until many get their rows at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import (
    Catalog,
    CorruptMetadata,
    Table,
    TableExists,
    TableNotFound,
    UnsafeStorage,
    UnsupportedFeature,
)
from fermion_table.catalog import keyed_list, table_list, tables
from fermion_table.catalog.names import CREATED_PATH
from fermion_table.catalog.table_list import TableList
from fermion_table.commit import replacement
from fermion_table.metadata import snapshot
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash
from tests.kit.tables.warehouses import SCHEMA, again, ids, list_commits, rows

CHANGES = ("write", "create_if_absent", "overwrite_hint", "delete")


@pytest.fixture
def begun(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog with a list, in which creates give no rows to others by themselves."""
    monkeypatch.setattr(tables, "ENTERED_EVERY", 2**33)
    catalog.create_table("first", SCHEMA)
    return catalog


def notes(catalog: Catalog) -> list[str]:
    """The files of tables that have no rows."""
    return sorted(each.name for each in Path(catalog.location, CREATED_PATH).glob("*"))


def test_creates_commit_no_rows_and_are_seen_at_once(begun: Catalog) -> None:
    """By every client, also one that has read the list before, in all that lists tables."""
    behind = again(begun)
    assert behind.tables() == ["first"]
    assert behind.namespaces() == []
    before = list_commits(begun)
    for name in ("a.b.one", "a.two", "three"):
        begun.create_table(name, rows(1))
    assert list_commits(begun) == before
    assert len(notes(begun)) == 3
    for client in (behind, again(begun), begun):
        assert client.tables() == ["a.b.one", "a.two", "first", "three"]
        assert client.tables("a") == ["a.two"]
        assert client.namespaces() == ["a", "a.b"]
        assert client.table_exists("a.b.one")
        assert ids(client.table("three")) == [1]
        assert client.read_at().tables() == client.tables()
        with pytest.raises(TableExists):
            client.create_table("a.two", SCHEMA)
    assert behind.snapshots.create("q1").table_count == 4
    assert begun.repair(dry_run=True).actions == begun.repair().actions == ()


def test_the_next_change_gives_all_of_them_rows(begun: Catalog) -> None:
    for name in ("a.b.one", "a.two", "three"):
        begun.create_table(name, SCHEMA)
    before, shown = list_commits(begun), again(begun).tables()
    again(begun).create_namespace("new")
    assert list_commits(begun) == before + 2
    assert notes(begun) == []
    assert begun.tables() == again(begun).tables() == shown
    assert {row.directories for row in begun._names.rows() if row.is_table} == {1}
    assert begun.namespaces() == ["a", "a.b", "new"]


def test_one_create_in_32_gives_rows(begun: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """So notes stay few without any other change, also where each client creates one table."""
    monkeypatch.setattr(tables, "ENTERED_EVERY", 32)
    before = list_commits(begun)
    for number in range(100):
        again(begun).create_table(f"db.t{number}", SCHEMA)
    assert 0 < len(notes(begun)) < 64
    assert 1 <= list_commits(begun) - before <= 10
    assert len(begun.tables()) == 101


def test_the_list_of_an_older_version_gets_rows_until_one_change_has_marked_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ENTERED_EVERY", 2**33)
    with mock.patch.object(table_list, "CREATED_TABLES", "primary-key"):
        again(catalog).create_table("old", SCHEMA)
    catalog = again(catalog)
    before = list_commits(catalog)
    catalog.create_table("one", SCHEMA)
    assert (list_commits(catalog), notes(catalog)) == (before + 1, [])
    catalog.create_table("two", SCHEMA)
    assert (list_commits(catalog), len(notes(catalog))) == (before + 1, 1)


def test_software_that_knows_no_notes_refuses_the_list(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = snapshot.KNOWN_READER_FEATURES - {snapshot.CREATED_TABLES}
    monkeypatch.setattr(snapshot, "KNOWN_READER_FEATURES", known)
    shared_cache.clear()
    for act in (Catalog.tables, Catalog.repair, lambda client: client.create_table("t", SCHEMA)):
        with pytest.raises(UnsupportedFeature, match="needs reader feature 'created-tables'"):
            act(again(begun))


@pytest.mark.parametrize("name", ["a/b", "x" * 200, "100%", "."])
def test_a_name_that_is_no_short_name_of_a_directory_gets_a_row(begun: Catalog, name: str) -> None:
    before = list_commits(begun)
    begun.create_table(("db", name), SCHEMA)
    assert list_commits(begun) > before
    assert notes(begun) == []
    assert len(again(begun).tables("db")) == 1


@pytest.mark.parametrize("name", ["a.b", "old town", "ß=~`", "a=2Fb"])
def test_names_of_notes_are_read_as_they_were(begun: Catalog, name: str) -> None:
    begun.create_table(("db", name), SCHEMA)
    assert len(notes(begun)) == 1
    before = again(begun).tables()
    begun._names.enter()
    assert begun.tables() == before
    assert begun.table_exists(("db", name))


def test_a_note_without_a_name_is_told_and_other_files_do_not_count(begun: Catalog) -> None:
    begun.create_table("t", SCHEMA)
    folder = Path(begun.location, CREATED_PATH)
    (folder / "something else").write_bytes(b"")
    assert begun.tables() == ["first", "t"]
    (folder / f"{'0' * 32}-a..b.json").write_bytes(b"")
    with pytest.raises(
        CorruptMetadata,
        match=r"created/0+-a\.\.b\.json: expected the name of a.*repair\(\) deletes",
    ):
        begun.tables()


ACTS: dict[str, Callable[[Catalog], object]] = {
    "drop": lambda client: client.drop_table("t"),
    "purge": lambda client: client.drop_table("t", purge=True),
    "rename": lambda client: client.rename_table("t", "u"),
    "rename over": lambda client: client.rename_table("first", "t"),
    "create": lambda client: client.create_table("t", SCHEMA),
    "register": lambda client: client.register_table("v", Path(client.location, "t")),
    "drop namespace": lambda client: client.drop_namespace("db"),
}
SEEN = {
    "drop": ["db.x", "first"],
    "purge": ["db.x", "first"],
    "rename": ["db.x", "first", "u"],
    "rename over": TableExists,
    "create": TableExists,
    "register": TableExists,
    "drop namespace": InvalidArgumentError,
}


@pytest.mark.parametrize("name", ["ns=2Ft1", "=60_catalog=2Ftables=60"])
def test_a_note_gives_no_table_a_second_name(begun: Catalog, name: str) -> None:
    """Purging that name would delete the files of the first."""
    begun.create_table("ns.t1", SCHEMA)
    Path(begun.location, CREATED_PATH, f"{'0' * 32}-{name}.json").write_bytes(b"{}")
    with pytest.raises(CorruptMetadata, match="expected the name of a table whose directory"):
        again(begun).tables()
    assert again(begun).repair(dry_run=True).actions
    (done,) = again(begun).repair().actions
    assert done.endswith(f"{name}.json: deleted, as it is the note of no table")
    assert again(begun).tables() == ["first", "ns.t1"]


def test_a_created_table_that_cannot_be_looked_at_is_listed_beside_the_others(
    begun: Catalog,
) -> None:
    """Before, every listing and every change of the catalog failed, without the table's name."""
    for name in ("db.x", "db.y"):
        begun.create_table(name, SCHEMA)
    snapshots = Path(begun.location, "db", "x", "snapshot")
    kept = snapshots.rename(Path(begun.location, "_kept"))
    snapshots.symlink_to("/etc")
    client = again(begun)
    assert client.tables() == ["db.x", "db.y", "first"]
    assert client.namespaces() == ["db"]
    client.rename_table("db.y", "z")
    assert client.tables() == ["db.x", "first", "z"]
    assert len(notes(begun)) == 1
    for act in (lambda: client.table("db.x"), client.repair):
        with pytest.raises(UnsafeStorage, match=r"db/x: path 'snapshot': a link leads out"):
            act()
    snapshots.unlink()
    kept.rename(snapshots)
    begun._names.enter()
    assert notes(begun) == []
    assert again(begun).tables() == ["db.x", "first", "z"]


def test_a_created_table_that_cannot_be_looked_at_gives_no_namespace_a_row(begun: Catalog) -> None:
    """It is shown with its namespaces while it has a note, and rows are only of what was read."""
    for name in ("bad.deep.x", "good.y"):
        begun.create_table(name, SCHEMA)
    snapshots = Path(begun.location, "bad", "deep", "x", "snapshot")
    kept = snapshots.rename(Path(begun.location, "_kept"))
    snapshots.symlink_to("/etc")
    begun._names.enter()
    keys = [("bad", ""), ("bad.deep", ""), ("bad.deep", "x"), ("good", ""), ("good", "y")]
    assert list(begun._names.find(keys)) == keys[3:]
    client = again(begun)
    assert client.tables() == ["bad.deep.x", "first", "good.y"]
    assert client.namespaces() == ["bad", "bad.deep", "good"]
    before = list_commits(begun)
    begun._names.enter()
    assert list_commits(begun) == before
    snapshots.unlink()
    kept.rename(snapshots)
    begun._names.enter()
    assert set(begun._names.find(keys)) == set(keys)


def test_a_rename_that_stops_halfway_leaves_no_namespace(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first commit gives the new name an unused row."""
    change, commits = keyed_list.KeyedList.change, []

    def stop(self: Any, *arguments: Any, **options: Any) -> None:
        if commits:
            raise KeyboardInterrupt
        commits.append(change(self, *arguments, **options))

    with monkeypatch.context() as patch:
        patch.setattr(keyed_list.KeyedList, "change", stop)
        with pytest.raises(KeyboardInterrupt):
            begun.rename_table("first", "ns.t")
    assert len(commits) == 1
    assert again(begun).namespaces() == []
    again(begun).create_namespace("ns")
    assert again(begun).namespaces() == ["ns"]


def test_a_name_that_is_not_there_is_told_without_a_right_to_list(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise PermissionError("no right to list")

    monkeypatch.setattr(table_list.Creations, "noted", refuse)
    assert begun.table("first").location
    with pytest.raises(TableNotFound, match="no table none"):
        begun.table("none")


def test_a_change_stands_where_its_notes_cannot_be_deleted(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.create_table("ns.t1", SCHEMA)

    def refuse(*_: Any) -> None:
        raise PermissionError("no right to delete")

    monkeypatch.setattr(table_list.Creations, "forget", refuse)
    begun.drop_table("ns.t1")
    assert "ns.t1" not in map(str, again(begun).tables())


@pytest.mark.parametrize("act", ACTS)
def test_changes_know_tables_without_rows(begun: Catalog, act: str) -> None:
    """As if each had one."""
    begun.create_table("t", SCHEMA)
    begun.create_table("db.x", SCHEMA)
    expected = SEEN[act]
    client = again(begun)
    if isinstance(expected, list):
        ACTS[act](client)
    else:
        with pytest.raises(expected):
            ACTS[act](client)
    expected = expected if isinstance(expected, list) else ["db.x", "first", "t"]
    assert again(begun).tables() == begun.tables() == client.tables() == expected
    assert again(begun).repair().actions == ()


@pytest.mark.parametrize("act", ["drop", "purge", "rename"])
def test_a_note_that_comes_late_brings_nothing_back(begun: Catalog, act: str) -> None:
    """A client that gives rows was stopped before it deleted the notes, or a create wrote none."""
    begun.create_table("t", SCHEMA)
    place = Path(begun.location, CREATED_PATH, notes(begun)[0])
    ACTS[act](begun)
    place.write_bytes(b"{}")
    expected = SEEN[act]
    assert isinstance(expected, list)
    expected = [name for name in expected if name != "db.x"]
    assert begun.tables() == again(begun).tables() == expected
    again(begun).create_namespace("n")
    assert notes(begun) == []
    assert begun.tables() == expected


def test_of_a_rename_and_a_create_of_one_name_at_once_one_is_refused(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The create comes when the rename has seen that nothing has the name; it commits no row."""
    other, placed = again(begun), tables.Tables._placed
    came: list[str] = []

    def late(self: tables.Tables, name: Any, row: Any) -> Any:
        found = placed(self, name, row)
        if self is begun._tables and str(name) == "t" and not came:
            came.append("t")
            other.create_table("t", rows(7))
        return found

    monkeypatch.setattr(tables.Tables, "_placed", late)
    with pytest.raises(TableExists):
        begun.rename_table("first", "t")
    monkeypatch.undo()
    assert again(begun).tables() == ["first", "t"]
    assert ids(again(begun).table("t")) == [7]


def test_of_two_creates_of_one_name_one_is_refused(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, create = again(begun), tables.create_defined

    def late(*given: Any, **words: Any) -> Any:
        monkeypatch.undo()
        other.create_table("t", rows(7))
        return create(*given, **words)

    monkeypatch.setattr(tables, "create_defined", late)
    with pytest.raises(TableExists):
        begun.create_table("t", SCHEMA)
    assert ids(again(begun).table("t")) == [7]
    assert replacement.create_defined is create


def dying(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let this process die after so many changes of the storage, in words: nothing catches it."""
    left = [steps]

    def after(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if not left[0]:
                raise Crash
            left[0] -= 1
            return real(*given)

        return call

    for name in CHANGES:
        monkeypatch.setattr(LocalStore, name, after(getattr(LocalStore, name)))


CRASHES: dict[str, Callable[[Catalog], object]] = {
    "create": lambda client: client.create_table("t", rows(1)),
    "enter": lambda client: client._names.enter(),
    "rename": lambda client: client.rename_table("a.b", "c"),
    "purge": lambda client: client.drop_table("a.b", purge=True),
}


@pytest.mark.parametrize("act", CRASHES)
def test_a_crash_after_any_step_loses_no_table_and_makes_none(begun: Catalog, act: str) -> None:
    """What is listed exists; what a client does next is right, and gives rows to all."""
    for steps in range(60):
        made = f"db.n{steps}"
        begun.create_table(made, SCHEMA)
        if not begun.table_exists("a.b"):
            begun.create_table("a.b", rows(5))
        client = again(begun)
        before = client.tables()
        with pytest.MonkeyPatch.context() as patches:
            dying(patches, steps)
            try:
                CRASHES[act](client)
                is_done = True
            except Crash:
                is_done = False
        shared_cache.clear()
        seen = again(begun)
        after = seen.tables()
        going = {"create": {"t"}, "enter": set(), "rename": {"a.b", "c"}, "purge": {"a.b"}}[act]
        assert set(before) ^ set(after) <= going
        if act == "rename":
            assert ("a.b" in after) != ("c" in after)
            assert ids(seen.table("a.b" if "a.b" in after else "c")) == [5]
        for name in after:
            assert seen.table_exists(name)
        if is_done:
            assert steps > 1
            return
        if seen.table_exists("t"):
            seen.drop_table("t", purge=True)
        elif act == "create":
            assert ids(seen.create_table("t", rows(2))) == [2]
            seen.drop_table("t", purge=True)
        for left in {"c"} & set(after):
            seen.rename_table(left, "a.b")
        seen._names.enter()
        assert made in again(begun).tables()
        assert notes(begun) == []
    raise AssertionError("it never came to its end")


def test_two_clients_that_give_rows_at_once_write_each_once(
    begun: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.create_table("t", SCHEMA)
    other, rowless = again(begun), TableList._rowless
    came: list[bool] = []

    def late(self: TableList, *given: Any) -> Any:
        found = rowless(self, *given)
        if not came:
            came.append(True)
            other._names.enter()
            other.drop_table("t", purge=True)
        return found

    monkeypatch.setattr(TableList, "_rowless", late)
    begun._names.enter()
    monkeypatch.undo()
    assert begun.tables() == again(begun).tables() == ["first"]
    with pytest.raises(TableNotFound):
        begun.table("t")
    assert not Table.exists(Path(begun.location, "t"))
