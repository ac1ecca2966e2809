"""Overwrite, delete, update and transactions, against the rows in Python."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, lit
from fermion_table.errors import CommitConflict, SchemaMismatch
from fermion_table.writing.data_writer import DataWriter
from tests.kit.table_files import live_files, stored_files

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def create(path, **options) -> Table:
    return Table.create(path, SCHEMA, durability="fast", **options)


def rows_of(table: Table) -> list[tuple]:
    found = table.scan().to_arrow().to_pydict()
    return sorted(zip(*found.values(), strict=True), key=repr)


def test_deleting_some_rows_of_a_file_marks_them(table_path):
    table = create(table_path)
    table.append({"k": ["a"] * 10, "v": range(10)})
    before = table.scan().entries[0][0]
    snapshot = table.delete("v IN (2, 5)")
    (entry,) = table.scan().entries[0]
    assert (entry.path, entry.row_id_base, entry.sequence_number) == (
        before.path,
        before.row_id_base,
        before.sequence_number,
    )
    assert entry.delete_rows == entry.deletion_vector.rows == 2
    assert (snapshot.kind, snapshot.totals.rows_deleted, snapshot.deltas.rows_deleted) == (
        "delete", 2, 2,
    )  # fmt: skip
    assert snapshot.message == "delete where v IN (2, 5)"
    assert [v for _, v in rows_of(table)] == [0, 1, 3, 4, 6, 7, 8, 9]
    table.delete("v = 3 OR v = 5")
    assert table.snapshot.totals.rows_deleted == 3
    assert [v for _, v in rows_of(table)] == [0, 1, 4, 6, 7, 8, 9]
    assert table.verify().ok


def test_deleting_most_rows_of_a_file_writes_it_again(table_path):
    table = create(table_path)
    table.append({"k": ["a"] * 10, "v": range(10)})
    table.append({"k": ["b"], "v": [10]})
    old = table.scan().entries[0][0]
    table.delete("v < 6")
    first, _ = table.scan().entries[0]
    assert first.path != old.path
    assert first.deletion_vector is None
    assert first.sequence_number == old.sequence_number
    assert table.scan().to_arrow().column("v").to_pylist() == [6, 7, 8, 9, 10]
    assert table.snapshot.totals.rows == 5


def test_deleting_all_rows_of_a_file_drops_it_without_reading(table_path, monkeypatch):
    table = create(table_path)
    for start in (0, 10, 20):
        table.append({"k": ["a"] * 10, "v": range(start, start + 10)})
    monkeypatch.setattr(fermion, "open", None)  # whoever reads a file fails
    snapshot = table.delete("v >= 10")
    assert (snapshot.deltas.files_removed, snapshot.totals.files) == (2, 1)
    monkeypatch.undo()
    assert [v for _, v in rows_of(table)] == list(range(10))


def test_deleting_whole_partitions_needs_only_their_values(table_path, monkeypatch):
    """The names share more than the bytes that statistics keep."""
    table = create(table_path, partition_by="k")
    table.append({"k": ["country/Chad", "country/Chile", None], "v": [1, 2, 3]})
    monkeypatch.setattr(fermion, "open", None)
    table.delete("k = 'country/Chile'")
    assert table.snapshot.totals.files == 2
    table.delete("k IS NULL")
    assert table.snapshot.totals.files == 1


def test_a_delete_that_finds_nothing_commits_nothing(table_path):
    table = create(table_path)
    table.append({"k": ["a", "c"], "v": [1, 3]})
    before = table.snapshot
    assert table.delete("v = 2").id == before.id
    assert table.update("k = 'b'", {"v": 1}).id == before.id
    assert stored_files(table) == live_files(table)


def test_rows_where_the_filter_is_null_stay(table_path):
    table = create(table_path)
    table.append({"k": ["a", None, "b"], "v": [1, 2, None]})
    table.delete("k = 'a' OR v > 5")
    assert rows_of(table) == [("b", None), (None, 2)]
    table.delete("NOT (k = 'a')")
    assert rows_of(table) == [(None, 2)]


def test_time_travel_sees_rows_that_were_deleted_later(table_path):
    table = create(table_path)
    first = table.append({"k": ["a"] * 4, "v": range(4)})
    second = table.delete("v = 1")
    table.delete("v = 2")
    assert table.scan(snapshot_id=first.id).count() == 4
    assert table.scan(snapshot_id=second.id).to_arrow().column("v").to_pylist() == [0, 2, 3]
    assert table.scan().count() == 2


def test_deletes_reach_columns_that_files_do_not_have(table_path):
    table = create(table_path)
    table.append({"k": ["a", "b"], "v": [1, 2]})
    table.add_columns({"c": pa.int64()}, defaults={"c": 7})
    table.append({"k": ["d", "e"], "v": [3, 4], "c": [8, 7]})
    table.delete("c = 7 AND v > 1")
    assert rows_of(table) == [("a", 1, 7), ("d", 3, 8)]


def test_a_filter_of_none_is_refused_and_true_deletes_everything(table_path):
    table = create(table_path)
    table.append({"k": ["a"], "v": [1]})
    with pytest.raises(InvalidArgumentError, match="TRUE"):
        table.delete(None)
    with pytest.raises(ColumnNotFoundError):
        table.delete("nope = 1")
    table.delete("TRUE")
    assert rows_of(table) == []
    assert table.snapshot.totals.files == 0


def test_batches_keep_their_ids_when_files_are_written_again(table_path):
    table = create(table_path)
    table.append_batches((n, {"k": ["a"] * 4, "v": range(4 * n, 4 * n + 4)}) for n in range(5))
    table.delete("v >= 3 AND v < 17")
    assert table.scan().entries[0][0].deletion_vector is None
    assert table.lookup_batch(0).column("v").to_pylist() == [0, 1, 2]
    assert table.lookup_batch(2).num_rows == 0
    assert table.lookup_batch(4).column("v").to_pylist() == [17, 18, 19]


@pytest.mark.parametrize("partition_by", [None, "k"])
def test_overwriting_replaces_all_rows(table_path, partition_by):
    table = create(table_path, partition_by=partition_by)
    table.append({"k": ["a", "b"], "v": [1, 2]})
    table.delete("v = 1")
    snapshot = table.overwrite({"k": ["c", "a"], "v": [3, 4]})
    assert (snapshot.kind, snapshot.message) == ("overwrite", "overwrite all rows")
    assert rows_of(table) == [("a", 4), ("c", 3)]
    assert (snapshot.totals.rows, snapshot.totals.rows_deleted) == (2, 0)
    table.overwrite(SCHEMA.empty_table())
    assert rows_of(table) == []


def test_overwriting_by_filter_splits_files_that_match_partly(table_path):
    table = create(table_path)
    table.append({"k": ["a", "b", "c"], "v": [1, 2, 3]})
    table.overwrite({"k": ["x"], "v": [9]}, filter="v = 2")
    assert rows_of(table) == [("a", 1), ("c", 3), ("x", 9)]
    assert table.snapshot.message == "overwrite where v = 2"


def test_overwriting_dynamically_replaces_the_partitions_of_the_data(table_path):
    table = create(table_path, partition_by=["k"])
    table.append({"k": ["a", "a", "b", None], "v": [1, 2, 3, 4]})
    table.overwrite({"k": ["a", None, "c"], "v": [10, 40, 50]}, dynamic=True)
    assert rows_of(table) == [("a", 10), ("b", 3), ("c", 50), (None, 40)]
    assert table.snapshot.message == "overwrite 3 partitions"


def test_overwriting_dynamically_needs_partitions_and_no_filter(table_path):
    table = create(table_path)
    with pytest.raises(InvalidArgumentError, match="partitions"):
        table.overwrite({"k": ["a"]}, dynamic=True)
    with pytest.raises(InvalidArgumentError, match="not both"):
        table.overwrite({"k": ["a"]}, dynamic=True, filter="v = 1")


def test_a_failing_overwrite_leaves_rows_and_files_alone(table_path):
    table = create(table_path)
    table.append({"k": ["a"], "v": [1]})
    with pytest.raises(SchemaMismatch):
        table.overwrite({"nope": [1]})
    with pytest.raises(ColumnNotFoundError):
        table.overwrite({"k": ["b"]}, filter="nope = 1")
    assert rows_of(table) == [("a", 1)]
    assert stored_files(table) == live_files(table)


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_a_misspelled_column_of_a_dict_is_refused(table_path, operation):
    """Such columns were left out without a word."""
    table = create(table_path)
    table.append({"k": ["a"], "v": [1]})
    with pytest.raises(SchemaMismatch, match="vv"):
        getattr(table, operation)({"k": ["b"], "vv": [2]})
    assert rows_of(table) == [("a", 1)]


def test_the_same_identifier_overwrites_once(table_path):
    table = create(table_path)
    table.append({"k": ["a"], "v": [1]})
    once = {"commit_user": "job", "commit_identifier": 1}
    first = table.overwrite({"k": ["b"], "v": [2]}, **once)
    again = Table.open(table_path).overwrite({"k": ["b"], "v": [2]}, **once)
    assert again.id == first.id
    assert stored_files(table) - live_files(table) == {
        entry.path for entry in table.scan(snapshot_id=1).entries[0]
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (None, None),
        (pa.scalar(7, pa.int8()), 7),
        (pc.field("v") * 10 + 1, 21),
        (fermion.col("w"), 200),
        (lambda batch: pc.negate(batch.column("v")), -2),
    ],
)
def test_updates_set_values_and_what_is_computed_from_the_row(table_path, value, expected):
    schema = pa.schema([*SCHEMA, ("w", pa.int16())])
    table = Table.create(table_path, schema)
    table.append({"k": ["a", "b", "c"], "v": [1, 2, 3], "w": [100, 200, 300]})
    snapshot = table.update("k = 'b'", {"v": value})
    assert snapshot.kind == "upsert"
    assert rows_of(table) == [("a", 1, 100), ("b", expected, 200), ("c", 3, 300)]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.int8(), 1.5),
        (pa.timestamp("ms"), datetime(2020, 1, 1, 0, 0, 0, 1)),
        (pa.date32(), datetime(2020, 1, 1, 12)),
        (pa.float32(), 1e300),
        (pa.struct([("x", pa.int8())]), (1.5,)),
    ],
)
def test_values_that_arrow_would_cut_off_are_refused(table_path, dtype, value):
    """As values of an update and as defaults: a whole number, or a date, would be stored."""
    table = Table.create(table_path, pa.table({"id": [1], "v": pa.nulls(1, dtype)}))
    with pytest.raises(InvalidArgumentError, match="column 'v'"):
        table.update("TRUE", {"v": value})
    with pytest.raises(InvalidArgumentError, match="column 'w'"):
        table.add_columns({"w": dtype}, defaults={"w": value})
    assert table.snapshot.id == 1


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.decimal32(7, 2), "CAST(1e32 AS DECIMAL(38, 0))"),
        (pa.list_(pa.decimal32(7, 2)), "[CAST(1e32 AS DECIMAL(38, 0))]"),
        (pa.struct([("x", pa.decimal32(7, 2))]), "{'x': CAST(1e32 AS DECIMAL(38, 0))}"),
    ],
    ids=["decimal", "list", "struct"],
)
def test_bug_decimals_that_a_column_does_not_hold_became_others(table_path, dtype, value):
    table = Table.create(table_path, pa.table({"id": [1], "v": pa.nulls(1, dtype)}))
    with pytest.raises(InvalidArgumentError, match="does not fit in precision 7"):
        table.update("TRUE", {"v": value})


def test_all_assignments_see_the_row_as_it_was(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.append({"a": [1], "b": [2]})
    table.update("TRUE", {"a": fermion.col("b"), "b": fermion.col("a")})
    assert rows_of(table) == [(2, 1)]


def test_updated_rows_move_to_their_new_partition(table_path):
    table = create(table_path, partition_by="k")
    table.append({"k": ["a", "a", "b"], "v": [1, 2, 3]})
    table.update("v >= 2", {"k": lit("c")})
    assert rows_of(table) == [("a", 1), ("c", 2), ("c", 3)]
    assert {entry.partition for entry in table.scan().entries[0]} == {("a",), ("c",)}


def test_updated_batches_keep_ids_and_order(table_path):
    table = create(table_path)
    table.append_batches((n, {"k": ["a"] * 3, "v": range(3 * n, 3 * n + 3)}) for n in range(3))
    table.delete("v = 4")
    table.update("v = 3 OR v = 8", {"k": lit("z"), "v": pc.field("v") + 100})
    assert table.lookup_batch(1).to_pydict() == {"k": ["z", "a"], "v": [103, 5]}
    assert table.lookup_batch(2).to_pydict() == {"k": ["a", "a", "z"], "v": [6, 7, 108]}
    assert table.scan().to_arrow().column("v").to_pylist() == [0, 1, 2, 103, 5, 6, 7, 108]


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ({}, InvalidArgumentError),
        ({"nope": 1}, ColumnNotFoundError),
        ({"v": fermion.col("nope")}, ColumnNotFoundError),
        ({"v": "text"}, ColumnNotFoundError),
        ({"v": pc.field("v") / 4.0}, SchemaMismatch),
        ({"v": lambda batch: pa.array([1, 2])}, InvalidArgumentError),
    ],
)
def test_updates_that_make_no_sense_change_nothing(table_path, assignments, error):
    table = create(table_path)
    table.append({"k": ["a"], "v": [1]})
    with pytest.raises(error):
        table.update("v = 1", assignments)
    assert rows_of(table) == [("a", 1)]
    assert stored_files(table) == live_files(table)


def test_a_transaction_publishes_once_and_its_steps_see_each_other(table_path):
    table = create(table_path)
    table.append({"k": ["a"] * 4, "v": range(4)})
    before = table.snapshot.id
    with table.transaction(message="nightly") as transaction:
        transaction.append({"k": ["b"] * 6, "v": range(10, 16)})
        transaction.delete("v = 11 OR v = 0")
        transaction.update("v = 12 OR v = 1", {"k": lit("u")})
        transaction.delete("v = 1")
        assert Table.open(table_path).snapshot.id == before
    assert (table.snapshot.id, table.snapshot.kind) == (before + 1, "upsert")
    assert table.snapshot.message == "nightly"
    assert rows_of(table) == [("a", 2), ("a", 3), *(("b", v) for v in (10, 13, 14, 15)), ("u", 12)]
    assert table.verify().ok


def test_a_transaction_that_fails_leaves_nothing(table_path):
    table = create(table_path)
    table.append({"k": ["a"] * 4, "v": range(4)})
    files = stored_files(table)
    transaction = table.transaction()

    def fails() -> None:
        with transaction:
            transaction.append({"k": ["b"], "v": [9]})
            transaction.delete("v < 3")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert rows_of(table) == [("a", n) for n in range(4)]
    assert stored_files(table) == files
    with pytest.raises(InvalidArgumentError, match="finished"):
        transaction.append({"k": ["b"], "v": [9]})


def test_files_that_later_steps_replace_are_not_left_behind(table_path):
    table = create(table_path)
    with table.transaction() as transaction:
        transaction.append({"k": ["a"] * 4, "v": range(4)})
        transaction.delete("v < 3")
        transaction.append({"k": ["b"], "v": [9]})
        transaction.delete("k = 'b'")
    assert rows_of(table) == [("a", 3)]
    assert stored_files(table) == live_files(table)


def test_an_append_in_a_transaction_is_an_append_and_takes_batches(table_path):
    table = create(table_path)
    with table.transaction() as transaction:
        transaction.append_batches([(1, {"k": ["a"], "v": [1]}), (2, {"k": ["b"], "v": [2]})])
        transaction.append({"k": ["c"], "v": [3]})
    assert table.snapshot.kind == "append"
    assert table.lookup_batch(2).to_pydict() == {"k": ["b"], "v": [2]}
    assert table.scan().count() == 3


def test_rows_written_for_a_schema_that_changed_too_much_are_refused(table_path):
    table = create(table_path)
    table.append({"k": ["a"], "v": [1]})
    other = Table.open(table_path)
    transaction = table.transaction()
    transaction.overwrite({"k": [None], "v": [2]})
    other.alter_column("k", nullable=False)
    with pytest.raises(CommitConflict, match="NOT NULL"):
        transaction.commit()
    table.refresh()
    assert rows_of(table) == [("a", 1)]
    assert stored_files(table) == live_files(table)


def test_what_writers_made_takes_the_place_of_rows(table_path):
    """The two-phase way of engines: files first, then one commit; an abort deletes them."""
    table = create(table_path, partition_by="k")
    table.append({"k": ["a", "b", "c"], "v": [1, 2, 3]})

    def written(rows):
        with table.writer() as writer:
            writer.write(rows)
            return writer.prepare_commit()

    with table.transaction() as transaction:
        transaction.overwrite_written(written({"k": ["a"], "v": [7]}), dynamic=True)
    with table.transaction() as transaction:
        transaction.overwrite_written(written({"k": ["d"], "v": [9]}), filter="v = 2")
        transaction.append_written(written({"k": ["e"], "v": [0]}))
    assert rows_of(table) == [("a", 7), ("c", 3), ("d", 9), ("e", 0)]
    transaction = table.transaction()
    transaction.overwrite_written(written({"k": ["x"], "v": [1]}))
    transaction.abort()
    assert rows_of(table) == [("a", 7), ("c", 3), ("d", 9), ("e", 0)]
    assert [each for each in stored_files(table) if "k=x" in each] == []


@pytest.mark.parametrize("meanwhile", ["nothing", "rows", "the same column", "another column"])
def test_an_overwrite_brings_columns_in_the_same_snapshot(table_path, meanwhile):
    """Files are written with the planned schema; another commit may come before theirs."""
    table = create(table_path)
    table.append({"k": ["a", "b"], "v": [1, 2]})
    data = pa.table({"k": ["c"], "v": pa.array([3], pa.int64()), "more": [7]})
    merge = table.plan_merge(data.schema)
    with DataWriter(table.store, merge.schema) as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    transaction = table.transaction()
    transaction.overwrite_written(messages, filter="v = 1", merge=merge)
    other = Table.open(table_path)
    if meanwhile == "rows":
        other.append({"k": ["d", "e"], "v": [1, 4]})
    elif meanwhile != "nothing":
        name = "more" if meanwhile == "the same column" else "other"
        other.add_columns({name: pa.int64()})
    before = other.snapshot.id
    snapshot = transaction.commit()
    assert (snapshot.id, snapshot.kind) == (before + 1, "overwrite")
    found = Table.open(table_path).scan(columns=["k", "v", "more"]).to_arrow().to_pylist()
    left = [("b", 2, None), ("c", 3, 7)] + [("e", 4, None)] * (meanwhile == "rows")
    assert sorted(tuple(row.values()) for row in found) == left
    assert Table.open(table_path).verify(data=True).ok


def test_an_overwrite_whose_column_was_given_another_type_meanwhile_is_refused(table_path):
    table = create(table_path)
    data = pa.table({"k": ["c"], "more": pa.array([7], pa.int64())})
    merge = table.plan_merge(data.schema)
    with DataWriter(table.store, merge.schema) as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    transaction = table.transaction()
    transaction.overwrite_written(messages, merge=merge)
    Table.open(table_path).add_columns({"more": pa.string()})
    with pytest.raises((CommitConflict, SchemaMismatch)):
        transaction.commit()
    assert table.refresh().id == 1
    assert stored_files(table) == live_files(table) == set()


def test_files_of_another_table_are_refused(table_path, tmp_path):
    other = create(tmp_path / "other")
    with other.writer() as writer:
        writer.write({"k": ["a"], "v": [1]})
        messages = writer.prepare_commit()
    with (
        pytest.raises(InvalidArgumentError, match="another table"),
        create(table_path).transaction() as transaction,
    ):
        transaction.append_written(messages)


def test_a_null_in_a_struct_that_a_scalar_gives_stays_null(table_path):
    """Scalars of structs are mappings, too, and were copied as such."""
    dtype = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    table = Table.create(table_path, pa.schema([("id", pa.int64()), ("s", dtype)]))
    table.append({"id": [1, 2, 3]})
    for number, value in enumerate([{"a": 1, "b": None}, {"a": 1, "b": {"c": None}}, None], 1):
        table.update(f"id = {number}", {"s": lit(pa.scalar(value, dtype))})
        found = table.scan(filter=f"id = {number}").to_arrow()["s"].to_pylist()
        assert found == [value]
