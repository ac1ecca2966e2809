"""Branches with column files, merged into parents that have changed the schema, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion_table import CommitConflict, Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def branched(path: Path) -> tuple[Table, Table]:
    """A table of two files, and a branch of it that adds values; the parent adds columns."""
    table = Table.create(path, SCHEMA, durability="fast")
    table.append({"id": [0, 1, 2], "v": [0, 10, 20]})
    table.append({"id": [3], "v": [30]})
    table.branches.create("dev")
    return table, Table.open(path, branch="dev", durability="fast")


def add(table: Table, name: str, factor: int) -> None:
    table.add_columns_with(
        lambda rows: {name: pc.multiply(rows["v"], factor)},
        read=["v"],
        schema=pa.schema([(name, pa.int64())]),
    )


def rows(table: Table, *names: str) -> dict[int, Any]:
    found = table.scan(columns=["id", *names]).to_arrow().sort_by("id").to_pylist()
    return {row["id"]: tuple(row[name] for name in names) for row in found}


def test_both_sides_have_added_columns(tmp_path: Path) -> None:
    """Columns of the branch get other ids; values, nulls, pruning and later merges stay right."""
    table, dev = branched(tmp_path / "t")
    add(dev, "twice", 2)
    dev.append({"id": [4], "v": [40], "twice": [81]})
    dev.fill_columns({"id": [1, 4], "s": [{"a": 7}, {"a": 8}]}, on="id")
    dev.fill_columns({"id": [2], "v": [21]}, on="id")  # a column that was there before
    dev.delete("id = 0")
    table.add_columns({"plain": pa.string()})
    table.append({"id": [5], "v": [50], "plain": ["x"]})
    table.branches.merge("dev")
    table.refresh()
    assert table.schema.names == ["id", "v", "plain", "twice", "s"]
    assert rows(table, "v", "plain", "twice", "s") == {
        1: (10, None, 20, {"a": 7}),
        2: (21, None, 40, None),
        3: (30, None, 60, None),
        4: (40, None, 81, {"a": 8}),
        5: (50, "x", None, None),
    }
    assert table.scan(filter="twice = 40", columns=["id"]).to_arrow()["id"].to_pylist() == [2]
    assert table.scan(filter="s.a = 8").count() == 1
    assert table.verify(data=True).ok
    add(dev, "thrice", 3)
    add(table, "other", 5)
    with pytest.raises(CommitConflict, match=r"before an earlier merge|the branch has changed"):
        table.branches.merge("dev")
    before = rows(table, "v", "plain", "twice", "s", "other")
    table.compact(column_files_max=0)
    assert rows(table, "v", "plain", "twice", "s", "other") == before
    assert table.verify(data=True).ok


def test_columns_that_the_branch_renamed_and_dropped_later_are_merged(tmp_path: Path) -> None:
    """Column files keep the names and ids of the version that they were written with."""
    table, dev = branched(tmp_path / "t")
    add(dev, "twice", 2)
    add(dev, "gone", 7)
    dev.rename_column("twice", "double")
    dev.drop_columns(["gone"])
    dev.append({"id": [4], "v": [40], "double": [81]})
    with table.update_schema() as update:
        update.add_column("gone", pa.string(), default="kept")
    table.branches.merge("dev")
    table.refresh()
    before = rows(table, "double", "gone")
    assert before == {
        0: (0, "kept"), 1: (20, "kept"), 2: (40, "kept"), 3: (60, "kept"), 4: (81, "kept"),
    }  # fmt: skip
    assert table.scan(filter="double = 40").count() == 1
    table.compact(column_files_max=0)
    assert rows(table, "double", "gone") == before
    assert table.verify(data=True).ok
