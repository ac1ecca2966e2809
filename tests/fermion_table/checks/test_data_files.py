"""`verify(data=True)` finds nulls in NOT NULL columns, which other software may have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.table import column_changes


def required(table: Table, column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a column NOT NULL whatever its rows are, as software without the check does."""
    with monkeypatch.context() as patch:
        patch.setattr(column_changes.LiveValues, "have_nulls", lambda *arguments: False)
        table.alter_column(column, nullable=False)


def problems(table: Table) -> list[str]:
    return [str(each) for each in table.verify(data=True).problems]


CHILD = pa.struct([pa.field("a", pa.int64())])


@pytest.mark.parametrize("key", [None, "id"])
def test_a_null_in_a_not_null_column_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Told by the snapshot and the column; older snapshots, of which it is none, are left alone."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("s", CHILD)])
    table = Table.create(tmp_path / "t", schema, primary_key=key, durability="fast")
    first: dict[str, Any] = {"id": [1, 2], "v": [1, None], "w": [1, 2], "s": [{"a": 1}, None]}
    table.append(first)
    table.append({"id": [3], "v": [3], "w": [3], "s": [{"a": None}]})
    required(table, "w", monkeypatch)
    assert problems(table) == []
    required(table, "v", monkeypatch)
    path = f"snapshot/{table.snapshot.id:020d}.json"
    assert problems(table) == [
        f"{path}: expected no null in column 'v', which is NOT NULL, found a null"
    ]
    table.branches.create("dev")
    assert len(problems(table)) == 1  # the branch has the same snapshot
    table.delete("v IS NULL") if key is None else table.delete_keys([2])
    assert len(problems(table)) == 1  # of the branch
    table.branches.delete("dev")
    assert problems(table) == []


def test_a_null_in_a_struct_is_found_unless_the_struct_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("s", CHILD)]), durability="fast")
    table.append({"s": [{"a": 1}, None]})
    with monkeypatch.context() as patch:
        patch.setattr(column_changes.LiveValues, "have_nulls", lambda *arguments: False)
        table.alter_column(("s", "a"), nullable=False)
    assert problems(table) == []
    table = Table.create(tmp_path / "u", pa.schema([("s", CHILD)]), durability="fast")
    table.append({"s": [{"a": 1}, {"a": None}]})
    with monkeypatch.context() as patch:
        patch.setattr(column_changes.LiveValues, "have_nulls", lambda *arguments: False)
        table.alter_column(("s", "a"), nullable=False)
    assert ["column 's.a'" in each for each in problems(table)] == [True]
