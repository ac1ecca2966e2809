"""Copies of tables: verified, resumable, whole at every snapshot, and never of two minds."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.cli import main
from fermion_table import (
    CorruptMetadata,
    MissingDataFile,
    Table,
    TableExists,
    UnsafeStorage,
    VersionNotFound,
)
from fermion_table.errors import TableNotFound
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.table.copying import TableCopy, copy_table
from tests.kit.stores import Crash, CrashingStore, WrappedStore

ID = pa.schema([("id", pa.int64())])
AT_ONCE = {"older_than": "1s", "retain_last": 2}


@pytest.fixture
def table(table_path: Path) -> Table:
    return make_table(table_path)


def make_table(path: Path, appends: int = 4) -> Table:
    """Appends, a delete, a compaction, a branch with a commit of its own, and a tag."""
    made = Table.create(path, ID, durability="fast")
    for number in range(appends):
        made.append({"id": [number, number + 10]})
    made.delete("id = 11")
    made.tags.create("monday")
    made.branches.create("dev")
    Table.open(path, branch="dev", durability="fast").append({"id": [99]})
    made.compact()
    made.append({"id": [5]})
    return made


@pytest.fixture
def target(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "copy"), durability="fast")


def states(location: Any) -> dict[str, list[int]]:
    """The rows of every snapshot of every branch, and of every tag."""
    shared_cache.clear()
    found = {}
    for branch in ("main", *(each.name for each in Table.open(location).branches.list())):
        table = Table.open(location, branch=branch)
        for snapshot in table.snapshots():
            rows = table.scan(snapshot_id=snapshot.id).to_arrow()
            found[f"{branch} {snapshot.id}"] = sorted(rows["id"].to_pylist())
    for tag in Table.open(location).tags.list():
        rows = Table.open(location, version=tag.name).to_arrow()
        found[tag.name] = sorted(rows["id"].to_pylist())
    return found


def copied(table: Table, target: Any, *, incremental: bool = False) -> TableCopy:
    return copy_table(table.store, target, incremental=incremental)


def test_a_copy_is_readable_at_every_snapshot_branch_and_tag(
    table: Table, target: LocalStore
) -> None:
    done = copied(table, target)
    assert states(target.location) == states(table.location)
    assert Table.open(target.location).verify(data=True).ok
    assert (done.snapshot_id, done.kept) == (7, 0)
    assert not Path(target.location, "probe").exists()
    assert Table.open(target.location).remove_orphan_files(older_than="0s").paths == ()


def test_a_second_run_copies_only_what_is_new(table: Table, target: LocalStore) -> None:
    first = copied(table, target)
    again = copied(table, target, incremental=True)
    assert (again.files, again.bytes, again.snapshots) == (0, 0, 0)
    assert again.kept == first.files
    table.append({"id": [6]})
    table.tags.delete("monday")
    table.tags.create("monday")
    newer = copied(table, target, incremental=True)
    assert (newer.files, newer.snapshots, newer.snapshot_id) == (1, 1, 8)
    assert states(target.location) == states(table.location)


def test_what_has_expired_is_not_copied_and_the_copy_says_so(
    table: Table, target: LocalStore
) -> None:
    time.sleep(1.1)
    table.append({"id": [7]})
    table.expire_snapshots(**AT_ONCE)
    copied(table, target)
    assert states(target.location) == states(table.location)
    assert Table.open(target.location).verify(data=True).ok
    with pytest.raises(VersionNotFound, match="earliest 7"):
        Table.open(target.location, version=3)
    table.append({"id": [8]})
    copied(table, target, incremental=True)
    assert Table.open(target.location).verify(data=True).ok


def test_an_orphan_of_the_source_stays_there(table: Table, target: LocalStore) -> None:
    orphan = Path(table.location, "data", f"{'a' * 32}.fermion")
    orphan.write_bytes(b"half")
    copied(table, target)
    assert not Path(target.location, "data", orphan.name).exists()


@pytest.mark.long
@pytest.mark.parametrize("dies", ["source", "target"])
def test_a_copy_stopped_anywhere_shows_whole_snapshots_and_is_finished_by_the_next(
    tmp_path: Path, dies: str
) -> None:
    """The process dies after each call of the target; what is visible is a state of the source.

    Calls of the source lie between those of the target and change nothing: each third of them.
    """
    table = make_table(tmp_path / "table", appends=2)
    known = states(table.location)
    for calls in range(1, 1000, 3 if dies == "source" else 1):
        inner = LocalStore(str(tmp_path / f"copy{calls}"), durability="fast")
        source, target = table.store, inner
        if dies == "source":
            source = CrashingStore(source, calls)
        else:
            target = CrashingStore(inner, calls)
        shared_cache.clear()
        try:
            copy_table(source, target)
        except Crash:
            is_done = False
        else:
            is_done = True
        if Table.exists(inner.location):
            assert all(known[name] == rows for name, rows in states(inner.location).items())
            if is_done:
                break
        else:
            with pytest.raises(TableNotFound):
                Table.open(inner.location)
        copy_table(table.store, inner, incremental=True)
        assert states(inner.location) == known
        assert Table.open(inner.location).verify().ok
        shutil.rmtree(inner.location)
    assert is_done


class Damaging(WrappedStore):
    """Stores other bytes than it is given."""

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "write" and arguments[0].startswith("data/"):
            arguments = (arguments[0], arguments[1][:-1] + b"?")
        return super().call(operation, *arguments)


def test_what_does_not_arrive_as_it_was_is_refused_and_nothing_is_published(
    table: Table, target: LocalStore
) -> None:
    with pytest.raises(CorruptMetadata, match="bytes of the source"):
        copied(table, Damaging(target))
    assert not Table.exists(target.location)
    copied(table, target)
    assert Table.open(target.location).verify(data=True).ok


def test_a_file_of_the_source_that_is_lost_is_named(table: Table, target: LocalStore) -> None:
    lost = table.inspect.files()["path"].to_pylist()[0]
    Path(table.location, lost).unlink()
    with pytest.raises(MissingDataFile, match=lost):
        copied(table, target)
    assert not Table.exists(target.location)


def test_a_copy_that_was_written_to_is_refused(table: Table, target: LocalStore) -> None:
    copied(table, target)
    Table.open(target.location).append({"id": [1000]})
    with pytest.raises(TableExists, match=r"0+8\.json.*committed to the copy"):
        copied(table, target, incremental=True)
    table.append({"id": [8]})
    with pytest.raises(TableExists, match="committed to the copy"):
        copied(table, target, incremental=True)
    assert 1000 in Table.open(target.location).to_arrow()["id"].to_pylist()


def test_another_table_at_the_target_is_refused(table: Table, target: LocalStore) -> None:
    Table.create(target.location, ID)
    with pytest.raises(TableExists, match="--incremental"):
        copied(table, target)
    with pytest.raises(TableExists, match="another table"):
        copied(table, target, incremental=True)


def test_a_copy_that_is_too_old_for_the_source_is_refused(table: Table, target: LocalStore) -> None:
    copied(table, target)
    for number in range(3):
        table.append({"id": [number]})
    time.sleep(1.1)
    table.append({"id": [4]})
    table.expire_snapshots(**AT_ONCE)
    with pytest.raises(VersionNotFound, match="copy to a new place"):
        copied(table, target, incremental=True)
    assert Table.open(target.location).verify(data=True).ok


class AtRead(WrappedStore):
    """Does something else before the first data file is read."""

    def __init__(self, inner: Any, other: Any, times: int) -> None:
        super().__init__(inner)
        self.other, self.times = other, times

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "read" and arguments[0].startswith("data/") and self.times:
            self.times -= 1
            self.other()
        return super().call(operation, *arguments)


def test_snapshots_that_expire_while_they_are_copied_are_left_out(
    table: Table, target: LocalStore
) -> None:
    time.sleep(1.1)

    def expire() -> None:
        other = Table.open(table.location)
        other.append({"id": [1]})
        other.expire_snapshots(**AT_ONCE)

    copy_table(AtRead(table.store, expire, 1), target)
    assert states(target.location) == states(table.location)
    assert Table.open(target.location).verify(data=True).ok


def test_commits_while_it_copies_come_with_the_next_run(table: Table, target: LocalStore) -> None:
    other = Table.open(table.location)
    source = AtRead(table.store, lambda: other.append({"id": [1]}), 3)
    done = copy_table(source, target)
    assert done.snapshot_id == 7
    assert Table.open(target.location).verify(data=True).ok
    copied(table, target, incremental=True)
    assert states(target.location) == states(table.location)


def test_a_clone_is_refused_as_its_files_lie_elsewhere(
    table: Table, target: LocalStore, tmp_path: Path
) -> None:
    clone = table.clone(tmp_path / "clone")
    with pytest.raises(UnsafeStorage, match="a clone"):
        copied(clone, target)


def test_the_command_says_what_it_copied(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "copy")
    assert main(["table", "copy", table.location, place]) == 0
    assert "9 snapshots, up to snapshot 7; 0 files were there" in capsys.readouterr().out
    assert main(["table", "copy", table.location, place]) == 1
    assert "--incremental" in capsys.readouterr().err
    assert main(["table", "copy", table.location, place, "--incremental", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 0


def test_a_copy_goes_between_kinds_of_storage(table: Table, tmp_path: Path) -> None:
    """To an object store in memory and back."""
    from fermion_table.storage.location import open_store

    there = open_store(f"memory://copies/{tmp_path.name}")
    copied(table, there)
    back = LocalStore(str(tmp_path / "back"), durability="fast")
    copy_table(there, back)
    assert states(back.location) == states(table.location)
