"""The settings of a table with a primary key: read from properties, and checked against its schema.

Names are those of Paimon with ``_`` for ``-``; the spelling with ``-`` is taken too. An unknown
name of this family, a value of another form, and settings that contradict each other are errors.
So are combinations whose result would depend on how rows were grouped into commits, or on when
compaction ran; the message names the exact alternative.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.keys.field_settings import (
    check_exact,
    check_ordered,
    field_functions,
    removing_sequences,
    sequence_groups,
)
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.registry import ENGINES, engine_named
from fermion_table.schema.key_encoding import check_key_type
from fermion_table.schema.key_options import (
    STOP_RUNS,
    CompactionSettings,
    KeyOptions,
    deletion_expiry,
    record_expiry,
)
from fermion_table.schema.properties import (
    ChangelogProducer,
    KeySettings,
)
from fermion_table.schema.property_kinds import NUMBER_MAX, check_no_repeats


def parse_key_options(
    properties: Mapping[str, str],
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    partition_columns: tuple[str, ...] = (),
) -> KeyOptions:
    """Read and check the settings of a table with a primary key.

    properties: All of the table's; those of other families are left alone.
    primary_key: Names of the key's columns, in its order.
    partition_columns: Names of the columns that the table is partitioned by.
    Raises InvalidArgumentError: A setting that is unknown, has another form, contradicts another
        one or names no column; a combination that is refused; a key without columns, with one
        twice, with a type that has no place in a key, or without a partition column.
    """
    settings = KeySettings(properties, ENGINES)
    columns = {each.name: each.type for each in schema}
    _check_key(columns, primary_key, partition_columns)
    engine = engine_named(settings.value("merge_engine"))
    groups = sequence_groups(settings, columns, primary_key, engine)
    producer: ChangelogProducer = settings.value("changelog_producer")
    deletion_vectors = settings.value("deletion_vectors.enabled")
    sequence = _sequence_fields(settings, columns)
    options = KeyOptions(
        bucket=settings.value("bucket"),
        bucket_key=_bucket_key(settings, primary_key, partition_columns),
        merge_engine=engine.name,
        ignore_delete=settings.value("ignore_delete")
        or settings.value(f"{engine.name}.ignore_delete"),
        sequence_fields=sequence,
        sequence_descending=settings.value("sequence.field.sort_order") == "descending",
        functions=field_functions(settings, columns, primary_key, engine, groups),
        sequence_groups=groups,
        remove_record_on_delete=engine.can_remove_rows
        and settings.value(f"{engine.name}.remove_record_on_delete"),
        removing_sequences=removing_sequences(settings, engine, groups),
        changelog_producer=producer,
        row_deduplicate=settings.value("changelog_producer.row_deduplicate"),
        changelogs_retained=settings.value("changelog.num_retained"),
        changelog_age_ms=settings.value("changelog.time_retained"),
        deletion_vectors=deletion_vectors,
        merge_on_read=settings.value("deletion_vectors.merge_on_read"),
        compaction=_compaction(settings, needs_lookup=deletion_vectors or producer == "lookup"),
        record_expiry=record_expiry(settings, columns),
        deletion_expiry=deletion_expiry(settings, columns, sequence, replaces=engine.replaces),
    )
    settings.refuse_the_rest(engine.name)
    _check_together(options, engine)
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


def _check_together(options: KeyOptions, engine: MergeEngine) -> None:
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
    if options.changelog_producer not in engine.changelog_producers:
        raise InvalidArgumentError(
            f"changelog_producer={options.changelog_producer} with merge_engine={engine.name}: "
            f"expected {' or '.join(engine.changelog_producers)}"
        )
    if options.deletion_vectors and options.changelog_producer == "full_compaction":
        raise InvalidArgumentError(
            "changelog_producer=full_compaction with deletion_vectors.enabled=true, by which rows "
            "of the top level go before it is compacted: use changelog_producer=lookup"
        )
    engine.check_sequence_fields(options.sequence_fields)
    if not options.sequence_fields:
        return
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


def _sequence_fields(settings: KeySettings, columns: Mapping[str, pa.DataType]) -> tuple[str, ...]:
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
    return fields
