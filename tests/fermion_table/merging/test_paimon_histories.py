"""Histories of primary-key tables give what Paimon's library returned, after every commit.

All rows up to a commit are folded at once. Left out are histories whose result depends on how rows
were grouped into commits, and combinations that are refused here for the same reason.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table.merging.merge_engines import aggregation, deduplicate, first_row, partial_update
from fermion_table.merging.merge_engines.key_groups import Folded, group_rows, is_retraction
from fermion_table.schema.field_functions import FUNCTIONS
from fermion_table.schema.key_encoding import encode_keys, key_ranks
from fermion_table.schema.key_options import KeyOptions, parse_key_options
from tests.fermion_table.merge_rows import batch_of, kinds_of

FILES = ["deduplicate", "sequence-field", "partial-update", "aggregation", "first-row"]
OURS_DIFFER = {
    "agg/sum-decimal-overflow-is-null": "a sum out of range is an error here, as of integers",
    "agg/nested_update-count-limit": "a limit depends on how rows were grouped into commits",
}
PLAIN = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "BYTES": pa.binary(),
    "TIMESTAMP(3)": pa.timestamp("ms"),
    "TIMESTAMP(6)": pa.timestamp("us"),
    "TIMESTAMP_LTZ(6)": pa.timestamp("us", "UTC"),
}


def type_of(text: str) -> pa.DataType:
    """Return the Arrow type of one of Paimon's."""
    if text in PLAIN:
        return PLAIN[text]
    if found := re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", text):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"ARRAY<(.+)>", text):
        return pa.list_(type_of(found[1]))
    if found := re.fullmatch(r"MAP<(\w+), (.+)>", text):
        return pa.map_(type_of(found[1]), type_of(found[2]))
    found = re.fullmatch(r"ROW<(.+)>", text)
    assert found is not None, text
    fields = [field.split(" ", 1) for field in found[1].split(", ")]
    return pa.struct({name: type_of(kind) for name, kind in fields})


def value_of(value: Any, dtype: pa.DataType) -> Any:
    """Return a value of a history as Python, of which Arrow makes the type."""
    if value is None:
        return None
    if pa.types.is_floating(dtype):
        return float(value)
    if pa.types.is_decimal(dtype):
        return Decimal(value)
    if pa.types.is_date(dtype):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(dtype):
        return dt.datetime.fromisoformat(value)
    if pa.types.is_binary(dtype):
        return bytes.fromhex(value)
    if pa.types.is_list(dtype):
        return [value_of(each, dtype.value_type) for each in value]
    if pa.types.is_map(dtype):
        return [(value_of(a, dtype.key_type), value_of(b, dtype.item_type)) for a, b in value]
    if pa.types.is_struct(dtype):
        return {field.name: value_of(value[field.name], field.type) for field in dtype}
    return value


def rows_of(rows: list[dict], schema: pa.Schema) -> list[dict]:
    """Return rows of a history with values as Python."""
    return [
        {field.name: value_of(row.get(field.name), field.type) for field in schema}
        | {"_kind": row.get("_kind")}
        for row in rows
    ]


def comparable(value: Any) -> Any:
    """Return a value in a form that is equal to itself: NaN as text, a map without an order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value, key=repr)
    return value


def histories(name: str, folder: Path) -> list[dict]:
    lines = (folder / "paimon-golden" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def options_of(history: dict) -> tuple[pa.Schema, KeyOptions]:
    """Return the columns and the parsed options of a history."""
    schema = pa.schema([(name, type_of(kind)) for name, kind, _ in history["schema"]])
    left_out = {"rowkind.field", "primary-key.nullable"}
    settings = {name: each for name, each in history["options"].items() if name not in left_out}
    key, partition = tuple(history["primary_key"]), tuple(history["partition"])
    return schema, parse_key_options(settings, schema, key, partition)


def folded(rows: list[dict], schema: pa.Schema, key: list[str], options: KeyOptions) -> list[dict]:
    """Return the rows that a scan returns, in the order of the keys."""
    kinds = kinds_of(rows)
    if options.ignore_delete:
        rows = [row for row, is_back in zip(rows, is_retraction(kinds), strict=True) if not is_back]
        kinds = kinds_of(rows)
    batch = batch_of(rows, schema)
    groups = group_rows(
        key_ranks(encode_keys([batch.column(name) for name in key], key)),
        np.arange(len(rows)),
        sequence=[batch.column(name) for name in options.sequence_fields],
        is_descending=options.sequence_descending,
    )
    found = fold_by(options, batch, groups, kinds, key)
    return found.gather(batch).to_pylist()


def fold_by(options: KeyOptions, batch, groups, kinds, key) -> Folded:
    engine, removes = options.merge_engine, options.remove_record_on_delete
    if engine == "deduplicate":
        return deduplicate.fold(groups, kinds)
    if engine == "first_row":
        return first_row.fold(groups, kinds)
    if engine == "partial_update":
        return partial_update.fold(batch, groups, key, kinds, remove_record_on_delete=removes)
    return aggregation.fold(
        batch, groups, options.functions, kinds, remove_record_on_delete=removes
    )


def is_left_out(history: dict) -> bool:
    options = history["options"]
    functions = {each for name, each in options.items() if name.endswith("aggregate-function")}
    unknown = not functions <= set(FUNCTIONS) and not history["error"]
    refused = "sequence.field" in options and (
        options.get("merge-engine") == "partial-update"
        or bool(functions & {"listagg", "first_value", "first_non_null_value"})
        or (options.get("merge-engine") == "aggregation" and refuses(history))
    )
    types = {column: kind for column, kind, _ in history["schema"]}
    floats = {types[column] for column in history["primary_key"]} & {"DOUBLE", "FLOAT"}
    nullable = options.get("primary-key.nullable") == "true" or bool(floats)
    differs = history["name"] in OURS_DIFFER
    return bool(history.get("commit_sensitive")) or unknown or refused or nullable or differs


def refuses(history: dict) -> bool:
    """Whether some column has no function, which is last_non_null_value then."""
    options = history["options"]
    named = {name.split(".")[1] for name in options if name.endswith(".aggregate-function")}
    columns = {name for name, *_ in history["schema"]} - set(history["primary_key"])
    columns -= set(options["sequence.field"].split(","))
    return "fields.default-aggregate-function" not in options and bool(columns - named)


@pytest.mark.parametrize("name", FILES)
def test_folding_gives_what_paimon_returned_after_each_commit(name, shared_data):
    compared = 0
    for history in histories(name, shared_data):
        if is_left_out(history) or history["error"]:
            continue
        schema, options = options_of(history)
        key, rows = history["primary_key"], []
        for commit, expected in zip(history["commits"], history["expected_after"], strict=True):
            rows += rows_of(commit, schema)
            found = folded(rows, schema, key, options)
            wanted = batch_of(rows_of(expected, schema), schema).to_pylist()
            for each in (found, wanted):
                each.sort(key=lambda row: [repr(type(row[part])) + repr(row[part]) for part in key])
            assert [
                {column: comparable(value) for column, value in row.items()} for row in found
            ] == [{column: comparable(value) for column, value in row.items()} for row in wanted], (
                history["name"]
            )
        compared += 1
    assert compared >= {"deduplicate": 55, "sequence-field": 50, "partial-update": 20}.get(name, 15)


@pytest.mark.parametrize("name", FILES)
def test_what_paimon_refuses_as_invalid_is_refused(name, shared_data):
    for history in histories(name, shared_data):
        refused = (history["error"] or {}).get("class") in ("invalid", "overflow")
        if refused and "not-null" not in history["name"]:
            with pytest.raises(InvalidArgumentError):
                fold_whole(history)


def fold_whole(history: dict) -> list[dict]:
    """Return what the whole history gives."""
    schema, options = options_of(history)
    rows = [row for commit in history["commits"] for row in rows_of(commit, schema)]
    return folded(rows, schema, history["primary_key"], options)
