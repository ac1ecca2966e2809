"""Schemas of a Paimon table as ours: columns by field id, options as properties."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.engine import SchemaUpdate
from fermion_table.schema.properties import OF_ALL_TABLES, plain_name, property_of

LEFT_OUT = "paimon.left_out"
"""A property: options of the table that were left out, with commas between them."""
SCHEMA_ID = "paimon.schema_id"
"""A property: which of Paimon's schemas the table has."""

# Options that say how Paimon stores, plans or writes, not what rows a table has.
_OF_STORAGE = re.compile(
    r"(add-column-before-partition|async-file|auto-create|avro|bitmap-index|blob|branch|"
    r"btree-index|bucket-append|cache|changelog-file|clustering|commit|compaction|consumer|"
    r"continuous|data-evolution|data-file|delete-file|deletion-vectors?|delta|dynamic-bucket|dynamic-partition|"
    r"end-input|fallback|fields\..*\.default-value|file|full-compaction|full-text|global-index|"
    r"hadoop|hive|iceberg|ignore-update-before|incremental|index-file|local|log|lookup|manifest|"
    r"materialized-table|metadata|metastore|mosaic|num-|orc|owner|page-size|parquet|partition|"
    r"path|pk-|postpone|query-auth|read|row-tracking|rowkind|scalar-index|scan|sink|snapshot|sort|"
    r"sorted-index|source|spill|streaming|table-read|tag|target-file-row|type|variant|vector|"
    r"video|visibility|vortex|write|zorder)\b.*|num-.*|pk-.*"
)
_OF_COLUMNS = ("sequence.field", "bucket-key", "record-level.time-field")
_FIELD_OPTION = re.compile(r"fields\.(.+)\.([a-z-]+)")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a table of ours has by one of Paimon's schemas.

    source: The schema of Paimon, a `pypaimon.schema.table_schema.TableSchema`, whose options name
        columns as they are called in it.
    schema: Columns; those of the primary key are NOT NULL.
    properties: Ours, of the options that have a counterpart.
    """

    source: Any
    schema: pa.Schema
    properties: dict[str, str]


def definitions(schemas: Sequence[Any], leave_out: Collection[str]) -> dict[int, Definition]:
    """All schemas of a Paimon table by id.

    Raises InvalidArgumentError: Options that have no counterpart and are not to be left out; names
        them.
    """
    names: dict[int, set[str]] = {}
    defined = {}
    for source in sorted(schemas, key=lambda schema: schema.id):
        for field in source.fields:
            names.setdefault(field.id, set()).add(field.name)
        now = {old: field.name for field in source.fields for old in names[field.id]}
        now |= {field.name: field.name for field in source.fields}
        source = source.copy(new_options=_renamed(source.options, now))
        defined[source.id] = Definition(
            source, arrow_schema(source), _properties(source, leave_out)
        )
    return defined


def arrow_schema(source: Any) -> pa.Schema:
    """The columns of a schema of Paimon."""
    from pypaimon.schema.data_types import PyarrowFieldParser  # optional

    fields = []
    for field, arrow in zip(
        source.fields, PyarrowFieldParser.from_paimon_schema(source.fields), strict=True
    ):
        nullable = arrow.nullable and field.name not in source.primary_keys
        metadata = {"comment": field.description} if field.description else None
        fields.append(pa.field(field.name, arrow.type, nullable, metadata))
    return pa.schema(fields)


def _renamed(options: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Options whose columns are called as they are now: pypaimon keeps names of before."""

    def current(names: str) -> str:
        return ",".join(now.get(name.strip(), name.strip()) for name in names.split(","))

    renamed = {}
    for name, value in options.items():
        if match := _FIELD_OPTION.fullmatch(name):
            name = f"fields.{current(match[1])}.{match[2]}"
            if match[2] == "sequence-group":
                value = current(value)
        renamed[name] = current(value) if name in _OF_COLUMNS else value
    return renamed


def _properties(source: Any, leave_out: Collection[str]) -> dict[str, str]:
    of_all = {known.name for known in OF_ALL_TABLES}
    kept: dict[str, str] = {SCHEMA_ID: str(source.id)}
    left: list[str] = []
    refused: list[str] = []
    for name, value in source.options.items():
        plain = plain_name(name)
        if name in leave_out:
            left.append(name)
        elif name == "bucket" and value == "-2":
            refused.append("bucket=-2 (rows that readers see after compaction)")
        elif name == "primary-key.nullable" and value.strip().lower() == "true":
            refused.append("primary-key.nullable=true (keys are never null)")
        elif plain in of_all or (source.primary_keys and property_of(plain) is not None):
            if plain == "bucket" and value == "-1":
                left.append("bucket=-1")
            else:
                kept[plain] = value
        elif property_of(plain) is not None or _OF_STORAGE.fullmatch(name):
            left.append(name)
        elif "." in name and not name.startswith("fields."):
            kept[name] = value  # a name of the user's own
        else:
            refused.append(name)
    defaults = [field.name for field in source.fields if field.default_value is not None]
    if defaults:
        (left if "default-values" in leave_out else refused).append(
            f"default-values (of {', '.join(defaults)})"
        )
    if refused:
        raise InvalidArgumentError(
            f"schema {source.id} of the Paimon table: {', '.join(sorted(refused))}: no "
            "counterpart; leave_out takes names of options that are to be left out"
        )
    if left:
        kept[LEFT_OUT] = ", ".join(sorted(left))
    if source.comment:
        kept["comment"] = source.comment
    return kept


def update_schema(update: SchemaUpdate, old: Definition, new: Definition) -> None:
    """Collect what leads from one definition to the next: columns are the same by field id."""
    update.set_properties(
        {}, remove=[each for each in old.properties if each not in new.properties]
    )
    _update_fields(update, (), old.source.fields, new.source.fields, new.schema)
    current = update.schema.properties
    changed = {name: value for name, value in new.properties.items() if current.get(name) != value}
    update.set_properties(changed)


def _update_fields(
    update: SchemaUpdate,
    path: tuple[str, ...],
    old: Sequence[Any],
    new: Sequence[Any],
    arrow: Any,
) -> None:
    """Bring the fields of the table, or those of a struct, from one list of Paimon's to another.

    arrow: The new ones as Arrow: a schema, or a struct type.
    """
    before = {field.id: field for field in old}
    after = {field.id for field in new}
    for field in old:
        if field.id not in after:
            update.drop_column((*path, field.name))
    renamed = [each for each in new if each.id in before and before[each.id].name != each.name]
    for field in renamed:  # first to names that none of them has: two may swap theirs
        update.rename_column((*path, before[field.id].name), _moving(field.name))
    for field in new:
        target = arrow.field(field.name)
        if field.id not in before:
            update.add_field((*path, field.name), target)
            continue
        earlier = before[field.id]
        if earlier.name != field.name:
            update.rename_column((*path, _moving(field.name)), field.name)
        _update_field(update, (*path, field.name), earlier, field, target)
    kept = [field.id for field in old if field.id in after]
    added = [field.id for field in new if field.id not in before]
    if kept + added != [field.id for field in new]:
        update.move_first((*path, new[0].name))
        for first, second in pairwise(new):
            update.move_after((*path, second.name), first.name)


def _moving(name: str) -> str:
    return f"{name}\u200b"  # no column of a user ends like this


def _update_field(
    update: SchemaUpdate, path: tuple[str, ...], old: Any, new: Any, target: pa.Field
) -> None:
    fields = getattr(old.type, "fields", None), getattr(new.type, "fields", None)
    if fields[0] is not None and fields[1] is not None:
        _update_fields(update, path, fields[0], fields[1], target.type)
    elif str(old.type).removesuffix(" NOT NULL") != str(new.type).removesuffix(" NOT NULL"):
        update.alter_column(path, type=target.type)
    if old.type.nullable != new.type.nullable:
        update.alter_column(path, nullable=target.nullable)
    if old.description != new.description:
        update.alter_column(path, comment=new.description)
