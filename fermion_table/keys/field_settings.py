"""Settings of the columns of a table with a primary key: functions and sequence groups."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.schema.field_functions import (
    COMMUTATIVE,
    FUNCTIONS,
    FieldFunction,
    SequenceGroup,
)
from fermion_table.schema.properties import KeySettings
from fermion_table.schema.property_kinds import check_no_repeats, nearest
from fermion_table.schema.value_codec import has_plain_json


def field_functions(
    settings: KeySettings,
    columns: Mapping[str, pa.DataType],
    key: tuple[str, ...],
    engine: MergeEngine,
    groups: tuple[SequenceGroup, ...],
) -> dict[str, FieldFunction]:
    """The function of every column that is no key; only of the engine ``aggregation``.

    Raises InvalidArgumentError: A function that is unknown, does not fit its column or stands where
        none is taken.
    """
    sequence = settings.value("sequence.field", ())
    default = "last_non_null_value"
    if engine.has_functions:
        default = settings.value("fields.default_aggregate_function", default)
    functions = {}
    grouped = {name for group in groups for name in group.columns}
    for name, dtype in columns.items():
        if engine.has_functions and name not in key:
            chosen = "last_value" if name in sequence else default
            functions[name] = _function(settings, name, dtype, chosen)
        elif name not in grouped:
            settings.refuse_functions(name, engine.name, is_key=name in key)
    return functions


def _function(
    settings: KeySettings, column: str, dtype: pa.DataType, default: str
) -> FieldFunction:
    prefix = f"fields.{column}."
    function = FieldFunction(
        name=settings.value(f"{prefix}aggregate_function", default),
        delimiter=settings.value(f"{prefix}list_agg_delimiter"),
        distinct=settings.value(f"{prefix}distinct"),
        nested_key=settings.value(f"{prefix}nested_key", ()),
        count_limit=settings.value(f"{prefix}count_limit"),
        ignore_retract=settings.value(f"{prefix}ignore_retract"),
    )
    _check_function(settings, column, dtype, function)
    return function


def sequence_groups(
    settings: KeySettings,
    columns: Mapping[str, pa.DataType],
    key: tuple[str, ...],
    engine: MergeEngine,
) -> tuple[SequenceGroup, ...]:
    """The sequence groups of ``partial_update``.

    Raises InvalidArgumentError: A group of another engine, with a column that is missing, of the
        key or in two groups, or with a function whose result would depend on when late rows are
        merged.
    """
    groups: list[SequenceGroup] = []
    taken: dict[str, str] = {}
    for setting, sequence in settings.sequence_groups():
        if not engine.has_sequence_groups:
            raise InvalidArgumentError(
                f"{setting}: sequence groups are for merge_engine=partial_update, found "
                f"{engine.name}; use sequence.field"
            )
        members = settings.value(setting, ())
        for name in (*sequence, *members):
            if name not in columns:
                raise InvalidArgumentError(f"{setting}: column {name!r} is not in the schema")
            if name in key:
                raise InvalidArgumentError(f"{setting}: column {name!r} is of the primary key")
            if name in taken:
                raise InvalidArgumentError(
                    f"{setting}: column {name!r} is in {taken[name]} already"
                )
            taken[name] = setting
        for name in sequence:
            check_ordered(setting, name, columns[name])
            settings.refuse_functions(name, engine.name, is_key=False)
        functions = _functions_of_group(settings, columns, members)
        groups.append(SequenceGroup(sequence=sequence, columns=members, functions=functions))
    return tuple(groups)


def _functions_of_group(
    settings: KeySettings, columns: Mapping[str, pa.DataType], members: tuple[str, ...]
) -> dict[str, FieldFunction]:
    default = settings.value("fields.default_aggregate_function", "")
    functions = {
        name: _function(settings, name, columns[name], default)
        for name in members
        if default or settings.has(f"fields.{name}.aggregate_function")
    }
    for name, function in functions.items():
        check_exact(name, function, "in a sequence group", "no function")
    return functions


def removing_sequences(
    settings: KeySettings, engine: MergeEngine, groups: tuple[SequenceGroup, ...]
) -> frozenset[str]:
    """The sequences of the groups by which a deletion removes the whole row.

    Raises InvalidArgumentError: A column that is the sequence of no group.
    """
    if not engine.has_sequence_groups:
        return frozenset()
    name = "partial_update.remove_record_on_sequence_group"
    found = settings.value(name, ())
    known = [column for group in groups for column in group.sequence]
    for column in found:
        if column not in known:
            raise InvalidArgumentError(
                f"{name}: expected sequences of groups (fields.<sequence>.sequence_group), "
                f"{', '.join(known) or 'of which there are none'}, found {column!r}"
            )
    return frozenset(found)


def check_exact(column: str, function: FieldFunction, where: str, without: str) -> None:
    """Refuse a function whose result depends on when late rows are merged.

    Raises InvalidArgumentError: Names the column, and the functions that are exact.
    """
    is_set = function.name == "collect" and function.distinct
    if function.name not in COMMUTATIVE | {"last_value"} and not is_set:
        raise InvalidArgumentError(
            f"{function.name} of column {column!r} {where} depends on the order in which rows are "
            f"merged; exact {where} are last_value, {', '.join(sorted(COMMUTATIVE))} and collect "
            f"with distinct: choose one of them (fields.{column}.aggregate_function), or {without}"
        )


def check_ordered(setting: str, column: str, dtype: pa.DataType) -> None:
    """Refuse a column by whose values rows can't be ordered.

    Raises InvalidArgumentError: Names the setting and the column.
    """
    if not has_plain_json(dtype):
        raise InvalidArgumentError(
            f"{setting}: column {column!r} is {dtype}: its values have no order"
        )


def _check_function(
    settings: KeySettings, column: str, dtype: pa.DataType, function: FieldFunction
) -> None:
    where = f"fields.{column}.aggregate_function={function.name}"
    if function.name not in FUNCTIONS:
        raise InvalidArgumentError(
            f"{where}: expected one of {', '.join(FUNCTIONS)}{nearest(function.name, FUNCTIONS)}"
        )
    fits, expected = FUNCTIONS[function.name]
    if not fits(dtype):
        raise InvalidArgumentError(f"{where}: column {column!r} is {dtype}, expected {expected}")
    for setting, names in (
        ("list_agg_delimiter", ("listagg",)),
        ("distinct", ("listagg", "collect")),
        ("nested_key", ("nested_update",)),
        ("count_limit", ("nested_update",)),
    ):
        if settings.has(f"fields.{column}.{setting}") and function.name not in names:
            raise InvalidArgumentError(
                f"fields.{column}.{setting}: is for {' and '.join(names)}, and the function of "
                f"{column!r} is {function.name}"
            )
    if function.name == "listagg" and not function.delimiter and function.distinct:
        raise InvalidArgumentError(
            f"fields.{column}.list_agg_delimiter: expected some text, as distinct=true takes the "
            "items apart by it"
        )
    if function.nested_key and function.count_limit is not None:
        raise InvalidArgumentError(
            f"fields.{column}.count_limit with nested_key: which items are left out would depend "
            "on when rows are merged; set one of them"
        )
    if function.nested_key:
        check_no_repeats(f"fields.{column}.nested_key", function.nested_key)
        item = {each.name for each in dtype.value_type}
        for name in function.nested_key:
            if name not in item:
                raise InvalidArgumentError(
                    f"fields.{column}.nested_key: {name!r} is no field of {dtype.value_type}"
                )
