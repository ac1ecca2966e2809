"""Deletions by key need the sequences by which rows are ordered."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in "ghvw")])


def make(path: Path, **properties: str) -> Table:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return Table.create(path, SCHEMA, primary_key="id", properties=named, durability="fast")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([(1, "x")], "column 'g' of sequence.field is int64, found values of string"),
        ([(None, 1)], "column 'id' of the primary key: expected no nulls"),
        ({"id": [1]}, "expected one column 'g', found id"),
        ([1], "expected the values of id, g as a tuple"),
    ],
)
def test_a_sequence_is_told_from_the_key(table_path, keys, message):
    table = make(table_path, sequence__field="g")
    with pytest.raises(InvalidArgumentError, match=message):
        table.delete_keys(keys)
    assert table.snapshot.id == 0


def test_a_deletion_without_a_sequence_is_the_oldest_as_an_upsert_of_one_is(table_path):
    table = make(table_path, sequence__field="g")
    table.upsert({"id": [1, 2], "g": [None, -5], "v": [1, 2]})
    table.delete_keys([(1, None), (2, None)])
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [2]
    changes = {"id": [2], "g": [None], "op": ["-D"]}
    table.upsert(pa.table(changes), change_type="op")
    assert table.scan().count() == 1
    required = make(table_path.with_name("required"), sequence__field="g")
    required.alter_column("g", nullable=False)
    with pytest.raises(InvalidArgumentError, match=r"'g' of sequence\.field: expected no nulls"):
        required.delete_keys([(1, None)])


def test_a_deletion_may_have_the_sequences_of_some_groups(table_path):
    """A group whose sequence is null stays; that of `g` removes rows if it is not older."""
    table = make(
        table_path,
        merge_engine="partial_update",
        fields__g__sequence_group="v",
        fields__h__sequence_group="w",
        partial_update__remove_record_on_sequence_group="g",
    )
    columns = {"g": [5, 5, 5], "h": [1, 1, 1], "v": [1, 1, 1], "w": [2, 2, 2]}
    table.upsert({"id": [1, 2, 3], **columns})
    table.delete_keys([(1, 5, None), (2, 4, 9), (3, None, 0)])
    rows = [
        {"id": 2, "g": 5, "h": 9, "v": 1, "w": None},
        {"id": 3, "g": 5, "h": 1, "v": 1, "w": 2},
    ]
    assert table.lookup([1, 2, 3]).to_pylist() == rows
    table.compact(full=True)
    assert table.scan(columns=["w"]).count() == 2
    assert table.lookup([3, 2, 1]).to_pylist() == rows[::-1]
    table.upsert({"id": [1], "g": [0], "v": [7]})
    assert table.lookup([1], columns=["g", "h", "v"]).to_pylist() == [{"g": 0, "h": None, "v": 7}]
