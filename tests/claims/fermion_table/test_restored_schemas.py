"""Writers that began before a restore brought an earlier schema back lose and break nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion_table import CommitConflict, Table
from fermion_table.engine import compact_group


def reopened(table: Table) -> Table:
    return Table.open(table.location, durability="fast")


def rows(table: Table) -> list[dict]:
    found = reopened(table)
    assert found.verify(data=True).ok
    return sorted(found.scan().to_arrow().to_pylist(), key=str)


def widened_table(path, before: pa.DataType, after: pa.DataType, value) -> Table:
    """Snapshot 1 has a row of the narrow type, 2 widens it."""
    table = Table.create(path, pa.schema({"a": before, "k": pa.int64()}), durability="fast")
    table.append(pa.table({"a": pa.array([value], before), "k": [1]}))
    with table.update_schema() as update:
        update.alter_column("a", type=after)
    return table


TYPES = {
    "int": (pa.int32(), pa.int64(), 1, 2**40),
    "float": (pa.float32(), pa.float64(), 0.5, 0.1),
    "decimal": (pa.decimal128(4, 2), pa.decimal128(9, 2), 1, 100_000),
    "text": (pa.string(), pa.large_string(), "a", "b"),
    "time": (pa.timestamp("ms"), pa.timestamp("us"), 1, 1001),
    "list": (pa.list_(pa.int8()), pa.list_(pa.int16()), [1], [1000]),
    "struct": (pa.struct({"x": pa.int8()}), pa.struct({"x": pa.int16()}), {"x": 1}, {"x": 999}),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("how", ["transaction", "messages", "race"])
def test_an_append_of_a_wider_type_does_not_follow_a_restore(name, how, table_path):
    """It fails before it is published: no reader could read its values as the narrow type."""
    before, after, value, wide = TYPES[name]
    table = widened_table(table_path, before, after, value)
    data = pa.table({"a": pa.array([wide], after), "k": [2]})
    transaction = table.transaction()
    transaction.append(data)
    with table.writer() as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    reopened(table).restore(1)
    expected = rows(table)
    commits = {
        "transaction": transaction.commit,
        "messages": lambda: reopened(table).commit(messages),
        "race": lambda: table.commit(messages),
    }
    with pytest.raises(CommitConflict, match=r"column 'a.*and the new files hold"):
        commits[how]()
    assert rows(table) == expected


def test_an_append_of_nulls_only_follows_a_restore(table_path):
    table = widened_table(table_path, pa.int32(), pa.int64(), 1)
    transaction = table.transaction()
    transaction.append(pa.table({"a": pa.array([None], pa.int64()), "k": [2]}))
    reopened(table).restore(1)
    transaction.commit()
    assert rows(table) == [{"a": 1, "k": 1}, {"a": None, "k": 2}]


def test_a_compaction_does_not_lose_a_column_that_a_restore_brings_back(table_path):
    """Planned and rewritten while the column was dropped, committed after it came back."""
    table = Table.create(table_path, pa.schema({"a": pa.int64(), "b": pa.string()}))
    for number in range(4):
        table.append({"a": [number], "b": [str(number)]})
    expected = rows(table)
    with table.update_schema() as update:
        update.drop_column("b")
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction()]
    reopened(table).restore(4)
    result = reopened(table).commit_compaction(messages, base)
    assert (result.groups, result.groups_dropped) == (1, 1)
    assert rows(table) == expected
    assert reopened(table).compact().groups_dropped == 0
    assert rows(table) == expected


def test_a_compaction_follows_a_restore_that_leaves_the_schema(table_path):
    """Only groups whose files it removed are dropped."""
    table = Table.create(table_path, pa.schema({"a": pa.int64()}))
    for number in range(4):
        table.append({"a": [number]})
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction()]
    table.append({"a": [9]})
    reopened(table).restore(4)
    assert reopened(table).commit_compaction(messages, base).groups_dropped == 0
    assert rows(table) == [{"a": number} for number in range(4)]
