"""The settings of a table with a primary key, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fermion.errors import InvalidArgumentError
from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from fermion_table.schema.properties import ChangelogProducer
from fermion_table.schema.record_expiry import RecordExpiry
from fermion_table.schema.schema import Field

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
    merge_engine: str = "deduplicate"
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


_TO_NULL = ("last_value", "last_non_null_value")
"""Functions that make the value null where one is taken back."""


def check_required(fields: Iterable[Field], options: KeyOptions) -> None:
    """Refuse NOT NULL for columns that merging makes null although no row holds a null.

    Raises
    ------
    InvalidArgumentError
    """
    grouped = {name for group in options.sequence_groups for name in group.columns}
    for column in fields:
        if not column.nullable and column.name in grouped:
            raise InvalidArgumentError(
                f"column {column.name!r} is NOT NULL: columns of a sequence group are null where "
                "the sequence of a row is, and after deletions; make it nullable"
            )


def made_null(functions: Mapping[str, FieldFunction]) -> dict[str, str]:
    """Columns that retractions make null, and why, of those that have functions."""
    found = {}
    for name, function in functions.items():
        if function.ignore_retract:
            found[name] = "a key of which all rows are taken back has no value of it"
        elif function.name in _TO_NULL:
            found[name] = f"{function.name} of a row that is taken back is null"
    return found
