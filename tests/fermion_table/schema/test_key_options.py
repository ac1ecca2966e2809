"""Settings of primary-key tables: what is taken, and what is refused, with the alternative."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table.keys.settings import parse_key_options
from fermion_table.schema.key_options import KeyOptions

SCHEMA = pa.schema(
    {
        "day": pa.date32(),
        "id": pa.int64(),
        "x": pa.int64(),
        "name": pa.string(),
        "items": pa.list_(pa.struct({"a": pa.int64()})),
        "m": pa.map_(pa.string(), pa.int64()),
        "at": pa.timestamp("us"),
        "a.b": pa.int64(),
    }
)
AGGREGATION = {"merge_engine": "aggregation"}
PARTIAL = {"merge_engine": "partial_update"}


def parse(settings: dict[str, str], key=("day", "id"), partition=("day",)) -> KeyOptions:
    return parse_key_options(settings, SCHEMA, key, partition)


def test_without_settings_the_last_row_of_a_key_stays():
    options = parse({"comment": "ours", "buckets of ours": "x"})
    assert options == KeyOptions(bucket_key=("id",))


def test_both_spellings_are_taken():
    underscored = {
        "merge_engine": "partial_update",
        "partial_update.remove_record_on_delete": "true",
        "changelog_producer": "full_compaction",
        "num_sorted_run.compaction_trigger": "3",
    }
    hyphenated = {
        name.replace("_", "-"): each.replace("_", "-") for name, each in underscored.items()
    }
    assert parse(underscored) == parse(hyphenated)
    assert parse(hyphenated).compaction.trigger == 3
    assert parse(hyphenated).remove_record_on_delete
    with pytest.raises(InvalidArgumentError, match="has another value"):
        parse({"merge_engine": "first_row", "merge-engine": "deduplicate"})


def test_every_column_but_the_key_has_a_function():
    options = parse(
        {
            **AGGREGATION,
            "fields.default-aggregate-function": "last_value",
            "fields.x.aggregate-function": "sum",
            "fields.a.b.aggregate_function": "max",
            "fields.name.aggregate-function": "listagg",
            "fields.name.list-agg-delimiter": ";",
            "fields.items.aggregate-function": "nested_update",
            "fields.items.nested-key": "a",
        }
    )
    names = {name: function.name for name, function in options.functions.items()}
    assert names == {
        "x": "sum",
        "name": "listagg",
        "items": "nested_update",
        "m": "last_value",
        "at": "last_value",
        "a.b": "max",
    }
    assert options.functions["name"].delimiter == ";"
    assert options.functions["items"].nested_key == ("a",)


def test_sequence_groups_have_columns_and_functions():
    settings = {
        **PARTIAL,
        "fields.at,a.b.sequence-group": "x, name",
        "fields.x.aggregate-function": "sum",
    }
    (group,) = parse(settings).sequence_groups
    assert (group.sequence, group.columns) == (("at", "a.b"), ("x", "name"))
    assert {name: each.name for name, each in group.functions.items()} == {"x": "sum"}
    (default,) = parse(settings | {"fields.default_aggregate_function": "max"}).sequence_groups
    assert {name: each.name for name, each in default.functions.items()} == {
        "x": "sum",
        "name": "max",
    }


@pytest.mark.parametrize("function", ["sum", "product", "max", "min", "last_value", "bool_or"])
def test_functions_that_are_exact_with_a_sequence_are_taken(function):
    schema = pa.schema(
        {
            "id": pa.int64(),
            "x": pa.bool_() if function == "bool_or" else pa.int64(),
            "s": pa.int64(),
        }
    )
    settings = {**AGGREGATION, "fields.x.aggregate_function": function, "sequence.field": "s"}
    options = parse_key_options(settings, schema, ("id",))
    assert {name: each.name for name, each in options.functions.items()} == {
        "x": function,
        "s": "last_value",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bucket": "0"}, "bucket='0': expected a number from 1"),
        ({"bucket": "-1"}, "expected a number from 1"),
        ({"bucket": "many"}, "expected a number"),
        ({"buckets": "4"}, "'buckets' is not known.*did you mean 'bucket'"),
        ({"bucket_key": "x"}, r"expected columns of the primary key.*\['id'\]"),
        ({"bucket_key": "day"}, "bucket_key: column 'day'"),
        ({"bucket_key": "id,id"}, "named twice"),
        ({"bucket_key": ","}, "expected names of columns"),
        ({"merge_engine": "dedupe"}, "expected one of deduplicate.*did you mean 'deduplicate'"),
        ({"merge_engin": "first_row"}, "did you mean 'merge_engine'"),
        ({"merge_engine": "first_row", "sequence.field": "x"}, "sort_order=descending"),
        ({"merge_engine": "first_row", "changelog_producer": "input"}, "expected none or lookup"),
        ({"merge_engine": "partial_update", "sequence.field": "x"}, "use sequence groups"),
        ({"sequence.field": "nope"}, "'nope' is not in the schema"),
        ({"sequence.field": "x,x"}, "named twice"),
        ({"sequence.field": "x,,at"}, "expected names of columns"),
        ({"sequence.field": "items"}, "have no order"),
        ({"sequence.field.sort_order": "descending"}, "there is no sequence.field"),
        ({"sequence.field": "x", "sequence.field.sort_order": "down"}, "expected one of ascending"),
        ({"sequence.feld": "x"}, "did you mean 'sequence.field'"),
        ({"ignore_delete": "yes"}, "expected true or false"),
        ({"fields.x.aggregate_function": "sum"}, "functions are for merge_engine=aggregation"),
        ({"fields.default_aggregate_function": "sum"}, "is for merge_engine=aggregation"),
        ({"fields.x.sequence_group": "name"}, "are for merge_engine=partial_update, found dedup"),
        ({**PARTIAL, "fields.x.sequence_group": "id"}, "'id' is of the primary key"),
        ({**PARTIAL, "fields.x.sequence_group": "nope"}, "'nope' is not in the schema"),
        ({**PARTIAL, "fields.x,x.sequence_group": "name"}, "named twice"),
        ({**PARTIAL, "fields.items.sequence_group": "name"}, "have no order"),
        ({**PARTIAL, "fields.x.sequence_group": "x"}, "'x' is in fields.x.sequence_group already"),
        (
            {**PARTIAL, "fields.x.sequence_group": "m", "fields.at.sequence_group": "m"},
            "'m' is in fields.at.sequence_group already",
        ),
        ({**PARTIAL, "fields.name.aggregate_function": "max"}, "columns of a sequence group"),
        (
            {
                **PARTIAL,
                "fields.at.sequence_group": "x",
                "fields.x.aggregate_function": "first_value",
            },
            "first_value of column 'x' in a sequence group depends.*last_value",
        ),
        (
            {
                **PARTIAL,
                "fields.at.sequence_group": "x",
                "partial_update.remove_record_on_delete": "true",
            },
            "with sequence groups",
        ),
        (
            {**PARTIAL, "partial_update.remove_record_on_sequence_group": "x"},
            "expected sequences of groups.*of which there are none, found 'x'",
        ),
        (
            {
                **PARTIAL,
                "fields.at.sequence_group": "x",
                "partial_update.remove_record_on_sequence_group": "at",
                "ignore_delete": "true",
            },
            "set one of them",
        ),
        ({"aggregation.remove_record_on_delete": "true"}, "is not for merge_engine=deduplicate"),
        (
            {**AGGREGATION, "ignore_delete": "true", "aggregation.remove_record_on_delete": "true"},
            "set one of them",
        ),
        ({**AGGREGATION, "fields.x.aggregate_function": "median"}, "expected one of sum"),
        ({**AGGREGATION, "fields.x.aggregate_function": "summ"}, "did you mean 'sum'"),
        ({**AGGREGATION, "fields.name.aggregate_function": "sum"}, "is string, expected a number"),
        ({**AGGREGATION, "fields.id.aggregate_function": "sum"}, "of the primary key takes no"),
        ({**AGGREGATION, "fields.y.aggregate_function": "sum"}, "no such column"),
        ({**AGGREGATION, "fields.x.agregate_function": "sum"}, "no such setting of a column"),
        ({**AGGREGATION, "fields.x.distinct": "true"}, "is for listagg and collect"),
        (
            {**AGGREGATION, "sequence.field": "at", "fields.at.aggregate_function": "max"},
            "takes no function",
        ),
        ({**AGGREGATION, "sequence.field": "at"}, "last_non_null_value of column 'x'.*last_value"),
        (
            {
                **AGGREGATION,
                "fields.items.aggregate_function": "nested_update",
                "fields.items.nested_key": "b",
            },
            "'b' is no field of",
        ),
        (
            {
                **AGGREGATION,
                "fields.items.aggregate_function": "nested_update",
                "fields.items.nested_key": "a",
                "fields.items.count_limit": "3",
            },
            "count_limit with nested_key",
        ),
        ({**AGGREGATION, "fields.items.count_limit": "3"}, "is for nested_update"),
        ({**AGGREGATION, "fields.x.aggregate_function": "rbm64"}, "is int64, expected binary"),
        (
            {
                **AGGREGATION,
                "fields.name.aggregate_function": "listagg",
                "fields.name.distinct": "true",
                "fields.name.list_agg_delimiter": "",
            },
            "expected some text",
        ),
        ({"compaction.pick_rule": "old"}, "expected one of current, seed"),
        ({"compaction.total_size_threshold": "big"}, "compaction.total_size_threshold='big'"),
    ],
)
def test_what_is_unknown_or_contradicts_itself_is_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        parse(settings)


@pytest.mark.parametrize(
    ("key", "partition", "message"),
    [
        ((), (), "at least one column"),
        (("nope",), (), "'nope' is not in the schema"),
        (("id", "id"), (), "named twice"),
        (("items",), (), "key column 'items' is"),
        (("id",), ("day",), "expected to contain the partition column 'day'"),
    ],
)
def test_keys_that_cannot_be_are_refused(key, partition, message):
    with pytest.raises(InvalidArgumentError, match=message):
        parse({}, key, partition)


def test_a_key_of_partition_columns_alone_is_its_own_bucket_key():
    assert parse({}, ("day",), ("day",)).bucket_key == ("day",)
