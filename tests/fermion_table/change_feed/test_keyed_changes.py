"""Changes of primary-key tables: replayed on one state they give the other."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.change_feed import keyed_changes
from fermion_table.change_feed.changes import ChangeScan
from fermion_table.metadata.manifest_store import live_entries
from tests.kit.tables.merge_rows import Row
from tests.kit.tables.tree_rows import put

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "v"},
    "first_row": {"merge_engine": "first_row"},
    "partial_update": {"merge_engine": "partial_update"},
    "aggregation": {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"},
}
CHANGES = {"insert": "+I", "delete": "-D", "update_preimage": "-U", "update_postimage": "+U"}


def made(path: Path, **properties: str) -> Table:
    properties = {"bucket": "2"} | properties
    return Table.create(path, SCHEMA, primary_key="k", properties=properties, durability="fast")


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshot 1 inserts the keys 1 to 3, 2 changes 2 and 4, 3 deletes 1 and 99."""
    table = made(table_path)
    upsert(table, (1, 10), (2, 20), (3, 30))
    upsert(table, (2, 21), (4, 40))
    table.delete_keys([1, 99])
    return table


def upsert(table: Table, *rows: tuple[int, int]) -> None:
    table.upsert({"k": [k for k, _ in rows], "v": [v for _, v in rows], "s": ["x"] * len(rows)})


def said(changes: ChangeScan) -> list[tuple[str, int, int, int]]:
    found = changes.to_arrow().select(["_change_type", "_commit_version", "k", "v"])
    return list(zip(*found.to_pydict().values(), strict=True))


def compact(table: Table, level: int = 5) -> None:
    """Replace all files by one run of what a scan shows."""
    rows = table.scan().to_arrow().to_pylist()
    old = live_entries(table.store, table.snapshot)
    put(table, rows, level=level, removed=old, kind="compact", is_oldest=True)


def test_each_commit_says_what_it_did_to_the_keys_that_it_wrote(table):
    assert said(table.scan_changes(0)) == [
        *(("insert", 1, 1, 10), ("insert", 1, 2, 20), ("insert", 1, 3, 30)),
        *(("update_preimage", 2, 2, 20), ("update_postimage", 2, 2, 21), ("insert", 2, 4, 40)),
        ("delete", 3, 1, 10),
    ]
    assert said(table.scan_changes(1, 2)) == said(table.scan_changes(0))[3:6]
    assert said(table.scan_changes(2, 2)) == []
    changes = table.scan_changes(2).to_arrow()
    assert changes.schema == table.scan_changes(0).schema
    moment = datetime.fromtimestamp(table.snapshot.time_ms / 1000, UTC)
    assert changes["_commit_timestamp"].to_pylist() == [moment]


def test_rows_that_are_written_again_as_they_were_are_no_change(table):
    upsert(table, (2, 21), (3, 31), (4, 40))
    assert said(table.scan_changes(3)) == [
        ("update_preimage", 4, 3, 30),
        ("update_postimage", 4, 3, 31),
    ]
    assert table.scan_changes(3, columns=["k", "s"]).count() == 0
    assert table.scan_changes(3, columns=["s"]).count() == 0
    assert table.scan_changes(3, columns=["v"]).count() == 2
    assert table.scan_changes(3, columns=[]).count() == 0
    assert table.scan_changes(2, columns=[]).count() == 1


def test_a_compaction_changes_nothing(table):
    compact(table)
    assert said(table.scan_changes(3)) == []
    upsert(table, (2, 22))
    compact(table)
    assert said(table.scan_changes(3)) == [
        ("update_preimage", 5, 2, 21),
        ("update_postimage", 5, 2, 22),
    ]


def test_an_overwrite_and_a_restore_change_the_keys_that_differ(table):
    old = live_entries(table.store, table.snapshot)
    rows = [{"k": 2, "v": 21, "s": "x"}, {"k": 3, "v": 33, "s": "x"}, {"k": 7, "v": 7, "s": "x"}]
    put(table, rows, removed=old, kind="overwrite")
    changed = [
        ("delete", 4, 4, 40),
        ("update_preimage", 4, 3, 30),
        ("update_postimage", 4, 3, 33),
        ("insert", 4, 7, 7),
    ]
    assert said(table.scan_changes(3)) == changed
    table.restore(2)
    assert said(table.scan_changes(4)) == [
        ("delete", 5, 7, 7),
        ("update_preimage", 5, 3, 33),
        ("update_postimage", 5, 3, 30),
        ("insert", 5, 1, 10),
        ("insert", 5, 4, 40),
    ]


def test_a_filter_selects_rows_of_both_states(table):
    assert said(table.scan_changes(0, filter="v > 20")) == [
        ("insert", 1, 3, 30),
        ("insert", 2, 2, 21),
        ("insert", 2, 4, 40),
    ]
    assert said(table.scan_changes(0, filter="k = 2")) == [
        ("insert", 1, 2, 20),
        ("update_preimage", 2, 2, 20),
        ("update_postimage", 2, 2, 21),
    ]
    assert said(table.scan_changes(1, filter="v < 21")) == [
        ("delete", 2, 2, 20),
        ("delete", 3, 1, 10),
    ]
    only = table.scan_changes(1, filter="v < 21", columns=["s"]).to_arrow()
    assert only.column_names[:2] == ["s", "_change_type"]
    assert only.num_rows == 2


def test_wrong_columns_are_refused_at_once(table):
    with pytest.raises(ColumnNotFoundError, match="nothing"):
        table.scan_changes(0, columns=["nothing"])
    with pytest.raises(ColumnNotFoundError, match="nothing"):
        table.scan_changes(0, filter="nothing = 1")
    with pytest.raises(InvalidArgumentError, match="_row_id"):
        table.scan_changes(0, columns=["_row_id"])


def test_old_states_are_read_under_the_schema_of_the_end(table):
    table.rename_column("v", "value")
    table.add_columns({"new": pa.int8()}, defaults={"new": 7})
    table.upsert({"k": [3], "value": [31], "s": ["x"], "new": [1]})
    changes = table.scan_changes(1, columns=["k", "value", "new"]).to_arrow().to_pylist()
    assert [(row["_change_type"], row["k"], row["value"], row["new"]) for row in changes] == [
        *(("update_preimage", 2, 20, 7), ("update_postimage", 2, 21, 7), ("insert", 4, 40, 7)),
        ("delete", 1, 10, 7),
        *(("update_preimage", 3, 30, 7), ("update_postimage", 3, 31, 1)),
    ]


def test_a_difference_compares_two_versions_by_key(table):
    compact(table)
    difference = table.diff(1)
    assert said(difference.rows()) == [
        ("delete", 4, 1, 10),
        ("update_preimage", 4, 2, 20),
        ("update_postimage", 4, 2, 21),
        ("insert", 4, 4, 40),
    ]
    assert difference.rows(filter="k = 4", columns=["v"]).count() == 1
    assert [each[0] for each in said(table.diff(4, 1).rows())] == [
        *("delete", "update_preimage", "update_postimage", "insert")
    ]
    assert table.diff(3, 4).rows().count() == 0
    assert "3 stored rows" in str(difference)


@pytest.mark.parametrize("key", [None, "s"])
def test_the_changes_over_a_replacement_are_refused(table_path, key):
    table = made(table_path)
    upsert(table, (1, 10))
    properties = {} if key is None else {"bucket": "1"}
    schema = pa.schema([("s", pa.string()), ("k", pa.int64())])
    Table.create(table_path, schema, primary_key=key, properties=properties, mode="overwrite")
    table = Table.open(table_path)
    table.append({"s": ["x"], "k": [1]})
    for start in (0, 1):
        with pytest.raises(InvalidArgumentError, match="the table was replaced between them"):
            table.scan_changes(start).to_arrow()
    with pytest.raises(InvalidArgumentError, match="the table was replaced between them"):
        table.diff(1).rows().to_arrow()
    assert table.scan_changes(2).count() == 1


def test_a_replacement_of_an_empty_table_is_no_change(table_path):
    made(table_path)
    Table.create(table_path, SCHEMA, primary_key="k", mode="overwrite")
    table = Table.open(table_path)
    upsert(table, (1, 10))
    assert said(table.scan_changes(0)) == [("insert", 2, 1, 10)]


def test_many_keys_are_compared_in_parts(table, monkeypatch):
    monkeypatch.setattr(keyed_changes, "KEYS_AT_ONCE", 2)
    whole = [(change, k, v) for change, _, k, v in said(table.scan_changes(0))]
    assert len(whole) == 7
    parts = [rows.num_rows for rows in keyed_changes.distinct_keys(some_keys(), key(table))]
    assert parts == [2, 1]
    assert replayed({}, table.scan_changes(0)) == state(table)


def key(table: Table):
    found = table.scan().key
    assert found is not None
    return found


def some_keys() -> list[pa.RecordBatch]:
    return [pa.record_batch({"k": pa.array([3, 1, 2, 3, 1])})]


OPERATIONS = st.lists(
    st.one_of(
        st.lists(
            st.fixed_dictionaries(
                {
                    "k": st.integers(0, 6),
                    "v": st.integers(0, 2) | st.none(),
                    "s": st.sampled_from(["a", "b"]) | st.none(),
                    "_kind": st.sampled_from(["+I", "+I", "+U", "-D", "-U"]),
                }
            ),
            min_size=1,
            max_size=8,
        ),
        st.sampled_from(["compact", "restore", "overwrite"]),
    ),
    min_size=1,
    max_size=7,
)


@pytest.mark.parametrize("engine", ENGINES)
@given(operations=OPERATIONS, ends=st.tuples(st.integers(0, 7), st.integers(0, 7)))
@settings(max_examples=15)
def test_changes_of_any_interval_lead_from_one_state_to_the_other(
    tmp_path_factory, engine, operations, ends
):
    table = made(tmp_path_factory.mktemp("changes") / "t", **ENGINES[engine])
    takes_all = engine in ("deduplicate", "deduplicate by sequence")
    for operation in operations:
        change(table, operation, takes_all=takes_all)
    first, last = sorted(min(end, table.snapshot.id) for end in ends)
    before, after = state(table, first), state(table, last)
    changes = table.scan_changes(first, last)
    assert replayed(before, changes) == after
    assert replayed(before, table.diff(first, last).rows(), is_minimal=True) == after
    for row in changes.to_arrow().to_pylist():
        snapshot = next(each for each in table.snapshots() if each.id == row["_commit_version"])
        assert snapshot.kind != "compact"
        assert row["_commit_timestamp"].timestamp() * 1000 == pytest.approx(snapshot.time_ms)


def change(table: Table, operation: Any, *, takes_all: bool) -> None:
    match operation:
        case "compact":
            if takes_all and table.scan().key.options.sequence_fields:
                return  # retractions would have to stay
            compact(table)
        case "restore":
            table.restore(table.snapshot.id // 2)
        case "overwrite":
            old = live_entries(table.store, table.snapshot)
            if old:
                put(table, [{"k": 1, "v": 1}], removed=old, kind="overwrite")
        case rows:
            put(table, [row for row in rows if takes_all or row["_kind"][0] == "+"])


def state(table: Table, snapshot_id: int | None = None) -> dict[int, Row]:
    rows = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return {row["k"]: row for row in rows}


def replayed(rows: dict[int, Row], changes: ChangeScan, *, is_minimal: bool = False) -> dict:
    """Return the state after some changes, each of which has to fit the state before it."""
    now, seen, replaced = dict(rows), set(), {}
    for each in changes.to_arrow().to_pylist():
        row = {name: each[name] for name in SCHEMA.names}
        kind = CHANGES[each["_change_type"]]
        if kind[0] == "-":
            assert now.pop(row["k"]) == row
            replaced[row["k"], each["_commit_version"]] = row
        else:
            assert row["k"] not in now
            assert replaced.get((row["k"], each["_commit_version"])) != row
            assert rows.get(row["k"]) != row or not is_minimal
            now[row["k"]] = row
        assert (row["k"], kind) not in seen or not is_minimal
        seen.add((row["k"], kind))
    return now
