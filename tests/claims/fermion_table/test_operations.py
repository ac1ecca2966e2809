"""What the page about operations says: copies by `cp`, rights, and disasters to practise."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.storage.cache import shared_cache

ID = pa.schema([("id", pa.int64())])
NOBODY = 65_534
NAMED = ("data", "deletion", "manifest", "schema")
"""Directories of what snapshots name."""


def made(path: Path, count: int = 5) -> Table:
    table = Table.create(path, ID, durability="fast")
    for number in range(count):
        table.append({"id": [number]})
    return table


def rows(path: Path) -> list[int]:
    shared_cache.clear()
    return sorted(Table.open(path).to_arrow()["id"].to_pylist())


def cp(*arguments: object) -> None:
    """Call `cp`; it may complain of temporary files of writers that are gone."""
    done = subprocess.run(["cp", *map(str, arguments)], capture_output=True, text=True)
    assert all(".tmp'" in line for line in done.stderr.splitlines()), done.stderr


def copy_again(source: Path, target: Path) -> None:
    """The second command of the page."""
    folders = [str(source / name) for name in NAMED if (source / name).exists()]
    cp("-rn", *folders, target)


def test_a_copy_by_cp_is_the_table_with_its_history(tmp_path: Path) -> None:
    """Names in metadata are relative to the table."""
    table = made(tmp_path / "t")
    table.tags.create("monday")
    cp("-r", tmp_path / "t", tmp_path / "backup")
    shutil.rmtree(tmp_path / "t")
    assert rows(tmp_path / "backup") == [0, 1, 2, 3, 4]
    assert Table.open(tmp_path / "backup", version="monday").count() == 5
    assert Table.open(tmp_path / "backup", version=2).count() == 2
    assert Table.open(tmp_path / "backup").verify(data=True).ok


def test_a_commit_while_data_were_copied_needs_the_second_command(tmp_path: Path) -> None:
    """The worst order: all that snapshots name first, then a commit, then the snapshots."""
    table = made(tmp_path / "t")
    source, target = tmp_path / "t", tmp_path / "backup"
    target.mkdir()
    for name in NAMED:
        if (source / name).exists():
            shutil.copytree(source / name, target / name)
    table.append({"id": [5]})
    for path in source.iterdir():
        if path.name not in NAMED and path.is_dir():
            shutil.copytree(path, target / path.name)
    shared_cache.clear()
    assert not Table.open(target).verify().ok
    copy_again(source, target)
    assert rows(target) == [0, 1, 2, 3, 4, 5]
    assert Table.open(target).verify(data=True).ok


def test_a_copy_while_a_writer_commits_is_whole(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    stop = threading.Event()

    def write() -> None:
        number = 100
        while not stop.is_set():
            table.append({"id": [number]})
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(4):
            backup = tmp_path / f"backup{number}"
            cp("-r", tmp_path / "t", backup)
            copy_again(tmp_path / "t", backup)
            found = rows(backup)
            assert found == [0, 1, 2, 3, 4, *range(100, 100 + len(found) - 5)]
            assert Table.open(backup).verify(data=True).ok
    finally:
        stop.set()
        writer.join()


@contextlib.contextmanager
def as_somebody_without_rights() -> Iterator[None]:
    """Root may write anywhere, so it acts as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_reader_needs_no_right_to_write_and_a_writer_is_told_that_it_has_none() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        made(folder / "t")
        assert rows(folder / "t") == [0, 1, 2, 3, 4]  # whatever is imported late, is now
        for path in [folder / "t", *(folder / "t").rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = sorted(str(path) for path in folder.rglob("*"))
        with as_somebody_without_rights():
            table = Table.open(folder / "t")
            assert rows(folder / "t") == [0, 1, 2, 3, 4]
            assert Table.open(folder / "t", version=2).count() == 2
            assert table.verify(data=True).ok
            assert table.maintain(dry_run=True).ok
            with pytest.raises(PermissionError):
                table.append({"id": [5]})
            done = table.maintain()
            assert done.steps[0].outcome == "failed"
            assert "denied" in done.steps[0].text.lower()
        assert sorted(str(path) for path in folder.rglob("*")) == before
    finally:
        for path in [folder / "t", *(folder / "t").rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(folder)


def test_a_restored_old_backup_is_the_table_as_it_was_for_those_who_open_it_then(
    tmp_path: Path,
) -> None:
    table = made(tmp_path / "t")
    cp("-r", tmp_path / "t", tmp_path / "backup")
    table.append({"id": [5]})
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "backup", tmp_path / "t")
    assert rows(tmp_path / "t") == [0, 1, 2, 3, 4]
    again = Table.open(tmp_path / "t")
    assert again.append({"id": [7]}).id == 6
    assert rows(tmp_path / "t") == [0, 1, 2, 3, 4, 7]
    assert again.verify(data=True).ok


def test_a_lost_pointer_file_costs_a_listing_and_no_row(tmp_path: Path) -> None:
    made(tmp_path / "t")
    (tmp_path / "t/snapshot/LATEST").unlink()
    assert rows(tmp_path / "t") == [0, 1, 2, 3, 4]
    table = Table.open(tmp_path / "t")
    table.append({"id": [5]})
    assert (tmp_path / "t/snapshot/LATEST").exists()
