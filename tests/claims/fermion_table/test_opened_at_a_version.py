"""A table opened at a tag or an old snapshot reads; it does not write to the newest one."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema({"a": pa.int64()})
FUTURE = datetime.datetime(2200, 1, 1)

WRITES: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append({"a": [9]}),
    "append nothing": lambda t: t.append([]),
    "append and merge": lambda t: t.append({"a": [9], "b": [1]}, schema_mode="merge"),
    "append_batch": lambda t: t.append_batch(1, {"a": [9]}),
    "append_batches": lambda t: t.append_batches([(1, {"a": [9]})]),
    "writer": lambda t: t.writer(),
    "commit": lambda t: t.commit([]),
    "plan_merge": lambda t: t.plan_merge(pa.schema({"b": pa.int64()})),
    "transaction": lambda t: t.transaction(),
    "overwrite": lambda t: t.overwrite({"a": [9]}),
    "delete": lambda t: t.delete("a = 1"),
    "update": lambda t: t.update("a = 1", {"a": 9}),
    "update_schema": lambda t: t.update_schema(),
    "add_columns": lambda t: t.add_columns({"b": pa.int64()}),
    "drop_columns": lambda t: t.drop_columns("b"),
    "rename_column": lambda t: t.rename_column("a", "b"),
    "alter_column": lambda t: t.alter_column("a", comment="c"),
    "set_properties": lambda t: t.set_properties({"k.k": "v"}),
    "compact": lambda t: t.compact(),
    "compact, dry run": lambda t: t.compact(dry_run=True),
    "commit_compaction": lambda t: t.commit_compaction([], t.snapshot),
    "restore": lambda t: t.restore(1),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    for value in (1, 2, 3):
        made.append({"a": [value]})
    made.tags.create("v1", version=1)
    made.branches.create("dev", version=2)
    return made


@pytest.mark.parametrize("version", ["v1", 1, "1", 3, "main~1", "main~0", FUTURE])
@pytest.mark.parametrize("write", WRITES)
def test_a_table_opened_at_a_version_refuses_to_write(
    table: Table, write: str, version: Any
) -> None:
    """Also at the id that happens to be the newest; it still shows its snapshot, and says how."""
    opened = Table.open(table.location, version=version)
    seen = opened.snapshot.id
    before = [item.path for item in table.store.list()]
    with pytest.raises(InvalidArgumentError, match=r"without version=.*branches\.create") as caught:
        WRITES[write](opened)
    assert repr(version) in str(caught.value)
    assert opened.snapshot.id == seen
    assert [item.path for item in table.store.list()] == before


@pytest.mark.parametrize("how", ["at a branch", "refreshed"])
@pytest.mark.parametrize("write", WRITES)
def test_a_table_opened_at_a_branch_or_refreshed_writes(table: Table, write: str, how: str) -> None:
    """No method is refused there; `refresh` moves to the latest snapshot of the branch."""
    if write == "drop_columns":
        table.add_columns({"b": pa.int64()})
    opened = Table.open(table.location, version="v1" if how == "refreshed" else "main")
    if how == "refreshed":
        assert opened.refresh().id == table.snapshot.id
    WRITES[write](opened)


def test_rows_appended_to_a_branch_named_as_version_go_there(table: Table) -> None:
    branch = Table.open(table.location, version="dev")
    branch.append({"a": [9]})
    assert branch.branch == "dev"
    assert branch.scan().to_arrow()["a"].to_pylist() == [1, 2, 9]
    assert Table.open(table.location).scan().to_arrow()["a"].to_pylist() == [1, 2, 3]


def test_reading_naming_and_maintenance_work_at_a_version(table: Table, tmp_path: Path) -> None:
    """What the message advises works too: a branch that begins there, opened, takes rows."""
    opened = Table.open(table.location, version="v1")
    assert opened.scan().count() == 1
    assert opened.verify().ok
    assert opened.clone(tmp_path / "clone").append({"a": [5]}).id == 2
    opened.tags.create("v1b")
    opened.branches.create("fix")
    assert Table.open(table.location, branch="fix").append({"a": [7]}).id == 2
    table.branches.create("next")
    Table.open(table.location, branch="next").append({"a": [8]})
    assert opened.branches.fast_forward("next").id == 4
    assert opened.snapshot.id == 1
    assert opened.remove_orphan_files().paths == ()
