"""Tables whose newest snapshot names files that are gone: what is told, and what is left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CorruptMetadata, Table, repair_table
from fermion_table.checks.repair import Choice, repair
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash, CrashingStore, ForgetfulStore, LostReplies, WrappedStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
AT_ONCE = timedelta(days=-1)
LEAVE_OUT = Choice(leave_out_missing=True)


def rows(first: int, end: int) -> pa.Table:
    numbers = list(range(first, end))
    return pa.table({"id": numbers, "v": [10 * each for each in numbers]}, schema=SCHEMA)


def made(path: Path, **definition: Any) -> Table:
    """Three files of ten rows."""
    table = Table.create(path, SCHEMA, durability="fast", **definition)
    for first in (0, 10, 20):
        table.append(rows(first, first + 10))
    return table


def shown(path: Path, column: str = "id", **scan: Any) -> list[Any]:
    return Table.open(path, **scan).scan().to_arrow().sort_by("id")[column].to_pylist()


def entries_of(table: Table) -> list[Entry]:
    return live_entries(table._state.store, table.snapshot)


def lose(table: Table, number: int = 1) -> str:
    """Delete a data file; its path."""
    file = entries_of(table)[number].path
    Path(table.location, file).unlink()
    return file


def contents(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


REST = [*range(10), *range(20, 30)]


@pytest.mark.parametrize("choice", [{}, {"leave_out_missing": True, "dry_run": True}])
def test_missing_files_are_told_and_nothing_is_written_unless_asked_for(
    tmp_path: Path, choice: dict[str, Any]
) -> None:
    file = lose(made(tmp_path / "t"))
    before = contents(tmp_path / "t")
    done = repair_table(tmp_path / "t", **choice)
    assert contents(tmp_path / "t") == before
    assert done.rows_lost == 10
    assert done.losses == (f"branch 'main': {file}: missing: its 10 rows are lost",)
    assert not done.ok
    assert "1 files missing, 10 rows lost\n  branch 'main': data/" in str(done)
    if choice:
        assert len(done.actions) == 1
        assert "snapshot 4 of branch 'main': leaves out 1 data files with 10 rows" in str(done)
    else:
        assert done.actions == ()
        assert any("leave_out_missing=True (--leave-out-missing)" in each for each in done.problems)


@pytest.mark.parametrize("damage", ["missing", "cut off", "empty"])
def test_a_snapshot_without_the_missing_file_keeps_the_other_rows(
    tmp_path: Path, damage: str
) -> None:
    """Older snapshots stay; a second repair does nothing; after an expiry nothing is left."""
    table = made(tmp_path / "t")
    file = tmp_path / "t" / entries_of(table)[1].path
    whole = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(whole[:-1] if damage == "cut off" else b"")
    planned = repair_table(tmp_path / "t", dry_run=True, leave_out_missing=True)
    done = repair_table(tmp_path / "t", leave_out_missing=True)
    assert (done.actions, done.losses) == (planned.actions, planned.losses)
    assert len(done.actions) == 1
    assert shown(tmp_path / "t") == REST
    table = Table.open(tmp_path / "t", durability="fast")
    assert (table.snapshot.id, table.snapshot.kind) == (4, "overwrite")
    assert json.loads(table.snapshot.properties["fermion.left_out"]) == {
        "data_files": 1,
        "rows": 10,
        "column_files": 0,
        "deletion_vectors": 0,
    }
    assert (table.snapshot.totals.files, table.snapshot.totals.rows) == (2, 20)
    for _ in range(2):
        again = repair_table(tmp_path / "t", leave_out_missing=True)
        assert (again.actions, again.losses, again.rows_lost) == ((), (), 0)
        assert all(file.name in each for each in again.problems)
        assert not again.ok
    assert [each.id for each in table.snapshots()] == [0, 1, 2, 3, 4]
    assert [problem.path for problem in table.verify().problems] == [
        str(file.relative_to(tmp_path / "t"))
    ]
    table.append(rows(30, 31))
    table.compact(threads=1)
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert repair_table(tmp_path / "t").ok
    assert table.verify(data=True).ok
    assert shown(tmp_path / "t") == [*REST, 30]


def test_a_file_that_is_back_is_read_again(tmp_path: Path) -> None:
    """The snapshot before the repair still names it: a restore undoes the repair."""
    table = made(tmp_path / "t")
    file = tmp_path / "t" / entries_of(table)[1].path
    whole = file.read_bytes()
    file.unlink()
    assert table.repair(leave_out_missing=True).actions
    assert table.snapshot.id == 4
    file.write_bytes(whole)
    table.restore(3)
    assert shown(tmp_path / "t") == list(range(30))
    assert repair_table(tmp_path / "t").ok


def test_many_files_of_manifests_and_partitions_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fermion_table.commit.next_snapshot.INLINE_ENTRIES_MAX", 2)
    table = Table.create(
        tmp_path / "t",
        pa.schema([("p", pa.int64()), ("id", pa.int64())]),
        partition_by=["p"],
        durability="fast",
    )
    for first in range(0, 12, 4):
        numbers = list(range(first, first + 4))
        table.append(pa.table({"p": [each % 2 for each in numbers], "id": numbers}))
    assert table.snapshot.manifests
    for entry in entries_of(table):
        if entry.partition == (1,):
            Path(table.location, entry.path).unlink()
    done = table.repair(leave_out_missing=True)
    assert done.rows_lost == 6
    assert shown(tmp_path / "t") == list(range(0, 12, 2))
    assert table.snapshot.touched.partitions == ((1,),)
    assert len(table.verify().problems) == 3


def test_changes_across_the_repair_are_refused_with_their_cause(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    lose(table)
    table.repair(leave_out_missing=True)
    table.append(rows(30, 32))
    for start, end in ((2, 5), (3, 4), (0, 4)):
        with pytest.raises(InvalidArgumentError, match="snapshot 4 left out files that were miss"):
            table.scan_changes(start, end)
    assert table.scan_changes(4).to_arrow()["id"].to_pylist() == [30, 31]
    assert table.scan_changes(2, 3).to_arrow()["id"].to_pylist() == list(range(20, 30))


def test_columns_of_a_missing_column_file_show_older_values(tmp_path: Path) -> None:
    """Filters too: the bounds of the values that are lost are gone with them."""
    table = made(tmp_path / "t")
    table.add_columns_with(
        lambda batch: {"w": batch["id"]},
        read=["id"],
        schema=pa.schema([("w", pa.int64())]),
        threads=1,
    )
    table.fill_columns({"id": [10, 11], "v": [None, 7_000_000]}, on="id")
    entry = entries_of(table)[1]
    assert len(entry.column_files) == 2
    for each in entry.column_files:
        Path(table.location, each.path).unlink()
    done = table.repair(leave_out_missing=True)
    assert done.rows_lost == 0
    assert len(done.losses) == 2
    assert "the values of 'w' are lost in 10 rows of data/" in done.losses[0]
    assert "the values of 'v' are lost" in done.losses[1]
    assert shown(tmp_path / "t") == list(range(30))
    assert shown(tmp_path / "t", "v") == [10 * each for each in range(30)]
    nulls = [None] * 10
    assert shown(tmp_path / "t", "w") == [*range(10), *nulls, *range(20, 30)]
    assert sorted(table.scan(filter="v = 110 OR v = 100").to_arrow()["id"].to_pylist()) == [10, 11]
    assert table.scan(filter="w IS NULL").count() == 10
    assert table.scan(filter="w >= 10 AND w < 20").count() == 0
    table.compact(column_files_max=0, threads=1)
    assert shown(tmp_path / "t", "v") == [10 * each for each in range(30)]


def test_older_values_show_where_the_lost_column_file_held_nulls_alone(tmp_path: Path) -> None:
    """The entry said that the column is null in all rows, which is true no more."""
    table = made(tmp_path / "t")
    table.fill_columns({"id": list(range(10, 20)), "v": pa.array([None] * 10, pa.int64())}, on="id")
    entry = entries_of(table)[1]
    assert shown(tmp_path / "t", "v")[10:20] == [None] * 10
    Path(table.location, entry.column_files[0].path).unlink()
    table.repair(leave_out_missing=True)
    assert shown(tmp_path / "t", "v") == [10 * each for each in range(30)]


def test_a_not_null_column_without_its_file_takes_the_rows_along(tmp_path: Path) -> None:
    """Otherwise it would have nulls."""
    table = made(tmp_path / "t")
    table.add_columns_with(
        lambda batch: {"w": batch["id"]},
        read=["id"],
        schema=pa.schema([pa.field("w", pa.int64())]),
        threads=1,
    )
    table.alter_column("w", nullable=False)
    Path(table.location, entries_of(table)[1].column_files[0].path).unlink()
    done = table.repair(leave_out_missing=True)
    assert done.rows_lost == 10
    assert "would have values that the column can't have" in done.losses[1]
    assert shown(tmp_path / "t", "w") == REST
    assert table.verify().problems[0].path in done.losses[0]


def without_vector(table: Table) -> str:
    """Delete the deletion vector of the second file, in which rows 12 and 15 are deleted."""
    table.delete("id = 12 OR id = 15")
    vector = entries_of(table)[1].deletion_vector
    assert vector is not None
    Path(table.location, vector.path).unlink()
    return vector.path


def test_deleted_rows_come_back_only_where_that_is_asked_for(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    vector = without_vector(table)
    before = contents(tmp_path / "t")
    for choice in ({}, {"leave_out_missing": True}):
        done = repair_table(tmp_path / "t", **choice)  # type: ignore[arg-type]
        assert contents(tmp_path / "t") == before
        assert (done.actions, done.rows_lost, done.ok) == ((), 0, False)
        assert f"{vector}: missing: which 2 rows of data/" in done.losses[0]
        assert "lost_deletions='leave_out' leaves its 8 other rows out" in done.problems[0]
    for choice, expected, lost in (("leave_out", REST, 8), ("show", list(range(30)), 0)):
        copy = tmp_path / choice
        shutil.copytree(tmp_path / "t", copy)
        done = repair_table(copy, leave_out_missing=True, lost_deletions=choice)  # type: ignore[arg-type]
        assert (len(done.actions), done.rows_lost) == (1, lost)
        assert shown(copy) == expected
        found = Table.open(copy)
        assert found.scan().count() == len(expected)
        with pytest.raises(InvalidArgumentError, match="snapshot 5 left out"):
            found.scan_changes(4)
        assert [each.path for each in found.verify().problems] == [vector]


@pytest.mark.parametrize("vectors", [False, True])
def test_a_primary_key_table_without_a_run_shows_older_rows(tmp_path: Path, vectors: bool) -> None:
    """With deletion vectors older rows of merged keys are marked as deleted, and stay so."""
    settings = {"bucket": "1", "deletion_vectors.enabled": str(vectors).lower()}
    table = Table.create(
        tmp_path / "t", SCHEMA, primary_key="id", properties=settings, durability="fast"
    )
    table.upsert(rows(0, 10))
    table.compact(full=True, threads=1)
    table.upsert({"id": [3, 4], "v": [-3, -4]})
    table.delete_keys([5])
    newest = max(entries_of(table), key=lambda entry: entry.sequence_number)
    Path(table.location, newest.path).unlink()
    done = table.repair(leave_out_missing=True)
    assert "older rows of their keys may show again" in done.losses[0]
    assert shown(tmp_path / "t") == list(range(10))
    values = [10 * each for each in range(10)]
    values[3:5] = [-3, -4]
    assert shown(tmp_path / "t", "v") == values
    table.upsert({"id": [5], "v": [-5]})
    table.compact(full=True, threads=1)
    values[5] = -5
    assert shown(tmp_path / "t", "v") == values
    with pytest.raises(InvalidArgumentError, match="left out files"):
        table.scan_changes(0)


def test_deleted_rows_of_a_primary_key_table_never_show_again(tmp_path: Path) -> None:
    """A key would be there twice: the file can only be left out."""
    settings = {"bucket": "1", "deletion_vectors.enabled": "true"}
    table = Table.create(
        tmp_path / "t", SCHEMA, primary_key="id", properties=settings, durability="fast"
    )
    table.upsert(rows(0, 1000))
    table.compact(full=True, threads=1)
    table.upsert({"id": [3], "v": [-3]})
    table.compact(threads=1)
    entry = next(each for each in entries_of(table) if each.deletion_vector is not None)
    assert entry.deletion_vector is not None
    Path(table.location, entry.deletion_vector.path).unlink()
    for choice in (None, "show"):
        done = repair_table(tmp_path / "t", leave_out_missing=True, lost_deletions=choice)  # type: ignore[arg-type]
        assert done.actions == ()
        assert "in a primary-key table they can't be shown" in done.problems[0]
    done = repair_table(tmp_path / "t", leave_out_missing=True, lost_deletions="leave_out")
    assert done.rows_lost == entry.live_rows
    assert shown(tmp_path / "t") == [3]


def test_every_branch_is_repaired_and_tags_stay(tmp_path: Path) -> None:
    """A branch with commits of its own, and one without."""
    table = made(tmp_path / "t")
    for name in ("dev", "bare"):
        table.branches.create(name)
    Table.open(tmp_path / "t", branch="dev", durability="fast").append(rows(40, 41))
    table.tags.create("release")
    tag = contents(tmp_path / "t" / "tags")
    file = lose(table)
    done = repair_table(tmp_path / "t", leave_out_missing=True)
    assert done.rows_lost == 30
    assert [each.split(": ")[0] for each in done.actions] == [
        "snapshot 4 of branch 'main'",
        "snapshot 4 of branch 'bare'",
        "snapshot 5 of branch 'dev'",
    ]
    assert shown(tmp_path / "t") == REST
    assert shown(tmp_path / "t", branch="dev") == [*REST, 40]
    assert shown(tmp_path / "t", branch="bare") == REST
    assert contents(tmp_path / "t" / "tags") == tag
    assert [each.path for each in Table.open(tmp_path / "t").verify().problems] == [file]
    again = repair_table(tmp_path / "t", leave_out_missing=True)
    assert (again.actions, again.losses) == ((), ())


def test_files_of_a_clone_s_source_are_missed_too(tmp_path: Path) -> None:
    source = made(tmp_path / "source")
    source.clone(str(tmp_path / "clone"))
    lose(source)
    done = repair_table(tmp_path / "clone", leave_out_missing=True)
    assert done.rows_lost == 10
    assert shown(tmp_path / "clone") == REST


@pytest.mark.parametrize("is_only", [False, True])
def test_a_lost_manifest_is_told_with_what_can_t_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_only: bool
) -> None:
    """Where older snapshots do without it, the newest of them comes back; else nothing does."""
    monkeypatch.setattr("fermion_table.commit.next_snapshot.INLINE_ENTRIES_MAX", 2)
    table = made(tmp_path / "t")
    if is_only:
        table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    manifest = Path(table.location, table.snapshot.manifests[0].path)
    manifest.unlink()
    done = repair_table(tmp_path / "t", leave_out_missing=True)
    if not is_only:
        assert shown(tmp_path / "t") == list(range(20))
        return
    assert done.actions == ()
    told = next(each for each in done.problems if "it lists" in each)
    assert manifest.name in told
    assert "2 data files with 20 rows" in told
    assert "leave_out_missing can't leave them out" in told


def test_a_crash_leaves_the_snapshot_before_or_the_one_after(tmp_path: Path) -> None:
    """After each storage operation; a second repair does what is left to do."""
    table = made(tmp_path / "t")
    lose(table)
    outcomes = []
    for calls in range(1, 200):
        path = tmp_path / f"{calls}"
        shutil.copytree(tmp_path / "t", path)
        store = CrashingStore(LocalStore(str(path), durability="fast"), calls)
        try:
            repair(store, LEAVE_OUT)
        except Crash:
            found = Table.open(path)
            outcomes.append(found.snapshot.id)
            assert found.snapshot.id in (3, 4)
            again = repair_table(path, leave_out_missing=True)
            published = ["leaves out" in each for each in again.actions]
            assert published.count(True) == (found.snapshot.id == 3)
            assert shown(path) == REST
            assert Table.open(path).snapshot.id == 4
            continue
        break
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {3, 4}


@pytest.mark.parametrize("lost", [LostReplies(after_success={1}), LostReplies(before_trying={1})])
def test_a_lost_reply_publishes_once(tmp_path: Path, lost: LostReplies) -> None:
    table = made(tmp_path / "t")
    lose(table)
    store = ForgetfulStore(LocalStore(str(tmp_path / "t"), durability="fast"), lost)
    assert len(repair(store, LEAVE_OUT).actions) == 1
    assert shown(tmp_path / "t") == REST
    assert Table.open(tmp_path / "t").snapshot.id == 4


class _Between(WrappedStore):
    """A store in which something happens right before the first snapshot file is created."""

    def __init__(self, path: Path, happens: Callable[[], Any]) -> None:
        super().__init__(LocalStore(str(path), durability="fast"))
        self.happens: list[Callable[[], Any]] = [happens]

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "create_if_absent" and self.happens:
            self.happens.pop()()
        return super().call(operation, *arguments)


def test_two_repairs_at_once_publish_one_snapshot(tmp_path: Path) -> None:
    lose(made(tmp_path / "t"))
    store = _Between(tmp_path / "t", lambda: repair_table(tmp_path / "t", leave_out_missing=True))
    done = repair(store, LEAVE_OUT)
    assert done.actions == ()
    assert Table.open(tmp_path / "t").snapshot.id == 4
    assert shown(tmp_path / "t") == REST


WRITERS: dict[str, tuple[Callable[[Table], Any], list[int]]] = {
    "append": (lambda t: t.append(rows(30, 32)), [*REST, 30, 31]),
    "delete of rows that are there": (lambda t: t.delete("id < 3"), REST[3:]),
    "overwrite": (lambda t: t.overwrite(rows(50, 51)), [50]),
    "schema": (lambda t: t.add_columns({"c": pa.int64()}), REST),
    "another file lost": (lambda t: lose(t, 0), REST[10:]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_repair_beside_a_writer_keeps_what_that_has_committed(tmp_path: Path, name: str) -> None:
    table = made(tmp_path / "t")
    lose(table)
    happens, expected = WRITERS[name]
    store = _Between(tmp_path / "t", lambda: happens(table))
    repair(store, LEAVE_OUT)
    repair_table(tmp_path / "t", leave_out_missing=True)
    assert shown(tmp_path / "t") == expected


def test_a_writer_beside_a_repair_is_decided_again(tmp_path: Path) -> None:
    """A deletion that found its rows before the repair: it does not bring the lost file back."""
    table = made(tmp_path / "t")
    entry = entries_of(table)[1]
    store = _Between(tmp_path / "t", lambda: (lose(table), _repaired(tmp_path / "t")))
    writer = Table(store, Table.open(tmp_path / "t").snapshot)
    writer.delete("id = 12 OR id = 25")
    assert shown(tmp_path / "t") == [each for each in REST if each != 25]
    assert entry.path not in {each.path for each in entries_of(Table.open(tmp_path / "t"))}


def _repaired(path: Path) -> None:
    assert repair_table(path, leave_out_missing=True).actions


def test_wrong_choices_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    for wrong in ("yes", 1, None):
        with pytest.raises(TypeError, match="leave_out_missing"):
            repair_table(tmp_path / "t", leave_out_missing=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="lost_deletions='keep': expected 'leave_out'"):
        table.repair(leave_out_missing=True, lost_deletions="keep")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lost_deletions=1"):
        table.repair(leave_out_missing=True, lost_deletions=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="is for leave_out_missing=True"):
        table.repair(lost_deletions="show")


def test_storage_that_does_not_tell_is_no_missing_file(tmp_path: Path) -> None:
    """An outage is not an answer: nothing is left out."""

    class Silent(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "size":
                raise PermissionError("denied")
            return super().call(operation, *arguments)

    lose(made(tmp_path / "t"))
    with pytest.raises(PermissionError):
        repair(Silent(LocalStore(str(tmp_path / "t"))), LEAVE_OUT)
    assert Table.open(tmp_path / "t").snapshot.id == 3


def test_a_damaged_newest_snapshot_and_a_missing_file_at_once(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.append(rows(30, 31))
    lose(table)
    head = max((tmp_path / "t" / "snapshot").glob("*.json"))
    head.write_bytes(b"{")
    with pytest.raises(CorruptMetadata):
        Table.open(tmp_path / "t")
    planned = repair_table(tmp_path / "t", dry_run=True, leave_out_missing=True)
    done = repair_table(tmp_path / "t", leave_out_missing=True)
    assert done.actions == planned.actions
    assert shown(tmp_path / "t") == REST
    assert Table.open(tmp_path / "t").snapshot.id == 4
