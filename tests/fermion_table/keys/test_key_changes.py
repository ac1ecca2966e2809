"""Primary keys of new tables, and which changes a table with rows refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import FermionError, InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema([("id", pa.int32()), ("at", pa.int64()), ("v", pa.int64()), ("f", pa.float64())])


def make(path: object, **properties: str) -> Table:
    """Return a table with a key and one row."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    table = Table.create(path, SCHEMA, primary_key="id", properties=named)
    table.append({"id": [1], "at": [1], "v": [1], "f": [1.0]})
    return table


def test_a_new_table_gets_a_bucket_key_columns_that_are_not_null_and_the_feature(table_path):
    table = Table.create(table_path, SCHEMA, primary_key="id")
    assert table.properties == {"bucket": "1"}
    assert not table.schema.by_name["id"].nullable
    assert table.schema.by_name["at"].nullable
    assert table.snapshot.reader_features == ("primary-key",)


def test_a_replaced_table_gets_the_feature(table_path):
    Table.create(table_path, SCHEMA)
    table = Table.create(table_path, SCHEMA, primary_key="id", mode="overwrite")
    assert table.snapshot.reader_features == ("primary-key",)
    table.append({"id": [1, 1], "v": [1, 2]})
    assert table.scan(columns=["v"]).to_arrow()["v"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("key", "properties", "message"),
    [
        ("f", {}, "NaN and -0.0"),
        (["id", "id"], {}, "twice"),
        ("no", {}, "no"),
        ([], {}, "expected at least one column"),
        ((), {}, "expected at least one column"),
        ("id", {"bucket": "0"}, "bucket"),
        ("id", {"merge_engine": "newest"}, "merge_engine"),
        ("id", {"merge_engin": "deduplicate"}, "merge_engine"),
        ("id", {"merge-engine": "first_row", "merge_engine": "deduplicate"}, "another value"),
        ("id", {"merge_engine": "first_row", "sequence.field": "at"}, "first_row"),
        ("id", {"sequence.field": "missing"}, "missing"),
        (None, {"merge_engine": "deduplicate"}, "no primary key"),
        (None, {"bucket": "4"}, "no primary key"),
    ],
)
def test_keys_and_settings_that_no_table_can_have_are_refused(table_path, key, properties, message):
    with pytest.raises(FermionError, match=message):
        Table.create(table_path, SCHEMA, primary_key=key, properties=properties)
    assert not table_path.exists()


@pytest.mark.parametrize("key", [{"id", "at"}, {"id": 1}, iter(["id"]), 5, b"id", [None]])
def test_a_key_is_a_list_of_names(table_path, key):
    """A set has no order, and an iterator ends after it was read once."""
    with pytest.raises(TypeError, match="primary_key"):
        Table.create(table_path, SCHEMA, primary_key=key)
    assert not table_path.exists()


@pytest.mark.parametrize("name", ["_row_kind", "_merge_key"])
def test_names_that_merging_uses_are_refused(table_path, name):
    schema = SCHEMA.append(pa.field(name, pa.int8()))
    with pytest.raises(InvalidArgumentError, match="reserved"):
        Table.create(table_path, schema, primary_key="id")
    table = make(table_path)
    with pytest.raises(InvalidArgumentError, match="reserved"):
        table.add_columns({name: pa.int8()})
    Table.create(f"{table_path}-append", schema)


@pytest.mark.parametrize(
    "updates",
    [
        {"merge_engine": "first_row"},
        {"sequence.field": "at"},
        {"ignore_delete": "true"},
    ],
)
def test_what_rows_were_merged_by_stays_while_there_are_rows(table_path, updates):
    table = make(table_path)
    with pytest.raises(InvalidArgumentError, match="can't change"):
        table.set_properties(updates)
    assert table.snapshot.id == 1
    empty = Table.create(f"{table_path}-empty", SCHEMA, primary_key="id")
    empty.set_properties(updates)
    assert updates.items() <= empty.properties.items()


def test_functions_of_columns_stay(table_path):
    settings = {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"}
    table = make(table_path, **settings)
    with pytest.raises(InvalidArgumentError, match=r"fields\.v\.aggregate_function"):
        table.set_properties({"fields.v.aggregate_function": "max"})
    table.add_columns({"w": pa.int64()})
    table.append({"id": [1], "at": [1], "v": [5], "f": [1.0], "w": [2]})
    assert table.scan(columns=["v", "w"]).to_arrow().to_pylist() == [{"v": 6, "w": 2}]


def test_defaults_that_would_count_for_every_stored_row_are_refused(table_path):
    settings = {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"}
    table = make(table_path, **settings)
    table.append({"id": [1], "at": [1], "v": [5], "f": [1.0]})
    with (  # noqa: PT012 - both changes together are what is tested
        pytest.raises(InvalidArgumentError, match="without a default"),
        table.update_schema() as update,
    ):
        update.set_properties({"fields.w.aggregate_function": "sum"})
        update.add_column("w", pa.int64(), default=7)
    table.add_columns({"m": pa.int64()}, defaults={"m": 7})  # the last value that is not null
    assert table.scan(columns=["m"]).to_arrow()["m"].to_pylist() == [7]
    table.compact(full=True)
    assert table.scan(columns=["m"]).to_arrow()["m"].to_pylist() == [7]


def test_settings_of_compaction_may_change(table_path):
    table = make(table_path)
    table.set_properties({"num_sorted_run.compaction_trigger": "3"})
    with pytest.raises(InvalidArgumentError, match="expected a number"):
        table.set_properties({"num_sorted_run.compaction_trigger": "no"})
    with pytest.raises(InvalidArgumentError, match="can't be removed"):
        table.set_properties({}, remove=["bucket"])


def test_columns_of_the_key_and_of_settings_stay(table_path):
    table = make(table_path, sequence__field="at")
    for column in ("id", "at"):
        with pytest.raises(InvalidArgumentError):
            table.drop_columns([column])
    with pytest.raises(InvalidArgumentError, match="NOT NULL"):
        table.alter_column("id", nullable=True)
    with pytest.raises(InvalidArgumentError, match=r"sequence\.field"):
        table.rename_column("at", "when")


def test_keys_may_be_renamed_and_widened(table_path):
    table = make(table_path)
    table.rename_column("id", "key")
    table.alter_column("key", type=pa.int64())
    table.append({"key": [1, 2**40], "v": [7, 8]})
    found = table.scan(columns=["key", "v"]).to_arrow().to_pylist()
    assert sorted((row["key"], row["v"]) for row in found) == [(1, 7), (2**40, 8)]
    with pytest.raises(FermionError):
        table.alter_column("key", type=pa.float64())


def test_row_ids_are_refused(table_path):
    with pytest.raises(InvalidArgumentError, match="_row_id"):
        make(table_path).scan(columns=["_row_id"])
