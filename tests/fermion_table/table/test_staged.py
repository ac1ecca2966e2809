"""`stage_table`: a definition and its first rows become visible together, or not at all."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table, TableExists, TableNotFound, drop_table
from fermion_table.engine import stage_table
from fermion_table.operations.transaction import Statement

OLD = pa.schema([("a", pa.int64()), ("b", pa.string())])
NEW = pa.schema([("b", pa.int32()), ("day", pa.date32())])
NEW_ROWS = pa.table({"b": [7, 8], "day": [400, 500]}, NEW)


def written(staged):
    with staged.writer() as writer:
        writer.write(NEW_ROWS)
        return writer.prepare_commit()


def data_files(path):
    return sorted(Path(path).glob("data/**/*.fermion"))


def test_a_replacement_is_one_snapshot_and_keeps_the_history(table_path):
    """Before the commit readers see the old rows; after it the new ones, and the old by version."""
    table = Table.create(table_path, OLD, partition_by=["b"])
    table.append(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    staged = stage_table(table_path, NEW, mode="replace", partition_by=["month(day)"])
    messages = pickle.loads(pickle.dumps(written(pickle.loads(pickle.dumps(staged)))))
    assert Table.open(table_path).scan().count() == 2
    snapshot = staged.commit(messages, message="anew")
    assert (snapshot.id, snapshot.kind, snapshot.message) == (2, "overwrite", "anew")
    new = Table.open(table_path)
    assert new.scan(filter="b = 7").to_arrow().to_pydict() == {
        "b": [7],
        "day": [NEW_ROWS[1][0].as_py()],
    }
    assert new.scan().to_arrow().schema.equals(NEW)
    assert new.scan(snapshot_id=1).to_arrow()["a"].to_pylist() == [1, 2]
    assert new.restore(1).id == 3
    assert new.verify(data=True).ok


def test_a_new_table_is_not_there_before_its_commit(table_path):
    staged = stage_table(table_path, NEW, mode="create_or_replace")
    messages = written(staged)
    assert not Table.exists(table_path)
    staged.commit(messages)
    assert Table.open(table_path).scan().count() == 2
    assert Table.open(table_path).verify(data=True).ok


def test_a_staged_table_that_is_given_up_leaves_nothing(table_path):
    staged = stage_table(table_path, NEW, partition_by=["month(day)"])
    messages = written(staged)
    assert data_files(table_path)
    staged.discard(messages)
    assert not Path(table_path).exists()


def test_rows_that_come_meanwhile_are_replaced_and_columns_restated(table_path):
    """Another commit takes the schema version and the field ids of the files."""
    table = Table.create(table_path, OLD)
    staged = stage_table(table_path, NEW, mode="replace")
    messages = written(staged)
    table.append(pa.table({"a": [1], "b": ["x"]}))
    table.add_columns({"c": pa.int64()})
    staged.commit(messages)
    new = Table.open(table_path)
    assert new.scan().to_arrow().equals(NEW_ROWS)
    assert new.scan(filter="b = 8").count() == 1
    assert len({field.id for each in new.schemas() for field in each.fields}) == 5
    assert new.verify(data=True).ok


def test_whoever_comes_first_keeps_the_table(table_path):
    """A table made, dropped or made anew since `stage_table` is left alone; written files go."""
    staged = stage_table(table_path, NEW, mode="create_or_replace")
    messages = written(staged)
    Table.create(table_path, OLD)
    with pytest.raises(TableExists):
        staged.commit(messages)
    assert data_files(table_path) == []
    staged = stage_table(table_path, NEW, mode="replace")
    messages = written(staged)
    drop_table(table_path)
    with pytest.raises(TableNotFound):
        staged.commit(messages)
    assert data_files(table_path) == []
    Table.create(table_path, OLD)
    messages = written(staged)
    with pytest.raises(CommitConflict, match="replaced by another"):
        staged.commit(messages)
    assert data_files(table_path) == []


def test_a_first_append_that_fails_takes_its_table_back(table_path, monkeypatch):
    staged = stage_table(table_path, NEW)
    messages = written(staged)

    def fail(*arguments, **keywords):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Statement, "commit_written", fail)
    with pytest.raises(OSError, match="no space"):
        staged.commit(messages)
    assert not Path(table_path).exists()


def test_modes_and_definitions_are_checked_at_once(table_path):
    with pytest.raises(TableNotFound, match="to replace"):
        stage_table(table_path, NEW, mode="replace")
    with pytest.raises(InvalidArgumentError, match="'create_or_replace'"):
        stage_table(table_path, NEW, mode="overwrite")
    with pytest.raises(KeyError, match="nothing"):
        stage_table(table_path, NEW, partition_by=["nothing"])
    assert not Path(table_path).exists()
    Table.create(table_path, OLD)
    with pytest.raises(TableExists):
        stage_table(table_path, NEW)
