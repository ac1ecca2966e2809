"""NOT NULL columns of tables with a primary key are never null, whatever rows are merged to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table

COLUMNS = [pa.field("id", pa.int64()), pa.field("g", pa.int64()), pa.field("w", pa.int64())]


def make(path: Path, *, nullable: bool, **properties: str) -> Table:
    """Return a table of the columns id, g, w and v."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    schema = pa.schema([*COLUMNS, pa.field("v", pa.int64(), nullable=nullable)])
    return Table.create(path, schema, primary_key="id", properties=named, durability="fast")


def test_columns_of_a_sequence_group_are_nullable(table_path):
    """They are null after a deletion, and where the sequence is null."""
    settings = {"merge_engine": "partial_update", "fields__g__sequence_group": "v"}
    with pytest.raises(InvalidArgumentError, match="'v' is NOT NULL: columns of a sequence group"):
        make(table_path, nullable=False, **settings)
    assert not table_path.exists()
    table = make(table_path, nullable=True, **settings)
    with pytest.raises(InvalidArgumentError, match="'v' is NOT NULL: columns of a sequence group"):
        table.alter_column("v", nullable=False)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"fields__v__aggregate_function": "last_value"}, True),
        ({}, True),
        ({"fields__v__aggregate_function": "max", "fields__v__ignore_retract": "true"}, True),
        ({"fields__v__aggregate_function": "last_value", "ignore_delete": "true"}, False),
        ({"fields__v__aggregate_function": "sum"}, False),
    ],
)
def test_rows_are_not_taken_back_that_would_leave_no_value(table_path, settings, refused):
    """Else neither a scan nor a compaction could give the row."""
    table = make(table_path, nullable=False, merge_engine="aggregation", **settings)
    table.upsert({"id": [1], "v": [5]})
    changes = {"id": [1], "v": [2], "op": ["-U"]}
    if refused:
        with pytest.raises(InvalidArgumentError, match="column 'v' is NOT NULL"):
            table.upsert(changes, change_type="op")
        assert table.snapshot.id == 1
    else:
        table.upsert(changes, change_type="op")
    table.compact(full=True)
    assert None not in table.scan(columns=["v"]).to_arrow()["v"].to_pylist()


def test_rows_that_were_taken_back_before_a_column_became_not_null(table_path):
    """Files of a writer that did not know are refused; those without retractions are taken."""
    table = make(table_path, nullable=True, merge_engine="aggregation")
    table.upsert({"id": [1], "g": [1], "w": [1], "v": [5]})
    messages = []
    for kind in ("+I", "-D"):
        with table.writer() as writer:
            writer.write({"id": [1], "g": [1], "w": [1], "v": [5], "op": [kind]}, "op")
            messages.append(writer.prepare_commit())
    table.alter_column("v", nullable=False)
    table.commit(messages[0])
    with pytest.raises(CommitConflict, match="'v' is NOT NULL now, and last_non_null_value"):
        table.commit(messages[1])


def test_columns_and_the_properties_that_name_them_change_together(table_path):
    """The message of a change of columns alone says how."""
    table = make(
        table_path,
        nullable=True,
        merge_engine="aggregation",
        sequence__field="g",
        fields__default_aggregate_function="max",
        fields__v__aggregate_function="sum",
    )
    table.upsert({"id": [1], "g": [1], "w": [1], "v": [5]})
    with pytest.raises(InvalidArgumentError, match=r"table\.update_schema\(\)"):
        table.drop_columns(["v"])
    with pytest.raises(InvalidArgumentError, match=r"max of column 'n'.*|have no order|expected"):
        table.add_columns({"n": pa.list_(pa.int64())})
    with table.update_schema() as update:
        update.rename_column("v", "total")
        update.set_properties(
            {"fields.total.aggregate_function": "sum", "fields.n.aggregate_function": "last_value"},
            remove=["fields.v.aggregate_function"],
        )
        update.add_column("n", pa.list_(pa.int64()))
    table.upsert({"id": [1], "g": [2], "w": [0], "total": [2], "n": [[1]]})
    found = {"id": 1, "g": 2, "w": 1, "total": 7, "n": [1]}
    assert table.scan().to_arrow().to_pylist() == [found]
    with pytest.raises(InvalidArgumentError, match="can't change from sum to max, as"):
        table.set_properties({"fields.total.aggregate_function": "max"})


STAYING: dict[str, dict[str, str]] = {
    "deduplicate": {"sequence__field": "g"},
    "partial_update": {"fields__g__sequence_group": "w"},
    "aggregation": {
        "sequence__field": "g",
        "fields__default_aggregate_function": "last_value",
        "aggregation__remove_record_on_delete": "true",
    },
}
"""Settings with which deletions stay, as late rows may follow."""


@pytest.mark.parametrize("engine", STAYING)
def test_deletions_that_hold_nulls_are_compacted_after_their_column_became_not_null(
    engine, table_path
):
    """They stay: rows with a smaller sequence may follow. The null is in no row that is shown."""
    table = make(table_path, nullable=True, merge_engine=engine, **STAYING[engine])
    table.upsert({"id": [1, 2], "g": [1, 1], "w": [1, 1], "v": [5, 6]})
    table.delete_keys([(1, 2)])
    assert table.alter_column("v", nullable=False).kind == "schema"
    wanted = table.scan().to_arrow().sort_by("id")
    table.compact(full=True)
    assert table.scan().to_arrow().sort_by("id").equals(wanted)
    assert table.verify(data=True).ok
    table.upsert({"id": [1], "g": [1], "w": [1], "v": [7]})  # late
    assert table.scan(filter="id = 2").count() == 1


def test_a_deletion_without_a_sequence_keeps_it_from_becoming_not_null(table_path):
    """Any other value would be another place among the rows of its key."""
    table = make(table_path, nullable=True, sequence__field="g")
    table.upsert({"id": [1], "g": [None], "w": [1], "v": [5], "op": ["-D"]}, change_type="op")
    table.upsert({"id": [2], "g": [-1], "w": [1], "v": [5]})
    with pytest.raises(InvalidArgumentError, match="'g' can't become NOT NULL"):
        table.alter_column("g", nullable=False)
    table.compact(full=True)
    assert table.scan().count() == 1


def test_nulls_of_rows_that_stay_apart_keep_a_column_from_becoming_not_null(table_path):
    """A retraction of the key keeps them as they are, until a compaction takes the oldest run."""
    table = make(
        table_path,
        nullable=True,
        merge_engine="aggregation",
        num_sorted_run__compaction_trigger="2",
    )
    table.upsert({"id": list(range(1000)), "g": [1] * 1000, "w": [1] * 1000, "v": [1] * 1000})
    table.compact(full=True)
    table.upsert({"id": [1], "g": [None], "w": [1], "v": [None]})
    table.upsert({"id": [1], "g": [1], "w": [1], "v": [1], "op": ["-D"]}, change_type="op")
    table.upsert({"id": [1], "g": [1], "w": [1], "v": [5]})
    assert table.scan(filter="v IS NULL").count() == 0
    with pytest.raises(InvalidArgumentError, match="'v' can't become NOT NULL"):
        table.alter_column("v", nullable=False)
    table.compact(full=True)
    table.alter_column("v", nullable=False)
    table.compact(full=True)
    assert table.scan(filter="id = 1", columns=["v"]).to_arrow()["v"].to_pylist() == [5]
