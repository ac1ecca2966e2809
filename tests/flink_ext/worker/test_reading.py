"""Plans and the rows of splits: what a source gets is what a scan gives."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from fermion.columns.exchange import convert
from fermion_table import Table
from flink_ext.errors import UnsupportedByFlink
from flink_ext.types import flink_type
from flink_ext.worker.reading import BATCH_BYTES, BATCH_ROWS
from tests.kit.arrow_samples import every_type
from tests.kit.flink_worker import Conversation, Refused, ask

COLUMNS = [["id", "BIGINT"], ["city", "STRING"]]
ID_OVER_FIVE = {
    "op": ">",
    "args": [{"op": "column", "column": "id"}, {"op": "literal", "kind": "integer", "value": "5"}],
}
LIKE = {"op": "like", "args": [{"op": "column", "column": "city"}]}


@pytest.fixture
def table(tmp_path) -> Table:
    """Ten rows in two files."""
    made = Table.create(tmp_path / "t", pa.schema({"id": pa.int64(), "city": pa.string()}))
    for start in (0, 5):
        ids = list(range(start, start + 5))
        made.append(pa.table({"id": ids, "city": [f"c{number}" for number in ids]}))
    return made


def read(table: Table, columns: Any = COLUMNS, *, skip: int = 0, **fields: Any) -> pa.Table:
    """Plan, then read all splits with one worker."""
    plan_only = {name: fields.pop(name) for name in ("version", "tasks_min") if name in fields}
    asked = {"path": table.location, "columns": columns, **fields}
    plan = ask("plan", **asked, **plan_only)
    conversation = Conversation()
    for split in plan["splits"]:
        pinned = {name: plan[name] for name in ("snapshot", "schema")}
        conversation.ask("read", **asked, **pinned, split=split, skip=skip)
    return pa.concat_tables([answer["table"] for answer in conversation.end()])


def test_all_splits_together_are_the_scan(table: Table):
    assert read(table, tasks_min=4).equals(table.scan().to_arrow())


def test_rows_of_every_type_are_those_of_the_scan(tmp_path):
    """They come in Flink's types, and are the same in the table's."""
    rows = every_type()
    table = Table.create(tmp_path / "t", rows.schema)
    table.append(rows)
    columns = [[name, text] for name, text, _ in ask("describe", path=table.location)["columns"]]
    assert columns == [[field.name, flink_type(field.type, "c")] for field in rows.schema]
    found, expected = read(table, columns), table.scan().to_arrow()
    for field in rows.schema:
        there = convert(found[field.name].combine_chunks(), field.type)
        assert there.to_pylist() == expected[field.name].to_pylist(), field


def test_only_the_columns_asked_for_come_in_their_order(table: Table):
    assert read(table, [["city", "STRING"]]).column_names == ["city"]
    swapped = read(table, [["city", "STRING"], ["id", "INT"]])
    assert swapped.schema == pa.schema({"city": pa.string(), "id": pa.int32()})


def test_rows_without_columns_have_their_number(table: Table):
    plan = ask("plan", path=table.location, columns=[])
    pinned = {name: plan[name] for name in ("snapshot", "schema")}
    answer = ask("read", path=table.location, columns=[], **pinned, split=plan["splits"][0])
    assert sum(batch.num_rows for batch in answer["batches"]) == 10


def test_a_value_that_does_not_fit_the_declared_type_is_refused_by_column(table: Table):
    table.append(pa.table({"id": [2**40], "city": ["far"]}))
    with pytest.raises(UnsupportedByFlink, match="column 'id'"):  # after the first rows
        read(table, [["id", "INT"]])
    with pytest.raises(Refused, match="column 'nothing'"):
        read(table, [["nothing", "INT"]])


def test_exact_filters_are_told_and_select_rows(table: Table):
    told = ask("filters", path=table.location, filters=[ID_OVER_FIVE, LIKE])["filters"]
    assert told == ["id > 5", None]
    assert read(table, filters=[ID_OVER_FIVE])["id"].to_pylist() == [6, 7, 8, 9]
    with pytest.raises(Refused, match="NotTheSame"):
        read(table, filters=[LIKE])


def test_rows_that_were_emitted_before_are_left_out(table: Table):
    (split,) = ask("plan", path=table.location, columns=COLUMNS)["splits"]
    assert len(json.loads(split)) == 2
    for skip in range(11):
        assert read(table, skip=skip)["id"].to_pylist() == list(range(skip, 10))


@pytest.mark.parametrize("limit", [0, 1, 5, 7, 10, 20])
def test_each_split_gives_no_more_rows_than_the_limit(table: Table, limit: int):
    if limit == 0:
        assert ask("plan", path=table.location, columns=COLUMNS, limit=0)["splits"] == []
        return
    assert read(table, limit=limit)["id"].to_pylist() == list(range(min(limit, 10)))
    after = read(table, limit=limit, skip=2)["id"].to_pylist()
    assert after == list(range(2, min(limit, 10)))


def test_batches_have_a_size_that_suits_flink(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema({"id": pa.int64(), "s": pa.large_string()}))
    table.append(pa.table({"id": range(100_000), "s": [""] * 100_000}))
    wide = "x" * (BATCH_BYTES // 4)
    table.append(pa.table({"id": range(9), "s": pa.array([wide] * 9, pa.large_string())}))
    rows = read(table, [["id", "BIGINT"], ["s", "STRING"]])
    sizes = [(batch.num_rows, batch.nbytes) for batch in rows.to_batches()]
    assert max(rows for rows, _ in sizes) <= BATCH_ROWS
    assert max(size for _, size in sizes) <= BATCH_BYTES
    assert rows.num_rows == 100_009


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        ({"snapshot_id": 1}, 5),
        ({"tag": "old"}, 5),
        ({"timestamp": "2999-01-01T00:00:00"}, 10),
        ({"timestamp": 32_000_000_000_000}, 10),
        ({}, 10),
    ],
)
def test_another_version_is_read_under_the_columns_of_now(table: Table, version, rows):
    table.tags.create("old", version=1)
    table.rename_column("city", "town")
    found = read(table, [["id", "BIGINT"], ["town", "STRING"]], version=version)
    assert found["town"].to_pylist() == [f"c{number}" for number in range(rows)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ({"snapshot_id": 99}, "99"),
        ({"tag": "none"}, "none"),
        ({"timestamp": "yesterday"}, "yesterday"),
        ({"timestamp": 0}, "1970"),
        ({"snapshot_id": 1, "tag": "a"}, "tag"),
        ({"snapshot_id": "1"}, "Expected `int"),
        ({"moment": 1}, "unknown field `moment`"),
    ],
)
def test_a_version_that_is_none_is_refused(table: Table, version, expected):
    with pytest.raises(Refused, match=expected):
        ask("plan", path=table.location, columns=COLUMNS, version=version)


def test_a_split_is_read_as_it_was_planned_whatever_was_committed_since(table: Table):
    fields = {"path": table.location, "columns": COLUMNS}
    plan = ask("plan", **fields)
    table.delete("id < 9")
    table.compact()
    table.drop_columns("city")
    pinned = {name: plan[name] for name in ("snapshot", "schema")}
    answer = ask("read", **fields, **pinned, split=plan["splits"][0])
    assert answer["table"]["id"].to_pylist() == list(range(10))


def test_merged_rows_of_a_table_with_a_primary_key_are_read(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("city", pa.string())])
    table = Table.create(tmp_path / "t", schema, primary_key="id", properties={"bucket": "2"})
    for city in ("a", "b", "c"):
        table.upsert(pa.table({"id": [1, 2, 3], "city": [city] * 3}))
    table.delete("id = 2")
    assert read(table).sort_by("id").to_pylist() == [
        {"id": 1, "city": "c"},
        {"id": 3, "city": "c"},
    ]


AGGREGATES = [{"kind": "count"}, {"kind": "min", "column": "id"}, {"kind": "max", "column": "id"}]
ONE_ROW = [["n", "BIGINT"], ["low", "BIGINT"], ["high", "BIGINT"]]


def test_aggregates_are_answered_from_metadata_as_one_row(table: Table):
    fields = {"path": table.location, "columns": ONE_ROW, "aggregates": AGGREGATES}
    assert ask("aggregates", **fields) == {"known": True}
    assert read(table, ONE_ROW, aggregates=AGGREGATES).to_pylist() == [
        {"n": 10, "low": 0, "high": 9}
    ]


def test_aggregates_that_need_data_are_told(table: Table):
    fields = {"path": table.location, "columns": ONE_ROW, "aggregates": AGGREGATES}
    assert ask("aggregates", **fields, filters=[ID_OVER_FIVE]) == {"known": False}
    table.delete("id = 0")
    assert ask("aggregates", **fields) == {"known": False}
    counted = {"columns": [["n", "BIGINT"]], "aggregates": [{"kind": "count"}]}
    assert ask("aggregates", path=table.location, **counted) == {"known": True}


@pytest.mark.parametrize(
    ("split", "expected"),
    [("", "no splits"), ("{}", "no splits"), ("[1]", "no splits"), ('[{"runs": 1}]', "no splits")],
)
def test_a_split_that_is_none_is_refused(table: Table, split, expected):
    with pytest.raises(Refused, match=expected):
        ask("read", path=table.location, columns=COLUMNS, snapshot=2, schema=2, split=split)


def test_a_missing_table_is_refused_by_its_path(tmp_path):
    with pytest.raises(Refused, match=r"TableNotFound: .*nothing"):
        ask("plan", path=str(tmp_path / "nothing"), columns=COLUMNS)
