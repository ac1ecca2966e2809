"""Differences of snapshots and of schemas: complete, told by ids, and readable."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.inspection.history_log import counted
from fermion_table.schema.difference import schema_changes
from fermion_table.storage.cache import shared_cache

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema({"a": pa.int32(), "b": pa.string(), "s": STRUCT})


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 and 2 append a row each."""
    made = Table.create(table_path, SCHEMA, durability="fast")
    append(made, 1)
    append(made, 2)
    return made


def append(table: Table, value: int) -> None:
    table.append(pa.table({"a": pa.array([value], pa.int32())}))


def test_files_rows_and_bytes_are_counted_both_ways(table: Table) -> None:
    forth, back = table.diff(1), table.diff(2, 1)
    assert (len(forth.files_added), forth.rows_added) == (1, 1)
    assert (forth.files_removed, forth.rows_removed, forth.bytes_removed) == ((), 0, 0)
    assert forth.bytes_added == forth.files_added[0].size > 0
    assert back.files_removed == forth.files_added
    assert back.rows().to_arrow()["_change_type"].to_pylist() == ["delete"]
    assert (forth.before.id, forth.after.id) == (1, 2)


def test_equal_snapshots_do_not_differ(table: Table) -> None:
    assert table.diff(2).is_empty
    assert "no difference" in str(table.diff(2))
    assert not table.diff(1).is_empty
    append(table, 3)
    table.restore(2)
    assert table.diff(2).is_empty


def test_a_compaction_differs_in_files_but_not_in_rows(table: Table) -> None:
    table.compact()
    difference = table.diff("main~1")
    assert (len(difference.files_added), len(difference.files_removed)) == (1, 2)
    assert difference.rows().count() == 0


def test_rows_of_a_difference_take_columns_and_a_filter(table: Table) -> None:
    rows = table.diff(0).rows(columns=["a"], filter="a > 1").to_arrow()
    assert rows["a"].to_pylist() == [2]
    assert rows["_commit_version"].to_pylist() == [2]
    assert rows.num_columns == 4


def test_a_difference_reads_well(table: Table) -> None:
    append(table, 3)
    table.rename_column("b", "c")
    table.compact()
    lines = str(table.diff(2)).splitlines()
    assert lines[:2] == ["snapshot 2 -> snapshot 5", "  ~ c: b -> c"]
    assert lines[2].startswith("  - 2 files, 2 rows, ")
    assert lines[5].startswith("  + 1 file, 3 rows, ")
    assert "data/" in lines[3]
    assert repr(table.diff(2)) == (
        "<TableDiff of snapshots 2 and 5: 1 files added, 2 removed, 1 schema changes>"
    )


def test_long_lists_of_files_are_cut(table: Table) -> None:
    for value in range(12):
        append(table, value)
    assert str(table.diff(0)).splitlines()[-1] == "    and 4 more"


def test_branches_can_be_compared(table: Table) -> None:
    table.branches.create("dev")
    dev = Table.open(table.location, branch="dev", durability="fast")
    append(dev, 100)
    append(table, 3)
    difference = table.diff("main", "dev")
    assert (len(difference.files_added), len(difference.files_removed)) == (1, 1)
    changes = difference.rows(columns=["a"]).to_arrow()
    assert changes.select(["a", "_change_type"]).to_pylist() == [
        {"a": 3, "_change_type": "delete"},
        {"a": 100, "_change_type": "insert"},
    ]
    dev.add_columns({"d": pa.int8()})
    assert table.diff("main", "dev").rows().count() == 2
    with pytest.raises(InvalidArgumentError, match="does not descend"):
        table.diff("dev", "main").rows()
    assert [str(change) for change in table.diff("dev", "main").schema_changes] == ["- d: int8"]


def changes_of(table: Table, before: int = 2) -> list[str]:
    return [str(change) for change in table.diff(before).schema_changes]


def test_every_schema_change_is_told(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("new", pa.float64())
        update.add_column("must", pa.int64(), nullable=False, default=0)
        update.rename_column("a", "first")
        update.alter_column("first", type=pa.int64())
        update.drop_column("b")
        update.add_column(("s", "z"), pa.bool_())
        update.drop_column(("s", "x"))
        update.alter_column(("s", "y"), comment="why")
    table.set_properties({"target_file_size": "64MB"})
    assert changes_of(table) == [
        "- b: string",
        "- s.x: int32",
        "~ first: a -> first",
        "~ first type: int32 -> int64",
        "~ s.y comment: None -> 'why'",
        "+ s.z: bool",
        "+ new: double",
        "+ must: int64 not null",
        "~ target_file_size property: None -> 64MB",
    ]


def test_a_column_dropped_and_added_again_is_another_one(table: Table) -> None:
    table.drop_columns(["b"])
    table.add_columns({"b": pa.string()})
    assert changes_of(table) == ["- b: string", "+ b: string"]


def test_a_struct_is_added_and_dropped_as_a_whole(table: Table) -> None:
    table.drop_columns(["s"])
    table.add_columns({"t": STRUCT})
    assert [change.split(":")[0] for change in changes_of(table)] == ["- s", "+ t"]


def test_order_defaults_and_nulls_are_told(table_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    table = Table.create(table_path, schema, durability="fast")
    with table.update_schema() as update:
        update.move_first("b")
        update.alter_column("a", nullable=True)
        update.alter_column("a", default=5)
    assert changes_of(table, 0) == [
        "~ a nullable: not null -> null",
        "~ a default: None -> 5",
        "~  order: a, b -> b, a",
    ]
    older = Table.open(table.location, version=0).schema
    assert schema_changes(table.schema, table.schema) == ()
    assert len(schema_changes(table.schema, older)) == 3


def test_the_history_prints_as_a_log(table: Table) -> None:
    table.append(pa.table({"a": pa.array([1] * 1000, pa.int32())}), message="many\nrows")
    table.compact()
    log = table.history()
    assert [row["id"] for row in log] == [4, 3, 2, 1, 0]
    assert log[1]["rows_added"] == 1000
    text = str(log)
    assert "append  +1,000 rows in 1 file = 1,002 rows in 3 files" in text
    assert "\n    many\n    rows\n" in text
    assert "compact  +1,002 rows in 1 file, -1,002 rows in 3 files = 1,002 rows in 1 file" in text
    assert "create  no files = 0 rows in 0 files" in text
    assert str(table.history(limit=1)).startswith("snapshot 4  2")
    assert len(table.history(limit=2)) == 2


def test_the_history_names_the_columns_and_properties_that_a_commit_changed(
    table_path: Path,
) -> None:
    """By the schemas of neighbours, and by the column files of what was filled."""
    table = Table.create(table_path, pa.table({"id": [1, 2], "p": [1.0, 2.0]}), durability="fast")
    table.add_columns_with({"x": "p * 2"})
    table.fill_columns(pa.table({"id": [1, 2], "x": [5.0, 6.0]}), on=["id"], columns=["x"])
    with table.update_schema() as update:
        update.add_column("a", pa.int64())
        update.add_column("b", STRUCT)
        update.rename_column("p", "price")
        update.alter_column("id", comment="of a person")
        update.set_properties({"target_file_size": "64MB", "team.owner": "me"})
    table.drop_columns(["a"])
    table.set_properties({}, remove=["team.owner"])
    table.append(pa.table({"id": [3], "more": ["m"]}), schema_mode="merge")
    said = {row["id"]: row["changes"] for row in table.history()}
    assert said == {
        0: [],
        1: [],
        2: ["add column x"],
        3: ["fill column x"],
        4: [
            "comment on id",
            "rename p to price",
            "add columns a, b",
            "set target_file_size, team.owner",
        ],
        5: ["drop column a"],
        6: ["unset team.owner"],
        7: ["add column more"],
    }
    text = str(table.history())
    assert "upsert  fill column x = 2 rows in 1 file" in text
    assert "append  add column more, +1 row in 1 file = 3 rows in 2 files" in text
    assert "upsert  no files" not in text
    assert "<td style='text-align:left'>drop column a</td>" in table.history()._repr_html_()
    table.restore(3)
    assert table.history(limit=1)[0]["changes"][0] == "drop columns b, more"


def test_a_history_of_many_columns_and_of_lost_schemas_is_short_and_there(table_path: Path) -> None:
    """Names of thousands of columns are counted; a schema that is gone costs its names alone."""
    table = Table.create(table_path, pa.schema({"id": pa.int64()}), durability="fast")
    table.add_columns(dict.fromkeys(map("c{}".format, range(3_000)), pa.int8()))
    (added,) = table.history()[0]["changes"]
    assert added.startswith("add columns c0, c1, ")
    assert added.endswith("c9, ... 2,990 more")
    table.drop_columns(["c1"])
    (table_path / table.schema.ancestors[-1].path).unlink()
    shared_cache.clear()
    lost = Table.open(table_path).history()
    assert [row["id"] for row in lost] == [2, 1, 0]
    assert lost[0]["changes"] == ["columns that can't be read"]


def test_things_are_counted_in_words() -> None:
    assert [counted(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
