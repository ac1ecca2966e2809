"""`drop_table`: the table's own files go, in an order that may stop anywhere; nothing else goes."""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

from fermion_table import Table, TableNotFound, UnsafeStorage, drop_table
from fermion_table.commit import commit
from fermion_table.expiry.drop import delete_own_files
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import is_own_file, is_own_folder

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def full_table(path):
    """A table with all that may lie there: partitions, branches, tags, vectors, marks."""
    table = Table.create(path, SCHEMA, partition_by=["k", "bucket(2, v)"])
    for start in range(4):
        rows = {"k": ["a/b", None, "=", ".."], "v": [start, start + 1, start + 2, start + 3]}
        table.append(pa.table(rows, SCHEMA))
    table.delete("v = 3")
    table.tags.create("kept", version=2)
    table.branches.create("trial")
    Table.open(path, branch="trial").append(pa.table({"k": ["z"], "v": [9]}, SCHEMA))
    table.compact()
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=2)
    return table


@pytest.mark.parametrize("where", ["local", "memory"])
def test_every_file_of_a_table_is_known_and_goes(table_path, where, request):
    path = table_path if where == "local" else f"memory://{request.node.name}/t"
    table = full_table(path)
    listed = [item.path for item in table.store.list()]
    assert [each for each in listed if not is_own_file(each)] == []
    dropped = drop_table(path)
    assert (dropped.files, dropped.left) == (len(listed), ())
    assert not Table.exists(path)
    assert list(table.store.list()) == []
    assert where == "memory" or not Path(table_path).exists()
    with pytest.raises(TableNotFound):
        drop_table(path)


def test_foreign_files_folders_and_links_stay(table_path, tmp_path):
    """Also those that lie among the table's files, and what links lead to."""
    full_table(table_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    root = Path(table_path)
    foreign = ["notes.txt", "data/report.csv", "data/k=a/mine.fermion", "own/data.bin", "data/x/y"]
    for name in foreign:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("mine")
    (root / "data" / "link").symlink_to(outside, target_is_directory=True)
    (root / "data" / ("0" * 32 + ".fermion")).symlink_to(outside / "mine.txt")
    planned = drop_table(table_path, dry_run=True)
    assert Table.open(table_path).verify(data=True).ok
    dropped = drop_table(table_path)
    assert dropped == planned
    assert dropped.left == tuple(
        sorted(
            [
                f"data/{'0' * 32}.fermion",
                "data/k=a/mine.fermion",
                "data/link",
                "data/report.csv",
                "data/x",
                "notes.txt",
                "own",
            ]
        )
    )
    assert (outside / "mine.txt").read_text() == "mine"
    assert all((root / name).read_text() == "mine" for name in foreign)
    assert not Table.exists(table_path)


def test_a_link_to_a_table_is_not_followed(table_path, tmp_path):
    Table.create(table_path, SCHEMA)
    (tmp_path / "link").symlink_to(table_path, target_is_directory=True)
    with pytest.raises(UnsafeStorage, match="symbolic link"):
        drop_table(tmp_path / "link")
    assert Table.exists(table_path)


def test_a_drop_that_stops_leaves_a_table_that_verifies_or_none(table_path, monkeypatch):
    """It is stopped before each of its deletes in turn, and at last runs through."""
    full_table(table_path)
    count = sum(1 for _ in LocalStore(table_path).list())
    real = LocalStore.delete
    for stop in range(count + 1):
        left = [stop and 1]

        def delete(store, path, left=left):
            if not left[0]:
                raise OSError(5, "stopped")
            left[0] -= 1
            real(store, path)

        monkeypatch.setattr(LocalStore, "delete", delete)
        with contextlib.suppress(OSError, TableNotFound):
            drop_table(table_path)
        monkeypatch.undo()
        if Table.exists(table_path):
            assert Table.open(table_path).verify(data=True).ok
    assert not Table.exists(table_path)
    Table.create(table_path, SCHEMA).append({"k": ["n"], "v": [1]})
    assert Table.open(table_path).scan().count() == 1


@pytest.mark.parametrize("is_done_first", [True, False])
def test_a_table_made_where_another_is_being_dropped_keeps_its_schema(
    table_path, monkeypatch, is_done_first
):
    """It is made while the drop lists the directory again: wholly, or up to its first snapshot."""
    Table.create(table_path, SCHEMA)
    list_files, publish, lists = LocalStore.list, commit.create_snapshot_file, []
    stored, dropped = Event(), Event()

    def publish_late(*arguments):
        stored.set()
        assert is_done_first or dropped.wait(20)
        return publish(*arguments)

    def listing(store, *prefix):
        lists.extend([store] if not prefix else [])
        if len(lists) == 2 and not creation.ident:
            creation.start()
            creation.join() if is_done_first else stored.wait(20)
        return list_files(store, *prefix)

    creation = Thread(target=lambda: Table.create(table_path, SCHEMA))
    monkeypatch.setattr(commit, "create_snapshot_file", publish_late)
    monkeypatch.setattr(LocalStore, "list", listing)
    delete_own_files(LocalStore(table_path))
    dropped.set()
    creation.join()
    assert len(lists) >= 2
    assert Table.open(table_path).schema.names == SCHEMA.names


def test_names_of_other_forms_are_foreign():
    unique = "0123456789abcdef" * 2
    for path in (f"data/{unique}.fermion", f"data/k=a%2Fb/bucket-3/{unique}.fermion"):
        assert is_own_file(path)
        assert is_own_file(f"{os.path.dirname(path)}/.{unique}.fermion.{unique}.tmp")
    for path in (
        f"{unique}.fermion",
        "data/a.fermion",
        f"data/x/{unique}.fermion",
        "snapshot/1.json",
    ):
        assert not is_own_file(path)
    assert is_own_folder("branch/b/snapshot")
    assert not is_own_folder("data/x")
    assert not is_own_folder("")
