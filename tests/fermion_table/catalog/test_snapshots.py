"""Snapshots of a catalog: versions of many tables that stay readable under one name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, TableNotFound, VersionNotFound, drop_table
from fermion_table.catalog.snapshots import CatalogSnapshots
from fermion_table.errors import CommitConflict
from tests.kit.tables.warehouses import SCHEMA, again, ids, rows


@pytest.fixture
def kept(catalog: Catalog) -> Catalog:
    """Tables `a` and `db.b` with a row each, and the snapshot `q3` of both."""
    for name in ("a", "db.b"):
        catalog.create_table(name, SCHEMA).append(rows(1))
    made = catalog.snapshots.create("q3", message="third quarter")
    assert (made.name, made.table_count, made.state) == ("q3", 2, "ready")
    return catalog


def test_a_snapshot_shows_tables_as_they_were(kept: Catalog) -> None:
    """After appends, compaction, expiry, a rename and another table of the name."""
    for name in ("a", "db.b"):
        table = kept.table(name)
        table.append(rows(2))
        table.compact()
        table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    kept.rename_table("db.b", "db.other")
    kept.create_table("db.b", SCHEMA).append(rows(9))
    for client in (kept, again(kept)):
        assert ids(client.table("a", version="q3")) == [1]
        assert ids(client.table("db.b", version="q3")) == [1]
        assert ids(client.table("db.b")) == [9]
    (found,) = again(kept).snapshots.list()
    assert (found.name, found.message) == ("q3", "third quarter")
    pinned = kept.snapshots.tables("q3")
    assert [(each.name, each.snapshot_id) for each in pinned] == [("a", 1), ("db.b", 1)]
    with pytest.raises(InvalidArgumentError, match="can only be read"):
        kept.table("a", version="q3").append(rows(3))
    with pytest.raises(VersionNotFound):
        kept.table("db.other", version="q4")
    assert ids(kept.table("db.other", version="q3")) == [1]  # by the table's own tag


def test_a_table_in_a_snapshot_is_dropped_but_not_purged(kept: Catalog) -> None:
    with pytest.raises(InvalidArgumentError, match=r"snapshots of the catalog hold .*: q3"):
        kept.drop_table("a", purge=True)
    assert kept.table_exists("a")
    kept.drop_table("a")
    assert ids(kept.table("a", version="q3")) == [1]
    kept.snapshots.delete("q3")
    with pytest.raises(TableNotFound):
        kept.table("a", version="q3")
    assert kept.drop_table("db.b", purge=True) is not None


def test_a_deleted_snapshot_leaves_no_tag(kept: Catalog) -> None:
    """And its name can be used again; a table's own tags stay."""
    kept.table("a").tags.create("mine")
    kept.snapshots.delete("q3")
    assert kept.snapshots.list() == []
    assert [tag.name for tag in kept.table("a").tags.list()] == ["mine"]
    with pytest.raises(VersionNotFound, match="no catalog snapshot 'q3'"):
        kept.snapshots.delete("q3")
    kept.snapshots.create("q3", ["a", "a"])
    assert [each.name for each in kept.snapshots.tables("q3")] == ["a"]


@pytest.mark.parametrize(
    ("name", "tables", "error", "match"),
    [
        ("q3", None, InvalidArgumentError, "exists already"),
        ("17", None, InvalidArgumentError, "catalog snapshot name"),
        (7, None, TypeError, "catalog snapshot name"),
        ("q4", "a", TypeError, "tables"),
        ("q4", ["nope"], TableNotFound, "nope"),
        ("tagged", None, InvalidArgumentError, r"table a: it has a tag 'tagged'"),
        ("dev", ["a"], InvalidArgumentError, r"table a: it has a branch 'dev'"),
    ],
)
def test_what_can_t_be_kept_is_refused_and_leaves_nothing(
    kept: Catalog, name: Any, tables: Any, error: type[Exception], match: str
) -> None:
    kept.table("a").tags.create("tagged")
    kept.table("a").branches.create("dev")
    with pytest.raises(error, match=match):
        kept.snapshots.create(name, tables)
    assert [each.name for each in kept.snapshots.list()] == ["q3"]
    assert {tag.name for tag in kept.table("db.b").tags.list()} == {"q3"}
    assert {tag.name for tag in kept.table("a").tags.list()} == {"q3", "tagged"}


@pytest.mark.parametrize("method", ["_tagged", "_untag"])
def test_a_client_that_stops_leaves_a_snapshot_that_can_be_deleted(
    kept: Catalog, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """While it is created, after one tag; and while it is deleted."""

    def stop(self: CatalogSnapshots, head: Any, found: Any, **words: Any) -> None:
        if method == "_tagged":
            real(self, head, found[:1], **words)
        raise KeyboardInterrupt

    real = getattr(CatalogSnapshots, method)
    monkeypatch.setattr(CatalogSnapshots, method, stop)
    snapshots = kept.snapshots
    name, act = ("q4", snapshots.create) if method == "_tagged" else ("q3", snapshots.delete)
    with pytest.raises(KeyboardInterrupt):
        act(name)
    monkeypatch.undo()
    (found,) = [each for each in kept.snapshots.list() if each.name == name]
    assert found.state == ("creating" if name == "q4" else "deleting")
    with pytest.raises(InvalidArgumentError, match="not finished"):
        kept.snapshots.create(name)
    with pytest.raises(VersionNotFound):
        kept.snapshots.tables(name)
    again(kept).snapshots.delete(name)
    assert {tag.name for tag in kept.table("a").tags.list()} == {"q3"} - {name}
    kept.snapshots.create(name)
    assert ids(kept.table("a", version=name)) == [1]


def test_a_snapshot_deleted_while_it_is_created_is_gone(
    kept: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CatalogSnapshots._tagged

    def late(self: CatalogSnapshots, *given: Any, **words: Any) -> Any:
        again(kept).snapshots.delete("q4")
        return real(self, *given, **words)

    monkeypatch.setattr(CatalogSnapshots, "_tagged", late)
    with pytest.raises(CommitConflict, match="deleted it meanwhile"):
        kept.snapshots.create("q4")
    assert [each.name for each in kept.snapshots.list()] == ["q3"]
    assert {tag.name for tag in kept.table("a").tags.list()} == {"q3"}


def test_a_table_dropped_while_a_snapshot_of_all_is_created_is_left_out(
    kept: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, it is an error."""
    real = CatalogSnapshots._announce

    def late(self: CatalogSnapshots, *given: Any) -> None:
        real(self, *given)
        monkeypatch.undo()
        other = again(kept)
        other.snapshots.delete("q3")
        other.drop_table("db.b", purge=True)

    monkeypatch.setattr(CatalogSnapshots, "_announce", late)
    with pytest.raises(InvalidArgumentError, match="hold this table: q4"):
        kept.snapshots.create("q4")
    kept.snapshots.delete("q4")
    kept._names.enter()
    drop_table(Path(kept.location, "db", "b"))
    with pytest.raises(TableNotFound):
        kept.snapshots.create("q5")
    with pytest.raises(TableNotFound):
        kept.snapshots.create("q5", ["db.b"])
    kept.drop_table("db.b")
    assert kept.snapshots.create("q5").table_count == 1


def test_a_version_that_has_gone_is_told(kept: Catalog) -> None:
    """The tag was deleted by hand: the snapshot is read by its id, as long as it is there."""
    table = kept.table("a")
    table.tags.delete("q3")
    table.append(rows(2))
    assert ids(kept.table("a", version="q3")) == [1]
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    with pytest.raises(VersionNotFound):
        kept.table("a", version="q3")
