"""Restoring: an earlier state comes back whole, as a new snapshot, whatever came between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import MissingDataFile, Table, VersionNotFound
from fermion_table.commit import next_snapshot
from fermion_table.expiry.expire import expire_snapshots
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import MAIN

FUTURE_MS = 10**15


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 4 append the rows 1 to 4."""
    made = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    for value in range(1, 5):
        append(made, value)
    return made


def append(table: Table, value: int, **other: Any) -> None:
    table.append(pa.table({"a": [value], **{name: [each] for name, each in other.items()}}))


def rows(table: Table, **version: Any) -> list[int]:
    return table.scan(**version).to_arrow()["a"].to_pylist()


def test_an_earlier_state_comes_back_as_a_new_snapshot(table: Table) -> None:
    snapshot = table.restore(2)
    assert (snapshot.id, snapshot.kind) == (5, "restore")
    assert snapshot.message == "restore snapshot 2"
    assert rows(table) == rows(Table.open(table.location)) == [1, 2]
    assert rows(table, snapshot_id=4) == [1, 2, 3, 4]
    assert snapshot.totals == table.snapshots()[2].totals
    assert (snapshot.deltas.files_added, snapshot.deltas.files_removed) == (0, 2)
    append(table, 5)
    assert rows(table) == [1, 2, 5]
    assert table.verify(data=True).ok
    assert table.tags.list() == []


def test_a_restore_can_be_undone(table: Table) -> None:
    table.restore(0)
    assert rows(table) == []
    append(table, 9)
    table.restore("main~2", message="back again")
    assert rows(table) == [1, 2, 3, 4]
    assert table.snapshot.message == "back again"


def test_files_from_before_a_compaction_come_back(table: Table) -> None:
    entries = table.scan().plan().splits
    table.compact()
    append(table, 5)
    table.restore(4)
    assert rows(table) == [1, 2, 3, 4]
    assert table.scan().plan().splits == entries


def test_many_files_come_back_in_their_order(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a short tail all of them go through manifests."""
    monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 2)
    for value in range(5, 12):
        append(table, value)
    table.compact()
    table.restore(9)
    assert rows(table) == list(range(1, 10))
    append(table, 100)
    assert rows(table) == [*range(1, 10), 100]
    assert table.verify().ok


def test_schema_and_settings_come_back(table: Table) -> None:
    table.set_properties({"target_file_size": "64MB"})
    table.add_columns({"b": pa.string()})
    append(table, 5, b="x")
    table.rename_column("a", "c")
    table.restore(4)
    assert table.schema.names == ["a"]
    assert table.properties == {}
    assert rows(table) == [1, 2, 3, 4]
    table.restore(7)
    assert table.schema.names == ["a", "b"]
    assert table.properties == {"target_file_size": "64MB"}
    assert table.scan().to_arrow()["b"].to_pylist() == [None] * 4 + ["x"]


def test_ids_of_dropped_columns_are_not_used_again(table: Table) -> None:
    table.add_columns({"b": pa.int64()})
    append(table, 5, b=50)
    table.restore(4)
    table.add_columns({"b": pa.int64()})
    append(table, 6, b=60)
    assert table.scan().to_arrow()["b"].to_pylist() == [None] * 4 + [60]
    assert [field.id for field in table.schema.fields] == [1, 3]


def test_the_latest_state_is_not_restored_again(table: Table) -> None:
    assert table.restore(4).id == 4
    table.restore(2)
    assert table.restore(2).id == 5


def test_a_restore_replaces_what_another_writer_has_added(table: Table) -> None:
    other = Table.open(table.location)
    append(other, 5)
    table.restore(2)
    assert rows(other, snapshot_id=6) == [1, 2]


def test_a_branch_is_restored_to_its_own_past_and_that_of_main(table: Table) -> None:
    table.branches.create("dev", version=3)
    dev = Table.open(table.location, branch="dev", durability="fast")
    append(dev, 100)
    dev.restore("dev~2")
    assert rows(dev) == [1, 2]
    dev.restore(4)
    assert rows(dev) == [1, 2, 3, 100]
    dev.restore("main")
    assert rows(dev) == rows(table) == [1, 2, 3, 4]


def test_main_takes_over_a_branch_of_the_same_schema_alone(table: Table) -> None:
    table.branches.create("dev", version=3)
    dev = Table.open(table.location, branch="dev", durability="fast")
    append(dev, 100)
    table.restore("dev")
    assert table.branch == MAIN
    assert rows(table) == [1, 2, 3, 100]
    dev.add_columns({"b": pa.string()})
    with pytest.raises(InvalidArgumentError, match="fast_forward"):
        table.restore("dev")
    assert table.tags.list() == []
    dev.restore("main")
    assert (rows(dev), dev.schema.names) == ([1, 2, 3, 100], ["a"])


def test_an_expired_state_does_not_come_back(table: Table) -> None:
    table.compact()
    append(table, 5)
    old = table.snapshots()[2]
    expire_snapshots(
        table.store,
        older_than_ms=FUTURE_MS,
        retain_last=1,
        snapshot_file_grace_ms=0,
    )
    with pytest.raises(VersionNotFound):
        table.restore(2)
    tags = table.tags
    with pytest.raises(VersionNotFound, match="expired"):
        type(tags)(table.store, old).create("late")
    assert rows(table) == [1, 2, 3, 4, 5]


def test_bug_a_table_whose_deleted_rows_came_back_could_not_be_opened(tmp_path: Path) -> None:
    """The snapshot said -1 rows deleted in a file that stays, which readers refused."""
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    table.append({"a": list(range(10))})
    table.delete("a = 3")
    assert table.restore(1).deltas.rows_deleted == -1
    shared_cache.clear()
    assert Table.open(tmp_path / "t").scan().count() == 10


def data_files(table: Table) -> list[Path]:
    return sorted(Path(table.location, "data").rglob("*.fermion"))


def test_bug_a_restore_of_a_snapshot_whose_files_are_missing_was_published(table: Table) -> None:
    gone, cut = data_files(table)[:2]
    table.delete("TRUE")
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    before = table.snapshot.id
    named = f"({gone.name}|{cut.name}).*other files.*of 4 that it needs"
    with pytest.raises(MissingDataFile, match=named):
        table.restore(4)
    with pytest.raises(MissingDataFile, match="Nothing was published"):
        table.undo()
    assert Table.open(table.location).snapshot.id == before
    assert table.tags.list() == []
    gone.touch()  # size 0: it is there, and cut off
    with pytest.raises(MissingDataFile, match=named):
        table.restore(4)


def test_files_that_stay_in_the_table_are_not_looked_for_by_a_restore(table: Table) -> None:
    known = set(data_files(table))
    append(table, 5)
    for file in known:
        file.unlink()
    table.restore(4)
    assert table.snapshot.totals.files == 4


def test_a_restore_of_a_deletion_vector_that_is_missing_is_refused(table: Table) -> None:
    table.compact()
    deleted = table.delete("a = 2")
    table.restore(deleted.id - 1)
    (vector,) = Path(table.location, "deletion").rglob("*.dv")
    vector.unlink()
    with pytest.raises(MissingDataFile, match=vector.name):
        table.restore(deleted.id)
