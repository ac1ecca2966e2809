"""`deletion_vectors.merge_on_read=false`: what was compacted is read, in every way to read."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
HIDING = {"deletion_vectors.enabled": "true", "deletion_vectors.merge_on_read": "false"}


def make(path: Any, **properties: str) -> Table:
    return Table.create(path, SCHEMA, primary_key="k", properties=properties, durability="fast")


def rows_of(table: Table, **options: Any) -> dict[int, int]:
    found = table.scan(**options).to_arrow().to_pylist()
    return {row["k"]: row["v"] for row in found}


@pytest.fixture
def table(table_path) -> Table:
    """Rows of snapshot 2 are compacted; those of snapshot 3 are not."""
    table = make(table_path, **HIDING)
    table.upsert({"k": [1, 2, 3], "v": [10, 20, 30]})
    table.compact()
    table.upsert({"k": [2, 4], "v": [21, 40]})
    return table


def test_rows_are_shown_when_they_are_compacted(table):
    old, new = {1: 10, 2: 20, 3: 30}, {1: 10, 2: 21, 3: 30, 4: 40}
    assert rows_of(table, snapshot_id=1) == {}
    for snapshot, rows in ((3, old), (4, new)):
        scan = table.scan()
        assert table.snapshot.id == snapshot
        assert rows_of(table) == rows_of(table, mode="read_optimized") == rows
        assert scan.count() == len(rows)
        assert scan.min_max("v")[1].as_py() == max(rows.values())
        assert rows_of(table, filter="v > 20") == {k: v for k, v in rows.items() if v > 20}
        assert pickle.loads(pickle.dumps(scan)).to_arrow().equals(scan.to_arrow())
        assert {row["k"]: row["v"] for row in table.lookup([4, 3, 2, 1]).to_pylist()} == rows
        assert f"{2 if snapshot == 3 else 0} newer rows are left out" in scan.explain()
        table.compact()


def test_changes_come_with_the_compaction_that_shows_them(table):
    table.delete_keys([3])
    assert table.scan_changes(2).count() == 0
    table.compact()
    expected = [
        ("delete", 3, 30),
        ("insert", 4, 40),
        ("update_postimage", 2, 21),
        ("update_preimage", 2, 20),
    ]
    found = table.scan_changes(2).to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["k"], row["v"]) for row in found) == expected
    assert {row["_commit_version"] for row in found} == {table.snapshot.id}
    apart = table.diff(3).rows().to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["k"], row["v"]) for row in apart) == expected


def test_changes_of_rows_see_all_rows(table):
    """A delete or update decides on what was written, not on what is shown."""
    table.update("v = 21", {"v": 22})
    table.delete("v = 40 OR v = 10")
    table.merge({"k": [3], "v": [1]}, on="k").when_matched_update({"v": 31}).execute()
    assert rows_of(table) == {1: 10, 2: 20, 3: 30}
    table.set_properties({"deletion_vectors.merge_on_read": "true"})
    assert rows_of(table) == {2: 22, 3: 31}
    table.set_properties({"deletion_vectors.merge_on_read": "false"})
    assert rows_of(table, snapshot_id=3) == rows_of(table) == {1: 10, 2: 20, 3: 30}
    table.compact()
    assert rows_of(table) == {2: 22, 3: 31}


def test_a_new_constraint_is_checked_against_rows_that_are_not_shown(table):
    table.upsert({"k": [5], "v": pa.array([None], pa.int64())})
    with pytest.raises(InvalidArgumentError, match="null"):
        table.alter_column("v", nullable=False)


def test_it_needs_deletion_vectors(table_path, table):
    with pytest.raises(InvalidArgumentError, match=r"merge_on_read=false needs deletion_vectors"):
        make("memory://no", **{"deletion_vectors.merge_on_read": "false"})
    with pytest.raises(InvalidArgumentError, match=r"merge_on_read=false needs deletion_vectors"):
        table.set_properties({"deletion_vectors.enabled": "false"})
    with pytest.raises(InvalidArgumentError, match="expected true or false"):
        table.set_properties({"deletion_vectors.merge_on_read": "no"})


def test_a_snapshot_before_vectors_is_merged_under_a_schema_with_them(table_path):
    table = make(table_path, **{"num_sorted_run.compaction_trigger": "2"})
    for value in (1, 2):
        table.upsert({"k": range(100), "v": [value] * 100})
        table.compact(full=value == 1)
    table.upsert({"k": [1], "v": [3]})
    before = table.snapshot.id
    expected = rows_of(table)
    table.overwrite({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    table.set_properties(HIDING)
    assert rows_of(table, snapshot_id=before, schema="current") == expected
    table.restore(before)
    assert rows_of(table) == expected
