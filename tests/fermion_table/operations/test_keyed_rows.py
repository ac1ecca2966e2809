"""Deletes, updates and overwrites of primary-key tables: rows are written again, and merged."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table, lit

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


def make(path: object, **properties: str) -> Table:
    """Return a table of ten rows, written twice."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    table = Table.create(path, SCHEMA, primary_key="id", properties={"bucket": "2", **named})
    table.upsert({"id": range(10), "v": range(10), "s": [f"old {at}" for at in range(10)]})
    table.upsert({"id": range(5), "v": range(50, 55), "s": [f"new {at}" for at in range(5)]})
    return table


def rows(table: Table) -> dict[int, tuple]:
    """Return the visible rows by key."""
    found = table.scan().to_arrow().to_pylist()
    assert len(found) == len({row["id"] for row in found}) == table.scan().count()
    return {row["id"]: (row["v"], row["s"]) for row in found}


def test_a_filter_selects_the_rows_that_a_scan_shows(table_path):
    table = make(table_path)
    table.delete("v < 5")  # the rows of these values were replaced
    assert sorted(rows(table)) == list(range(10))
    table.delete("v >= 52")
    assert sorted(rows(table)) == [0, 1, 5, 6, 7, 8, 9]
    assert rows(Table.open(table_path, version=2))[4] == (54, "new 4")


def test_deletes_of_no_row_make_no_snapshot(table_path):
    table = make(table_path)
    before = table.snapshot.id
    table.delete("v = 1")
    table.update("v = 1", {"s": lit("x")})
    assert table.snapshot.id == before


def test_an_update_sets_columns_of_the_rows_that_a_scan_shows(table_path):
    table = make(table_path)
    table.update("v > 50", {"s": lit("set"), "v": pa.compute.field("v") + 1})
    expected = {at: (50 + at + (at > 0), "set" if at else "new 0") for at in range(5)}
    expected |= {at: (at, f"old {at}") for at in range(5, 10)}
    assert rows(table) == expected


@pytest.mark.parametrize("column", ["id", "v"])
def test_key_columns_and_sequence_fields_are_not_set(table_path, column):
    table = make(table_path, sequence__field="v")
    with pytest.raises(InvalidArgumentError, match=f"column '{column}' is of"):
        table.update("id = 1", {column: 7})
    assert rows(table)[1] == (51, "new 1")


def test_deletes_of_tables_with_sequence_fields_hold_for_late_rows(table_path):
    table = make(table_path, sequence__field="v")
    table.delete("id = 1")
    table.upsert({"id": [1], "v": [7], "s": ["late"]})
    assert 1 not in rows(table)
    table.upsert({"id": [1], "v": [52], "s": ["later"]})
    assert rows(table)[1] == (52, "later")


def test_an_overwrite_whose_rows_might_be_late_is_refused(table_path):
    """The new row has a smaller sequence than the one that it replaces: it would not show."""
    table = make(table_path, sequence__field="v")
    before = rows(table)
    with pytest.raises(InvalidArgumentError, match=r"overwrite: with sequence\.field"):
        table.overwrite({"id": [9], "v": [1], "s": ["new"]}, filter="v >= 50")
    table.refresh()
    assert rows(table) == before
    table.overwrite({"id": [9], "v": [1], "s": ["new"]})
    assert rows(table) == {9: (1, "new")}


def test_an_overwrite_replaces_all_rows_those_of_a_filter_or_of_partitions(table_path):
    table = make(table_path)
    table.overwrite({"id": [3, 11], "v": [0, 0], "s": ["a", "b"]}, filter="v >= 50")
    expected = {at: (at, f"old {at}") for at in range(5, 10)} | {3: (0, "a"), 11: (0, "b")}
    assert rows(table) == expected
    table.overwrite({"id": [1], "v": [1], "s": ["c"]})
    assert rows(table) == {1: (1, "c")}


def test_partitions_are_overwritten_alone(table_path):
    table = Table.create(table_path, SCHEMA, primary_key=["s", "id"], partition_by="s")
    table.upsert({"id": [1, 2, 1], "v": [1, 2, 3], "s": ["a", "a", "b"]})
    table.overwrite({"id": [9], "v": [9], "s": ["a"]}, dynamic=True)
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["s"], row["id"]) for row in found) == [("a", 9), ("b", 1)]
    table.delete("s = 'b'")
    assert table.scan().to_arrow()["id"].to_pylist() == [9]


def test_changes_of_a_transaction_see_those_before_them(table_path):
    table = make(table_path)
    with table.transaction() as transaction:
        transaction.append({"id": [5, 20], "v": [99, 98], "s": ["x", "y"]})
        transaction.delete("v = 99")
        transaction.update("v = 98", {"v": 97})
        transaction.append({"id": [6], "v": [1], "s": ["z"]})
        transaction.update("s = 'z'", {"s": lit("zz")})
    found = rows(table)
    assert 5 not in found
    assert found[20] == (97, "y")
    assert found[6] == (1, "zz")
    assert table.snapshot.id == 3


@pytest.mark.parametrize("change", ["delete", "update"])
def test_a_change_is_decided_again_after_another_commit_of_its_keys(table_path, change):
    table, other = make(table_path), Table.open(table_path)
    with table.transaction() as transaction:
        if change == "delete":
            transaction.delete("v = 54")
        else:
            transaction.update("v = 54", {"s": lit("mine")})
        other.upsert({"id": [4], "v": [1], "s": ["theirs"]})
    assert rows(table)[4] == (1, "theirs")


def test_a_row_that_another_commit_deleted_is_not_brought_back(table_path):
    table, other = make(table_path), Table.open(table_path)
    with table.transaction() as transaction:
        transaction.update("id = 4", {"s": lit("mine")})
        other.delete("id = 4")
    assert 4 not in rows(table)


def test_a_change_stands_beside_commits_of_other_keys(table_path):
    table, other = make(table_path), Table.open(table_path)
    with table.transaction() as transaction:
        transaction.delete("id = 4 AND v = 54")
        other.upsert({"id": [400], "v": [54], "s": ["theirs"]})
    assert 4 not in rows(table)
    assert 400 in rows(table)
    assert table.snapshot.effort.retries <= 1


@pytest.mark.parametrize(
    "properties",
    [
        {"merge_engine": "first_row"},
        {"merge_engine": "partial_update"},
        {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"},
        {"ignore_delete": "true"},
    ],
)
def test_engines_that_keep_rows_refuse_deletes(table_path, properties):
    table = make(table_path, **properties)
    before = table.snapshot.id
    with pytest.raises(InvalidArgumentError, match="delete: "):
        table.delete("id = 1")
    assert Table.open(table_path).snapshot.id == before


@pytest.mark.parametrize("engine", ["partial_update", "aggregation"])
def test_engines_that_remove_rows_delete_and_update_them(table_path, engine):
    properties = {f"{engine}.remove_record_on_delete": "true", "merge_engine": engine}
    if engine == "aggregation":
        properties["fields.v.aggregate_function"] = "sum"
    table = Table.create(table_path, SCHEMA, primary_key="id", properties=properties)
    table.upsert({"id": [1, 2, 3], "v": [1, 2, 3], "s": ["a", "b", "c"]})
    table.upsert({"id": [1, 2], "v": [10, 20], "s": [None, "e"]})
    table.delete("id = 2")
    table.update("id = 1", {"v": 7, "s": None})
    assert rows(table) == {1: (7, None), 3: (3, "c")}
    table.upsert({"id": [1, 2], "v": [1, 1], "s": ["x", "y"]})
    assert rows(table)[2] == (1, "y")
    assert rows(table)[1] == ((8, "x") if engine == "aggregation" else (1, "x"))
