"""A staged table whose commit is interrupted leaves neither a table nor files of its writers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.commit.commit import Commit
from fermion_table.engine import stage_table
from fermion_table.operations.transaction import Statement
from fermion_table.table import staged as staging

SCHEMA = pa.schema([("a", pa.int64())])


def interrupted(*arguments, **keywords):
    raise KeyboardInterrupt


def data_files(path):
    return sorted(Path(path).glob("data/**/*.fermion"))


def staged_rows(path, mode):
    staged = stage_table(path, SCHEMA, mode=mode)
    with staged.writer() as writer:
        writer.write({"a": [1]})
        return staged, writer.prepare_commit()


@pytest.mark.parametrize(
    ("owner", "step"), [(staging, "create_defined"), (Statement, "commit_written")]
)
def test_an_interrupted_creation_leaves_no_table_and_no_files(table_path, monkeypatch, owner, step):
    """Before the table is made, and between its creation and its first rows."""
    staged, messages = staged_rows(table_path, "create")
    monkeypatch.setattr(owner, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        staged.commit(messages)
    assert not Table.exists(table_path)
    assert not data_files(table_path)


@pytest.mark.parametrize("method", ["_refreshed", "_publish"])
def test_an_interrupted_replacement_leaves_the_old_rows_and_no_files(
    table_path, monkeypatch, method
):
    """Nothing was tried yet: before the request is made, and before it is published."""
    table = Table.create(table_path, SCHEMA)
    table.append({"a": [7, 8]})
    before = data_files(table_path)
    staged, messages = staged_rows(table_path, "replace")
    monkeypatch.setattr(Commit, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        staged.commit(messages)
    monkeypatch.undo()
    assert data_files(table_path) == before
    assert Table.open(table_path).scan().to_arrow()["a"].to_pylist() == [7, 8]
