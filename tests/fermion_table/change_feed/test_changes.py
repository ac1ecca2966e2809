"""Changes between snapshots: replayed on one state they give the other; nothing else is said."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, VersionNotFound
from fermion_table.change_feed.changes import ChangeScan
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.expiry.expire import expire_snapshots
from fermion_table.metadata.deletion_vector import write_vectors
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.snapshot import Kind

FUTURE_MS = 10**15
SCHEMA = pa.schema({"a": pa.int64(), "p": pa.string()})
Row = tuple[Any, ...]


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 3 append the rows 1 to 3."""
    made = Table.create(table_path, SCHEMA, durability="fast")
    for value in range(1, 4):
        append(made, value)
    return made


def append(table: Table, *values: int) -> None:
    table.append(pa.table({"a": list(values), "p": ["x"] * len(values)}, schema=SCHEMA))


def rewrite(table: Table, change: Callable[[pa.Table], pa.Table], kind: Kind = "delete") -> None:
    """One commit that replaces every file by one of the changed rows."""
    base = table.refresh()
    with table.writer() as writer:
        writer.write(change(table.scan().to_arrow()))
        (message,) = writer.prepare_commit()
    removed = live_entries(table.store, base)
    request = CommitRequest(kind=kind, added=message.entries, removed=removed, base=base)
    commit(table.store, request, branch=table.branch)
    table.refresh()


def mark(table: Table, *positions: int) -> None:
    """One commit after which exactly these rows of the first file are deleted."""
    base = table.refresh()
    entry = live_entries(table.store, base)[0]
    bitmaps = {entry.file: BitMap64(positions)}
    vector = write_vectors(table.store, bitmaps, {entry.file: entry.rows})[entry.file]
    marked = msgspec.structs.replace(entry, deletion_vector=vector, delete_rows=vector.rows)
    request = CommitRequest(kind="delete", added=[marked], removed=[entry], base=base)
    commit(table.store, request, branch=table.branch)
    table.refresh()


def without(*values: int) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: pa.Table.from_pylist(
        [row for row in rows.to_pylist() if row["a"] not in values], schema=rows.schema
    )


def said(changes: ChangeScan) -> list[tuple[str, int, int]]:
    found = changes.to_arrow().to_pydict()
    return list(zip(found["_change_type"], found["_commit_version"], found["a"], strict=True))


def test_each_row_says_what_happened_where_and_when(table: Table) -> None:
    changes = table.scan_changes(1).to_arrow()
    assert changes.schema.names == [
        "a",
        "p",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
    ]
    assert changes["a"].to_pylist() == [2, 3]
    assert changes["_change_type"].to_pylist() == ["insert", "insert"]
    assert changes["_commit_version"].to_pylist() == [2, 3]
    times = [snapshot.time_ms for snapshot in table.snapshots()[2:]]
    expected = [datetime.fromtimestamp(time / 1000, UTC) for time in times]
    assert changes["_commit_timestamp"].to_pylist() == expected


def test_the_start_is_exclusive_and_the_end_inclusive(table: Table) -> None:
    assert said(table.scan_changes(1, 2)) == [("insert", 2, 2)]
    assert said(table.scan_changes(0, 1)) == [("insert", 1, 1)]
    assert said(table.scan_changes(2, 2)) == []
    older = Table.open(table.location, version=2)
    assert said(older.scan_changes(0)) == [("insert", 1, 1), ("insert", 2, 2)]


def test_start_and_end_take_every_form_of_version(table: Table) -> None:
    table.tags.create("v1", version=1)
    assert said(table.scan_changes("v1", "main~1")) == [("insert", 2, 2)]


def test_a_compaction_changes_nothing(table: Table) -> None:
    table.compact()
    assert table.snapshot.kind == "compact"
    assert said(table.scan_changes(3)) == []
    append(table, 5)
    assert said(table.scan_changes(2)) == [("insert", 3, 3), ("insert", 5, 5)]


def test_rows_that_a_rewrite_carries_over_are_left_out(table: Table) -> None:
    rewrite(table, without(2))
    assert said(table.scan_changes(3)) == [("delete", 4, 2)]
    rewrite(table, lambda rows: rows.set_column(0, "a", pa.array([1, 30])), kind="upsert")
    assert said(table.scan_changes(4)) == [("delete", 5, 3), ("insert", 5, 30)]


def test_rows_are_told_by_the_columns_asked_for(table: Table) -> None:
    rewrite(table, lambda rows: rows.set_column(1, "p", pa.array(["x", "y", "x"])), kind="upsert")
    assert said(table.scan_changes(3)) == [("delete", 4, 2), ("insert", 4, 2)]
    assert said(table.scan_changes(3, columns=["a"])) == []
    assert table.scan_changes(3, columns=["p"]).count() == 2
    assert table.scan_changes(3, columns=[]).count() == 0
    assert table.scan_changes(0, columns=[]).count() == 3


def test_rows_that_become_deleted_in_a_file_that_stays_are_told(table: Table) -> None:
    """Only these rows are read, in whatever columns; a vector with fewer brings rows back."""
    table.restore(0)
    append(table, *range(10, 20))
    mark(table, 2, 3)
    mark(table, 3, 5)
    assert said(table.scan_changes(5)) == [
        ("delete", 6, 12),
        ("delete", 6, 13),
        ("delete", 7, 15),
        ("insert", 7, 12),
    ]
    assert said(table.scan_changes(5, filter="a > 12")) == [("delete", 6, 13), ("delete", 7, 15)]
    assert said(table.scan_changes(5, filter="a > 100")) == []
    assert table.scan_changes(5, columns=["p"]).count() == 4
    assert table.scan_changes(5, columns=[]).count() == 4
    assert said(table.diff(5).rows()) == [("delete", 7, 13), ("delete", 7, 15)]
    table.restore(5)
    assert said(table.scan_changes(7)) == [("insert", 8, 13), ("insert", 8, 15)]
    assert "-2 rows in files that stay" in str(table.history())


def test_a_compaction_of_deleted_rows_changes_nothing(table: Table) -> None:
    mark(table, 0)
    table.compact()
    assert table.snapshot.kind == "compact"
    assert said(table.scan_changes(4)) == []
    assert said(table.diff(4).rows()) == []
    assert said(table.diff(3).rows()) == [("delete", 5, 1)]


def test_a_restore_takes_rows_away_and_brings_them_back(table: Table) -> None:
    table.restore(1)
    table.restore(3)
    assert said(table.scan_changes(3, 4)) == [("delete", 4, 2), ("delete", 4, 3)]
    assert said(table.scan_changes(4)) == [("insert", 5, 2), ("insert", 5, 3)]


def test_a_fast_forward_brings_what_the_branch_did_at_once(table: Table) -> None:
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev", durability="fast")
    append(dev, 4)
    rewrite(dev, without(1))
    dev.compact()
    table.branches.fast_forward("dev")
    assert said(table.scan_changes(3)) == [("delete", 4, 1), ("insert", 4, 4)]
    assert said(dev.scan_changes(3)) == [("insert", 4, 4), ("delete", 5, 1)]
    assert said(table.scan_changes(3, "dev")) == said(dev.scan_changes(3))


def test_a_filter_selects_changes(table: Table) -> None:
    rewrite(table, without(1, 2))
    assert said(table.scan_changes(0, filter="a >= 2")) == [
        ("insert", 2, 2),
        ("insert", 3, 3),
        ("delete", 4, 2),
    ]
    with pytest.raises(ColumnNotFoundError):
        table.scan_changes(0, filter="nothing = 1")
    with pytest.raises(ColumnNotFoundError):
        table.scan_changes(0, columns=["nothing"])
    with pytest.raises(InvalidArgumentError, match="list of names"):
        table.scan_changes(0, columns="a")


def test_rows_are_read_under_the_schema_of_the_end(table: Table) -> None:
    table.add_columns({"b": pa.int64()}, defaults={"b": 7})
    table.drop_columns(["p"])
    table.rename_column("a", "c")
    changes = table.scan_changes(2).to_arrow()
    assert changes.select(["c", "b"]).to_pylist() == [{"c": 3, "b": 7}]
    assert table.scan_changes(2, 3).to_arrow().column_names[:2] == ["a", "p"]


def test_a_column_of_a_change_columns_name_has_to_be_left_out(table_path: Path) -> None:
    schema = pa.schema({"a": pa.int64(), "_change_type": pa.string()})
    table = Table.create(table_path, schema, durability="fast")
    table.append(pa.table({"a": [1], "_change_type": ["mine"]}))
    with pytest.raises(InvalidArgumentError, match="'_change_type'"):
        table.scan_changes(0)
    assert said(table.scan_changes(0, columns=["a"])) == [("insert", 1, 1)]


def test_an_end_that_does_not_descend_from_the_start_is_refused(table: Table) -> None:
    table.branches.create("dev", version=1)
    dev = Table.open(table.location, branch="dev", durability="fast")
    append(dev, 100)
    for start, end in (("dev", "main"), (3, 1), ("main~1", "dev")):
        with pytest.raises(InvalidArgumentError, match="does not descend"):
            table.scan_changes(start, end)
    assert said(table.scan_changes(1, "dev")) == [("insert", 2, 100)]


def test_changes_that_have_expired_are_refused(table: Table) -> None:
    expire_snapshots(
        table.store,
        older_than_ms=FUTURE_MS,
        retain_last=2,
        snapshot_file_grace_ms=0,
    )
    assert said(table.scan_changes(2)) == [("insert", 3, 3)]
    for start in (0, 1):
        with pytest.raises(VersionNotFound, match=r"earliest 2|up to 1 have expired"):
            table.scan_changes(start)


def test_changes_come_in_every_form(table: Table) -> None:
    changes = table.scan_changes(1)
    expected = changes.to_arrow()
    assert changes.to_reader().read_all() == expected
    assert pa.table(changes) == expected
    assert changes.to_pandas()["a"].tolist() == [2, 3]
    assert changes.to_polars()["a"].to_list() == [2, 3]
    assert changes.count() == 2
    assert "snapshot 3" in repr(changes)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 4), min_size=1, max_size=4)),
        st.tuples(st.just("rewrite"), st.lists(st.integers(0, 4), min_size=1, max_size=2)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("update"), st.integers(0, 4)),
        st.tuples(st.just("overwrite"), st.integers(0, 4)),
        st.tuples(st.just("compact"), st.just([])),
        st.tuples(st.just("restore"), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25)
@given(OPERATIONS, st.booleans())
def test_changes_replayed_on_one_state_give_the_other(
    operations: list[tuple[str, Any]], partitioned: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        partition_by = ["p"] if partitioned else None
        table = Table.create(f"{directory}/t", SCHEMA, durability="fast", partition_by=partition_by)
        for name, argument in operations:
            if name == "append":
                parts = ["even" if value % 2 == 0 else "odd" for value in argument]
                table.append(pa.table({"a": argument, "p": parts}, schema=SCHEMA))
            elif name == "rewrite":
                rewrite(table, without(*argument))
            elif name == "delete":
                table.delete(f"a = {argument}")
            elif name == "update":
                table.update(f"a > {argument}", {"a": argument})
            elif name == "overwrite":
                rows = pa.table({"a": [argument], "p": ["even"]}, schema=SCHEMA)
                table.overwrite(rows, filter="p = 'even'")
            elif name == "compact":
                table.compact()
            else:
                table.restore(min(argument, table.snapshot.id))
        states = [state(table, snapshot.id) for snapshot in table.snapshots()]
        for start in range(len(states)):
            for end in range(start, len(states), 2):
                assert replayed(states[start], table.scan_changes(start, end)) == states[end]
                assert replayed(states[start], table.diff(start, end).rows()) == states[end]


def state(table: Table, snapshot_id: int) -> Counter[Row]:
    return Counter(
        tuple(row.values()) for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    )


def replayed(rows: Counter[Row], changes: ChangeScan) -> Counter[Row]:
    found = rows.copy()
    for row in changes.to_arrow().to_pylist():
        key = row["a"], row["p"]
        if row["_change_type"] == "insert":
            found[key] += 1
        else:
            assert found[key] > 0
            found[key] -= 1
    return +found
