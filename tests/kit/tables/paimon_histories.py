"""Histories of primary-key tables that Paimon's library wrote and read: their rows and options."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from fermion_table.keys.settings import parse_key_options
from fermion_table.schema.field_functions import FUNCTIONS
from fermion_table.schema.key_options import KeyOptions
from tests.kit.tables.merge_rows import Row

FILES = ["deduplicate", "sequence-field", "partial-update", "aggregation", "first-row"]
OURS_DIFFER = {
    "layout/postpone-bucket": "no rows are hidden before they are compacted",
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


def schema_of(history: dict, *, with_nulls: bool = False) -> pa.Schema:
    """Return the columns of a history; `with_nulls`: those that are NOT NULL are so."""
    return pa.schema(
        [
            pa.field(name, type_of(kind), bool(is_nullable) or not with_nulls)
            for name, kind, is_nullable in history["schema"]
        ]
    )


def properties_of(history: dict) -> dict[str, str]:
    """Return the properties that a table of a history has here."""
    left_out = ("rowkind.field", "primary-key.nullable", "dynamic-", "changelog-producer")
    found = {
        name: each for name, each in history["options"].items() if not name.startswith(left_out)
    }
    if found.get("bucket") in ("-1", "-2"):  # rows are assigned when they are written, or later
        found["bucket"] = "2"
    return found


def options_of(history: dict) -> tuple[pa.Schema, KeyOptions]:
    """Return the columns and the parsed options of a history."""
    schema = schema_of(history)
    key, partition = tuple(history["primary_key"]), tuple(history["partition"])
    return schema, parse_key_options(properties_of(history), schema, key, partition)


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


def shown(rows: list[Row], key: list[str]) -> list[Row]:
    """Return rows by key, with values that can be compared."""
    ordered = sorted(
        rows, key=lambda row: [repr(type(row[name])) + repr(row[name]) for name in key]
    )
    return [{name: comparable(value) for name, value in row.items()} for row in ordered]
