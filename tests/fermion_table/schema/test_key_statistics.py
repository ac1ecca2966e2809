"""Statistics of keys of maps in entries: filters by a key skip files, and select the same rows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion import col
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.schema import decode_schema, encode_schema
from tests.kit.table_files import live_entries

NAME = "fermion.stats.keys"
MAP = pa.map_(pa.string(), pa.float64())
SCHEMA = pa.schema([("id", pa.int64()), ("m", MAP)])
KEYS = {"fermion.shred.m": "all", NAME: "m['a'], m['it''s, so']"}


def rows(first: int, maps: list[Any]) -> pa.Table:
    return pa.table({"id": range(first, first + len(maps)), "m": pa.array(maps, MAP)}, SCHEMA)


def files_read(table: Table, condition: Any) -> int:
    """The files of a scan's plan, whose rows are those that a filter on whole maps selects."""
    scan = table.scan(filter=condition)
    plain = Table.create(table.location + "-plain", table.scan().to_arrow(), mode="overwrite")
    assert (
        scan.to_arrow().sort_by("id").equals(plain.scan(filter=condition).to_arrow().sort_by("id"))
    )
    return len(scan.plan().splits)


@pytest.fixture
def table(tmp_path) -> Table:
    """Three files: a of 0 and 1; of 10 and 11, and it's; no a in any column."""
    table = Table.create(tmp_path / "t", SCHEMA, properties=KEYS)
    table.append(rows(0, [[("a", 0.0)], [("a", 1.0)]]))
    table.append(rows(2, [[("a", 10.0), ("it's, so", 5.0)], [("a", 11.0)]]))
    table.append(rows(4, [None, [("b", 7.0)]]))
    return table


def test_a_filter_by_a_key_skips_files_by_metadata(table):
    assert [each.key for each in table.schema.statistics_keys] == ["a", "it's, so"]
    assert files_read(table, "m['a'] > 5") == 2  # the third may have the key in its maps
    assert files_read(table, col("m")["a"] < 0) == 1
    assert files_read(table, "m['it''s, so'] = 5") == 3  # no column, no statistics
    assert files_read(table, "m['a'] IS NULL") == 1
    assert files_read(table, "NOT (m['a'] < 5) AND id >= 0") == 2
    assert files_read(table, "m['a'] = 3 OR id = 0") == 2
    assert files_read(table, "m['b'] = 3") == 3
    assert table.count("m['a'] >= 10") == 2


def test_names_follow_the_map_and_ids_the_names(table):
    before = {each.key: each.id for each in table.schema.statistics_keys}
    table.rename_column("m", "n")
    assert table.schema.properties[NAME] == "n['a'], n['it''s, so']"
    assert files_read(table, "n['a'] > 5") == 2
    table.set_properties({NAME: " n['b'] ,n['a'],n['a']"})
    after = {each.key: each.id for each in table.schema.statistics_keys}
    assert after == {"b": max(before.values()) + 1, "a": before["a"]}
    assert files_read(table, "n['a'] > 5") == 2
    table.append(pa.table({"id": [6], "n": pa.array([[("b", 1.0)]], MAP)}))
    assert files_read(table, "n['b'] > 5") == 3
    table.drop_columns(["n"])
    assert NAME not in table.schema.properties
    assert table.schema.statistics_keys == ()


def test_keys_that_are_named_again_get_another_id(table):
    number = table.schema.statistics_keys[0].id
    table.set_properties({}, remove=[NAME])
    assert table.schema.statistics_keys == ()
    assert files_read(table, "m['a'] > 5") == 3
    table.set_properties({NAME: "m['a']"})
    assert table.schema.statistics_keys[0].id > number
    assert files_read(table, "m['a'] > 5") == 3
    table.compact()
    assert files_read(table, "m['a'] > 50") == 0


def test_integer_keys_and_wider_values(tmp_path):
    dtype = pa.map_(pa.int32(), pa.int32())
    data = pa.table({"id": [0, 1], "m": pa.array([[(-7, 1)], [(-7, 2)]], dtype)})
    keys = {"fermion.shred.m": "all", NAME: "m[-7]"}
    table = Table.create(tmp_path / "t", data, properties=keys)
    table.alter_column(("m", "value"), type=pa.int64())
    wide = pa.array([[(-7, 2**40)]], pa.map_(pa.int32(), pa.int64()))
    table.append(pa.table({"id": [2], "m": wide}))
    assert files_read(table, "m[-7] > 100") == 1
    assert files_read(table, "m[-7] < 100") == 1


def test_a_column_file_with_the_map_hides_the_statistics_of_the_data_file(table):
    def moved(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([[("a", 100.0)]] * batch.num_rows, MAP)

    wide = [pa.field(f"c{number}", pa.int64()) for number in range(8)]
    table.add_columns(pa.schema(wide))
    table.append(rows(6, [[("a", 1.0)]]))
    table.update("id >= 0", {"m": moved})
    assert any(entry.column_files for entry in live_entries(table.store, table.snapshot))
    assert files_read(table, "m['a'] = 100") > 0
    assert table.count("m['a'] = 100") == 7
    table.compact(column_files_max=0)
    assert files_read(table, "m['a'] < 100") == 0


def test_branches_keep_the_statistics_of_what_they_add(table):
    table.branches.create("b")
    branch = Table.open(table.location, branch="b")
    branch.set_properties({NAME: "m['b']"})
    branch.append(rows(6, [[("b", 1.0)]]))
    table.add_columns(pa.schema([("x", pa.int64())]))
    table.branches.merge("b")
    assert [each.key for each in table.schema.statistics_keys] == ["b"]
    ids = [field.id for _, field in (pair for top in table.schema.fields for pair in top.walk())]
    assert len({*ids, table.schema.statistics_keys[0].id}) == len(ids) + 1
    assert table.count("m['b'] = 1") == 1


def test_a_writer_that_is_behind_loses_only_the_statistics(table):
    behind = Table.open(table.location)
    with behind.writer() as writer:
        writer.write(rows(6, [[("a", 50.0)]]))
        message = writer.prepare_commit()
    table.set_properties({NAME: "m['b'], m['a']"})
    behind.commit(message)
    table.refresh()
    assert table.count("m['a'] = 50") == 1


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("a", InvalidArgumentError, "'a' is no key of a map"),
        ("m['a'], m", InvalidArgumentError, "'m' is no key of a map"),
        ("x['a']", ColumnNotFoundError, "x"),
        ("id['a']", InvalidArgumentError, "expected a map"),
        ("i['a']", InvalidArgumentError, "key 'a': expected a value of type int32"),
        ("n['a']", InvalidArgumentError, "without children"),
        ("p['a']", InvalidArgumentError, "set the property 'fermion.shred.p', too"),
    ],
)
def test_what_is_no_key_with_a_column_is_refused(tmp_path, value, error, words):
    schema = pa.schema(
        [
            *SCHEMA,
            ("i", pa.map_(pa.int32(), pa.int32())),
            ("n", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ("p", MAP),
        ]
    )
    shred = {f"fermion.shred.{name}": "all" for name in "min"}
    with pytest.raises(error, match=words.replace("[", r"\[")):
        Table.create(tmp_path / "t", schema, properties={**shred, NAME: value})
    table = Table.create(tmp_path / "t", schema, properties={**shred, NAME: "m['a'],"})
    with pytest.raises(error, match=words):
        table.set_properties({NAME: value})
    with pytest.raises(InvalidArgumentError, match="set the property"):
        table.set_properties({}, remove=["fermion.shred.m"])
    assert [each.key for each in table.schema.statistics_keys] == ["a"]


@pytest.mark.parametrize("number", [1, 2, 99])
def test_an_id_that_is_that_of_a_field_or_too_great_is_refused(table, number):
    stored = json.loads(encode_schema(table.schema))
    stored["statistics_keys"][0]["id"] = number
    with pytest.raises(CorruptMetadata, match="field id"):
        decode_schema(msgspec.json.encode(stored), "schema")


_maps = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "it's, so"]),
    st.none() | st.integers(-5, 5).map(float) | st.just(float("nan")),
    max_size=3,
).map(lambda each: list(each.items()))


@settings(max_examples=25, deadline=None)
@given(
    files=st.lists(st.lists(_maps, min_size=1, max_size=4), min_size=1, max_size=4),
    key=st.sampled_from(["a", "b", "it's, so"]),
    value=st.integers(-6, 6),
)
def test_pruned_scans_give_what_scans_of_plain_maps_give(tmp_path_factory, files, key, value):
    home = tmp_path_factory.mktemp("keys")
    pruned = Table.create(home / "p", SCHEMA, properties=KEYS)
    plain = Table.create(home / "q", SCHEMA)
    for number, maps in enumerate(files):
        for table in (pruned, plain):
            table.append(rows(10 * number, maps))
    column = col("m")[key]
    for condition in (
        *(column > value, column == value, column.is_null(), ~(column <= value)),
        *(column.is_nan(), column.isin([value, 0]) & (col("id") > 3), column != value),
    ):
        found, expected = (each.scan(filter=condition).to_arrow()["id"] for each in (pruned, plain))
        assert found.equals(expected), condition
        assert pruned.count(condition) == len(expected)


def test_rows_of_a_primary_key_are_merged_before_a_filter_by_a_key(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, properties=KEYS, primary_key=["id"])
    table.upsert(rows(0, [[("a", 10.0)], [("a", 11.0)]]))
    table.upsert(rows(0, [[("a", 1.0)]]))
    assert table.count("m['a'] = 10") == 0
    assert table.scan(filter="m['a'] >= 1").to_arrow()["id"].to_pylist() == [0, 1]
    table.compact(full=True)
    assert table.count("m['a'] = 10") == 0
    assert table.scan(filter="m['a'] > 20").plan().splits == ()
