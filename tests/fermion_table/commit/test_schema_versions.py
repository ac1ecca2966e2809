"""New versions of a schema: what commits of them refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import Table
from fermion_table.commit.commit import Commit

VIRTUAL = ["batch_id", "index_in_batch"]


@pytest.fixture
def table(table_path: Path) -> Table:
    """One batch."""
    made = Table.create(table_path, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    made.append_batch(1, {"a": [1], "b": [2]})
    return made


@pytest.mark.parametrize("name", VIRTUAL)
def test_bug_a_column_took_the_name_of_a_virtual_column_of_batches(table: Table, name: str) -> None:
    """No batch could be appended any more, and none be looked up."""
    before = table.snapshot.id
    with pytest.raises(InvalidArgumentError, match=f"column '{name}'.*virtual column of batches"):
        table.rename_column("b", name)
    with pytest.raises(InvalidArgumentError, match=f"column '{name}'"):
        table.add_columns(pa.schema({name: pa.int64()}))
    with pytest.raises(InvalidArgumentError, match=f"column '{name}'"):
        table.append({"a": [1], "b": [2], name: [3]}, schema_mode="merge")
    with pytest.raises(InvalidArgumentError, match=f"column '{name}'"):
        table.add_columns_with({name: "a"})
    assert table.refresh().id == before
    table.append_batch(2, {"a": [3], "b": [4]})
    assert table.lookup_batch(2).to_pydict() == {"a": [3], "b": [4]}


@pytest.mark.parametrize("name", VIRTUAL)
def test_tables_without_batches_may_have_columns_of_these_names(
    table_path: Path, name: str
) -> None:
    table = Table.create(table_path, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    table.append({"a": [1], "b": [2]})
    table.rename_column("b", name)
    table.append({"a": [3], name: [4]})
    assert table.scan().to_arrow().to_pydict() == {"a": [1, 3], name: [2, 4]}


@pytest.mark.parametrize("name", VIRTUAL)
@pytest.mark.parametrize("is_added", [False, True])
def test_bug_a_batch_was_appended_under_the_schema_from_before_a_column_had_such_a_name(
    table_path: Path, name: str, is_added: bool
) -> None:
    """By an object that is behind, by a transaction, and by the merge of a branch."""
    table = Table.create(table_path, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    table.branches.create("dev")
    Table.open(table_path, branch="dev").append_batch(1, {"a": [1], "b": [2]})
    behind = Table.open(table_path)
    transaction = Table.open(table_path).transaction()
    transaction.append_batches([(1, {"a": [1], "b": [2]})])
    if is_added:
        table.add_columns(pa.schema({name: pa.int64()}))
    else:
        table.rename_column("b", name)
    for appended in (
        lambda: behind.append_batch(1, {"a": [1], "b": [2]}),
        transaction.commit,
        lambda: table.branches.merge("dev"),
    ):
        with pytest.raises(FermionError, match=f"'{name}' has .*batch|b: int64: not in the table"):
            appended()
    assert table.refresh().totals.rows == 0


@pytest.mark.parametrize("name", VIRTUAL)
def test_a_batch_that_comes_meanwhile_stops_the_change_too(
    table_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the change was planned, and before its snapshot file is created."""
    table = Table.create(table_path, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    other, real = Table.open(table.location), Commit._publish

    def late(commit: Commit, *arguments: Any) -> Any:
        monkeypatch.setattr(Commit, "_publish", real)
        other.append_batch(1, {"a": [1], "b": [2]})
        return real(commit, *arguments)

    monkeypatch.setattr(Commit, "_publish", late)
    with pytest.raises(InvalidArgumentError, match=f"column '{name}'"):
        table.rename_column("b", name)
    assert other.refresh().id == 1
    assert Table.open(table.location).schema.names == ["a", "b"]
