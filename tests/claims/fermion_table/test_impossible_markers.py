"""Expiry markers that name a snapshot which was never made: told at once, and repaired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import CorruptMetadata, Table, repair_table
from fermion_table.commit import commit as commit_module
from fermion_table.metadata import pointers
from fermion_table.moments import now_ms

SCHEMA = pa.schema([("a", pa.int64())])
IMPOSSIBLE = [10**15, 7, 10**20 - 1]
AT_ONCE = timedelta(days=-1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of snapshots 0 to 4, of which 1 has expired, and of a branch without commits."""
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    for number in range(4):
        table.append(pa.table({"a": [number]}))
    table.expire_snapshots(older_than=AT_ONCE, retain_last=3)
    table.branches.create("dev")
    return tmp_path / "t"


@pytest.fixture
def old_base(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the newest snapshot were older than a minute; nothing is tried again."""

    def wait(commit: Any) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(commit_module, "now_ms", lambda: now_ms() + 120_000)
    monkeypatch.setattr(commit_module.Commit, "_wait", wait)


def all_files(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


def mark(path: Path, name: str) -> None:
    (path / "expired" / name).touch()


@pytest.mark.parametrize("snapshot_id", IMPOSSIBLE)
@pytest.mark.usefixtures("old_base")
def test_a_commit_says_at_once_that_a_marker_is_impossible(path: Path, snapshot_id: int) -> None:
    mark(path, f"{snapshot_id:020d}")
    before = all_files(path)
    table = Table.open(path, durability="fast")
    said = f"expired/{snapshot_id:020d}: .*found {snapshot_id}, .*; repair_table"
    changes: list[Callable[[], Any]] = [
        lambda: table.append(pa.table({"a": [9]})),
        lambda: table.delete("a = 2"),
        lambda: table.add_columns({"b": pa.int64()}),
        lambda: table.compact(),
        lambda: table.tags.create("now"),
    ]
    for change in changes:
        with pytest.raises(CorruptMetadata, match=said):
            change()
    assert all_files(path) == before


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("pointer", [False, True])
def test_an_impossible_marker_lets_nothing_be_deleted(
    path: Path, dry_run: bool, pointer: bool
) -> None:
    """It said that all but the newest snapshot had expired: their files counted as orphans."""
    table = Table.open(path, durability="fast")
    table.overwrite(pa.table({"a": [9]}))
    if pointer:
        (path / "snapshot" / "EARLIEST").write_text("99")
    else:
        mark(path, f"{99:020d}")
    before = all_files(path)
    for delete in (
        lambda: table.remove_orphan_files(older_than=AT_ONCE, dry_run=dry_run),
        lambda: table.expire_snapshots(older_than=AT_ONCE, retain_last=1, dry_run=dry_run),
    ):
        with pytest.raises(CorruptMetadata, match="found 99, which hides all snapshots"):
            delete()
    assert all_files(path) == before


@pytest.mark.parametrize("name", [f"{99:020d}", f"{3:020d}-{99:020d}", f"{10**20 - 1:020d}"])
def test_verify_names_an_impossible_marker_and_repair_removes_it(path: Path, name: str) -> None:
    """All else that verify looks at, it looks at as without the marker."""
    sound = Table.open(path).verify(data=True)
    assert sound.ok
    assert sound.snapshots > 1
    for folder in ("expired", "branch/dev/expired"):
        (path / folder).mkdir(exist_ok=True)
        (path / folder / name).touch()
    (path / "snapshot" / "EARLIEST").write_text("98")
    report = Table.open(path).verify(data=True)
    assert report.snapshots == sound.snapshots
    assert report.data_bytes == sound.data_bytes
    assert sorted(problem.path for problem in report.problems) == [
        f"branch/dev/expired/{name}",
        f"expired/{name}",
        "snapshot/EARLIEST",
    ]
    assert all("repair_table removes it" in problem.found for problem in report.problems)
    planned = repair_table(path, dry_run=True)
    assert len(planned.problems) == 3
    done = repair_table(path)
    assert done.ok, done
    assert done.actions[:3] == planned.actions[:3]
    table = Table.open(path, durability="fast")
    assert table.append(pa.table({"a": [9]})).id == 5
    (path / "branch" / "dev" / "expired" / name).touch()
    table.branches.create("other")
    (path / "branch" / "other" / "expired").mkdir()
    (path / "branch" / "other" / "expired" / name).touch()
    table.branches.delete("other")
    repair_table(path)
    assert Table.open(path, branch="dev").append(pa.table({"a": [10]})).totals.rows == 5
    assert Table.open(path, version=2).scan().count() == 2
    assert table.verify(data=True).ok


def test_a_marker_that_another_expiry_has_left_behind_is_no_problem(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that knows an old snapshot; the file that the marker names goes while it looks."""
    stale = Table.open(path, durability="fast")
    other = Table.open(path, durability="fast")
    for number in range(3):
        other.append(pa.table({"a": [number]}))
    other.expire_snapshots(older_than=AT_ONCE, retain_last=2)
    real, gone = stale.store.exists, []

    def exists(path: str) -> bool:
        if not gone and path.endswith(f"{6:020d}.json"):
            gone.append(path)
            other.append(pa.table({"a": [9]}))
            other.expire_snapshots(older_than=AT_ONCE, retain_last=1)
            return False
        return real(path)

    monkeypatch.setattr(stale.store, "exists", exists)
    pointers.check_marks(stale.store, 4)
    assert len(gone) == 1
