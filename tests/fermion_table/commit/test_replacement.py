"""`Table.create(mode="overwrite")`: another schema and no rows, in the same history."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table
from fermion_table.commit.commit import Commit

OLD = pa.schema([("a", pa.int64()), ("b", pa.string())])
NEW = pa.schema([("b", pa.int32()), ("day", pa.date32())])


def test_a_replaced_table_starts_anew_and_keeps_its_history(table_path):
    """Rows and columns are those of the new one; the old ones are there in the past."""
    table = Table.create(table_path, OLD, partition_by=["b"])
    table.append(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    new = Table.create(table_path, NEW, mode="overwrite", partition_by=["month(day)"])
    assert new.snapshot.table_uuid == table.snapshot.table_uuid
    assert (new.snapshot.kind, new.snapshot.totals.files) == ("overwrite", 0)
    assert new.scan().to_arrow().schema.equals(NEW)
    assert [field.id for field in new.schema.fields] == [3, 4]
    new.append(pa.table({"b": pa.array([7], pa.int32()), "day": pa.array([400], pa.date32())}))
    assert new.scan(filter="b = 7").count() == 1
    assert new.scan(filter="day < DATE '2000-01-01'").count() == 1
    assert new.scan(snapshot_id=1).to_arrow().to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    new.restore(1)
    assert new.scan().to_arrow().to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    assert new.verify(data=True).ok


def test_where_no_table_is_it_makes_one(table_path):
    assert Table.create(table_path, NEW, mode="overwrite").snapshot.id == 0
    with pytest.raises(InvalidArgumentError, match="'overwrite'"):
        Table.create(table_path, NEW, mode="replace")


def test_a_writer_of_the_old_table_does_not_append_to_the_new_one(table_path):
    """Its columns would all be missing: rows of nulls."""
    table = Table.create(table_path, OLD)
    with table.writer() as writer:
        writer.write(pa.table({"a": [1], "b": ["x"]}))
        messages = writer.prepare_commit()
    Table.create(table_path, OLD, mode="overwrite")
    with pytest.raises(CommitConflict, match="was dropped, and another one of its name"):
        table.commit(messages)
    assert Table.open(table_path).scan().count() == 0


def test_rows_that_come_meanwhile_go_too(table_path, monkeypatch):
    """An append between the look and the commit: the replacement is made again."""
    table = Table.create(table_path, OLD)
    real, calls = Commit._publish, []

    def late(*arguments, **keywords):
        if not calls:
            calls.append(1)
            table.append(pa.table({"a": [1], "b": ["x"]}))
        return real(*arguments, **keywords)

    monkeypatch.setattr(Commit, "_publish", late)
    new = Table.create(table_path, NEW, mode="overwrite")
    assert (new.snapshot.id, new.scan().count()) == (2, 0)
