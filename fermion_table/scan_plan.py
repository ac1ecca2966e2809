"""Which data files a scan has to read, decided from metadata alone. Pure: no I/O.

Files are pruned in steps: manifests by batch range, then files by partition values, by batch
range and by statistics. Each step says how much it kept, for `ScanPlan.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fermion.predicate import Bounds, Expression, evaluate, ranges_that_may_match
from fermion_table import value_codec
from fermion_table.column_selection import BATCH_ID, queryable_fields
from fermion_table.filters import TableFilter, field_at, same_ids
from fermion_table.manifest import Entry, FieldStatistics, ManifestReference
from fermion_table.schema import Field, Path, TableSchema, field_to_arrow
from fermion_table.split import Split, split_of

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EXACT_FLAGS = 1 | 2 | 4 | 512
"""HAS_MINMAX, MIN_EXACT, MAX_EXACT, NAN_KNOWN of `fermion.layout.ChunkFlag`."""


@dataclass(frozen=True, slots=True)
class PruningStep:
    """What one step of planning kept.

    Attributes
    ----------
    name
        What was looked at.
    unit
        What was counted.
    before, after
        How many there were, and are left.
    why
        What the step went by.
    """

    name: str
    unit: str
    before: int
    after: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What a scan reads.

    Attributes
    ----------
    snapshot_id
        Of the table.
    splits
        In the order in which their rows come.
    steps
        How planning got there.
    """

    snapshot_id: int
    splits: tuple[Split, ...]
    steps: tuple[PruningStep, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files to read, before filtering."""
        return sum(split.rows_wanted for split in self.splits)

    @property
    def bytes(self) -> int:
        """Bytes of the files to read, all columns together."""
        return sum(split.size for split in self.splits)

    def explain(self) -> str:
        """The funnel in words, one line a step."""
        lines = [f"snapshot {self.snapshot_id}"]
        for step in self.steps:
            why = f"  ({step.why})" if step.why else ""
            lines.append(f"{step.name}: {step.after:,} of {step.before:,} {step.unit}{why}")
        lines.append(
            f"to read: {len(self.splits):,} files, {self.rows:,} rows, {self.bytes:,} bytes"
        )
        return "\n".join(lines)


def prune_manifests(
    references: Sequence[ManifestReference], chosen: TableFilter | None, schema: TableSchema
) -> tuple[list[ManifestReference], PruningStep]:
    """The manifests that may hold files of a scan, by the batch ids they span."""
    units = [_range_unit(reference.batch_id, reference.rows) for reference in references]
    wanted = np.ones(len(references), bool)
    if chosen is not None and BATCH_ID.name not in schema.by_name:
        wanted = _may_match(
            chosen.expression, {(BATCH_ID.name,): _bounds(units, pa.int64())}, units
        )
    kept = [each for each, keep in zip(references, wanted, strict=True) if keep]
    return kept, PruningStep("manifests", "manifests", len(references), len(kept), "batch ids")


def plan_scan(
    entries: Sequence[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter | None,
) -> tuple[list[Entry], list[PruningStep]]:
    """The entries of the files that may hold rows of a scan.

    Parameters
    ----------
    entries
        Live files.
    schemas
        Those that the files were written with, by id.
    schema
        The table's, which the filter is bound to.
    chosen
        The filter; None keeps every file.
    """
    if chosen is None:
        return list(entries), [
            PruningStep("files", "files", len(entries), len(entries), "no filter")
        ]
    steps = []
    kept = list(entries)
    for name, prune, why in (
        ("partitions", _by_partition, _names(schema)),
        ("statistics", _by_statistics, "partition, batch ids, bounds and null counts"),
    ):
        before = len(kept)
        kept = prune(kept, schemas, schema, chosen)
        if before != len(kept) or name == "statistics":
            steps.append(PruningStep(name, "files", before, len(kept), why))
    return kept, steps


def splits_of(entries: Iterable[Entry], locate: Callable[[str], str]) -> tuple[Split, ...]:
    """One split a file; ``locate`` tells where a path of the table lies."""
    return tuple(split_of(entry, entry.external_path or locate(entry.path)) for entry in entries)


def _names(schema: TableSchema) -> str:
    return "partitioned by " + (", ".join(each.name for each in schema.partition_by) or "nothing")


def _by_partition(
    entries: list[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter,
) -> list[Entry]:
    """Files whose exact partition values no conjunct over partition columns alone rules out."""
    columns = [schema.by_id[each.source_id] for each in schema.partition_by]
    names = {(column.name,) for column in columns}
    parts = [part for part in chosen.parts if part.columns() and part.columns() <= names]
    if not parts or not entries:
        return entries
    distinct = list(dict.fromkeys(entry.partition for entry in entries))
    arrays = [
        _values([values[place] for values in distinct], column.type)
        for place, column in enumerate(columns)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    ruled_out = np.zeros(len(distinct), bool)
    for part in parts:
        ruled_out |= ~np.asarray(evaluate(part, batch).fill_null(False).to_pylist(), bool)
    kept = {values for values, out in zip(distinct, ruled_out, strict=True) if not out}
    return [entry for entry in entries if entry.partition in kept]


def _values(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    return pa.array([value_codec.decode_value(value, dtype) for value in values], dtype)


def _by_statistics(
    entries: list[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter,
) -> list[Entry]:
    """Files that bounds and null counts do not rule out; each schema's files are asked together."""
    wanted: dict[int, list[int]] = {}
    for place, entry in enumerate(entries):
        wanted.setdefault(entry.schema_id, []).append(place)
    kept: list[int] = []
    for schema_id, places in wanted.items():
        group = [entries[place] for place in places]
        known = _lookup(group, schemas[schema_id], schema, chosen)
        units = [_Unit(entry.rows, INT64_MIN, INT64_MAX, -1, 0) for entry in group]
        mask = _may_match(chosen.expression, known, units)
        kept += [place for place, keep in zip(places, mask, strict=True) if keep]
    return [entries[place] for place in sorted(kept)]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is known of one column in one file or manifest."""

    rows: int
    min: int
    max: int
    nulls: int
    flags: int


def _may_match(
    expression: Expression, known: Mapping[Path, Bounds], units: Sequence[_Unit]
) -> np.ndarray:
    """Which units may hold a row that a filter selects: ``bool``, shape (u,)."""
    boundaries = _boundaries(units)
    total = int(boundaries[-1])
    found = ranges_that_may_match(expression, known.get, total)
    starts = boundaries[:-1]
    at = np.searchsorted(found.stops, starts, side="right")
    inside = at < len(found.starts)
    inside[inside] = found.starts[at[inside]] < boundaries[1:][inside]
    return inside & (starts < boundaries[1:])


def _boundaries(units: Sequence[_Unit]) -> np.ndarray:
    return np.cumsum([0, *(unit.rows for unit in units)], dtype=np.int64)


def _bounds(units: Sequence[_Unit], dtype: pa.DataType) -> Bounds:
    return Bounds(
        boundaries=_boundaries(units),
        min=np.array([unit.min for unit in units], np.int64),
        max=np.array([unit.max for unit in units], np.int64),
        null_count=np.array([unit.nulls for unit in units], np.int64),
        flags=np.array([unit.flags for unit in units], np.uint32),
        type=dtype,
    )


def _lookup(
    entries: Sequence[Entry], written: TableSchema, schema: TableSchema, chosen: TableFilter
) -> dict[Path, Bounds]:
    """Bounds, over some files of one schema, of the columns that a filter reads."""
    found: dict[Path, Bounds] = {}
    fields = queryable_fields(schema)
    for path in chosen.paths:
        chain = field_at(fields, path)
        if not chain:
            continue
        if chain[0] == BATCH_ID:
            batches = [_range_unit(_batch_range(entry), entry.rows) for entry in entries]
            found[path] = _bounds(batches, pa.int64())
        elif chain[0].id > 0:
            bounds = _column_bounds(entries, chain, written)
            if bounds is not None:
                found[path] = bounds
    return found


def _column_bounds(
    entries: Sequence[Entry], chain: Sequence[Field], written: TableSchema
) -> Bounds | None:
    column, leaf = chain[0], chain[-1]
    inside = same_ids(written.fields, chain)
    if inside is None:
        if any(field.stored_initial_default is not None for field in chain):
            return None
        dtype = field_to_arrow(leaf, field_ids=False).type
        return _bounds([_all_null(entry.rows) for entry in entries], dtype)
    units = []
    for entry in entries:
        statistics = entry.stats.get(leaf.id)
        if not entry.has_column(column.id):
            units.append(_all_null(entry.rows))
        elif statistics is None:
            units.append(_Unit(entry.rows, INT64_MIN, INT64_MAX, -1, 0))
        else:
            low, high = statistics.min, statistics.max
            known = low is not None and high is not None
            nulls = -1 if statistics.null_count is None else statistics.null_count
            flags = statistics.flags if known else statistics.flags & ~EXACT_FLAGS
            units.append(
                _Unit(
                    entry.rows,
                    low if known else INT64_MIN,
                    high if known else INT64_MAX,
                    nulls,
                    flags,
                )
            )
    return _bounds(units, inside[-1].type)


def _known(rows: int, statistics: FieldStatistics) -> _Unit:
    nulls = -1 if statistics.null_count is None else statistics.null_count
    if statistics.min is None or statistics.max is None:
        return _Unit(rows, INT64_MIN, INT64_MAX, nulls, statistics.flags & ~EXACT_FLAGS)
    return _Unit(rows, statistics.min, statistics.max, nulls, statistics.flags)


def _all_null(rows: int) -> _Unit:
    return _Unit(rows, INT64_MAX, INT64_MIN, rows, EXACT_FLAGS)


def _batch_range(entry: Entry) -> tuple[int, int] | None:
    return None if entry.batch is None else (entry.batch.min, entry.batch.max)


def _range_unit(ids: tuple[int, int] | None, rows: int, *, nulls: int = 0) -> _Unit:
    """Batch ids as statistics; the rows of a unit without batches have none."""
    if ids is None:
        return _all_null(rows)
    return _Unit(rows, ids[0], ids[1], nulls, EXACT_FLAGS)
