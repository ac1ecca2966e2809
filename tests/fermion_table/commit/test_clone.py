"""Clones: they read the source's files, go their own ways, and are safe from its maintenance."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import MissingDataFile, Table, TableExists, VersionNotFound
from fermion_table.commit import next_snapshot
from fermion_table.commit.clone import CLONE_TAG, clone_entries
from fermion_table.metadata.manifest import DeletionVector
from fermion_table.metadata.manifest_store import live_entries
from tests.kit.stores import MemoryStore, made_up_entry

SCHEMA = pa.schema({"a": pa.int64(), "p": pa.string()})
AT_ONCE = timedelta(days=-1)


@pytest.fixture(autouse=True, scope="module")
def short_tails() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 3)
        yield


@pytest.fixture
def source(tmp_path: Path) -> Table:
    """Snapshots 1 to 5 append the rows 1 to 5."""
    made = Table.create(tmp_path / "source", SCHEMA, durability="fast", partition_by=["p"])
    for value in range(1, 6):
        append(made, value)
    return made


def append(table: Table, value: int, **other: Any) -> None:
    table.append(pa.table({"a": [value], "p": ["even" if value % 2 == 0 else "odd"], **other}))


def rows(table: Table, **version: Any) -> list[int]:
    return table.scan(columns=["a"], **version).to_arrow()["a"].to_pylist()


def data_files(table: Table) -> set[str]:
    return {item.path for item in table.store.list("data")}


def test_a_clone_reads_what_the_source_held_without_a_copy(source: Table, tmp_path: Path) -> None:
    clone = source.clone(tmp_path / "clone")
    assert isinstance(clone, Table)
    assert clone.scan().to_arrow() == source.scan().to_arrow()
    assert Table.open(tmp_path / "clone").scan(filter="p = 'odd' AND a > 1").count() == 2
    assert data_files(clone) == set()
    assert clone.schema.fields == source.schema.fields
    assert clone.properties == source.properties
    assert clone.snapshot.table_uuid != source.snapshot.table_uuid
    assert {entry.source for entry in live_entries(clone.store, clone.snapshot)} == {"clone"}
    assert clone.verify(data=True).ok


def test_a_clone_begins_at_any_version(source: Table, tmp_path: Path) -> None:
    source.tags.create("v1", version=2)
    source.branches.create("dev", version=1)
    append(Table.open(source.location, branch="dev"), 9)
    for number, (version, expected) in enumerate(
        [("v1", [1, 2]), ("dev", [1, 9]), (0, []), ("main~1", [1, 2, 3, 4])]
    ):
        clone = source.clone(tmp_path / f"clone{number}", version=version)
        assert rows(clone) == expected
        assert clone.snapshot.id == (0 if version == 0 else 1)
        assert clone.branch == "main"


def test_source_and_clone_go_their_own_ways(source: Table, tmp_path: Path) -> None:
    clone = source.clone(tmp_path / "clone", message="to try")
    append(clone, 6)
    clone.add_columns({"b": pa.float64()})
    append(source, 7)
    assert rows(clone) == [1, 2, 3, 4, 5, 6]
    assert rows(source) == [1, 2, 3, 4, 5, 7]
    assert source.schema.names == ["a", "p"]
    assert [snapshot.message for snapshot in clone.snapshots()][:2] == ["to try", "to try"]
    clone.compact()
    assert sorted(rows(clone)) == [1, 2, 3, 4, 5, 6]
    assert all(entry.external_path is None for entry in live_entries(clone.store, clone.snapshot))
    clone.restore(1)
    assert rows(clone) == [1, 2, 3, 4, 5]
    assert clone.verify(data=True).ok


def test_rows_deleted_before_and_after_a_clone_are_told_apart(tmp_path: Path) -> None:
    """Both share one file, each with its own deletion vector."""
    source = Table.create(tmp_path / "source", SCHEMA, durability="fast")
    source.append(pa.table({"a": range(10), "p": ["x"] * 10}))
    source.delete("a = 1")
    clone = source.clone(tmp_path / "clone")
    (entry,) = live_entries(clone.store, clone.snapshot)
    assert entry.deletion_vector is not None
    assert rows(clone) == [0, *range(2, 10)]
    clone.delete("a = 2")
    source.delete("a = 3")
    source.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    source.remove_orphan_files(older_than=AT_ONCE)
    clone.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    clone.remove_orphan_files(older_than=AT_ONCE)
    assert rows(clone) == rows(Table.open(clone.location)) == [0, *range(3, 10)]
    assert rows(source) == [0, 2, *range(4, 10)]
    assert clone.verify(data=True).ok


def test_files_of_every_earlier_schema_can_be_read(source: Table, tmp_path: Path) -> None:
    source.add_columns({"b": pa.int64()}, defaults={"b": 7})
    append(source, 6, b=[60])
    source.rename_column("b", "c")
    append(source, 7, c=[70])
    clone = source.clone(tmp_path / "clone")
    assert clone.scan().to_arrow() == source.scan().to_arrow()
    assert len(clone.schemas()) == 3
    clone.drop_columns(["c"])
    append(clone, 8)
    assert rows(Table.open(clone.location)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_row_order_is_kept_after_compactions(source: Table, tmp_path: Path) -> None:
    source.compact()
    append(source, 6)
    clone = source.clone(tmp_path / "clone")
    append(clone, 7)
    assert rows(clone) == [*rows(source), 7]
    sequence = [entry.sequence_number for entry in live_entries(clone.store, clone.snapshot)]
    assert sequence == sorted(sequence)
    ids = [
        range(entry.row_id_base or 0, (entry.row_id_base or 0) + entry.rows)
        for entry in live_entries(clone.store, clone.snapshot)
    ]
    assert sorted(at for each in ids for at in each) == list(range(clone.snapshot.row_id_next))


def test_expiry_of_the_source_spares_the_clone(source: Table, tmp_path: Path) -> None:
    clone = source.clone(tmp_path / "clone", version=3)
    source.compact()
    source.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    source.remove_orphan_files(older_than=AT_ONCE)
    assert rows(clone) == [1, 2, 3]
    (tag,) = source.tags.list()
    assert clone.location in (tag.message or "")
    source.tags.delete(tag.name)
    gone = source.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert gone.paths == ()  # the snapshots had expired before: their files are orphans now
    assert source.remove_orphan_files(older_than=AT_ONCE).files == 3


def test_maintenance_of_the_clone_spares_the_source(source: Table, tmp_path: Path) -> None:
    clone = source.clone(tmp_path / "clone")
    before = data_files(source)
    clone.compact()
    clone.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    clone.remove_orphan_files(older_than=AT_ONCE)
    assert data_files(source) == before
    assert rows(source) == [1, 2, 3, 4, 5]
    assert sorted(rows(clone)) == [1, 2, 3, 4, 5]


def test_a_clone_of_a_clone_holds_the_files_of_both(source: Table, tmp_path: Path) -> None:
    middle = source.clone(tmp_path / "middle")
    append(middle, 6)
    last = middle.clone(tmp_path / "last")
    assert rows(last) == [1, 2, 3, 4, 5, 6]
    assert len(source.tags.list()) == 2
    assert len(middle.tags.list()) == 1
    assert last.snapshots()[0].properties[CLONE_TAG] == middle.tags.list()[0].name
    for table in (source, middle):
        table.compact()
        table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
        table.remove_orphan_files(older_than=AT_ONCE)
    assert rows(last) == [1, 2, 3, 4, 5, 6]


def test_a_clone_outlives_the_clone_between(source: Table, tmp_path: Path) -> None:
    """The one in the middle is deleted with its tag; the last shares no file of its own."""
    middle = source.clone(tmp_path / "middle")
    last = middle.clone(tmp_path / "last")
    source.tags.delete(middle.snapshots()[0].properties[CLONE_TAG])
    shutil.rmtree(middle.location)
    source.compact()
    source.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    source.remove_orphan_files(older_than=AT_ONCE)
    assert rows(last) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["data", "deletion"])
def test_a_clone_does_not_bring_back_files_that_its_source_lacks(tmp_path: Path, kind: str) -> None:
    source = Table.create(tmp_path / "source", SCHEMA, durability="fast")
    source.append({"a": list(range(10)), "p": ["p"] * 10})
    source.delete("a = 3")
    clone = source.clone(tmp_path / "clone")
    clone.delete("TRUE")
    state = clone.snapshot
    (file,) = (each for each in (tmp_path / "source" / kind).rglob("*") if each.is_file())
    data = file.read_bytes()
    file.unlink()
    for undo in (clone.undo, lambda: clone.restore(1)):
        with pytest.raises(MissingDataFile, match=f"{file.name}.*Nothing was published"):
            undo()
    assert clone.refresh() == state
    file.write_bytes(data)
    clone.undo()
    assert rows(clone) == rows(source)


def test_what_nothing_keeps_can_not_be_cloned(source: Table, tmp_path: Path) -> None:
    middle = source.clone(tmp_path / "middle")
    (tag,) = source.tags.list()
    source.tags.delete(tag.name)
    with pytest.raises(VersionNotFound, match=tag.name):
        middle.clone(tmp_path / "last")
    assert middle.tags.list() == []
    assert not Table.exists(tmp_path / "last")


def test_a_failed_clone_leaves_no_tag(source: Table, tmp_path: Path) -> None:
    Table.create(tmp_path / "taken", SCHEMA, durability="fast")
    with pytest.raises(TableExists):
        source.clone(tmp_path / "taken")
    with pytest.raises(VersionNotFound):
        source.clone(tmp_path / "clone", version=99)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        source.clone(tmp_path / "file")
    assert source.tags.list() == []


def test_deletion_vectors_are_named_by_location() -> None:
    store = MemoryStore("somewhere")
    own = DeletionVector(path="deletion/x.dv", size=1, rows=1)
    other = DeletionVector(path="elsewhere/deletion/x.dv", size=1, rows=1)
    entries = [
        made_up_entry(name, deletion_vector=vector, sequence_start=start)
        for name, vector, start in (("a", own, 3), ("b", other, 7), ("c", None, 7))
    ]
    store.locate = lambda path, **_: f"/place/{path}"  # type: ignore[method-assign]
    cloned = clone_entries(store, entries)
    vectors = [entry.deletion_vector and entry.deletion_vector.path for entry in cloned]
    assert vectors == ["/place/deletion/x.dv", "elsewhere/deletion/x.dv", None]
    assert [entry.external_path for entry in cloned] == [f"/place/data/{x}.fermion" for x in "abc"]
    assert [entry.sequence_offset for entry in cloned] == [0, 1, 1]


def test_tables_in_memory_are_cloned() -> None:
    source = Table.create("memory://clones/source", SCHEMA)
    append(source, 1)
    clone = source.clone("memory://clones/clone")
    append(clone, 2)
    assert rows(clone) == [1, 2]
    assert rows(source) == [1]


# Expiry and orphans as tables offer them


def test_expiry_takes_times_and_ages(source: Table) -> None:
    now = datetime.now(UTC)
    later = now + timedelta(hours=1)
    for time in (later, later.replace(tzinfo=None), timedelta(hours=-1)):
        planned = source.expire_snapshots(older_than=time, retain_last=2, dry_run=True)
        assert (planned.snapshots, planned.dry_run) == (3, True)
    for time in (now - timedelta(hours=1), timedelta(hours=1), None):
        assert source.expire_snapshots(older_than=time, retain_last=2, dry_run=True).snapshots == 0
    assert source.expire_snapshots(older_than=later, dry_run=True).snapshots == 0  # ten stay
    with pytest.raises(InvalidArgumentError, match="retain_last=0"):
        source.expire_snapshots(retain_last=0)


def test_expiry_says_what_it_did(source: Table) -> None:
    source.compact()
    assert str(source.expire_snapshots(older_than=AT_ONCE, retain_last=1, dry_run=True)).startswith(
        "would delete 5 snapshots, 5 data files, "
    )
    done = source.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert str(done).startswith("deleted 5 snapshots, 5 data files, ")
    assert (done.snapshots, done.files) == (5, 5)
    assert str(source.expire_snapshots()) == "deleted nothing (0 bytes)"
    assert [snapshot.id for snapshot in source.snapshots()] == [6]
    assert sorted(rows(source)) == [1, 2, 3, 4, 5]


def test_schemas_that_live_files_were_written_with_stay(source: Table) -> None:
    source.add_columns({"b": pa.int64()})
    append(source, 6, b=[60])
    source.rename_column("b", "c")
    append(source, 7)
    source.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    source.remove_orphan_files(older_than=AT_ONCE)
    found = Table.open(source.location).scan(filter="c = 60").to_arrow()
    assert found["a"].to_pylist() == [6]
    assert len(source.schemas()) == 3
    assert source.verify().ok


def test_snapshots_of_a_branch_expire(source: Table) -> None:
    source.branches.create("dev")
    dev = Table.open(source.location, branch="dev")
    for number in (6, 7, 8):
        append(dev, number)
    before = rows(dev)
    result = dev.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert (result.snapshots, result.retries) == (2, 0)
    assert [each.id for each in dev.snapshots()] == [dev.snapshot.id]
    assert rows(Table.open(source.location, branch="dev")) == before
    assert rows(Table.open(source.location)) == rows(source)
    assert source.verify(data=True).ok


def test_files_of_lost_writers_go_once_they_are_old(source: Table) -> None:
    with source.writer() as writer:
        writer.write(pa.table({"a": [1], "p": ["x"]}))
        path = writer.prepare_commit()[0].entries[0].path
    del writer
    gc.collect()
    assert source.remove_orphan_files().paths == ()
    planned = source.remove_orphan_files(older_than=AT_ONCE, dry_run=True)
    assert planned.paths == (path,)
    assert source.remove_orphan_files(older_than=AT_ONCE).paths == planned.paths
    assert rows(source) == [1, 2, 3, 4, 5]
