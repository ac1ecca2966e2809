"""The settings of a table with a primary key, as values; which rows expire, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal

import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from fermion_table.schema.properties import TIME_FIELD, ChangelogProducer, KeySettings
from fermion_table.schema.schema import Field

EXPIRE_TIME = "record_level.expire_time"
TIME_FIELD_TYPE = "record_level.time_field_type"
DELETION_TIME = "sequence.deletion_expire_time"
DELETION_TIME_TYPE = "sequence.deletion_time_type"
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLISECOND = _NANOSECONDS["ms"]
_DAY = 86_400 * _NANOSECONDS["s"]
_TYPES = {
    "seconds_int": _NANOSECONDS["s"],
    "seconds_long": _NANOSECONDS["s"],
    "millis_long": _MILLISECOND,
    "timestamp": None,
    "date": None,
}
"""Nanoseconds of the unit of each kind of time field; None: its type says it."""


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """When rows expire.

    column: Holds the time of each row. A row without one does not expire.
    expire_ms: Milliseconds after its time from which on a row is expired.
    integer_ns: Nanoseconds that 1 stands for in a column of integers.
    """

    column: str
    expire_ms: int
    integer_ns: int = _NANOSECONDS["s"]

    def limit(self, dtype: pa.DataType, now_ms: int) -> int:
        """The least value, as an integer, of a row that is not expired.

        now_ms: Milliseconds since 1970 UTC.
        """
        unit = _unit(dtype) or self.integer_ns
        return -(-(now_ms - self.expire_ms) * _MILLISECOND // unit)


def record_expiry(settings: KeySettings, columns: Mapping[str, pa.DataType]) -> RecordExpiry | None:
    """Read and check the settings; None: rows do not expire.

    Raises InvalidArgumentError: A value of another form, one setting without the other, or a column
        that is not there or holds no time.
    """
    expire_ms, column = settings.value(EXPIRE_TIME), settings.value(TIME_FIELD, "")
    if expire_ms is None:
        for name in (TIME_FIELD, TIME_FIELD_TYPE):
            if settings.has(name):
                raise InvalidArgumentError(f"{name}: there is no {EXPIRE_TIME}")
        return None
    if not column:
        raise InvalidArgumentError(f"{EXPIRE_TIME}: expected {TIME_FIELD}, the column of times")
    if column not in columns:
        raise InvalidArgumentError(f"{TIME_FIELD}: column {column!r} is not in the schema")
    known = _known_kinds(TIME_FIELD, column, columns[column])
    kind = settings.value(TIME_FIELD_TYPE, known[0])
    return RecordExpiry(
        column, expire_ms, _integer_ns(TIME_FIELD_TYPE, kind, column, columns[column])
    )


def deletion_expiry(
    settings: KeySettings,
    columns: Mapping[str, pa.DataType],
    sequence: Sequence[str],
    *,
    replaces: bool,
) -> RecordExpiry | None:
    """Read and check when deletions expire, by the first sequence field; None: never.

    columns: Types by name.
    sequence: The sequence fields.
    replaces: Whether a row takes the place of older ones of its key: see `MergeEngine`.
    Raises InvalidArgumentError: A value of another form, a table without sequence fields or of
        another engine, or a field that holds no time: whether a counter counts seconds has to be
        said.
    """
    expire_ms = settings.value(DELETION_TIME)
    kind = settings.value(DELETION_TIME_TYPE, "")
    if expire_ms is None:
        if kind:
            raise InvalidArgumentError(f"{DELETION_TIME_TYPE}: there is no {DELETION_TIME}")
        return None
    is_descending = settings.value("sequence.field.sort_order") == "descending"
    if not sequence or is_descending or not replaces:
        raise InvalidArgumentError(
            f"{DELETION_TIME}: expected merge_engine=deduplicate and sequence.field, ascending: "
            "other tables need no deletions after a full compaction, or need them for ever"
        )
    known = _known_kinds(DELETION_TIME, sequence[0], columns[sequence[0]])
    if not kind and known[0] not in ("timestamp", "date"):
        raise InvalidArgumentError(
            f"{DELETION_TIME}: sequence field {sequence[0]!r} is {columns[sequence[0]]}: expected "
            f"a timestamp or a date, or {DELETION_TIME_TYPE}={' or '.join(known)}"
        )
    unit = _integer_ns(DELETION_TIME_TYPE, kind or known[0], sequence[0], columns[sequence[0]])
    return RecordExpiry(sequence[0], expire_ms, unit)


def _known_kinds(name: str, column: str, dtype: pa.DataType) -> tuple[str, ...]:
    known = _kinds(dtype)
    if not known:
        raise InvalidArgumentError(
            f"{name}: column {column!r} is {dtype}, expected a timestamp, a date, or int32 or "
            "int64 that hold seconds"
        )
    return known


def _integer_ns(name: str, kind: str, column: str, dtype: pa.DataType) -> int:
    known = _kinds(dtype)
    if kind not in known:
        raise InvalidArgumentError(
            f"{name}={kind}: column {column!r} is {dtype}, expected {' or '.join(known)}"
        )
    return _TYPES[kind] or _NANOSECONDS["s"]


def _kinds(dtype: pa.DataType) -> tuple[str, ...]:
    """The kinds of time field that a column can be, the usual one first."""
    if pat.is_timestamp(dtype):
        return ("timestamp",)
    if pat.is_date32(dtype):
        return ("date",)
    if pat.is_int32(dtype):
        return ("seconds_int",)
    return ("seconds_long", "millis_long") if pat.is_int64(dtype) else ()


def _unit(dtype: pa.DataType) -> int | None:
    """Nanoseconds of 1 in the integers of a column; None: the settings say it."""
    if pat.is_timestamp(dtype):
        return _NANOSECONDS[dtype.unit]
    return _DAY if pat.is_date32(dtype) else None


STOP_RUNS = 3
"""By default a writer that compacts waits at so many runs more than the trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """What the settings say.

    trigger: Number of sorted runs from which on a tree is compacted.
    stop_trigger: Number of sorted runs of a tree from which on a writer that compacts waits for
        compaction.
    max_size_amplification_percent, size_ratio, pick_rule: How runs are picked: see
        `fermion_table.compaction.universal.UniversalOptions`.
    total_size_threshold, incremental_size_threshold: Bytes, of the same; None: no such rule.
    optimization_interval_ms: Milliseconds after which a tree is compacted fully; None: no such
        rule.
    delta_commits: Number of commits after which a tree is compacted fully; None: no such rule.
    force_lookup: Whether level 0 is to be compacted although there are few runs.
    lookup_interval: Number of commits after which level 0 is compacted where it is to be.
    is_inline: Whether a writer compacts the trees that its commit has changed.
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

    bucket: Number of buckets.
    bucket_key: Columns by which rows are assigned to buckets.
    ignore_delete: Whether retractions are dropped before anything else.
    sequence_fields: Columns that order the rows of one key, before time does.
    sequence_descending: Whether the smallest sequence is the newest.
    functions: By column that is no key: of the engine ``aggregation`` for every one, else none.
    sequence_groups: Of ``partial_update``.
    remove_record_on_delete: Whether a deletion removes the whole row, of ``partial_update`` and
        ``aggregation``.
    removing_sequences: Of ``partial_update``: sequences of groups by which a deletion removes the
        whole row.
    row_deduplicate: Whether rows that did not change are left out of what compactions record.
    changelogs_retained, changelog_age_ms: How many changelogs, and for how long, outlive their
        snapshots at least; None: as these.
    deletion_vectors: Whether compaction marks the rows of older runs that it replaces as deleted.
    merge_on_read: Whether scans then read level 0 too.
    compaction: When trees are compacted, and by whom.
    record_expiry, deletion_expiry: When rows expire, and deletions of tables with sequence fields;
        None: never.
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
    deletion_expiry: RecordExpiry | None = None

    @property
    def reads_level0(self) -> bool:
        """Whether rows that no compaction has taken yet are shown."""
        return self.merge_on_read or not self.deletion_vectors


_TO_NULL = ("last_value", "last_non_null_value")
"""Functions that make the value null where one is taken back."""


def check_required(fields: Iterable[Field], options: KeyOptions) -> None:
    """Refuse NOT NULL for columns that merging makes null although no row holds a null.

    Raises InvalidArgumentError.
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
