"""The settings of a table with a primary key: read from properties, and checked against its schema.

Names are those of Paimon with ``_`` for ``-``; the spelling with ``-`` is taken too. An unknown
name of this family, a value of another form, and settings that contradict each other are errors.
So are combinations whose result would depend on how rows were grouped into commits, or on when
compaction ran; the message names the exact alternative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from fermion_table.schema.field_settings import (
    check_exact,
    check_ordered,
    field_functions,
    removing_sequences,
    sequence_groups,
)
from fermion_table.schema.key_encoding import check_key_type
from fermion_table.schema.properties import (
    NUMBER_MAX,
    ChangelogProducer,
    KeySettings,
    MergeEngine,
    check_no_repeats,
)
from fermion_table.schema.record_expiry import RecordExpiry, record_expiry

STOP_RUNS = 3
"""By default a writer that compacts waits at so many runs more than the trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """What the settings say.

    Attributes
    ----------
    trigger
        Number of sorted runs from which on a tree is compacted.
    stop_trigger
        Number of sorted runs of a tree from which on a writer that compacts waits for compaction.
    max_size_amplification_percent, size_ratio, pick_rule
        How runs are picked: see `fermion_table.compaction.universal.UniversalOptions`.
    total_size_threshold, incremental_size_threshold
        Bytes, of the same; None: no such rule.
    optimization_interval_ms
        Milliseconds after which a tree is compacted fully; None: no such rule.
    delta_commits
        Number of commits after which a tree is compacted fully; None: no such rule.
    force_lookup
        Whether level 0 is to be compacted although there are few runs.
    lookup_interval
        Number of commits after which level 0 is compacted where it is to be.
    is_inline
        Whether a writer compacts the trees that its commit has changed.
    """

    trigger: int = 5
    stop_trigger: int = 5 + STOP_RUNS
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    pick_rule: Literal["current", "seed"] = "current"
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None
    optimization_interval_ms: int | None = None
    delta_commits: int | None = None
    force_lookup: bool = False
    lookup_interval: int = 1
    is_inline: bool = False


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
    removing_sequences
        Of ``partial_update``: sequences of groups by which a deletion removes the whole row.
    changelog_producer
        What records changes.
    row_deduplicate
        Whether rows that did not change are left out of what compactions record.
    changelogs_retained, changelog_age_ms
        How many changelogs, and for how long, outlive their snapshots at least; None: as these.
    deletion_vectors
        Whether compaction marks the rows of older runs that it replaces as deleted.
    merge_on_read
        Whether scans then read level 0 too.
    compaction
        When trees are compacted, and by whom.
    record_expiry
        When rows expire; None: never.
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
    removing_sequences: frozenset[str] = frozenset()
    changelog_producer: ChangelogProducer = "none"
    row_deduplicate: bool = False
    changelogs_retained: int | None = None
    changelog_age_ms: int | None = None
    deletion_vectors: bool = False
    merge_on_read: bool = True
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    record_expiry: RecordExpiry | None = None

    @property
    def reads_level0(self) -> bool:
        """Whether rows that no compaction has taken yet are shown."""
        return self.merge_on_read or not self.deletion_vectors


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
    settings = KeySettings(properties)
    columns = {each.name: each.type for each in schema}
    _check_key(columns, primary_key, partition_columns)
    engine: MergeEngine = settings.value("merge_engine")
    groups = sequence_groups(settings, columns, primary_key, engine)
    producer: ChangelogProducer = settings.value("changelog_producer")
    deletion_vectors = settings.value("deletion_vectors.enabled")
    options = KeyOptions(
        bucket=settings.value("bucket"),
        bucket_key=_bucket_key(settings, primary_key, partition_columns),
        merge_engine=engine,
        ignore_delete=settings.value("ignore_delete") or settings.value(f"{engine}.ignore_delete"),
        sequence_fields=_sequence_fields(settings, columns, engine),
        sequence_descending=settings.value("sequence.field.sort_order") == "descending",
        functions=field_functions(settings, columns, primary_key, engine, groups),
        sequence_groups=groups,
        remove_record_on_delete=engine in ("partial_update", "aggregation")
        and settings.value(f"{engine}.remove_record_on_delete"),
        removing_sequences=removing_sequences(settings, engine, groups),
        changelog_producer=producer,
        row_deduplicate=settings.value("changelog_producer.row_deduplicate"),
        changelogs_retained=settings.value("changelog.num_retained"),
        changelog_age_ms=settings.value("changelog.time_retained"),
        deletion_vectors=deletion_vectors,
        merge_on_read=settings.value("deletion_vectors.merge_on_read"),
        compaction=_compaction(settings, needs_lookup=deletion_vectors or producer == "lookup"),
        record_expiry=record_expiry(settings, columns),
    )
    settings.refuse_the_rest(engine)
    _check_together(options)
    return options


def _compaction(settings: KeySettings, *, needs_lookup: bool) -> CompactionSettings:
    """Read the settings of compaction; ``needs_lookup``: another setting asks for lookups."""
    trigger = settings.value("num_sorted_run.compaction_trigger")
    stop = settings.value("num_sorted_run.stop_trigger", min(trigger + STOP_RUNS, NUMBER_MAX))
    if stop < trigger:
        raise InvalidArgumentError(
            f"num_sorted_run.stop_trigger={str(stop)!r}: expected a number from {trigger} to "
            f"{NUMBER_MAX}"
        )
    force_lookup = settings.value("force_lookup")
    writes_only = settings.value("write_only")
    return CompactionSettings(
        trigger=trigger,
        stop_trigger=stop,
        max_size_amplification_percent=settings.value("compaction.max_size_amplification_percent"),
        size_ratio=settings.value("compaction.size_ratio"),
        pick_rule=settings.value("compaction.pick_rule"),
        total_size_threshold=settings.value("compaction.total_size_threshold"),
        incremental_size_threshold=settings.value("compaction.incremental_size_threshold"),
        optimization_interval_ms=settings.value("compaction.optimization_interval"),
        delta_commits=settings.value("full_compaction.delta_commits"),
        force_lookup=force_lookup,
        lookup_interval=_lookup_interval(
            settings, trigger, needs_lookup=needs_lookup or force_lookup
        ),
        is_inline=settings.value("compaction") == "inline" and not writes_only,
    )


def _lookup_interval(settings: KeySettings, trigger: int, *, needs_lookup: bool) -> int:
    mode, interval = "lookup_compact", "lookup_compact.max_interval"
    is_gentle = settings.value(mode) == "gentle"
    if settings.has(mode) and not needs_lookup:
        raise InvalidArgumentError(
            f"{mode}: says when level 0 is compacted for lookups: expected one of "
            "force_lookup=true, deletion_vectors.enabled=true and changelog_producer=lookup with it"
        )
    if settings.has(interval) and not is_gentle:
        raise InvalidArgumentError(f"{interval}: is for {mode}=gentle")
    commits = settings.value(interval, min(2 * trigger, NUMBER_MAX))
    return commits if is_gentle else 1


def _check_together(options: KeyOptions) -> None:
    if not options.merge_on_read and not options.deletion_vectors:
        raise InvalidArgumentError(
            "deletion_vectors.merge_on_read=false needs deletion_vectors.enabled=true: without "
            "deletion vectors all levels are merged"
        )
    if options.ignore_delete and options.remove_record_on_delete:
        raise InvalidArgumentError(
            f"ignore_delete=true drops the deletions that {options.merge_engine}."
            "remove_record_on_delete=true waits for: set one of them"
        )
    if options.sequence_groups and options.remove_record_on_delete:
        raise InvalidArgumentError(
            "partial_update.remove_record_on_delete=true with sequence groups, by which a deletion "
            "sets the fields of its group to null: use partial_update."
            "remove_record_on_sequence_group=<sequence> instead"
        )
    if options.ignore_delete and options.removing_sequences:
        raise InvalidArgumentError(
            "ignore_delete=true drops the deletions that partial_update."
            "remove_record_on_sequence_group waits for: set one of them"
        )
    if options.merge_engine == "first_row" and options.changelog_producer not in ("none", "lookup"):
        raise InvalidArgumentError(
            f"changelog_producer={options.changelog_producer} with merge_engine=first_row: "
            "expected none or lookup"
        )
    if options.deletion_vectors and options.changelog_producer == "full_compaction":
        raise InvalidArgumentError(
            "changelog_producer=full_compaction with deletion_vectors.enabled=true, by which rows "
            "of the top level go before it is compacted: use changelog_producer=lookup"
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
        check_exact(column, function, "with sequence.field", "no sequence.field")


def _check_key(
    columns: Mapping[str, pa.DataType], key: tuple[str, ...], partition: tuple[str, ...]
) -> None:
    if not key:
        raise InvalidArgumentError("primary_key: expected at least one column")
    for name in key:
        if name not in columns:
            raise InvalidArgumentError(f"primary_key: column {name!r} is not in the schema")
        check_key_type(name, columns[name])
    check_no_repeats("primary_key", key)
    for name in partition:
        if name not in key:
            raise InvalidArgumentError(
                f"primary_key={list(key)}: expected to contain the partition column {name!r}, as "
                "rows of one key must lie in one partition"
            )


def _bucket_key(
    settings: KeySettings, key: tuple[str, ...], partition: tuple[str, ...]
) -> tuple[str, ...]:
    default = tuple(name for name in key if name not in partition) or key
    named = settings.value("bucket_key", default)
    for name in named:
        if name not in key or (name in partition and name not in default):
            raise InvalidArgumentError(
                f"bucket_key: column {name!r}: expected columns of the primary key that are no "
                f"partition columns, {list(default)}, so that rows of one key share a bucket"
            )
    return named


def _sequence_fields(
    settings: KeySettings, columns: Mapping[str, pa.DataType], engine: MergeEngine
) -> tuple[str, ...]:
    fields = settings.value("sequence.field", ())
    if not fields and settings.has("sequence.field.sort_order"):
        raise InvalidArgumentError("sequence.field.sort_order: there is no sequence.field")
    for name in fields:
        if name not in columns:
            raise InvalidArgumentError(f"sequence.field: column {name!r} is not in the schema")
        check_ordered("sequence.field", name, columns[name])
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
