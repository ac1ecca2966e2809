"""A catalog is made true again: lists that are damaged, lost or behind what lies there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import fermion_table
from fermion_table import Catalog, CorruptMetadata, Table, TableExists, TableNotFound
from fermion_table.catalog.names import table_name
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import snapshot_path
from tests.kit.tables.warehouses import SCHEMA, again, ids, rows


@pytest.fixture
def filled(catalog: Catalog) -> Catalog:
    """Tables `db.a` and, renamed, `db.c`; `db.gone`, dropped; a snapshot."""
    for number, name in enumerate(("db.a", "db.b", "db.gone")):
        catalog.create_table(name, SCHEMA).append(rows(number))
    catalog.rename_table("db.b", "db.c")
    catalog.drop_table("db.gone")
    catalog.snapshots.create("q3")
    return catalog


def test_a_list_that_is_right_stays_as_it_is(filled: Catalog) -> None:
    for dry_run in (True, False):
        done = filled.repair(dry_run=dry_run)
        assert (done.actions, done.problems) == ((), ())
    assert str(done) == "0 repairs done"
    assert filled.tables() == ["db.a", "db.c"]


def test_what_lies_there_comes_in_and_what_is_gone_goes(filled: Catalog) -> None:
    """A table and a namespace made without the catalog; one dropped, one made anew by its path."""
    root = Path(filled.location)
    Table.create(root / "db" / "loose", SCHEMA)
    (root / "empty").mkdir()
    filled.create_table("db.old", SCHEMA)
    filled.create_table("db.new", SCHEMA)
    filled._names.enter()
    fermion_table.drop_table(root / "db" / "old")
    fermion_table.drop_table(root / "db" / "new")
    fermion_table.drop_table(root / "db" / "gone")
    made = Table.create(root / "db" / "new", SCHEMA)
    planned = filled.repair(dry_run=True)
    assert filled.tables() == ["db.a", "db.c", "db.new", "db.old"]
    done = again(filled).repair()
    assert sorted(done.actions) == sorted(planned.actions)
    assert sorted(each.partition(":")[0] for each in done.actions) == [
        "db.gone", "db.loose", "db.new", "db.old", "namespace empty",
    ]  # fmt: skip
    assert done.ok
    assert filled.tables() == ["db.a", "db.c", "db.loose", "db.new"]
    assert "empty" in filled.namespaces()
    assert filled._names.row(table_name("db.new")).table_uuid == made.snapshot.table_uuid
    assert filled._names.row(table_name("db.gone")) is None
    assert filled.repair().actions == ()
    assert filled.create_table("db.gone", SCHEMA).location == str(root / "db" / "gone")


def test_a_link_to_a_table_is_no_second_table(filled: Catalog) -> None:
    """It was listed beside the table that it leads to."""
    before = filled.tables()
    place = Path(filled.table(before[0]).location)
    place.with_name("link").symlink_to(place, target_is_directory=True)
    assert filled.repair().actions == ()
    assert filled.tables() == before


def test_a_dropped_table_does_not_come_back(filled: Catalog) -> None:
    filled.repair()
    assert not filled.table_exists("db.gone")
    assert not filled.table_exists("db.b")


@pytest.mark.parametrize("damage", ["newest", "pointers", "all snapshots", "directory"])
def test_a_damaged_list_costs_no_table(filled: Catalog, damage: str) -> None:
    """A damaged newest snapshot takes one change back; beyond that directories are the names."""
    path = Path(filled.location, "_catalog", "tables")
    filled.create_table("db.last", SCHEMA).append(rows(9))
    filled._names.enter()
    snapshots = sorted((path / "snapshot").glob("*.json"))
    if damage == "newest":
        snapshots[-1].write_bytes(snapshots[-1].read_bytes()[:50])
    elif damage == "pointers":
        (path / "snapshot" / "LATEST").write_bytes(b"\xff")
    elif damage == "all snapshots":
        for each in snapshots:
            each.write_bytes(b"garbage")
    else:
        shutil.rmtree(path.parent)
    catalog = again(filled)
    planned = catalog.repair(dry_run=True)
    done = catalog.repair()
    assert bool(done.actions) == bool(planned.actions) == (damage != "directory")
    kept = damage in ("newest", "pointers")
    names = ["db.a", "db.c", "db.last"] if kept else ["db.a", "db.b", "db.gone", "db.last"]
    assert catalog.tables() == again(filled).tables() == names
    assert [ids(catalog.table(name)) for name in names] == (
        [[0], [1], [9]] if kept else [[0], [1], [2], [9]]
    )
    assert again(filled).repair().actions == ()
    catalog.create_table("db.more", SCHEMA)
    assert "db.more" in again(filled).tables()


def test_what_people_have_to_decide_is_told(filled: Catalog) -> None:
    """Two tables for a name, a table without one, a snapshot that is not finished, a lost tag."""
    root = Path(filled.location)
    Table.create(root / "db" / "c", SCHEMA)
    Table.create(root / "_catalog" / "data" / "nameless", SCHEMA)
    filled.table("db.a").tags.delete("q3")
    done = filled.repair()
    assert not done.ok
    text = "\n".join(done.problems)
    for what in (r"db/c: a table that is not listed", "nameless: a table without a name",
                 "snapshot q3: table db.a at db/a has lost its tag"):  # fmt: skip
        assert what in text
    assert "3 problems left" in str(done)
    assert ids(filled.table("db.c")) == [1]
    filled.register_table("db.d", root / "db" / "c")
    assert filled.tables() == ["db.a", "db.c", "db.d"]


def test_empty_directories_that_a_writer_leaves_of_a_purged_table_are_no_namespaces(
    filled: Catalog,
) -> None:
    """What it has stored since the purge goes with its failure, directories stay."""
    keyed = {"primary_key": "id", "properties": {"bucket": "1"}}
    late = filled.create_table("late.t", SCHEMA, **keyed)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(1).to_batches()
        again(filled).drop_table("late.t", purge=True)

    with pytest.raises(TableNotFound):
        late.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    left = Path(filled.location, "late", "t")
    assert left.is_dir()
    for dry_run in (True, False):
        (done,) = again(filled).repair(dry_run=dry_run).actions
        assert done == "late/t: removed, as only empty directories of a table are left"
    assert not left.exists()
    assert again(filled).repair().actions == ()
    filled.drop_namespace("late")
    assert again(filled).namespaces() == ["db"]


def test_namespaces_with_names_of_a_tables_directories_stay(filled: Catalog) -> None:
    filled.create_namespace("lake.data")
    filled.create_table("other.data.t", SCHEMA)
    before = again(filled).namespaces()
    for dry_run in (True, False):
        assert again(filled).repair(dry_run=dry_run).actions == ()
    assert again(filled).namespaces() == before
    assert Path(filled.location, "lake", "data").is_dir()
    assert filled.table_exists("other.data.t")


def test_a_late_request_that_brings_back_the_first_snapshot_of_a_purged_table_is_told(
    filled: Catalog,
) -> None:
    """The simulation of catalogs has found it, seed 638."""
    first = Path(filled.create_table("late", rows(1)).location, snapshot_path(0))
    stored = first.read_bytes()
    filled.drop_table("late", purge=True)
    first.parent.mkdir(parents=True)
    first.write_bytes(stored)
    shared_cache.clear()  # of this process, which has read the schema
    client = again(filled)
    with pytest.raises(TableExists):
        client.create_table("late", SCHEMA)
    with pytest.raises(CorruptMetadata, match="no such object"):
        client.table("late")
    for dry_run in (True, False):
        (problem,) = client.repair(dry_run=dry_run).problems
        assert problem.startswith("late: ")
        assert problem.endswith("drop it with purge=True again")
    client.drop_table("late", purge=True)
    assert not first.exists()
    assert client.repair().actions == ()
    assert ids(client.create_table("late", rows(2))) == [2]


def test_directories_beside_those_of_a_table_are_namespaces_and_stay(filled: Catalog) -> None:
    """Before, each repair said that it removes them, and they were no namespaces."""
    root = Path(filled.location)
    for path in ("x/data/foo", "w/data", "w/.hid", "ns/data/empty_ns", "v/data"):
        (root / path).mkdir(parents=True)
    (root / "v" / "data" / "link").symlink_to("nothing")
    (root / "whole" / "data").mkdir(parents=True)
    wanted = [
        "ns",
        "ns.data",
        "ns.data.empty_ns",
        "v",
        "v.data",
        "w",
        "w.data",
        "x",
        "x.data",
        "x.data.foo",
    ]
    for dry_run in (True, False):
        done = again(filled).repair(dry_run=dry_run)
        assert set(done.actions) == {f"namespace {name}: listed" for name in wanted} | {
            "whole: removed, as only empty directories of a table are left"
        }
    assert not (root / "whole").exists()
    assert all((root / name.replace(".", "/")).is_dir() for name in wanted)
    assert (root / "w" / ".hid").is_dir()
    assert again(filled).namespaces() == ["db", *wanted]
    for _ in range(2):
        assert again(filled).repair().actions == ()


def test_empty_directories_that_cannot_be_removed_are_a_problem(
    filled: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(filled.location) / "left" / "data").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "rmdir", Mock(side_effect=PermissionError))
        for _ in range(2):
            done = again(filled).repair()
            assert done.actions == ()
            assert done.problems == ("left: empty directories of a table can't be removed",)
    assert again(filled).repair().actions == (
        "left: removed, as only empty directories of a table are left",
    )
    assert not (Path(filled.location) / "left").exists()


def test_a_list_that_is_made_anew_has_empty_namespaces_named_as_directories_of_tables(
    filled: Catalog,
) -> None:
    filled.create_namespace("lake.data")
    before = again(filled).namespaces()
    root = Path(filled.location)
    for path in (root / "_catalog" / "tables" / "snapshot").rglob("*.json"):
        path.write_text("{")
    shared_cache.clear()
    done = again(filled).repair()
    assert "_catalog/tables: can't be read" in done.actions[0]
    assert not any("removed" in each for each in done.actions)
    assert again(filled).namespaces() == before
    assert (root / "lake" / "data").is_dir()
