"""Primary keys in a table's schema: what a new table gets, and which changes are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.keys.settings import parse_key_options
from fermion_table.schema.field_functions import PICKS, FieldFunction
from fermion_table.schema.key_encoding import check_key_type, keeps_keys
from fermion_table.schema.key_options import KeyOptions, check_required
from fermion_table.schema.properties import KeySettings, plain_name
from fermion_table.schema.schema import (
    KEY_COLUMN,
    KIND_COLUMN,
    Field,
    TableSchema,
    field_to_arrow,
    has_buckets,
)

BUCKET = "bucket"
"""The setting that tells a primary-key table from an append table whose key is only recorded."""
_COUNTING = ("sum", "product", "listagg", "collect", "nested_update")
"""Functions whose result changes where a value comes twice, unless it is told not to."""
NEEDS_KEY = ("bucket", "bucket_key", "merge_engine", "changelog_producer")


def bucket_setting(schema: TableSchema) -> int:
    """The number of buckets that a partition gets with its first file.

    Raises InvalidArgumentError: The setting has another form.
    """
    named = schema.properties.items()
    found = {name: value for name, value in named if plain_name(name) == BUCKET}
    return KeySettings(found).value(BUCKET)


def with_bucket_counts(old: TableSchema, new: TableSchema) -> TableSchema:
    """The next version of a schema, which knows the earlier values of ``bucket``."""
    if not (has_buckets(old) and has_buckets(new)):
        return new
    before, now = bucket_setting(old), bucket_setting(new)
    if before == now:
        return new
    counts = {*old.bucket_counts, before, now}
    return msgspec.structs.replace(new, bucket_counts=tuple(sorted(counts)))


def key_options(schema: TableSchema) -> KeyOptions:
    """The settings of a primary-key table.

    Raises InvalidArgumentError: See `parse_key_options`; or a column has a name that merging uses.
    """
    for name in (KIND_COLUMN, KEY_COLUMN):
        if name in schema.by_name:
            raise InvalidArgumentError(
                f"column {name!r}: the name is reserved in tables with a primary key"
            )
    by_id = schema.by_id
    options = parse_key_options(
        schema.properties,
        pa.schema([field_to_arrow(field, field_ids=False) for field in schema.fields]),
        tuple(by_id[field_id].name for field_id in schema.primary_key),
        tuple(by_id[each.source_id].name for each in schema.partition_by),
    )
    sequences = (options.sequence_fields, *(each.sequence for each in options.sequence_groups))
    functions = _functions(options)
    for name in schema.blob_columns:
        function = functions.get(name)
        if any(name in each for each in sequences) or (function and function.name not in PICKS):
            raise InvalidArgumentError(
                f"column {name!r} of blobs: rows can't be ordered by it, and of the aggregate "
                f"functions it takes {', '.join(sorted(PICKS))}"
            )
    return options


def with_key(schema: TableSchema) -> TableSchema:
    """A new table's schema with what its primary key asks for: NOT NULL columns, a bucket.

    Raises InvalidArgumentError: A key, a sort order or settings that no table can have.
    """
    if not schema.primary_key:
        refuse_settings_of_keys(schema.properties)
        return schema
    key = set(schema.primary_key)
    for field_id in schema.primary_key:
        check_key_type(schema.by_id[field_id].name, schema.by_id[field_id].type)
    fields = tuple(
        msgspec.structs.replace(field, nullable=False) if field.id in key else field
        for field in schema.fields
    )
    made = msgspec.structs.replace(schema, fields=fields)
    if not has_buckets(made):
        made = msgspec.structs.replace(made, properties={**made.properties, BUCKET: "1"})
    options = key_options(made)
    check_required(made.fields, options)
    _check_functions(made.fields, options)
    _check_order(made)
    return made


def refuse_settings_of_keys(properties: Mapping[str, str]) -> None:
    """Refuse settings that only a table with a primary key has.

    Raises InvalidArgumentError.
    """
    for name in properties:
        if plain_name(name) in NEEDS_KEY:
            raise InvalidArgumentError(f"property {name!r}: the table has no primary key")


def check_key_change(
    old: TableSchema,
    new: TableSchema,
    *,
    has_rows: bool,
    has_retractions: Callable[[], bool] = lambda: False,
) -> None:
    """Refuse a schema that would give a table's rows other keys, or merge them otherwise.

    has_rows: Whether rows were written under the old one.
    has_retractions: Whether some of them take values back. Asked only where that matters.
    Raises InvalidArgumentError.
    """
    if not has_buckets(old):
        added = {
            name: value
            for name, value in new.properties.items()
            if old.properties.get(name) != value
        }
        refuse_settings_of_keys(added)
        return
    if not has_buckets(new):
        raise InvalidArgumentError(
            "property 'bucket' can't be removed from a table with a primary key"
        )
    after = _options_of_change(old, new)
    if new.sort_by != old.sort_by:
        _check_order(new)
    for field_id in new.primary_key:
        _check_type(old.by_id[field_id], new.by_id[field_id])
    check_required(newly_required(old, new), after)
    _check_functions([field for field in new.fields if field.id not in old.by_id], after)
    if not has_rows:
        return
    _check_defaults(old, new, after, has_retractions)
    names = {field.name: new.by_id[field.id].name for field in old.fields if field.id in new.by_id}
    first = key_options(old)
    if after.deletion_vectors and not first.deletion_vectors:
        raise InvalidArgumentError(
            "deletion_vectors.enabled can't change from false to true, as the table has rows that "
            "no compaction has marked: make a new table, or replace this one with mode='overwrite'"
        )
    before, now = _merging(first, names), _merging(after, {})
    functions = _functions(after)
    for column, function in _functions(first).items():
        name = names.get(column)
        if name in functions and not _may_ignore(new.by_name[name], function, functions[name]):
            before[f"fields.{name}.aggregate_function"] = function
            now[f"fields.{name}.aggregate_function"] = functions[name]
    for setting, value in before.items():
        if now[setting] != value:
            raise InvalidArgumentError(
                f"{setting} can't change from {_shown(value)} to {_shown(now[setting])}, as the "
                "table's rows were merged by it: make a new table, or replace this one with "
                "mode='overwrite'"
            )


def _options_of_change(old: TableSchema, new: TableSchema) -> KeyOptions:
    """The settings of a changed schema; says how columns are changed that settings name."""
    try:
        return key_options(new)
    except InvalidArgumentError as error:
        if [field.name for field in old.fields] == [field.name for field in new.fields]:
            raise
        raise InvalidArgumentError(
            f"{error}; change columns and the properties that name them together: with "
            "table.update_schema() as update: update.set_properties({...}, remove=[...]); "
            "update.add_column(...)"
        ) from None


def newly_required(old: TableSchema, new: TableSchema) -> list[Field]:
    """The columns that are NOT NULL now, and were not."""
    known = {field.id for field in old.fields if not field.nullable}
    return [field for field in new.fields if not field.nullable and field.id not in known]


def _shown(value: Any) -> str:
    """A setting in words; of a function its name, and the options that are not the default."""
    if not isinstance(value, FieldFunction):
        return repr(value)
    default = FieldFunction(name=value.name)
    options = [
        f"{each.name}={getattr(value, each.name)!r}"
        for each in fields(value)
        if getattr(value, each.name) != getattr(default, each.name)
    ]
    return f"{value.name} ({', '.join(options)})" if options else value.name


def _merging(options: KeyOptions, names: Mapping[str, str]) -> dict[str, Any]:
    """What decides where rows are and what they are merged to, by setting, under other names."""

    def renamed(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(column, column) for column in columns)

    return {
        "bucket_key": renamed(options.bucket_key),
        "merge_engine": options.merge_engine,
        "ignore_delete": options.ignore_delete,
        "sequence.field": renamed(options.sequence_fields),
        "sequence.field.sort_order": options.sequence_descending,
        "remove_record_on_delete": options.remove_record_on_delete,
        "remove_record_on_sequence_group": sorted(renamed(tuple(options.removing_sequences))),
        "sequence groups": [
            (renamed(group.sequence), renamed(group.columns)) for group in options.sequence_groups
        ],
    }


def _may_ignore(field: Field, old: FieldFunction, new: FieldFunction) -> bool:
    """Whether a function may ignore retractions from now on.

    Those that it would have refused, and that are there all the same, were written before the
    column was added, and have no value of it. Only ``first_value`` counts such rows.
    """
    return (
        new == replace(old, ignore_retract=True)
        and old.refuses_retractions
        and old.name != "first_value"
        and field.stored_initial_default is None
    )


def _new_defaults(
    old: TableSchema, new: TableSchema, options: KeyOptions
) -> Iterator[tuple[Field, FieldFunction]]:
    """The columns that one version adds to another with a default and a function."""
    functions = _functions(options)
    for field in new.fields:
        function = functions.get(field.name)
        if field.id not in old.by_id and field.stored_initial_default is not None and function:
            yield field, function


def _check_defaults(
    old: TableSchema, new: TableSchema, options: KeyOptions, has_retractions: Callable[[], bool]
) -> None:
    """Refuse a default that rows stored before would show or not, folded or not."""
    for field, function in _new_defaults(old, new, options):
        if function.name in _COUNTING and not (function.distinct or function.nested_key):
            raise InvalidArgumentError(
                f"column {field.name!r}: {function.name} would add its default once for every row "
                "of a key that has not been merged yet, so the result would depend on compaction; "
                "add the column without a default"
            )
    undecided = undecided_defaults(old, new)
    if undecided and has_retractions():
        compaction = "" if options.sequence_fields else "call compact(full=True) first, or "
        raise InvalidArgumentError(
            f"column {undecided[0]!r}: the table has rows that take values back and are not "
            "compacted, and whether the default shows would depend on when they are; "
            f"{compaction}add the column without a default"
        )


def undecided_defaults(old: TableSchema, new: TableSchema) -> list[str]:
    """Columns that are new, and whose default older retractions would take back or leave out.

    A compaction makes one row of the retractions of a key, and that has the default. With functions
    that refuse retractions the older ones count as rows that have the default, too.
    """
    found = _new_defaults(old, new, key_options(new))
    return [field.name for field, function in found if not function.refuses_retractions]


def _check_functions(fields: Iterable[Field], options: KeyOptions) -> None:
    """Refuse functions of new columns whose result would depend on when rows are merged."""
    functions = _functions(options)
    for field in fields:
        function = functions.get(field.name)
        if function and function.name == "first_value" and function.ignore_retract:
            raise InvalidArgumentError(
                f"column {field.name!r}: first_value with ignore_retract would take the null of a "
                "key whose rows were all taken back for its first value, if a compaction came "
                "before the next row; use first_non_null_value"
            )


def _check_order(schema: TableSchema) -> None:
    """Refuse a sort order other than that of the key, by which files are sorted."""
    count = len(schema.sort_by)
    if schema.sort_by != schema.primary_key[:count]:
        names = [schema.by_id[field_id].name for field_id in schema.sort_by]
        raise InvalidArgumentError(
            f"sort_by={names}: the files of a table with a primary key are sorted by that key, "
            "which lookups and merges need: expected no sort_by, or the first columns of the key"
        )


def _check_type(old: Field, new: Field) -> None:
    if not keeps_keys(old.type, new.type):
        raise InvalidArgumentError(
            f"key column {new.name!r} can't change from {old.type} to {new.type}: keys would have "
            "other bytes"
        )


def _functions(options: KeyOptions) -> dict[str, FieldFunction]:
    """The functions of columns, in sequence groups too."""
    functions = dict(options.functions)
    for group in options.sequence_groups:
        functions.update(group.functions)
    return functions
