"""Which data files a scan has to read, decided from metadata alone. Pure: no I/O.

Files are pruned in steps: manifests by batch range, then files by partition values, by batch
range and by statistics. Each step says how much it kept, for `ScanPlan.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fermion.predicate import Bounds
from fermion_table.column_selection import BATCH_ID, queryable_fields
from fermion_table.deletion_vector import vector_location
from fermion_table.filters import TableFilter, field_at, same_ids
from fermion_table.manifest import Entry, ManifestReference
from fermion_table.partition_pruning import (
    manifest_bounds,
    partitions_selected,
    partitions_that_may_match,
)
from fermion_table.schema import Field, Path, TableSchema, field_to_arrow
from fermion_table.split import TASK_BYTES, Split, split_of, tasks
from fermion_table.unit_bounds import (
    EXACT_FLAGS,
    INT64_MAX,
    INT64_MIN,
    Unit,
    all_null,
    bounds_of,
    units_that_may_match,
    units_that_must_match,
)


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

    def tasks(self, bytes_target: int = TASK_BYTES) -> list[tuple[Split, ...]]:
        """The splits as tasks of about equal cost, in order: big files cut, small ones together.

        Parameters
        ----------
        bytes_target
            Bytes of files a task, roughly; opening a file counts as 4 MiB.
        """
        return list(tasks(self.splits, bytes_target))

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
    """The manifests that may hold files of a scan, by the partitions and batch ids they span."""
    if chosen is None or not references:
        return list(references), PruningStep(
            "manifests", "manifests", len(references), len(references), "no filter"
        )
    # Beside files in batch mode a manifest may list others, whose rows have no batch id.
    units = [_range_unit(each.batch_id, each.rows, nulls=-1) for each in references]
    known = manifest_bounds(references, schema, chosen)
    if BATCH_ID.name not in schema.by_name:
        known[BATCH_ID.name,] = bounds_of(units, pa.int64())
    wanted = units_that_may_match(chosen.expression, known, units)
    kept = [each for each, keep in zip(references, wanted, strict=True) if keep]
    why = "partitions and batch ids"
    return kept, PruningStep("manifests", "manifests", len(references), len(kept), why)


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


def files_that_must_match(
    entries: Sequence[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter,
) -> np.ndarray:
    """Which files hold only rows that a filter selects, if metadata can tell.

    Parameters are those of `plan_scan`.

    Returns
    -------
    np.ndarray
        ``bool``, shape (f,).
    """
    settled = np.ones(len(entries), bool)
    by_schema: dict[int, list[int]] = {}
    for place, entry in enumerate(entries):
        by_schema.setdefault(entry.schema_id, []).append(place)
    for schema_id, places in by_schema.items():
        group = [entries[place] for place in places]
        known = _lookup(group, schemas[schema_id], schema, chosen)
        units = [Unit(entry.rows) for entry in group]
        partitions = [entry.partition for entry in group]
        for part in chosen.parts:
            must = partitions_selected(part, partitions, schema)
            if must is None:
                must = units_that_must_match(part, known, units)
            settled[places] &= must
    return settled


def splits_of(entries: Iterable[Entry], locate: Callable[[str], str]) -> tuple[Split, ...]:
    """One split a file; ``locate`` tells where a path of the table lies."""
    return tuple(
        split_of(entry, entry.external_path or locate(entry.path), vector_location(entry, locate))
        for entry in entries
    )


def _names(schema: TableSchema) -> str:
    return "partitioned by " + (", ".join(each.name for each in schema.partition_by) or "nothing")


def _by_partition(
    entries: list[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter,
) -> list[Entry]:
    """Files whose partition values leave room for rows of the filter."""
    if not schema.partition_by or not entries:
        return entries
    distinct = list(dict.fromkeys(entry.partition for entry in entries))
    wanted = partitions_that_may_match(distinct, schema, chosen)
    kept = {values for values, keep in zip(distinct, wanted, strict=True) if keep}
    return [entry for entry in entries if entry.partition in kept]


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
        units = [Unit(entry.rows) for entry in group]
        mask = units_that_may_match(chosen.expression, known, units)
        kept += [place for place, keep in zip(places, mask, strict=True) if keep]
    return [entries[place] for place in sorted(kept)]


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
            found[path] = bounds_of(batches, pa.int64())
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
        return bounds_of([all_null(entry.rows) for entry in entries], dtype)
    units = []
    for entry in entries:
        statistics = entry.stats.get(leaf.id)
        if not entry.has_column(column.id):
            units.append(all_null(entry.rows))
        elif statistics is None:
            units.append(Unit(entry.rows))
        else:
            low, high = statistics.min, statistics.max
            known = low is not None and high is not None
            nulls = -1 if statistics.null_count is None else statistics.null_count
            flags = statistics.flags if known else statistics.flags & ~EXACT_FLAGS
            units.append(
                Unit(
                    entry.rows,
                    low if known else INT64_MIN,
                    high if known else INT64_MAX,
                    nulls,
                    flags,
                )
            )
    return bounds_of(units, inside[-1].type)


def _batch_range(entry: Entry) -> tuple[int, int] | None:
    return None if entry.batch is None else (entry.batch.min, entry.batch.max)


def _range_unit(ids: tuple[int, int] | None, rows: int, *, nulls: int = 0) -> Unit:
    """Batch ids as statistics; the rows of a unit without batches have none."""
    if ids is None:
        return all_null(rows)
    return Unit(rows, ids[0], ids[1], nulls, EXACT_FLAGS)
