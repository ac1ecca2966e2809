"""Merges into primary-key tables: upserts where they can be, else rows are read and written."""

from __future__ import annotations

import pickle
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import MergeResult, Table, lit
from fermion_table.errors import SchemaMismatch
from fermion_table.operations.draft import Draft
from tests.kit.merge_model import (
    CLAUSES,
    GROUPS,
    LISTS,
    NUMBERS,
    OF_SOURCE,
    SCHEMA,
    SOURCE,
    TAKE_ALL,
    VALUES,
    Repeated,
    counted,
    expected,
    rows_of,
)

PLAIN = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


def make(path: object, **properties: str) -> Table:
    """Ten rows, half of them written twice."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    table = Table.create(path, PLAIN, primary_key="id", properties={"bucket": "2", **named})
    table.upsert({"id": range(10), "v": range(10), "s": [f"old {at}" for at in range(10)]})
    table.upsert({"id": range(5), "v": range(50, 55), "s": [f"new {at}" for at in range(5)]})
    return table


def rows(table: Table) -> dict[int, tuple]:
    found = table.scan().to_arrow().to_pylist()
    assert len(found) == len({row["id"] for row in found}) == table.scan().count()
    return {row["id"]: (row["v"], row["s"]) for row in found}


def counts(result: MergeResult) -> tuple[int, int, int]:
    return result.rows_inserted, result.rows_updated, result.rows_deleted


def by_id(values: Any) -> Any:
    """Rows of different ids that are not null."""
    return st.dictionaries(st.integers(0, 7), st.fixed_dictionaries(values), max_size=7).map(
        lambda found: [{"id": key, **row} for key, row in found.items()]
    )


ROW = {"g": GROUPS, "v": NUMBERS, "t": LISTS}


@given(
    writes=st.lists(by_id(ROW), max_size=3),
    deleted=st.lists(st.integers(0, 7), max_size=2),
    source_rows=by_id(ROW | {"op": st.sampled_from([None, "d", "u"])}),
    clauses=CLAUSES,
)
def test_a_merge_by_key_does_what_the_same_merge_of_single_rows_does(
    writes, deleted, source_rows, clauses
):
    """Rows of several runs, retractions among them; rows, counts and snapshots after a merge."""
    inserts = [step for step in clauses[1] if step.values is not None]
    reads_op = any(step.condition is OF_SOURCE[0] for case in clauses for step in case)
    if not reads_op:
        source = pa.Table.from_pylist(source_rows, SOURCE).drop_columns("op")
    else:
        source = pa.Table.from_pylist(source_rows, SOURCE)
    for step in inserts:
        if step.values is VALUES[2]:  # sets no key
            step.values = TAKE_ALL
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(f"{folder}/t", SCHEMA, primary_key="id", durability="fast")
        for written in writes:
            table.upsert(pa.Table.from_pylist(written, SCHEMA))
        table.delete_keys(deleted)
        before, version = rows_of(table), table.snapshot.id
        builder = table.merge(source, ["id"])
        for step in (step for case in clauses for step in case):
            step.add_to(builder)
        try:
            after, numbers = expected(before, source_rows, ["id"], clauses)
        except Repeated:  # not with different ids
            raise AssertionError from None
        result = builder.execute()
        assert counted(rows_of(table)) == counted(after)
        assert counts(result) == numbers
        assert result.snapshot.id == version + any(numbers)
        assert table.verify(data=True).ok


def test_a_merge_of_all_columns_is_an_upsert(table_path, monkeypatch):
    """It stands beside another one of its keys: neither is made again."""
    table, other = make(table_path), Table.open(table_path)
    applied: list[int] = []
    scan = Draft.scan
    monkeypatch.setattr(Draft, "scan", lambda *given: applied.append(1) or scan(*given))
    source = {"id": [1, 6, 20], "v": [100, 101, 102], "s": ["x", "y", "z"]}
    with table.transaction() as transaction:
        builder = transaction.merge(source, ["id"]).when_matched_update()
        assert counts(builder.when_not_matched_insert().execute()) == (1, 2, 0)
        other.upsert({"id": [6, 20], "v": [0, 0], "s": ["theirs", "theirs"]})
    found = rows(table)
    assert (found[1], found[6], found[20]) == ((100, "x"), (101, "y"), (102, "z"))
    assert len(applied) == 1
    assert table.snapshot.kind == "upsert"
    kinds = {entry.level for entry in table.scan().entries[0]}
    assert kinds == {0}


def test_an_upsert_reads_nothing_until_its_rows_are_counted(table_path, monkeypatch):
    table = make(table_path)
    source = {"id": [1, 6, 20], "v": [100, 101, 102], "s": ["x", "y", "z"]}
    monkeypatch.setattr(fermion, "open", None)  # whoever reads a file fails
    builder = table.merge(source, ["id"]).when_not_matched_insert().when_matched_update()
    result = builder.execute()
    assert repr(result) == "<MergeResult: snapshot 3, an upsert, rows not counted yet>"
    monkeypatch.undo()
    table.upsert({"id": [20], "v": [0], "s": ["later"]})
    assert counts(pickle.loads(pickle.dumps(result))) == counts(result) == (1, 2, 0)
    assert repr(result) == "<MergeResult: snapshot 3, 1 rows inserted, 2 updated, 0 deleted>"


def test_a_merge_by_key_is_decided_again_after_a_commit_of_its_keys(table_path):
    table, other = make(table_path), Table.open(table_path)
    source = {"id": [6, 20, 8], "v": [1, 2, 3]}
    with table.transaction() as transaction:
        builder = transaction.merge(source, ["id"]).when_matched_update({"v": "source.v"})
        builder.when_not_matched_insert({"id": "source.id", "s": lit("mine")}).execute()
        other.upsert({"id": [20], "v": [0], "s": ["theirs"]})
        other.delete_keys([6])
    found = rows(table)
    assert (found[6], found[20], found[8]) == ((None, "mine"), (2, "theirs"), (3, "old 8"))


def test_rows_are_deleted_updated_and_inserted_by_key(table_path):
    table = make(table_path)
    source = {"id": [0, 1, 7, 30], "v": [1, 2, 3, 4]}
    result = (
        table.merge(source, ["id"])
        .when_matched_delete("target.s = 'new 0'")
        .when_matched_update({"v": pc.field("target", "v") + pc.field("source", "v")})
        .when_not_matched_insert({"id": "source.id", "v": fermion.col("source.v")})
        .when_not_matched_by_source_delete("target.v >= 53")
        .when_not_matched_by_source_update({"s": lit("alone")}, "target.v = 9")
        .execute()
    )
    assert counts(result) == (1, 3, 3)
    unchanged = {2: (52, "new 2"), 5: (5, "old 5"), 6: (6, "old 6"), 8: (8, "old 8")}
    changed = {1: (53, "new 1"), 7: (10, "old 7"), 9: (9, "alone"), 30: (4, None)}
    assert rows(table) == unchanged | changed
    assert table.snapshot.id == 3


def test_a_merge_on_other_columns_changes_rows_by_their_key(table_path):
    table = make(table_path)
    builder = table.merge({"s": ["new 1", "old 9"], "n": [7, 8]}, on=["s"])
    builder.when_matched_update({"v": "source.n"}).execute()
    assert (rows(table)[1], rows(table)[9]) == ((7, "new 1"), (8, "old 9"))
    builder = table.merge({"id": [1], "v": [7], "s": ["zz"]}, on=["s"])
    with pytest.raises(InvalidArgumentError, match=r"on=\['s'\]: expected columns of the primary"):
        builder.when_not_matched_insert()


def test_keys_of_several_columns_are_merged_by_a_part_of_them(table_path):
    table = Table.create(table_path, PLAIN, primary_key=["s", "id"], partition_by="s")
    table.upsert({"id": [1, 2, 1], "v": [1, 2, 3], "s": ["a", "a", "b"]})
    source = pa.table({"id": [1, 5], "v": [10, 50]})
    builder = table.merge(source, ["id"]).when_matched_update({"v": "source.v"})
    values = {"id": "source.id", "v": "source.v", "s": lit("c")}
    assert counts(builder.when_not_matched_insert(values).execute()) == (1, 2, 0)
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["s"], row["id"], row["v"]) for row in found) == [
        ("a", 1, 10), ("a", 2, 2), ("b", 1, 10), ("c", 5, 50),
    ]  # fmt: skip


@pytest.mark.parametrize("is_upsert", [True, False])
def test_rows_of_one_key_are_refused(table_path, is_upsert):
    table = make(table_path)
    version = table.snapshot.id
    source = {"id": [40, 41, 40], "v": [1, 2, 3], "s": ["a", "b", "c"]}
    builder = table.merge(source, ["id"]).when_not_matched_insert()
    if is_upsert:
        builder.when_matched_update()
    with pytest.raises(InvalidArgumentError, match=r"rows 0 and 2, of key \{'id': 40\}"):
        builder.execute()
    assert table.refresh().id == version


def test_null_keys_and_key_columns_that_change_are_refused(table_path):
    table = make(table_path)
    builder = table.merge({"id": [None], "v": [1], "s": ["a"]}, ["id"]).when_not_matched_insert()
    with pytest.raises(SchemaMismatch, match="NOT NULL"):
        builder.execute()
    with pytest.raises(InvalidArgumentError, match="'id' is of the primary key"):
        table.merge({"id": [1]}, ["id"]).when_matched_update({"id": 5})
    assert len(rows(table)) == 10


@pytest.mark.parametrize(
    "properties",
    [
        {"merge_engine": "first_row"},
        {"merge_engine": "partial_update"},
        {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"},
    ],
)
def test_engines_that_keep_rows_refuse_updates_and_deletes(table_path, properties):
    table = make(table_path, **properties)
    builder = table.merge({"id": [1, 77], "v": [1, 7], "s": ["a", "b"]}, ["id"])
    with pytest.raises(InvalidArgumentError, match="delete: "):
        builder.when_matched_delete()
    with pytest.raises(InvalidArgumentError, match="update: "):
        builder.when_matched_update()
    assert counts(builder.when_not_matched_insert().execute()) == (1, 0, 0)
    assert rows(table)[77] == (7, "b")


def test_engines_that_remove_rows_replace_them(table_path):
    properties = {"aggregation.remove_record_on_delete": "true", "merge_engine": "aggregation"}
    properties["fields.v.aggregate_function"] = "sum"
    table = Table.create(table_path, PLAIN, primary_key="id", properties=properties)
    table.upsert({"id": [1, 2, 3], "v": [1, 2, 3], "s": ["a", "b", "c"]})
    table.upsert({"id": [1, 2], "v": [10, 20], "s": [None, "e"]})
    source = {"id": [1, 2, 9], "v": [5, 6, 7], "s": [None, "f", "g"]}
    builder = table.merge(source, ["id"]).when_matched_delete("source.s = 'f'")
    builder.when_matched_update().when_not_matched_insert().execute()
    assert rows(table) == {1: (5, None), 3: (3, "c"), 9: (7, "g")}


def test_an_older_row_loses_where_rows_have_a_sequence(table_path):
    table = make(table_path, sequence__field="v")
    source = {"id": [1, 2, 3], "v": [99, 0, 53], "s": ["newer", "older", "same"]}
    table.merge(source, ["id"]).when_matched_update().when_not_matched_insert().execute()
    found = rows(table)
    assert (found[1], found[2], found[3]) == ((99, "newer"), (52, "new 2"), (53, "same"))
    table.merge({"id": [1]}, ["id"]).when_matched_delete().execute()
    assert 1 not in rows(table)


SEQUENCE = pa.schema(
    [("id", pa.int64()), ("at", pa.int64()), ("v", pa.int64()), ("s", pa.string())]
)
AGGREGATED = {
    "merge_engine": "aggregation",
    "fields.default_aggregate_function": "last_value",
    "aggregation.remove_record_on_delete": "true",
}


def by_sequence(path: object, **properties: str) -> Table:
    """Ids 1 to 4 with the sequence 5; 5 was deleted then; the sequence of 4 is null."""
    named = {"sequence.field": "at", **properties}
    table = Table.create(path, SEQUENCE, primary_key="id", properties=named, durability="fast")
    rows = {"id": [1, 2, 3, 4], "at": [5, 5, 5, None], "v": [0] * 4, "s": ["old"] * 4}
    table.upsert(pa.table(rows, SEQUENCE))
    table.delete_keys([(5, 5)])
    return table


@pytest.mark.parametrize("is_upsert", [True, False])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("properties", [{}, AGGREGATED])
def test_a_merge_counts_the_rows_that_show_where_rows_have_a_sequence(
    properties, descending, is_upsert, table_path
):
    """Others change nothing: a late update, and a row that a later deletion hides."""
    order = {"sequence.field.sort_order": "descending"} if descending else {}
    table = by_sequence(table_path, **properties, **order)
    before = rows(table)
    source = pa.table(
        {
            "id": [1, 2, 3, 4, 5, 6],
            "at": pa.array([4, 5, 6, 1, 4, None], pa.int64()),
            "v": [1] * 6,
            "s": ["new"] * 6,
        }
    )
    builder = table.merge(source, ["id"]).when_matched_update(
        condition=None if is_upsert else "source.v = 1"
    )
    result = builder.when_not_matched_insert().execute()
    after = rows(table)
    updated = {key for key in before if after[key] != before[key]}
    assert updated == ({1, 2, 4} if descending else {2, 3, 4})
    assert after.keys() - before.keys() == ({5, 6} if descending else {6})
    assert before.keys() <= after.keys()
    assert counts(result) == (len(after.keys() - before.keys()), len(updated), 0)
    table.compact(full=True)
    assert rows(table) == after


def test_an_update_of_a_merge_that_sets_no_sequence_shows(table_path):
    table = by_sequence(table_path)
    result = table.merge({"id": [1, 4]}, ["id"]).when_matched_update({"s": lit("new")}).execute()
    assert counts(result) == (0, 2, 0)
    assert {key for key, (_, s) in rows(table).items() if s == "new"} == {1, 4}


def test_steps_of_a_transaction_see_a_merge_by_key(table_path):
    table = make(table_path)
    with table.transaction() as tx:
        tx.upsert({"id": [20], "v": [1], "s": ["new"]})
        tx.merge({"id": [20]}, ["id"]).when_matched_update({"s": lit("again")}).execute()
        tx.delete("s = 'old 9'")
        tx.merge({"id": [9, 8]}, ["id"]).when_matched_delete().execute()
    assert rows(table)[20] == (1, "again")
    assert not {8, 9} & rows(table).keys()
    assert table.snapshot.id == 3
