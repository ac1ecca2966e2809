"""Tables with damaged pointer files, markers and newest snapshots come back, data untouched."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import (
    CorruptMetadata,
    Table,
    TableNotFound,
    UnsupportedFeature,
    drop_table,
    repair_table,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Appends 1 to 3, a compaction, snapshots up to 3 expired; appends 5 and 6, a branch, a tag."""
    path = tmp_path_factory.mktemp("repair") / "t"
    table = Table.create(path, pa.schema({"id": pa.int64()}), durability="fast")
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    table.compact(threads=1)
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.append(pa.table({"id": [3]}))
    table.branches.create("dev")
    for number in (10, 11):
        Table.open(path, branch="dev", durability="fast").append(pa.table({"id": [number]}))
    table.append(pa.table({"id": [4]}))
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(made, tmp_path / "t")
    return tmp_path / "t"


def ids(path: Path, branch: str = "main") -> list[int]:
    return sorted(Table.open(path, branch=branch).scan().to_arrow()["id"].to_pylist())


def pointers_of(path: Path) -> list[Path]:
    return [each for name in ("LATEST", "EARLIEST") for each in path.rglob(name)]


def markers_of(path: Path) -> list[Path]:
    return [each for each in path.rglob("expired/*") if each.is_file()]


def data_of(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in (path / "data").rglob("*") if each.is_file()}


def newest(path: Path, branch: str = "") -> Path:
    top = path / "branch" / branch if branch else path
    return max(top.glob("snapshot/*.json"))


ALL, DEV = [0, 1, 2, 3, 4], [0, 1, 2, 3, 10, 11]


def test_a_table_that_is_well_is_left_alone(path: Path) -> None:
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    for dry_run in (True, False):
        done = repair_table(path, dry_run=dry_run)
        assert (done.actions, done.problems, done.ok) == ((), (), True)
    assert before == {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    assert str(done) == "0 repairs done"


@pytest.mark.parametrize("damage", ["deleted", "garbage", "too great", "empty"])
def test_all_pointers_markers_and_the_newest_snapshot(path: Path, damage: str) -> None:
    """All at once: the table is as before its last commit, and the repair says what it did."""
    data = data_of(path)
    for each in (*pointers_of(path), *markers_of(path)):
        if damage == "deleted":
            each.unlink()
        else:
            each.write_bytes({"garbage": b"\xff{garbage", "empty": b""}.get(damage, b"9" * 18))
    if damage == "too great":
        for folder in path.rglob("expired"):
            (folder / f"{10**15:020d}").touch()
        (path / "snapshot" / "EARLIEST").write_text("8" * 18)
    head = newest(path)
    whole = head.read_bytes()
    head.write_bytes(whole[: len(whole) // 2])
    planned = repair_table(path, dry_run=True)
    assert head.read_bytes() == whole[: len(whole) // 2]
    done = repair_table(path)
    assert done.actions == planned.actions
    assert not planned.ok or damage == "too great"
    assert done.ok, done
    assert any(f"snapshot/{head.name}: can't be read; set aside" in each for each in done.actions)
    assert any("LATEST: written anew" in each for each in done.actions)
    assert data_of(path) == data
    assert ids(path) == ALL[:-1]
    assert ids(path, "dev") == DEV
    assert Table.open(path).snapshots()[0].id in (0, 4)
    assert [each.read_bytes() for each in (path / "damaged").iterdir()] == [
        whole[: len(whole) // 2]
    ]
    assert repair_table(path).actions == ()
    table = Table.open(path, durability="fast")
    table.append(pa.table({"id": [9]}))
    assert ids(path) == [*ALL[:-1], 9]
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    table.remove_orphan_files(older_than=timedelta(days=-1))
    assert ids(path) == [*ALL[:-1], 9]
    assert table.verify(data=True).ok
    table.branches.delete("dev")
    drop_table(path)
    assert not path.exists()


def test_expired_snapshots_are_marked_again(path: Path) -> None:
    for each in (*pointers_of(path), *markers_of(path)):
        each.unlink()
    done = repair_table(path)
    assert done.ok, done
    assert ids(path) == ALL


def test_snapshots_whose_data_has_gone_count_as_expired(path: Path, tmp_path: Path) -> None:
    """Their files are still there after an expiry, and the markers are not."""
    table = Table.create(tmp_path / "u", pa.schema({"id": pa.int64()}), durability="fast")
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    table.compact(threads=1)
    kept = [each.read_bytes() for each in sorted((tmp_path / "u" / "snapshot").glob("*.json"))]
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    for number, each in enumerate(kept):
        (tmp_path / "u" / "snapshot" / f"{number:020d}.json").write_bytes(each)
    for each in (*pointers_of(tmp_path / "u"), *markers_of(tmp_path / "u")):
        each.unlink()
    done = repair_table(tmp_path / "u")
    assert done.ok, done
    assert any("have lost files; marked as expired" in each for each in done.actions)
    assert [each.id for each in Table.open(tmp_path / "u").snapshots()] == [0, 4] or [
        each.id for each in Table.open(tmp_path / "u").snapshots()
    ] == [4]
    assert ids(tmp_path / "u") == [0, 1, 2]


def test_a_newest_snapshot_comes_back_from_the_copy_of_a_tag(path: Path) -> None:
    Table.open(path).tags.create("release")
    head = newest(path)
    whole = head.read_bytes()
    head.write_bytes(b"")
    with pytest.raises(CorruptMetadata):
        Table.open(path)
    done = repair_table(path)
    assert done.actions == (f"snapshot/{head.name}: restored from the copy in tags/release.json",)
    assert head.read_bytes() == whole
    assert ids(path) == ALL


def test_a_branch_is_repaired_too(path: Path) -> None:
    newest(path, "dev").write_bytes(b"{}")
    assert repair_table(path).ok
    assert ids(path, "dev") == DEV[:-1]
    newest(path, "dev").unlink()
    assert repair_table(path).ok
    assert ids(path, "dev") == DEV[:-2]


@pytest.mark.parametrize("what", ["manifest", "schema"])
def test_a_snapshot_whose_metadata_is_damaged_is_set_aside(
    path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.open(path, durability="fast")
    if what == "schema":
        table.add_columns({"c": pa.int64()})
        Path(path, table.snapshot.schema.path).write_bytes(b"{")
    else:
        monkeypatch.setattr("fermion_table.commit.next_snapshot.INLINE_ENTRIES_MAX", 2)
        table.append(pa.table({"id": [5]}))
        Path(path, table.snapshot.manifests[-1].path).unlink()
    done = repair_table(path)
    assert done.ok, done
    assert ids(path) == ALL


def test_what_can_t_be_repaired_is_told(path: Path, tmp_path: Path) -> None:
    """No good snapshot; a lost data file; a newer format; nothing there."""
    data = next(iter(data_of(path)))
    data.unlink()
    done = repair_table(path)
    assert done.actions == ()
    assert any(data.name in each for each in done.problems)
    shutil.rmtree(path / "branch")  # it has a copy of snapshot 5
    for each in (path / "snapshot").glob("*.json"):
        each.write_bytes(b"garbage")
    before = sorted(path.rglob("*"))
    done = repair_table(path)
    assert any("no snapshot of branch 'main' can be read" in each for each in done.problems)
    assert sorted(path.rglob("*")) == before
    with pytest.raises(TableNotFound):
        repair_table(tmp_path / "nothing")
    with pytest.raises(TypeError, match="dry_run"):
        repair_table(path, dry_run="yes")  # type: ignore[arg-type]


def test_a_snapshot_of_a_newer_version_is_not_touched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(data: bytes, path: str) -> None:
        raise UnsupportedFeature("format version 99")

    before = newest(path).read_bytes()
    monkeypatch.setattr("fermion_table.checks.repair.decode_snapshot", refused)
    with pytest.raises(UnsupportedFeature):
        repair_table(path)
    assert newest(path).read_bytes() == before


def test_an_open_table_repairs_itself(path: Path) -> None:
    table = Table.open(path, durability="fast")
    newest(path).write_bytes(b"")
    assert table.repair(dry_run=True).actions
    assert table.snapshot.id == 6
    assert table.repair().ok
    assert table.snapshot.id == 5
