"""After the number of buckets was changed partitions keep theirs until they are overwritten."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.errors import CommitConflict
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.packed_manifest import decode_packed, packed_table, write_packed

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("v", pa.int64())])


def rows(partition: str, ids: Iterable[int], value: int) -> pa.Table:
    listed = list(ids)
    columns = [[partition] * len(listed), listed, [value] * len(listed)]
    return pa.table(columns, schema=SCHEMA)


def create(path: Path, bucket: int, **options: str) -> Table:
    return Table.create(
        path,
        SCHEMA,
        primary_key=["p", "id"],
        partition_by=["p"],
        properties={"bucket": str(bucket)},
        durability="fast",
        **options,
    )


def opened(table: Table, **options: str) -> Table:
    return Table.open(table.location, durability="fast", **options)


def make(path: Path, bucket: int = 2) -> Table:
    """Return a table of two partitions, whose property says 8 buckets since they were written."""
    table = create(path, bucket)
    table.upsert(rows("a", range(40), 0))
    table.upsert(rows("b", range(40), 0))
    table.set_properties({"bucket": "8"})
    return table


def counts(table: Table) -> dict[str, set[int]]:
    """Return the numbers of buckets that the files of each partition say."""
    found: dict[str, set[int]] = {}
    for file in table.inspect.files().to_pylist():
        found.setdefault(file["partition"]["p"], set()).add(file["total_buckets"])
    return found


def check(table: Table) -> None:
    """Every row is found by its key, at every snapshot, and nothing else is."""
    for snapshot in table.snapshots():
        found = table.scan(snapshot_id=snapshot.id).to_arrow()
        keys = found.select(["p", "id"])
        assert len(set(map(tuple, (row.values() for row in keys.to_pylist())))) == len(keys)
        assert table.lookup(keys, snapshot_id=snapshot.id).to_pylist() == found.to_pylist()
    report = table.verify(data=True)
    assert report.ok, report


def test_partitions_keep_their_number_until_they_are_overwritten(table_path):
    """By upserts, deletions, updates and compactions; empty ones get the new number."""
    table = make(table_path)
    assert table.schema.bucket_counts == (2, 8)
    table.upsert(rows("a", [1, 50], 1))
    table.delete_keys([("a", 2)])
    table.delete("p = 'b' AND id < 5")
    table.update("id = 7", {"v": 7})
    table.upsert(rows("c", range(40), 2))
    assert counts(table) == {"a": {2}, "b": {2}, "c": {8}}
    table.overwrite(rows("a", range(60), 3), filter="p = 'a'")
    table.compact()
    table.compact(full=True)
    assert counts(table) == {"a": {8}, "b": {2}, "c": {8}}
    table.overwrite(rows("b", [1], 4), dynamic=True)
    table.delete("p = 'c'")
    table.compact(full=True)
    table.upsert(rows("c", [3], 4))
    assert counts(table) == {"a": {8}, "b": {8}, "c": {8}}
    table.restore(4)
    table.upsert(rows("a", [1], 9))
    assert counts(table) == {"a": {2}, "b": {2}}
    check(table)


def test_overwrites_of_all_rows_or_of_some_rows(table_path):
    """Those of some rows of a partition leave its number; a failed one leaves everything."""
    table = make(table_path)
    table.overwrite(rows("a", [1, 2], 5), filter="p = 'a' AND id < 10")
    assert counts(table) == {"a": {2}, "b": {2}}
    with table.transaction() as transaction:
        transaction.upsert(rows("a", [3], 6))
        transaction.overwrite(rows("b", range(9), 6), filter="p <> 'a'")
        transaction.upsert(rows("b", [20], 7))
    assert counts(table) == {"a": {2}, "b": {8}}
    table.overwrite(rows("a", range(9), 6))
    assert counts(table) == {"a": {8}}
    check(table)


def test_files_written_for_another_number_are_refused(table_path):
    """Once the partition was overwritten, not because the property was changed."""
    table = make(table_path)
    writers = [table.writer() for _ in range(2)]
    for writer in writers:
        writer.write(rows("a", [1, 2, 3], 1))
    messages = [writer.prepare_commit() for writer in writers]
    table.commit(messages[0])  # the partition still has the number that they were written for
    table.overwrite(rows("a", range(40), 2), filter="p = 'a'")
    before = table.snapshot
    with pytest.raises(CommitConflict, match=r"partition \['a'\] has 8 buckets.*written for 2"):
        table.commit(messages[1])
    assert table.refresh().id == before.id
    check(table)


def test_two_writers_of_an_empty_partition(table_path):
    """The one that knew the old number comes second and is refused, or comes first and counts."""
    table = make(table_path)
    table.set_properties({"bucket": "3"})
    stale = opened(table).writer()
    stale.write(rows("new", range(20), 1))
    early = opened(table).writer()
    early.write(rows("other", range(20), 1))
    table.set_properties({"bucket": "5"})
    table.commit(early.prepare_commit())
    table.upsert(rows("other", [1, 99], 2))
    assert counts(table)["other"] == {3}
    table.upsert(rows("new", range(20), 2))
    with pytest.raises(CommitConflict, match=r"has 5 buckets.*written for 3"):
        table.commit(stale.prepare_commit())
    check(table)


def test_a_compaction_beside_an_overwrite_that_changes_the_number_is_left_out(table_path):
    table = make(table_path)
    table.upsert(rows("a", range(9), 1))
    base, tasks = table.snapshot, table.plan_compaction(full=True)
    messages = [task.rewrite() for task in tasks]
    opened(table).overwrite(rows("a", range(9), 2), filter="p = 'a'")
    result = table.commit_compaction(messages, base)
    assert result.groups_dropped == 2
    assert counts(table) == {"a": {8}, "b": {2}}
    check(table)


def test_branches_and_clones_have_their_own_numbers(table_path):
    table = make(table_path)
    table.branches.create("dev", version=2)
    dev = opened(table, branch="dev")
    dev.upsert(rows("c", [1], 1))
    assert counts(dev) == {"a": {2}, "b": {2}, "c": {2}}
    clone = table.clone(f"{table_path}-clone", durability="fast")
    clone.upsert(rows("a", [100], 1))
    clone.overwrite(rows("b", range(9), 1), dynamic=True)
    assert counts(clone) == {"a": {2}, "b": {8}}
    table.branches.create("next")
    head = opened(table, branch="next")
    head.overwrite(rows("a", range(9), 7), filter="p = 'a'")
    stale = table.writer()
    stale.write(rows("a", [1], 5))
    table.branches.fast_forward("next")
    with pytest.raises(CommitConflict, match="has 8 buckets"):
        table.commit(stale.prepare_commit())
    table.refresh()
    assert counts(table) == {"a": {8}, "b": {2}}
    check(table)


def test_replacing_the_table_forgets_earlier_numbers(table_path):
    """A writer of the old table can't add its files to the new one."""
    stale = make(table_path).writer()
    stale.write(rows("a", [1], 1))
    table = create(table_path, 3, mode="overwrite")
    assert table.schema.bucket_counts == ()
    table.upsert(rows("a", range(9), 2))
    with pytest.raises((CommitConflict, InvalidArgumentError)):
        table.commit(stale.prepare_commit())
    check(table)


def test_writers_for_an_overwrite_use_the_new_number(table_path):
    """Those of engines are told what is replaced."""
    table = make(table_path)
    for told, filter, dynamic, expected in (
        ({"overwrites": True, "filter": "p = 'a'"}, "p = 'a'", False, 8),
        ({"overwrites": True}, None, True, 8),
        ({}, "p = 'b'", False, 2),
    ):
        make_writer = pickle.loads(pickle.dumps(table.writer_factory(**told)))
        partition = "a" if "filter" in told else "b"
        if not told:
            table.restore(2)
            table.set_properties({"bucket": "8"})
            make_writer = table.writer_factory()
        with make_writer() as writer:
            writer.write(rows(partition, range(30), 1))
            messages = writer.prepare_commit()
        with table.transaction() as transaction:
            transaction.overwrite_written(messages, filter=filter, dynamic=dynamic)
        assert counts(table)[partition] == {expected}
        check(table)


def test_packed_manifests_hold_the_number(table_path):
    table = make(table_path)
    table.upsert(rows("a", range(9), 1))
    entries = live_entries(table._state.store, table.snapshot)
    assert {entry.total_buckets for entry in entries} == {None, 2}
    assert list(decode_packed(write_packed(packed_table(entries)), "x")) == entries
