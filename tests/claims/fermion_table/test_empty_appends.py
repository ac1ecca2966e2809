"""An append of no rows makes no snapshot, unless something else asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import SchemaMismatch, Table

SCHEMA = pa.schema({"a": pa.int64()})
EMPTY = {
    "list": [],
    "table": SCHEMA.empty_table(),
    "batch": pa.RecordBatch.from_pylist([], schema=SCHEMA),
    "reader": pa.RecordBatchReader.from_batches(SCHEMA, []),
    "dict": {"a": []},
    "other columns": {},
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    made.append({"a": [1]})
    return made


@pytest.mark.parametrize("how", EMPTY)
def test_an_append_of_no_rows_gives_the_latest_snapshot_back(table: Table, how: str) -> None:
    """Another writer's too, which the table object moves to, as with any append."""
    before = [item.path for item in table.store.list()]
    assert table.append(EMPTY[how]).id == 1
    with table.transaction() as transaction:
        transaction.append(EMPTY[how])
    assert [item.path for item in table.store.list()] == before
    Table.open(table.location).append({"a": [2]})
    assert table.append(SCHEMA.empty_table()) == table.snapshot
    assert (table.snapshot.id, table.scan().count()) == (2, 2)


def test_writers_messages_without_files_make_no_snapshot(table: Table) -> None:
    with table.writer() as writer:
        messages = writer.prepare_commit()
    assert table.commit(messages).id == table.commit([]).id == 1
    with table.transaction() as transaction:
        transaction.append_written(messages)
    assert table.refresh().id == 1


@pytest.mark.parametrize(
    "words",
    [
        {"message": "nothing today"},
        {"message": ""},
        {"properties": {"job": "7"}},
        {"commit_user": "job", "commit_identifier": 0},
    ],
)
def test_words_and_identities_of_no_rows_are_in_the_history(
    table: Table, words: dict[str, Any]
) -> None:
    """So that a stream finds its empty micro-batch again."""
    words = dict(words)
    assert table.append([], **words).id == 2
    if "commit_user" in words:
        assert table.append({"a": [5]}, **words).id == 2
        words["commit_identifier"] = 1
    assert table.append_batches([], **words).id == 3
    if "commit_user" in words:
        words["commit_identifier"] = 2
    with table.transaction(**words) as transaction:
        transaction.append([])
    assert Table.open(table.location).snapshot.id == table.snapshot.id == 4
    assert table.scan().count() == 1


def test_columns_of_no_rows_are_added(table: Table) -> None:
    """Merged columns make a snapshot; those that are there already do not."""
    wider = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    for _ in range(2):
        assert table.append(wider, schema_mode="merge").id == 2
        assert table.schema.names == ["a", "b"]
    assert table.snapshot.kind == "append"


def test_a_batch_without_rows_is_remembered(table: Table, tmp_path: Path) -> None:
    """No batches at all are nothing; a partitioned table has no partition for such a batch."""
    other = Table.create(tmp_path / "batches", SCHEMA, durability="fast")
    assert other.append_batches([]).id == 0
    assert other.append_batch(7, []).id == 1
    assert other.snapshot.totals.files == 1
    (entry,) = other.scan().entries[0]
    assert entry.batch is not None
    assert (entry.batch.min, entry.batch.max, entry.rows) == (7, 7, 0)
    assert other.lookup_batch(7).num_rows == 0
    parted = Table.create(tmp_path / "parted", SCHEMA, partition_by=["a"], durability="fast")
    assert parted.append_batch(7, []).id == 0


def test_deletes_beside_an_append_of_no_rows_are_published(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append([])
        transaction.delete("a = 1")
    assert (table.snapshot.id, table.scan().count()) == (2, 0)
    assert table.overwrite([]).kind == "overwrite"


STRANGE = pa.schema({"a": pa.int64(), "z": pa.string()})
WRONG = {
    "no batches": pa.RecordBatchReader.from_batches(STRANGE, []),
    "table": pa.Table.from_batches([], STRANGE),
    "dict": {"a": [], "z": []},
    "another type": pa.Table.from_batches([], pa.schema({"a": pa.string()})),
}


@pytest.mark.parametrize("how", WRONG)
def test_no_rows_of_a_schema_that_does_not_fit_are_refused(table: Table, how: str) -> None:
    """As rows would be: a job whose input is empty today fails today."""
    other = Table.create(f"{table.location}-batches", SCHEMA, durability="fast")
    data = WRONG[how]
    schema = getattr(data, "schema", None)
    for append in (
        table.append,
        lambda data: other.append_batch(1, data),
        lambda data: append_in_transaction(table, data),
    ):
        if isinstance(data, pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_batches(schema, [])
        with pytest.raises(SchemaMismatch):
            append(data)
    assert (table.refresh().id, other.refresh().id) == (1, 0)


def append_in_transaction(table: Table, data: Any) -> None:
    with table.transaction() as transaction:
        transaction.append(data)
