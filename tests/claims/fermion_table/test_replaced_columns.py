"""A column dropped and added again is another one: what was written for the first is no value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import CommitConflict, Table
from fermion_table.writing.data_writer import DataWriter

SCHEMA = pa.schema({"a": pa.int64(), "x": pa.int64()})
ROWS = {"a": [1, 2], "x": [10, 20]}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", SCHEMA, durability="fast")


def drop_and_add(table: Table) -> None:
    other = Table.open(table.location)
    other.drop_columns("x")
    other.add_columns({"x": pa.int64()})


def rename_over(table: Table) -> None:
    other = Table.open(table.location)
    other.add_columns({"y": pa.int64()})
    other.drop_columns("x")
    other.rename_column("y", "x")


def swap_names(table: Table) -> None:
    with Table.open(table.location).update_schema() as update:
        update.rename_column("x", "z").rename_column("a", "x").rename_column("z", "a")


def data_files(table: Table) -> list[str]:
    return [item.path for item in table.store.list("data")]


@pytest.mark.parametrize("change", [drop_and_add, rename_over])
def test_a_writer_conflicts_with_a_column_dropped_and_added_again(
    table: Table, change: Callable[[Table], None]
) -> None:
    """Its messages are refused by the column's name, published is nothing, and its files go."""
    with table.writer() as writer:
        writer.write(ROWS)
        messages = writer.prepare_commit()
    change(table)
    with pytest.raises(CommitConflict, match="column 'x' was dropped"):
        table.commit(messages)
    table.refresh()
    assert table.scan().count() == 0
    assert data_files(table) == []
    table.append(ROWS)
    assert table.scan(columns=["x"]).to_arrow()["x"].to_pylist() == [10, 20]


def test_a_transaction_conflicts_with_a_column_dropped_and_added_again(table: Table) -> None:
    """Alone, and beside a delete, for which everything is done again on the new snapshot."""
    table.append({"a": [7], "x": [70]})
    for filter in (None, "a = 7"):
        transaction = table.transaction()
        transaction.append(ROWS)
        if filter is not None:
            transaction.delete(filter)
        drop_and_add(table)
        with pytest.raises(CommitConflict, match="column 'x' was dropped"):
            transaction.commit()
    table.refresh()
    assert table.scan().to_arrow().to_pylist() == [{"a": 7, "x": None}]
    assert len(data_files(table)) == 1


def test_a_dropped_and_added_field_of_a_struct_conflicts(tmp_path: Path) -> None:
    nested = pa.struct({"b": pa.int64(), "x": pa.int64()})
    table = Table.create(tmp_path / "t", pa.schema({"s": nested}), durability="fast")
    with table.writer() as writer:
        writer.write({"s": [{"b": 1, "x": 10}]})
        messages = writer.prepare_commit()
    with Table.open(table.location).update_schema() as update:
        update.drop_column("s.x")
        update.add_column(("s", "x"), pa.int64())
    with pytest.raises(CommitConflict, match=r"column 's\.x' was dropped"):
        table.commit(messages)


@pytest.mark.parametrize("change", [drop_and_add, rename_over, swap_names])
@pytest.mark.parametrize("way", ["commit", "transaction"])
def test_an_append_that_merges_conflicts_with_a_column_replaced_by_another(
    table: Table, change: Callable[[Table], None], way: str
) -> None:
    """Files that bring a new column are matched by name, but only where the ids are the same."""
    data = pa.table({**ROWS, "new": [5, 6]})
    merge = table.plan_merge(data.schema)
    with DataWriter(table.store, merge.schema) as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    transaction = table.transaction()
    change(table)

    def publish() -> Any:
        if way == "commit":
            return table.commit(messages, merge=merge)
        transaction.overwrite_written(messages, merge=merge)
        return transaction.commit()

    with pytest.raises(CommitConflict, match=r"column '[ax]' was changed by another commit"):
        publish()
    table.refresh()
    assert table.scan().count() == 0
    table.append(data, schema_mode="merge")
    assert table.scan().to_arrow().select(["a", "x", "new"]).to_pydict() == data.to_pydict()


def test_two_appends_that_add_the_same_column_both_land(table: Table) -> None:
    """The ids of the added column differ; those of the others do not."""
    data = pa.table({**ROWS, "new": [5, 6]})
    merge = table.plan_merge(data.schema)
    with DataWriter(table.store, merge.schema) as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    Table.open(table.location).add_columns({"first": pa.int64(), "new": pa.int64()})
    table.commit(messages, merge=merge)
    assert table.scan().to_arrow()["new"].to_pylist() == [5, 6]


def test_a_column_that_was_only_dropped_is_no_conflict(table: Table) -> None:
    with table.writer() as writer:
        writer.write(ROWS)
        messages = writer.prepare_commit()
    Table.open(table.location).drop_columns("x")
    table.commit(messages)
    assert table.scan().to_arrow().to_pydict() == {"a": [1, 2]}
