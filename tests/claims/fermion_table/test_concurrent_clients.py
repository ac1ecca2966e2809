"""Clients of a catalog that change the same names at once, and clients that stop halfway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion_table
from fermion_table import Catalog, Table, TableExists, TableNotFound
from fermion_table.catalog.keyed_list import KeyedList
from fermion_table.catalog.tables import Tables
from fermion_table.errors import CommitConflict
from tests.kit.tables.warehouses import SCHEMA, again, ids, rows


def interfere(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Let another client act once, after the first read of this one and before its commit."""
    change, done = KeyedList.change, []

    def late(self: KeyedList, keys: Any, decide: Any, message: str, **words: Any) -> None:
        def decided(data: pa.Table, is_new: bool) -> Any:
            made = decide(data, is_new)
            if not done:
                done.append(True)
                act()
            return made

        change(self, keys, decided, message, **words)

    monkeypatch.setattr(KeyedList, "change", late)


def acts(client: Catalog) -> dict[str, Any]:
    """What two clients do at once: `t`, `u` and `v` are tables."""
    return {
        "rename t to w": lambda: client.rename_table("t", "w"),
        "rename u to w": lambda: client.rename_table("u", "w"),
        "rename v to t": lambda: client.rename_table("v", "t"),
        "drop t": lambda: client.drop_table("t"),
        "purge t": lambda: client.drop_table("t", purge=True),
        "create w": lambda: client.create_table("w", SCHEMA),
        "create x": lambda: client.create_table("x", SCHEMA),
        "register w": lambda: client.register_table("w", f"{client.location}/../more"),
    }


LOSES = {
    ("rename t to w", "rename t to w"): TableNotFound,
    ("rename t to w", "rename u to w"): TableExists,
    ("rename t to w", "drop t"): TableNotFound,
    ("rename t to w", "purge t"): TableNotFound,
    ("rename t to w", "create w"): TableExists,
    ("rename t to w", "register w"): TableExists,
    ("drop t", "rename t to w"): TableNotFound,
    ("drop t", "drop t"): TableNotFound,
    ("drop t", "purge t"): TableNotFound,
    ("purge t", "rename t to w"): TableNotFound,
    ("purge t", "drop t"): TableNotFound,
    ("purge t", "purge t"): TableNotFound,
    ("register w", "rename t to w"): TableExists,
    ("register w", "create w"): TableExists,
    ("register w", "register w"): TableExists,
    ("drop t", "create x"): None,
    ("purge t", "rename u to w"): None,
    ("rename t to w", "create x"): None,
    ("register w", "drop t"): None,
}


@pytest.mark.parametrize(("mine", "theirs"), LOSES)
def test_of_two_changes_of_a_name_the_first_commit_wins(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str
) -> None:
    """The other client comes between my decision and my commit."""
    for name in "tuv":
        catalog.create_table(name, SCHEMA)
    Table.create(Path(catalog.location).parent / "more", SCHEMA)
    client = again(catalog)
    interfere(monkeypatch, acts(client)[theirs])
    loses = LOSES[mine, theirs]
    if loses is None:
        acts(catalog)[mine]()
    else:
        with pytest.raises(loses):
            acts(catalog)[mine]()
    listed = catalog.tables()
    assert listed == client.tables()
    assert all(catalog.table_exists(name) for name in listed)
    uuids = {catalog.table(name).snapshot.table_uuid for name in listed}
    assert (
        len(uuids)
        == len(listed)
        == 3
        + (theirs in ("create w", "create x", "register w"))
        - ("drop" in theirs or "purge" in theirs)
        - (loses is None and mine in ("drop t", "purge t"))
        + (loses is None and mine == "register w")
    )


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_a_table_whose_name_another_one_took_is_taken_back(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """After snapshot 0 was made, another client renames a table to the name."""
    catalog.create_table("u", SCHEMA).append(rows(5))
    client, enlist = again(catalog), Tables._enlist

    def late(tables: Tables, *given: Any) -> bool:
        monkeypatch.undo()
        client._names.change(
            [("", "t"), ("", "u")],
            lambda there: [
                fermion_table.catalog.tables.replace(there["", "u"], name="t"), ("", "u"),
            ],
            "rename without looking at the directory",
        )  # fmt: skip
        return enlist(tables, *given)

    monkeypatch.setattr(Tables, "_enlist", late)
    if mode == "error":
        with pytest.raises(TableExists):
            catalog.create_table("t", SCHEMA)
    else:
        assert ids(catalog.create_table("t", SCHEMA, mode=mode)) == [5]
    assert ids(catalog.table("t")) == [5]
    assert catalog.tables() == ["t"]
    assert not Table.exists(Path(catalog.location, "t"))


def test_a_table_that_is_dropped_before_it_is_listed_is_made_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("first", SCHEMA)
    client, enlist = again(catalog), Tables._enlist

    def late(tables: Tables, *given: Any) -> bool:
        monkeypatch.undo()
        client.drop_table("t", purge=True)
        return enlist(tables, *given)

    monkeypatch.setattr(Tables, "_enlist", late)
    made = catalog.create_table("t", SCHEMA)
    made.append(rows(3))
    assert ids(client.table("t")) == [3]
    assert client.tables() == ["first", "t"]


def test_bug_a_table_that_is_dropped_right_after_it_is_made_counted_as_damaged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schema is gone, and so is its snapshot 0."""
    client, make_folder = again(catalog), Tables._make_folder

    def late(tables: Tables, *given: Any) -> None:
        monkeypatch.undo()
        make_folder(tables, *given)
        client.drop_table("t", purge=True)

    monkeypatch.setattr(Tables, "_make_folder", late)
    with pytest.raises(TableNotFound, match="t: made, and dropped by another client at once"):
        catalog.create_table("t", SCHEMA)
    assert catalog.tables() == []


def test_a_crash_before_the_row_leaves_a_table_that_opens_by_its_name(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("first", SCHEMA)

    def dies(*given: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tables, "_enlist", dies)
    with pytest.raises(KeyboardInterrupt):
        catalog.create_table("db.t", SCHEMA)
    monkeypatch.undo()
    assert catalog.table_exists("db.t")
    assert catalog.tables() == ["first"]
    with pytest.raises(TableExists):
        catalog.create_table("db.t", SCHEMA)


def test_a_purge_that_stops_halfway_leaves_the_name_free(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new table of the name lies elsewhere, as the old one's files are there."""
    old = catalog.create_table("t", SCHEMA)

    def refused(*given: Any, **words: Any) -> None:
        raise OSError("refused")

    monkeypatch.setattr("fermion_table.storage.local.LocalStore.delete", refused)
    with pytest.raises(OSError, match="refused"):
        catalog.drop_table("t", purge=True)
    monkeypatch.undo()
    assert not catalog.table_exists("t")
    new = catalog.create_table("t", SCHEMA)
    assert new.location != old.location
    assert catalog.tables() == ["t"]


def test_a_create_that_never_gets_through_gives_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tables, "_enlist", lambda *given: False)
    monkeypatch.setattr(Tables, "_placed", lambda *given: None)
    with pytest.raises(CommitConflict, match="all the time"):
        catalog.create_table("t", SCHEMA)


@pytest.mark.parametrize("then", ["nothing", "create"])
def test_a_table_that_was_renamed_before_it_was_listed_is_not_taken_back(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It was made, opened by its name, and renamed; its maker came to the list last."""
    catalog.create_table("first", SCHEMA)
    client, enlist = again(catalog), Tables._enlist

    def late(tables: Tables, *given: Any) -> bool:
        monkeypatch.undo()
        client.table("t").append(rows(1))
        client.rename_table("t", "other")
        if then == "create":
            client.create_table("t", SCHEMA)
        return enlist(tables, *given)

    monkeypatch.setattr(Tables, "_enlist", late)
    catalog.create_table("t", SCHEMA)
    assert ids(client.table("other")) == [1]
    assert catalog.tables() == ["first", "other"] + ["t"] * (then == "create")
