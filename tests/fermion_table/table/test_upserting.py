"""Upserts and deletions of keys: as commits, in transactions, and in the order of time."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, SchemaMismatch, Table, WriteSettings
from fermion_table.engine import stage_table
from fermion_table.metadata.manifest_store import live_entries
from tests.kit.tables.trees import data_files, keyed_table

NESTED = pa.schema(
    [
        pa.field("k", pa.string()),
        pa.field("a", pa.int32(), nullable=False),
        pa.field("s", pa.struct([pa.field("x", pa.date32(), nullable=False)]), nullable=False),
        pa.field("l", pa.list_(pa.string()), nullable=False),
        pa.field("v", pa.float64()),
    ]
)


@pytest.fixture
def table(tmp_path) -> Table:
    return keyed_table(tmp_path / "t")


def state(table: Table, value: str = "v") -> dict[Any, Any]:
    """Return the values of a table by their keys, as somebody else sees them."""
    rows = Table.open(table.location).scan().to_arrow()
    return dict(zip(rows.column("k").to_pylist(), rows.column(value).to_pylist(), strict=True))


def row(key: Any, value: Any) -> dict[str, list[Any]]:
    return {"k": [key], "v": [value]}


def test_an_upsert_replaces_rows_and_is_an_append(table):
    table.upsert({"k": [1, 2], "v": ["a", "b"]})
    snapshot = table.upsert({"k": [2, 3], "v": ["B", "c"]}, message="why", properties={"by": "me"})
    assert (snapshot.kind, snapshot.message, snapshot.properties["by"]) == ("append", "why", "me")
    assert state(table) == {1: "a", 2: "B", 3: "c"}
    table.append(row(1, "A"))
    assert state(table) == {1: "A", 2: "B", 3: "c"}


def test_the_same_commit_is_made_once(table):
    made = table.upsert(row(1, "a"), commit_user="job", commit_identifier=5)
    again = table.upsert(row(1, "b"), commit_user="job", commit_identifier=5)
    assert made.id == again.id
    assert state(table) == {1: "a"}
    assert data_files(table) == {entry.path for entry in live_entries(table.store, made)}


def test_no_rows_make_no_snapshot(table):
    assert table.upsert({"k": [], "v": []}).id == 0
    assert table.delete_keys([]).id == 0


def test_changes_of_all_four_kinds(table):
    table.upsert({"k": [1, 2], "v": ["a", "b"]})
    changes = {
        "k": [1, 1, 2, 3],
        "v": ["a", "A", "b", "c"],
        "op": ["update_preimage", "update_postimage", "delete", "insert"],
    }
    table.upsert(changes, change_type="op")
    assert state(table) == {1: "A", 3: "c"}


def test_an_append_table_refuses_what_needs_a_key(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema([("k", pa.int64()), ("v", pa.string())]))
    for call in (
        lambda: table.upsert(row(1, "a")),
        lambda: table.upsert(row(1, "a"), schema_mode="merge"),
        lambda: table.transaction().upsert(row(1, "a")),
    ):
        with pytest.raises(InvalidArgumentError, match=r"upsert needs a table with a primary key"):
            call()
    with pytest.raises(InvalidArgumentError, match="delete_keys needs a table with a primary key"):
        table.delete_keys([1])
    assert data_files(table) == set()


def test_upserts_add_columns(table):
    table.upsert(row(1, "a"))
    data = row(1, "A") | {"w": [5], "op": ["+U"]}
    with pytest.raises(SchemaMismatch, match="w"):
        table.upsert(data, change_type="op")
    table.upsert(data, change_type="op", schema_mode="merge")
    assert table.schema.to_arrow().names == ["k", "v", "w"]
    assert state(table, "w") == {1: 5}
    table.append({"k": [2], "x": [1.5]}, schema_mode="merge")
    assert state(table, "x") == {1: None, 2: 1.5}


@pytest.mark.parametrize(
    "keys", [["a", "c"], [("a",), ("c",)], [{"k": "a"}, {"k": "c"}], {"k": ["a", "c"]}]
)
def test_keys_are_deleted_blindly_whatever_columns_must_not_be_null(tmp_path, keys):
    table = keyed_table(tmp_path / "t", NESTED)
    day = {"x": pa.scalar(0, pa.date32()).as_py()}
    rows = [{"k": key, "a": 1, "s": day, "l": ["x"], "v": 2.0} for key in ("a", "b", "c")]
    table.upsert(pa.Table.from_pylist(rows, NESTED))
    assert table.delete_keys(keys).kind == "append"
    assert state(table) == {"b": 2.0}
    table.delete_keys(pa.table({"k": ["nobody"]}))
    assert state(table) == {"b": 2.0}


def test_deletions_need_what_orders_the_rows_of_a_key(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = keyed_table(tmp_path / "t", schema, properties={"sequence.field": "v"})
    table.upsert({"k": [1, 2], "v": [5, 5]})
    with pytest.raises(InvalidArgumentError, match="values of k, v"):
        table.delete_keys([1])
    table.delete_keys([(1, 4), (2, 6)])
    assert state(table) == {1: 5}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"merge_engine": "aggregation"}, "aggregation.remove_record_on_delete"),
        ({"merge_engine": "first_row"}, "merge_engine=first_row"),
        ({"merge_engine": "partial_update"}, "partial_update.remove_record_on_delete"),
    ],
)
def test_engines_that_delete_no_keys_say_so(tmp_path, properties, message):
    table = keyed_table(tmp_path / "t", properties=properties)
    with pytest.raises(InvalidArgumentError, match=message):
        table.delete_keys([1])
    assert data_files(table) == set()


@pytest.mark.parametrize("engine", ["aggregation", "partial_update"])
def test_engines_that_remove_records_delete_keys(tmp_path, engine):
    properties = {"merge_engine": engine, f"{engine}.remove_record_on_delete": "true"}
    table = keyed_table(tmp_path / "t", properties=properties)
    table.upsert({"k": [1, 2], "v": ["a", "b"]})
    table.delete_keys([1])
    assert state(table) == {2: "b"}


def test_writes_of_a_transaction_are_in_their_order(table):
    with table.transaction() as changes:
        changes.upsert({"k": [1, 2], "v": ["a", "b"]})
        changes.upsert(row(1, "c"))
        changes.delete_keys([2])
        changes.append(row(3, "d"))
        changes.upsert(row(3, "e") | {"op": ["-D"]}, change_type="op")
        changes.upsert(row(2, "f"))
    assert state(table) == {1: "c", 2: "f"}
    entries = live_entries(table.store, table.snapshot)
    assert sorted(entry.sequence_offset for entry in entries) == list(range(6))
    assert table.snapshot.kind == "append"


def test_a_transaction_that_is_made_again_keeps_the_order(table):
    """Another commit comes first: all is done anew on top of it, and is newer than that."""
    with table.transaction() as changes:
        changes.upsert(row(1, "mine"))
        changes.upsert(row(1, "mine too"))
        Table.open(table.location).upsert({"k": [1, 2], "v": ["theirs", "theirs"]})
    assert state(table) == {1: "mine too", 2: "theirs"}


def test_upserts_never_conflict(table):
    others = [Table.open(table.location) for _ in range(3)]
    for n, other in enumerate(others):
        other.upsert({"k": [1, 10 + n], "v": [f"{n}", f"{n}"]})
    assert state(table) == {1: "2", 10: "0", 11: "1", 12: "2"}


def test_messages_of_several_writers_are_in_the_order_given(table):
    """Each writer numbers its runs from 0 on, and flushes often; the later one is newer."""
    messages = []
    for name in "abc":
        with table.writer() as writer:
            writer.write(row(1, name))
            writer.write(row(ord(name), name))
            messages += writer.prepare_commit()
    table.commit([messages[2], messages[0], messages[1]])
    assert state(table) == {1: "b", 97: "a", 98: "b", 99: "c"}
    entries = live_entries(table.store, table.snapshot)
    assert sorted(entry.sequence_offset for entry in entries) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["transaction", "overwrite", "merge", "staged"])
def test_messages_keep_their_order_however_they_are_committed(tmp_path, kind):
    """Writers with several runs each, whose numbers overlap."""
    properties = {"write_buffer_size": "1"}
    if kind == "staged":
        schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
        staged = stage_table(
            tmp_path / "t", schema, primary_key=["k"], properties=properties, mode="create"
        )
        open_writer, table = staged.writer_factory(), None
    else:
        table = keyed_table(tmp_path / "t", properties=properties)
        merge = None
        if kind == "merge":
            fields = [("k", pa.int64()), ("v", pa.string()), ("w", pa.string())]
            merge = table.plan_merge(pa.schema(fields))
        open_writer = table.writer_factory(merge=merge)
    messages = []
    for name in "ab":
        with pickle.loads(pickle.dumps(open_writer))() as writer:
            for n in range(3):
                writer.write(row(1, f"{name}{n}"))
            messages += writer.prepare_commit()
    if table is None:
        staged.commit(messages)
        table = Table.open(tmp_path / "t")
    elif kind == "transaction":
        with table.transaction() as changes:
            changes.append_written(messages)
    elif kind == "overwrite":
        table.upsert(row(7, "gone"))
        with table.transaction() as changes:
            changes.overwrite_written(messages)
    else:
        table.commit(messages, merge=merge)
    assert state(table) == {1: "b2"}
    numbers = [e.sequence_offset for e in live_entries(table.store, table.refresh())]
    assert sorted(numbers) == list(range(6))


def test_a_message_is_committed_once(table):
    with table.writer() as writer:
        writer.write(row(1, "a"))
        messages = writer.prepare_commit()
    with pytest.raises(InvalidArgumentError, match="named 2 times"):
        table.commit([*messages, *messages])
    table.commit(messages)
    with pytest.raises(InvalidArgumentError, match="only once"):
        table.commit(messages)
    assert state(table) == {1: "a"}


@pytest.mark.parametrize(
    ("primary_key", "properties", "message"),
    [
        (["k"], {"bucket": "3"}, "another primary key now"),
        (["k", "v"], {}, "another primary key now"),
        (None, {}, "merged by a primary key now, and were not, or the other way round"),
    ],
)
def test_files_for_other_trees_are_refused(table, primary_key, properties, message):
    """The table is replaced by one of the same columns, between writing and committing."""
    with table.writer() as writer:
        writer.write(row(1, "a"))
        messages = writer.prepare_commit()
    schema = table.schema.to_arrow()
    Table.create(
        table.location, schema, primary_key=primary_key, properties=properties, mode="overwrite"
    )
    with pytest.raises(CommitConflict, match=message):
        Table.open(table.location).commit(messages)
    assert state(table) == {}


def test_a_writer_of_a_table_with_a_key_is_made_in_other_processes_too(table):
    settings = WriteSettings(target_file_bytes=4096)
    make = pickle.loads(pickle.dumps(table.writer_factory(settings=settings)))
    with make() as writer:
        writer.write(row(1, "a"), change_type=None)
        messages = pickle.loads(pickle.dumps(writer.prepare_commit()))
    table.commit(messages)
    assert state(table) == {1: "a"}


def test_a_failed_transaction_leaves_no_file(table):
    def write() -> None:
        with table.transaction() as changes:
            changes.upsert(row(1, "a"))
            changes.upsert(row(None, "b"))

    with pytest.raises(SchemaMismatch):
        write()
    assert table.snapshot.id == 0
    assert data_files(table) == set()


@pytest.mark.parametrize("nested", [False, True])
def test_distinct_items_may_be_values_of_dictionaries(table_path, nested):
    """At the top of a list, and in its structs."""
    text = pa.dictionary(pa.int8(), pa.string())
    item = pa.struct([("a", text)]) if nested else text
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(item))])
    functions = {"fields.v.aggregate_function": "collect", "fields.v.distinct": "true"}
    properties = {"merge_engine": "aggregation", **functions}
    table = Table.create(table_path, schema, primary_key=["id"], properties=properties)

    def items(values):
        return [{"a": value} if nested else value for value in values]

    for values in (["x", "y"], ["y", "z", None]):
        table.upsert(pa.table({"id": [1], "v": [items(values)]}, schema))
    table.compact(full=True)
    found = table.scan().to_arrow()["v"].to_pylist()
    assert found == [items(["x", "y", "z", None])]
