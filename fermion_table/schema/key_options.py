"""The settings of a table with a primary key: read from properties, and checked against its schema.

Names are those of Paimon with ``_`` for ``-``; the spelling with ``-`` is taken too. An unknown
name of this family, a value of another form, and settings that contradict each other are errors.
So are combinations whose result would depend on how rows were grouped into commits, or on when
compaction ran; the message names the exact alternative.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.schema.field_functions import (
    COMMUTATIVE,
    FUNCTIONS,
    FieldFunction,
    SequenceGroup,
)
from fermion_table.schema.key_encoding import check_key_type
from fermion_table.schema.properties import parse_size
from fermion_table.schema.value_codec import has_plain_json

MergeEngine = Literal["deduplicate", "partial_update", "aggregation", "first_row"]
ChangelogProducer = Literal["none", "input", "lookup", "full_compaction"]

ENGINES: tuple[MergeEngine, ...] = get_args(MergeEngine)
PRODUCERS: tuple[ChangelogProducer, ...] = get_args(ChangelogProducer)
PREFIXES = (
    *("sequence.", "fields.", "changelog_producer.", "deletion_vectors.", "num_sorted_run."),
    *("compaction.", "full_compaction.", "lookup_compact.", "record_level.", "changelog."),
)
NAMES = (
    *("bucket", "bucket_key", "merge_engine", "ignore_delete", "changelog_producer"),
    *("lookup_compact", "force_lookup", "write_only", "compaction"),
)
"""Names of this family: these, those that begin as `PREFIXES` say or with an engine and a dot."""
_LIKENESS = 0.85
"""A name as like one of `NAMES` as this is taken for a slip, and refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """What the settings say.

    Attributes
    ----------
    bucket
        Number of buckets.
    bucket_key
        Columns by which rows are assigned to buckets.
    merge_engine
        What the rows of one key become.
    ignore_delete
        Whether retractions are dropped before anything else.
    sequence_fields
        Columns that order the rows of one key, before time does.
    sequence_descending
        Whether the smallest sequence is the newest.
    functions
        By column that is no key: of the engine ``aggregation`` for every one, else none.
    sequence_groups
        Of ``partial_update``.
    remove_record_on_delete
        Whether a deletion removes the whole row, of ``partial_update`` and ``aggregation``.
    changelog_producer
        Where changes are recorded.
    deletion_vectors
        Whether compaction marks the rows of older runs that it replaces as deleted.
    trigger
        Number of sorted runs from which on a tree is compacted.
    max_size_amplification_percent, size_ratio, pick_rule
        How runs are picked: see `fermion_table.compaction.universal.UniversalOptions`.
    total_size_threshold, incremental_size_threshold
        Bytes, of the same; None: no such rule.
    """

    bucket: int = 1
    bucket_key: tuple[str, ...] = ()
    merge_engine: MergeEngine = "deduplicate"
    ignore_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    sequence_descending: bool = False
    functions: Mapping[str, FieldFunction] = field(default_factory=dict)
    sequence_groups: tuple[SequenceGroup, ...] = ()
    remove_record_on_delete: bool = False
    changelog_producer: ChangelogProducer = "none"
    deletion_vectors: bool = False
    trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    pick_rule: Literal["current", "seed"] = "current"
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None


def parse_key_options(
    properties: Mapping[str, str],
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    partition_columns: tuple[str, ...] = (),
) -> KeyOptions:
    """Read and check the settings of a table with a primary key.

    Parameters
    ----------
    properties
        All of the table's; those of other families are left alone.
    schema
        The table's columns.
    primary_key
        Names of the key's columns, in its order.
    partition_columns
        Names of the columns that the table is partitioned by.

    Raises
    ------
    InvalidArgumentError
        A setting that is unknown, has another form, contradicts another one or names no column; a
        combination that is refused; a key without columns, with one twice, with a type that has no
        place in a key, or without a partition column.
    """
    settings = _Settings(properties)
    columns = {each.name: each.type for each in schema}
    _check_key(columns, primary_key, partition_columns)
    engine = settings.choice("merge_engine", ENGINES, "deduplicate")
    groups = _sequence_groups(settings, columns, primary_key, engine)
    options = KeyOptions(
        bucket=settings.number("bucket", 1, 1, 2**31 - 1),
        bucket_key=_bucket_key(settings, primary_key, partition_columns),
        merge_engine=engine,
        ignore_delete=settings.flag("ignore_delete") or settings.flag(f"{engine}.ignore_delete"),
        sequence_fields=_sequence_fields(settings, columns, engine),
        sequence_descending=settings.choice(
            "sequence.field.sort_order", ("ascending", "descending"), "ascending"
        )
        == "descending",
        functions=_functions(settings, columns, primary_key, engine, groups),
        sequence_groups=groups,
        remove_record_on_delete=engine in ("partial_update", "aggregation")
        and settings.flag(f"{engine}.remove_record_on_delete"),
        changelog_producer=settings.choice("changelog_producer", PRODUCERS, "none"),
        deletion_vectors=settings.flag("deletion_vectors.enabled"),
        trigger=settings.number("num_sorted_run.compaction_trigger", 5, 1, 2**31 - 1),
        max_size_amplification_percent=settings.number(
            "compaction.max_size_amplification_percent", 200, 0, 2**31 - 1
        ),
        size_ratio=settings.number("compaction.size_ratio", 1, 0, 2**31 - 1),
        pick_rule=settings.choice("compaction.pick_rule", ("current", "seed"), "current"),
        total_size_threshold=settings.size("compaction.total_size_threshold"),
        incremental_size_threshold=settings.size("compaction.incremental_size_threshold"),
    )
    settings.refuse_the_rest(engine)
    _check_together(options)
    return options


def _check_together(options: KeyOptions) -> None:
    if options.ignore_delete and options.remove_record_on_delete:
        raise InvalidArgumentError(
            f"ignore_delete=true drops the deletions that {options.merge_engine}."
            "remove_record_on_delete=true waits for: set one of them"
        )
    if options.sequence_groups and options.remove_record_on_delete:
        raise InvalidArgumentError(
            "partial_update.remove_record_on_delete=true with sequence groups, by which a deletion "
            "sets the fields of its group to null: set one of them"
        )
    if options.merge_engine == "first_row" and options.changelog_producer not in ("none", "lookup"):
        raise InvalidArgumentError(
            f"changelog_producer={options.changelog_producer} with merge_engine=first_row: "
            "expected none or lookup"
        )
    if not options.sequence_fields:
        return
    if options.merge_engine == "partial_update":
        raise InvalidArgumentError(
            "sequence.field with merge_engine=partial_update: a late row can't be put in its place "
            "once others were merged; use sequence groups (fields.<sequence>.sequence_group): they "
            "keep their own sequence"
        )
    for column, function in options.functions.items():
        _check_exact(column, function, "with sequence.field", "no sequence.field")


def _check_key(
    columns: Mapping[str, pa.DataType], key: tuple[str, ...], partition: tuple[str, ...]
) -> None:
    if not key:
        raise InvalidArgumentError("primary_key: expected at least one column")
    for name in key:
        if name not in columns:
            raise InvalidArgumentError(f"primary_key: column {name!r} is not in the schema")
        check_key_type(name, columns[name])
    _check_no_repeats("primary_key", key)
    for name in partition:
        if name not in key:
            raise InvalidArgumentError(
                f"primary_key={list(key)}: expected to contain the partition column {name!r}, as "
                "rows of one key must lie in one partition"
            )


def _check_no_repeats(setting: str, names: tuple[str, ...]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidArgumentError(f"{setting}: column {repeated[0]!r} is named twice")


def _bucket_key(
    settings: _Settings, key: tuple[str, ...], partition: tuple[str, ...]
) -> tuple[str, ...]:
    default = tuple(name for name in key if name not in partition) or key
    named = settings.names("bucket_key", default)
    for name in named:
        if name not in key or (name in partition and name not in default):
            raise InvalidArgumentError(
                f"bucket_key: column {name!r}: expected columns of the primary key that are no "
                f"partition columns, {list(default)}, so that rows of one key share a bucket"
            )
    return named


def _sequence_fields(
    settings: _Settings, columns: Mapping[str, pa.DataType], engine: MergeEngine
) -> tuple[str, ...]:
    fields = settings.names("sequence.field", ())
    if not fields and settings.has("sequence.field.sort_order"):
        raise InvalidArgumentError("sequence.field.sort_order: there is no sequence.field")
    for name in fields:
        if name not in columns:
            raise InvalidArgumentError(f"sequence.field: column {name!r} is not in the schema")
        _check_ordered("sequence.field", name, columns[name])
        if settings.has(f"fields.{name}.aggregate_function"):
            raise InvalidArgumentError(
                f"fields.{name}.aggregate_function: a sequence.field takes no function; its value "
                "is that of the newest row"
            )
    if fields and engine == "first_row":
        raise InvalidArgumentError(
            "sequence.field with merge_engine=first_row: the first row in time is kept; use "
            "merge_engine=deduplicate with sequence.field.sort_order=descending"
        )
    return fields


def _functions(
    settings: _Settings,
    columns: Mapping[str, pa.DataType],
    key: tuple[str, ...],
    engine: MergeEngine,
    groups: tuple[SequenceGroup, ...],
) -> dict[str, FieldFunction]:
    sequence = settings.names("sequence.field", ())
    default = "last_non_null_value"
    if engine == "aggregation":
        default = settings.text("fields.default_aggregate_function", default)
    functions = {}
    grouped = {name for group in groups for name in group.columns}
    for name, dtype in columns.items():
        if engine == "aggregation" and name not in key:
            chosen = "last_value" if name in sequence else default
            functions[name] = _function(settings, name, dtype, chosen)
        elif name not in grouped:
            settings.refuse_functions(name, engine, is_key=name in key)
    return functions


def _function(settings: _Settings, column: str, dtype: pa.DataType, default: str) -> FieldFunction:
    prefix = f"fields.{column}."
    function = FieldFunction(
        name=settings.text(f"{prefix}aggregate_function", default),
        delimiter=settings.text(f"{prefix}list_agg_delimiter", ","),
        distinct=settings.flag(f"{prefix}distinct"),
        nested_key=settings.names(f"{prefix}nested_key", ()),
        ignore_retract=settings.flag(f"{prefix}ignore_retract"),
    )
    _check_function(settings, column, dtype, function)
    return function


def _sequence_groups(
    settings: _Settings,
    columns: Mapping[str, pa.DataType],
    key: tuple[str, ...],
    engine: MergeEngine,
) -> tuple[SequenceGroup, ...]:
    groups: list[SequenceGroup] = []
    taken: dict[str, str] = {}
    for setting, sequence in settings.sequence_groups():
        if engine != "partial_update":
            raise InvalidArgumentError(
                f"{setting}: sequence groups are for merge_engine=partial_update, found {engine}; "
                "use sequence.field"
            )
        members = settings.names(setting, ())
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
            _check_ordered(setting, name, columns[name])
            settings.refuse_functions(name, engine, is_key=False)
        functions = _functions_of_group(settings, columns, members)
        groups.append(SequenceGroup(sequence=sequence, columns=members, functions=functions))
    return tuple(groups)


def _functions_of_group(
    settings: _Settings, columns: Mapping[str, pa.DataType], members: tuple[str, ...]
) -> dict[str, FieldFunction]:
    default = settings.text("fields.default_aggregate_function", "")
    functions = {
        name: _function(settings, name, columns[name], default)
        for name in members
        if default or settings.has(f"fields.{name}.aggregate_function")
    }
    for name, function in functions.items():
        _check_exact(name, function, "in a sequence group", "no function")
    return functions


def _check_exact(column: str, function: FieldFunction, where: str, without: str) -> None:
    """Refuse a function whose result depends on when late rows are merged."""
    is_set = function.name == "collect" and function.distinct
    if function.name not in COMMUTATIVE | {"last_value"} and not is_set:
        raise InvalidArgumentError(
            f"{function.name} of column {column!r} {where} depends on the order in which rows are "
            f"merged; exact {where} are last_value, {', '.join(sorted(COMMUTATIVE))} and collect "
            f"with distinct: choose one of them (fields.{column}.aggregate_function), or {without}"
        )


def _check_ordered(setting: str, column: str, dtype: pa.DataType) -> None:
    if not has_plain_json(dtype):
        raise InvalidArgumentError(
            f"{setting}: column {column!r} is {dtype}: its values have no order"
        )


def _check_function(
    settings: _Settings, column: str, dtype: pa.DataType, function: FieldFunction
) -> None:
    where = f"fields.{column}.aggregate_function={function.name}"
    if function.name not in FUNCTIONS:
        raise InvalidArgumentError(
            f"{where}: expected one of {', '.join(FUNCTIONS)}{_nearest(function.name, FUNCTIONS)}"
        )
    fits, expected = FUNCTIONS[function.name]
    if not fits(dtype):
        raise InvalidArgumentError(f"{where}: column {column!r} is {dtype}, expected {expected}")
    for setting, names in (
        ("list_agg_delimiter", ("listagg",)),
        ("distinct", ("listagg", "collect")),
        ("nested_key", ("nested_update",)),
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
    if function.nested_key:
        _check_no_repeats(f"fields.{column}.nested_key", function.nested_key)
        item = {each.name for each in dtype.value_type}
        for name in function.nested_key:
            if name not in item:
                raise InvalidArgumentError(
                    f"fields.{column}.nested_key: {name!r} is no field of {dtype.value_type}"
                )


class _Settings:
    """Properties of this family by their names with ``_``; remembers which were asked for."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        self._asked: set[str] = set()
        for name, value in properties.items():
            plain = plain_name(name)
            if not _is_of_family(plain):
                continue
            if self._values.get(plain, value) != value:
                raise InvalidArgumentError(f"property {name!r}: {plain!r} has another value")
            self._values[plain] = value

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str) -> str:
        self._asked.add(name)
        return self._values.get(name, default)

    def flag(self, name: str) -> bool:
        found = self.text(name, "false").strip().lower()
        if found not in ("true", "false"):
            raise InvalidArgumentError(f"{name}={found!r}: expected true or false")
        return found == "true"

    def number(self, name: str, default: int, least: int, most: int) -> int:
        found = self.text(name, str(default)).strip()
        if not re.fullmatch(r"-?\d{1,10}", found) or not least <= int(found) <= most:
            raise InvalidArgumentError(
                f"{name}={found!r}: expected a number from {least} to {most}"
            )
        return int(found)

    def size(self, name: str) -> int | None:
        return parse_size(self.text(name, ""), name) if self.has(name) else None

    def choice(self, name: str, choices: tuple[Any, ...], default: Any) -> Any:
        found = self.text(name, default).strip().lower().replace("-", "_")
        if found not in choices:
            raise InvalidArgumentError(
                f"{name}={found!r}: expected one of {', '.join(choices)}{_nearest(found, choices)}"
            )
        return found

    def names(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        self._asked.add(name)
        if name not in self._values:
            return default
        named = tuple(each.strip() for each in self._values[name].split(","))
        if not all(named):
            raise InvalidArgumentError(f"{name}={self._values[name]!r}: expected names of columns")
        _check_no_repeats(name, named)
        return named

    def sequence_groups(self) -> list[tuple[str, tuple[str, ...]]]:
        """Names of the settings of sequence groups, and the sequence that each name holds."""
        found = []
        for name in sorted(self._values):
            if name.startswith("fields.") and name.endswith(".sequence_group"):
                middle = name.removeprefix("fields.").removesuffix(".sequence_group")
                sequence = tuple(each.strip() for each in middle.split(","))
                _check_no_repeats(name, sequence)
                found.append((name, sequence))
        return found

    def refuse_functions(self, column: str, engine: str, *, is_key: bool) -> None:
        name = f"fields.{column}.aggregate_function"
        if not self.has(name):
            return
        if is_key:
            raise InvalidArgumentError(f"{name}: a column of the primary key takes no function")
        raise InvalidArgumentError(
            f"{name} with merge_engine={engine}: functions are for merge_engine=aggregation, and "
            "for columns of a sequence group (fields.<sequence>.sequence_group)"
        )

    def refuse_the_rest(self, engine: str) -> None:
        """Refuse names that nothing has asked for."""
        for name in sorted(self._values.keys() - self._asked):
            if name == "fields.default_aggregate_function":
                hint = ": is for merge_engine=aggregation, and for sequence groups"
            elif name.startswith("fields."):
                hint = ": no such column, or no such setting of a column"
            elif name.split(".")[0] in ENGINES:
                hint = f": is not for merge_engine={engine}"
            else:
                hint = _nearest(name, sorted(self._asked))
            raise InvalidArgumentError(f"property {name!r} is not known here{hint}")


def _is_of_family(name: str) -> bool:
    prefixes = (*PREFIXES, *(f"{engine}." for engine in ENGINES))
    return name.startswith(prefixes) or bool(difflib.get_close_matches(name, NAMES, 1, _LIKENESS))


def plain_name(name: str) -> str:
    """A name with ``_``; the part that names a column of ``fields.<column>.`` stays as it is."""
    if name.startswith("fields.") and name.count(".") >= 2:
        first, rest = name.split(".", 1)
        column, last = rest.rsplit(".", 1)
        return f"{first}.{column}.{last.replace('-', '_')}"
    return name.replace("-", "_")


def _nearest(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""
