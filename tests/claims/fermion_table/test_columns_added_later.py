"""Columns of aggregated tables that are newer than retractions which are not compacted yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table
from fermion_table.scanning.live_values import LiveValues
from fermion_table.schema.field_functions import FUNCTIONS, RETRACTABLE

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
REMOVAL = {"aggregation.remove_record_on_delete": "true"}
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "listagg": (pa.string(), "a"),
    "bool_and": (pa.bool_(), True),
    "bool_or": (pa.bool_(), True),
    "collect": (pa.list_(pa.int64()), [5]),
    "merge_map": (pa.map_(pa.string(), pa.int64()), [("a", 5)]),
    "nested_update": (pa.list_(pa.struct({"i": pa.int64()})), [{"i": 5}]),
    "rbm64": (pa.binary(), None),
}
"""Types of columns by function, and a value; of others an integer."""
COUNTING = ("sum", "product", "listagg", "collect", "nested_update")


def make(path: Path, **properties: str) -> Table:
    """Return a table that sums v: a key that was taken back, one that never was there, one left."""
    settings = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum", **properties}
    table = Table.create(path, SCHEMA, primary_key="k", properties=settings, durability="fast")
    change(table, [(1, 3, "+I"), (3, 4, "+I")])
    change(table, [(1, 3, "-U"), (2, 5, "-U")])
    return table


def change(table: Table, rows: list[tuple[int, int, str]], **words: Any) -> None:
    keys, values, kinds = zip(*rows, strict=True)
    table.upsert({"k": keys, "v": values, "op": kinds}, change_type="op", **words)


def add(table: Table, function: str | None = None, **words: Any) -> None:
    """Add the column m."""
    dtype, _ = TYPES.get(function or "", (pa.int64(), 5))
    with table.update_schema() as update:
        if function is not None:
            update.set_properties({"fields.m.aggregate_function": function})
        update.add_column("m", dtype, **words)


def rows_of(table: Table) -> list[Any]:
    """Return the rows in the order of keys; scans, lookups and counts agree on them."""
    found = table.scan().to_arrow().sort_by("k")
    assert table.lookup([1, 2, 3]).equals(found)
    assert table.scan().count() == found.num_rows
    return found.to_pylist()


def compact(table: Table) -> None:
    table.compact(full=True)


def nothing(table: Table) -> None:
    """Leave the runs as they are."""


TIMES = {
    "never": (nothing, nothing, nothing),
    "before the column": (compact, nothing, nothing),
    "after the column": (nothing, compact, nothing),
    "after the next rows": (nothing, nothing, compact),
}


def of_all_times(folder: Path, history: Callable[[Table], None], **properties: str) -> list[Any]:
    """Return the rows after a column was added and written, which compaction does not change."""
    results = []
    for number, (before, between, after) in enumerate(TIMES.values()):
        table = make(folder / str(number), **properties)
        before(table)
        history(table)
        between(table)
        results.append([rows_of(table)])
        dtype = table.schema.by_name["m"].type
        given = next((value for each, value in TYPES.values() if each == dtype), 5)
        table.upsert(pa.table({"k": [1, 2], "m": pa.array([given, given], dtype)}))
        after(table)
        results[-1].append(rows_of(table))
    assert all(each == results[0] for each in results), results
    return results[0]


@pytest.mark.long
@pytest.mark.parametrize("properties", [{}, REMOVAL])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_retraction_has_no_value_of_a_column_that_was_added_after_it(
    function, properties, table_path
):
    first, _ = of_all_times(table_path, lambda table: add(table, function), **properties)
    assert [row["m"] for row in first] == [None] * 3
    assert [row["v"] for row in first] == [0, -5, 4]


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("function", sorted(FUNCTIONS.keys() - RETRACTABLE - {"listagg", "rbm64"}))
def test_older_rows_have_the_default_of_a_column_whose_function_takes_nothing_back(
    function, nullable, table_path
):
    """Also a key of retractions alone, and the column may be NOT NULL."""
    default = TYPES.get(function, (None, 7))[1]

    def history(table: Table) -> None:
        add(table, function, default=default, nullable=nullable)

    first, _ = of_all_times(table_path, history)
    assert [row["m"] for row in first] == [default] * 3


@pytest.mark.parametrize("nullable", [True, False])
def test_a_default_that_older_retractions_leave_open_is_refused_until_they_are_compacted(
    nullable, table_path
):
    """What the message says helps; without it a scan would show the default or null."""
    table = make(table_path)
    version = table.snapshot.id
    with pytest.raises(InvalidArgumentError, match=r"'m'.*compact\(full=True\) first, or add"):
        add(table, default=7, nullable=nullable)
    assert table.refresh().id == version
    table.compact(full=True)
    add(table, default=7, nullable=nullable)
    assert [row["m"] for row in rows_of(table)] == [7, 7, 7]
    table.compact(full=True)
    assert [row["m"] for row in rows_of(table)] == [7, 7, 7]


def test_a_default_beside_retractions_that_stay_is_refused_and_the_message_promises_nothing(
    table_path,
):
    """With sequence fields no compaction drops them."""
    schema = SCHEMA.append(pa.field("s", pa.int64()))
    settings = {"fields.v.aggregate_function": "sum", "sequence.field": "s"}
    table = Table.create(
        table_path,
        schema,
        primary_key="k",
        properties={"merge_engine": "aggregation", **settings},
        durability="fast",
    )
    table.upsert({"k": [1, 2], "v": [3, 4], "s": [1, 1]})
    table.upsert({"k": [1], "v": [3], "s": [2], "op": ["-D"]}, change_type="op")
    table.compact(full=True)
    with pytest.raises(InvalidArgumentError, match="when they are; add the column without"):
        add(table, "last_value", default=7)
    add(table, "last_value")
    table.compact(full=True)
    assert [row["m"] for row in rows_of(table)] == [None] * 2


def test_deletions_that_remove_rows_leave_no_default_open(table_path):
    table = Table.create(
        table_path,
        SCHEMA,
        primary_key="k",
        properties={"merge_engine": "aggregation", **REMOVAL},
        durability="fast",
    )
    table.upsert({"k": [1, 2], "v": [1, 2]})
    table.delete_keys([1])
    add(table, default=7)
    assert rows_of(table) == [{"k": 2, "v": 2, "m": 7}]
    change(table, [(2, 2, "-U")])
    with pytest.raises(InvalidArgumentError, match="'n'"):
        table.add_columns({"n": pa.int64()}, defaults={"n": 1})


def test_retractions_that_are_committed_while_a_default_is_added_are_seen(table_path, monkeypatch):
    """Another process writes them after the table was found to have none."""
    table = make(table_path)
    table.compact(full=True)
    other, asked = Table.open(table_path, durability="fast"), []
    look = LiveValues.take_back

    def look_and_write(values: LiveValues) -> bool:
        found = look(values)
        asked.append(found)
        if len(asked) == 1:
            change(other, [(1, 1, "-D")])
        return found

    monkeypatch.setattr(LiveValues, "take_back", look_and_write)
    with pytest.raises(InvalidArgumentError, match="'m'"):
        add(table, default=7)
    assert asked == [False, True]


def written(table: Table, kind: str) -> list[Any]:
    """Return the messages of a writer of one change."""
    with table.writer() as writer:
        writer.write({"k": [1], "v": [3], "op": [kind]}, "op")
        return writer.prepare_commit()


@pytest.mark.parametrize("words", [{}, {"function": "max"}, {"function": "max", "default": 7}])
def test_retractions_of_a_writer_that_did_not_know_a_column_are_folded(words, table_path):
    table = make(table_path)
    messages = written(table, "-D")
    add(table, **words)
    table.commit(messages)
    found = rows_of(table)
    assert [row["m"] for row in found] == [words.get("default")] * 3
    assert found[0]["v"] == -3
    table.compact(full=True)
    assert rows_of(table) == found


def test_retractions_of_a_writer_that_did_not_know_a_default_are_refused(table_path):
    """Its additions are not."""
    table = make(table_path)
    table.compact(full=True)
    additions, retractions = written(table, "+I"), written(table, "-D")
    add(table, default=7)
    with pytest.raises(CommitConflict, match="'m' was added with a default"):
        table.commit(retractions)
    table.commit(additions)
    assert [row["m"] for row in rows_of(table)] == [7, 7, 7]


def test_rows_that_bring_a_column_leave_older_retractions_readable(table_path):
    table = make(table_path, **{"fields.default_aggregate_function": "max"})
    table.upsert({"k": [1], "v": [1], "m": [4]}, schema_mode="merge")
    wanted = [{"k": k, "v": v, "m": m} for k, v, m in [(1, 1, 4), (2, -5, None), (3, 4, None)]]
    assert rows_of(table) == wanted
    table.compact(full=True)
    assert rows_of(table) == wanted


def test_what_the_refusal_of_a_retraction_names_can_be_set(table_path):
    """On a table with rows; not the other way round, and not where a default was ever shown."""
    table = make(table_path)
    add(table, "max")
    with pytest.raises(InvalidArgumentError, match=r"set fields\.m\.ignore_retract=true"):
        change(table, [(1, 1, "-D")])
    before = rows_of(table)
    table.set_properties({"fields.m.ignore_retract": "true"})
    assert rows_of(table) == before
    change(table, [(1, 1, "-D")])
    assert [row["v"] for row in rows_of(table)] == [-1, -5, 4]
    with pytest.raises(InvalidArgumentError, match="can't change"):
        table.set_properties({"fields.m.ignore_retract": "false"})


def test_a_function_does_not_begin_to_ignore_rows_that_have_a_default(table_path):
    table = make(table_path)
    add(table, "max", default=7)
    with pytest.raises(InvalidArgumentError, match="can't change"):
        table.set_properties({"fields.m.ignore_retract": "true"})


def test_the_first_value_of_rows_that_are_ignored_is_refused(table_path):
    """A compaction before the next row would make null the first value of such a key."""
    ignoring = {"fields.m.aggregate_function": "first_value", "fields.m.ignore_retract": "true"}
    properties = {"merge_engine": "aggregation", **ignoring}
    with pytest.raises(InvalidArgumentError, match="use first_non_null_value"):
        Table.create(
            table_path,
            SCHEMA.append(pa.field("m", pa.int64())),
            primary_key="k",
            properties=properties,
        )
    table = make(table_path)
    with pytest.raises(InvalidArgumentError, match="use first_non_null_value"):
        add_with(table, ignoring)
    add_with(table, ignoring | {"fields.m.aggregate_function": "first_non_null_value"})


def add_with(table: Table, properties: dict[str, str]) -> None:
    with table.update_schema() as update:
        update.set_properties(properties)
        update.add_column("m", pa.int64())
