"""Which data files a scan has to read, decided from metadata alone. Pure: no I/O.

Files are pruned in steps: manifests by batch range, then files by partition values, by batch
range and by statistics. Each step says how much it kept, for `ScanPlan.explain`. `LiveFiles` are
those of a snapshot, column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion.arguments import INT64_MAX, INT64_MIN, integer
from fermion.display import ShownText, short_repr
from fermion.engine import EXACT_FLAGS
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.forks import cached_property
from fermion.predicate import Bounds
from fermion_table.metadata.file_columns import FileColumns, ListedFiles
from fermion_table.metadata.manifest import Entry, Layout, ManifestReference, is_in, schema_holding
from fermion_table.metadata.manifest_store import (
    inherited,
    listed_manifests,
    live_ordinals,
    manifest_files,
    scan_order,
)
from fermion_table.metadata.shared_files import SharedFiles
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.options import TASK_BYTES
from fermion_table.planning.filters import (
    TableFilter,
    Unit,
    all_null,
    bounds_of,
    by_keys,
    field_at,
    places_that_may_match,
    places_that_must_match,
    same_ids,
    units_that_may_match,
)
from fermion_table.planning.partition_pruning import (
    manifest_bounds,
    partitions_selected,
    partitions_that_may_match,
)
from fermion_table.planning.split import (
    FileSplit,
    Split,
    beside,
    blob_files_of,
    file_split,
    indexes_of,
    mixed_tasks,
)
from fermion_table.schema.schema import Field, Path, TableSchema, field_to_arrow
from fermion_table.schema.selection import BATCH_ID, map_key, queryable_fields
from fermion_table.storage.store import AtomicStore, in_time

if TYPE_CHECKING:
    from fermion_table.schema import key_statistics
else:  # few tables have any
    key_statistics = LoadedWhenAskedFor("fermion_table.schema.key_statistics")


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

    __repr__ = short_repr


class LazySplits(Sequence[Split]):
    """Splits that are made when one of them is looked at; they pickle as a tuple.

    count, rows, bytes: How many there are, and what `ScanPlan` says of them.
    """

    def __init__(
        self, count: int, rows: int, bytes: int, make: Callable[[], tuple[Split, ...]]
    ) -> None:
        self.rows = rows
        self.bytes = bytes
        self._count = count
        self._make = make

    @cached_property
    def _made(self) -> tuple[Split, ...]:
        return self._make()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]

    def __iter__(self) -> Iterator[Split]:
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} splits>"

    def __reduce__(self) -> tuple[type[tuple[Split, ...]], tuple[tuple[Split, ...]]]:
        return tuple, (self._made,)


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
    splits: Sequence[Split]
    steps: tuple[PruningStep, ...] = ()

    __repr__ = short_repr

    @property
    def rows(self) -> int:
        """Rows of the files to read, before filtering."""
        if isinstance(self.splits, LazySplits):
            return self.splits.rows
        return sum(split.rows_wanted for split in self.splits)

    @property
    def _files(self) -> int:
        """How many files are read."""
        splits = self.splits
        return len(splits) if isinstance(splits, LazySplits) else sum(len(x.files) for x in splits)

    @property
    def is_exact(self) -> bool:
        """Whether `rows` is the exact number of rows, before the filter."""
        splits = self.splits
        return isinstance(splits, LazySplits) or all(split.is_exact for split in splits)

    @property
    def bytes(self) -> int:
        """Bytes of the files to read, all columns together."""
        if isinstance(self.splits, LazySplits):
            return self.splits.bytes
        return sum(split.bytes for split in self.splits)

    def tasks(
        self, bytes_target: int = TASK_BYTES, *, tasks_min: int = 1
    ) -> list[tuple[Split, ...]]:
        """The splits as tasks of about equal cost, in order: big files cut, small ones together.

        Files that have to be merged are in tasks of their own, which come first.

        Parameters
        ----------
        bytes_target
            Bytes of files a task, roughly; opening a file counts as 4 MiB, and bytes to be merged
            count 2 or 4 times, by the merge engine.
        tasks_min
            Tasks that can run at once: a small table is spread over this many.
        """
        target = integer(bytes_target, "bytes_target", minimum=1)
        return list(mixed_tasks(self.splits, target, integer(tasks_min, "tasks_min", minimum=1)))

    def explain(self) -> str:
        """Describe the steps of planning, one line per step."""
        lines = [f"snapshot {self.snapshot_id}"]
        for step in self.steps:
            why = f"  ({step.why})" if step.why else ""
            lines.append(f"{step.name}: {step.after:,} of {step.before:,} {step.unit}{why}")
        lines.append(f"to read: {self._files:,} files, {self.rows:,} rows, {self.bytes:,} bytes")
        return ShownText("\n".join(lines))


def prune_manifests(
    store: AtomicStore, snapshot: Snapshot, chosen: TableFilter | None, schema: TableSchema
) -> tuple[list[ManifestReference], PruningStep]:
    """The manifests that may hold files of a scan, by the partitions and batch ids they span.

    Of lists of manifests only those are read that may name one.
    """
    total = sum(each.live_entries if each.kind == "list" else 1 for each in snapshot.manifests)
    kept, why = list(snapshot.manifests), "no filter"
    if chosen is not None:
        kept, why = _may_hold(kept, chosen, schema), "partitions and batch ids"
    if any(each.kind == "list" for each in kept):
        kept = list(listed_manifests(store, kept))
        if chosen is not None:
            kept = _may_hold(kept, chosen, schema)
    return kept, PruningStep("manifests", "manifests", total, len(kept), why)


def _may_hold(
    references: Sequence[ManifestReference], chosen: TableFilter, schema: TableSchema
) -> list[ManifestReference]:
    """Those manifests, or lists of them, whose bounds leave room for rows of a filter."""
    if not references:
        return []
    # Beside files in batch mode a manifest may list others, whose rows have no batch id.
    units = [_range_unit(reference.batch_id, reference.rows, nulls=-1) for reference in references]
    known = manifest_bounds(references, schema, chosen)
    if BATCH_ID.name not in schema.by_name:
        known[BATCH_ID.name,] = bounds_of(units, pa.int64())
    wanted = units_that_may_match(chosen.expression, known, units)
    return [reference for reference, keep in zip(references, wanted, strict=True) if keep]


def plan_scan(
    entries: Sequence[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter | None,
) -> tuple[list[Entry], list[PruningStep]]:
    """The entries of the files that may hold rows of a scan.

    schemas: Those that the files were written with, by id.
    schema: The table's, which the filter is bound to.
    chosen: The filter; None keeps every file.
    """
    files = ListedFiles(entries)
    kept, steps = prune_parts([(files, np.arange(len(files)))], schemas, schema, chosen)
    return files.entries(kept[0]), steps


def prune_parts(
    parts: Sequence[tuple[FileColumns, np.ndarray]],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter | None,
) -> tuple[list[np.ndarray], list[PruningStep]]:
    """The same for live files of several manifests, given and given back by their ordinals."""
    kept = [ordinals for _, ordinals in parts]
    total = sum(map(len, kept))
    if chosen is None:
        return kept, [PruningStep("files", "files", total, total, "no filter")]
    steps = []
    chosen = by_keys(chosen, schema)
    kept = [_by_partition(files, ordinals, schema, chosen) for files, ordinals in parts]
    inside = sum(map(len, kept))
    if inside != total:
        names = ", ".join(field.name for field in schema.partition_by) or "nothing"
        steps.append(PruningStep("partitions", "files", total, inside, f"partitioned by {names}"))
    field_ids = _field_ids(schema, chosen)
    for (files, _), ordinals in zip(parts, kept, strict=True):
        if len(ordinals):
            files.prepare(field_ids)
    kept = [
        _by_statistics(files, ordinals, schemas, schema, chosen)
        for (files, _), ordinals in zip(parts, kept, strict=True)
    ]
    why = "partition, batch ids, bounds and null counts"
    steps.append(PruningStep("statistics", "files", inside, sum(map(len, kept)), why))
    return kept, steps


def files_that_must_match(
    entries: Sequence[Entry],
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter,
) -> np.ndarray:
    """Which files hold only rows that a filter selects, if metadata can tell.

    Parameters are those of `plan_scan`.

    Returns: ``bool``, shape (f,).
    """
    files = ListedFiles(entries)
    ordinals = np.arange(len(files))
    chosen = by_keys(chosen, schema)
    certain = np.ones(len(files), bool)
    for written, places in _by_schema(files, ordinals, schemas):
        known, boundaries = _lookup(files, places, written, schema, chosen)
        partitions = [entries[place].partition for place in places.tolist()]
        for part in chosen.parts:
            must = partitions_selected(part, partitions, schema)
            if must is None:
                must = places_that_must_match(part, known, boundaries)
            certain[places] &= must
    return certain


def splits_of(entries: Iterable[Entry], store: AtomicStore) -> tuple[FileSplit, ...]:
    """One split a file.

    Raises UnsafeStorage: An entry names a file outside of the table that it may not name: see
        `shared_files`.
    Raises CorruptMetadata: Its column files can't be: see `file_split.beside`.
    """
    files = SharedFiles(store)
    return tuple(
        file_split(
            entry,
            files.data(entry),
            files.vector(entry),
            shares=files.shares_storage(entry),
            column_files=beside(entry, files) if entry.column_files else (),
            indexes=indexes_of(entry, files) if entry.indexes else (),
            blob_files=blob_files_of(entry, files) if entry.blob_files else (),
        )
        for entry in entries
    )


def _by_partition(
    files: FileColumns, ordinals: np.ndarray, schema: TableSchema, chosen: TableFilter
) -> np.ndarray:
    """Files whose partition values leave room for rows of the filter."""
    if not schema.partition_by or not len(ordinals):
        return ordinals
    codes, values = files.partitions()
    present, codes = np.unique(codes[ordinals], return_inverse=True)
    wanted = partitions_that_may_match([values[code] for code in present], schema, chosen)
    return ordinals[wanted[codes]]


def _by_statistics(
    files: FileColumns,
    ordinals: np.ndarray,
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter,
) -> np.ndarray:
    """Files that bounds and null counts do not rule out; each schema's files are asked together."""
    kept = np.zeros(len(ordinals), bool)
    for written, places in _by_schema(files, ordinals, schemas):
        known, boundaries = _lookup(files, ordinals[places], written, schema, chosen)
        kept[places] = places_that_may_match(chosen.expression, known, boundaries)
    return ordinals[kept]


def _chain(schema: TableSchema, path: Path) -> list[Field] | None:
    """The fields along a path of a filter; of a key of a map the map and the key."""
    keys = key_statistics.statistics_of_keys(schema) if schema.statistics_keys else {}
    if key := keys.get(path):
        return [schema.by_id[key.map_id], key.field]
    return field_at(queryable_fields(schema), path)


def _field_ids(schema: TableSchema, chosen: TableFilter) -> set[int]:
    """The fields that a filter reads, and the columns they belong to."""
    chains = [_chain(schema, path) for path in chosen.paths]
    return {
        field.id for chain in chains if chain for field in (chain[0], chain[-1]) if field.id > 0
    }


@dataclass(frozen=True, slots=True)
class _Written:
    """What files of one kind were written with.

    schemas: Of the table, by id.
    schema_id, layout: Of the data files, and of their column files.
    """

    schemas: Mapping[int, TableSchema]
    schema_id: int
    layout: Layout

    def chain(self, asked: Sequence[Field]) -> list[Field] | None:
        """The fields of a chain of the table's as they are stored; None where one lacks."""
        version = schema_holding(self.schema_id, self.layout, asked[0].id)
        if len(asked) == 1 or asked[0].kind == "struct":
            return same_ids(self.schemas[version].fields, asked)
        stored = self.schemas[version].by_id.get(asked[0].id)
        return None if stored is None else [stored, map_key(stored, "", asked[1].id).field]

    def says_nothing_of(self, asked: Sequence[Field]) -> bool:
        """Whether statistics are not those of what is stored: of keys of a map in a column file,
        where writers that don't know `statistics_keys` keep those of the data file."""
        is_key = len(asked) > 1 and asked[0].kind != "struct"
        return is_key and any(is_in(runs, asked[0].id) for _, runs in self.layout)


def _by_schema(
    files: FileColumns, ordinals: np.ndarray, schemas: Mapping[int, TableSchema]
) -> Iterator[tuple[_Written, np.ndarray]]:
    """What files were written with, and the places of the files."""
    codes, layouts = files.layouts()
    kinds = files.numbers("schema_id").values[ordinals]
    if len(layouts) > 1:
        kinds = kinds * len(layouts) + codes[ordinals]
    is_alike = len(kinds) > 0 and bool((kinds == kinds[0]).all())
    for kind in [int(kinds[0])] if is_alike else np.unique(kinds).tolist():
        schema_id, code = divmod(kind, len(layouts))
        places = np.arange(len(kinds)) if is_alike else np.nonzero(kinds == kind)[0]
        yield _Written(schemas, schema_id, layouts[code]), places


def _places(files: FileColumns, ordinals: np.ndarray) -> Any:
    """What picks some files out of a column; all of them are a view."""
    return slice(None) if len(ordinals) == len(files) else ordinals


def _lookup(
    files: FileColumns,
    ordinals: np.ndarray,
    written: _Written,
    schema: TableSchema,
    chosen: TableFilter,
) -> tuple[dict[Path, Bounds], np.ndarray]:
    """Bounds, over some files of one kind, of the columns that a filter reads.

    Files follow each other; the second result says where each begins, in rows, and the end.
    """
    rows = files.numbers("rows").values[ordinals]
    boundaries = np.concatenate(([0], np.cumsum(rows)))
    bounds_by_path: dict[Path, Bounds] = {}
    for path in chosen.paths:
        chain = _chain(schema, path)
        if not chain:
            continue
        if chain[0] == BATCH_ID:
            low, high = (files.numbers(name) for name in ("batch.min", "batch.max"))
            known = low.known[ordinals]
            bounds_by_path[path] = Bounds(
                boundaries=boundaries,
                min=np.where(known, low.values[ordinals], INT64_MAX),
                max=np.where(known, high.values[ordinals], INT64_MIN),
                null_count=np.where(known, 0, rows),
                flags=np.full(len(rows), EXACT_FLAGS, np.uint32),
                type=pa.int64(),
            )
        elif chain[0].id > 0 and not written.says_nothing_of(chain):
            bounds = _column_bounds(files, ordinals, chain, written, boundaries)
            if bounds is not None:
                bounds_by_path[path] = bounds
    return bounds_by_path, boundaries


def _column_bounds(
    files: FileColumns,
    ordinals: np.ndarray,
    chain: Sequence[Field],
    written: _Written,
    boundaries: np.ndarray,
) -> Bounds | None:
    column, leaf = chain[0], chain[-1]
    inside = written.chain(chain)
    rows = np.diff(boundaries)
    count = len(rows)
    if inside is None:
        if any(field.stored_initial_default is not None for field in chain):
            return None
        return Bounds(
            boundaries=boundaries,
            min=np.full(count, INT64_MAX, np.int64),
            max=np.full(count, INT64_MIN, np.int64),
            null_count=rows,
            flags=np.full(count, EXACT_FLAGS, np.uint32),
            type=field_to_arrow(leaf, field_ids=False).type,
        )
    stored = files.bounds(leaf.id)
    if stored is None:
        low = np.full(count, INT64_MIN, np.int64)
        high = np.full(count, INT64_MAX, np.int64)
        nulls = np.full(count, -1, np.int64)
        flags = np.zeros(count, np.int64)
    else:
        at = _places(files, ordinals)
        there = stored.flags.known[at]
        known = there & stored.min.known[at] & stored.max.known[at]
        low = np.where(known, stored.min.values[at], INT64_MIN)
        high = np.where(known, stored.max.values[at], INT64_MAX)
        counted = there & stored.null_count.known[at]
        nulls = np.where(counted, stored.null_count.values[at], -1)
        said = stored.flags.values[at]  # 0 where there are none
        flags = np.where(known, said, said & ~EXACT_FLAGS)
    empty = ~files.has_column(column.id)[ordinals]
    if empty.any():
        low[empty], high[empty], nulls[empty] = INT64_MAX, INT64_MIN, rows[empty]
        flags[empty] = EXACT_FLAGS
    return Bounds(
        boundaries=boundaries,
        min=low,
        max=high,
        null_count=nulls,
        flags=flags.astype(np.uint32),
        type=inside[-1].type,
    )


def _range_unit(ids: tuple[int, int] | None, rows: int, *, nulls: int = 0) -> Unit:
    """Batch ids as statistics; the rows of a unit without batches have none."""
    if ids is None:
        return all_null(rows)
    return Unit(rows, ids[0], ids[1], nulls, EXACT_FLAGS)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some files of one manifest, or of the tail (which inherit nothing)."""

    files: FileColumns
    ordinals: np.ndarray
    reference: ManifestReference | None

    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequence numbers and ids of first rows, with what is inherited."""
        start, first = (self.files.numbers(name) for name in ("sequence_start", "row_id_base"))
        offset = self.files.numbers("sequence_offset").values
        sequence, rows = start.values + offset, first.values
        if self.reference is not None:
            # What has no snapshot of its own inherits from its commit (see `Entry.inherit`).
            fresh = ~self.files.numbers("added_snapshot").known
            before = self.files.numbers("row_offset").values
            mine = self.reference
            sequence = np.where(fresh & ~start.known, mine.sequence_start + offset, sequence)
            rows = np.where(fresh & ~first.known, mine.row_id_start + before, rows)
        return sequence[self.ordinals], rows[self.ordinals]

    def entries(self, *, statistics: bool) -> list[Entry]:
        entries = self.files.entries(self.ordinals, statistics=statistics)
        if self.reference is None:
            return entries
        return [inherited(entry, self.reference) for entry in entries]

    def sum_of(self, name: str) -> int:
        return int(self.files.numbers(name).values[self.ordinals].sum())


class LiveFiles:
    """Files of a snapshot that may hold rows of a scan.

    references: Those of its manifests that may list some; None: all.
    """

    def __init__(
        self,
        store: AtomicStore,
        snapshot: Snapshot,
        references: Sequence[ManifestReference] | None = None,
    ) -> None:
        tail = snapshot.tail
        if references is None:
            references = listed_manifests(store, snapshot.manifests)
        self._parts = [_Part(ListedFiles(tail), np.arange(len(tail)), None)]
        for reference in references:
            files = manifest_files(store, reference)
            self._parts.append(_Part(files, live_ordinals(reference), reference))

    def __len__(self) -> int:
        return sum(len(part.ordinals) for part in self._parts)

    def prune(
        self,
        schemas: Mapping[int, TableSchema],
        schema: TableSchema,
        chosen: TableFilter | None,
    ) -> list[PruningStep]:
        """Leave out the files that metadata rules out (see `plan.plan_scan`)."""
        files = [(part.files, part.ordinals) for part in self._parts]
        kept, steps = prune_parts(files, schemas, schema, chosen)
        self._parts = [
            _Part(part.files, ordinals, part.reference)
            for part, ordinals in zip(self._parts, kept, strict=True)
            if len(ordinals)
        ]
        return steps

    def listed(self) -> Iterator[tuple[ManifestReference | None, np.ndarray, np.ndarray]]:
        """Each manifest (None: the tail) with the ordinals and sizes of its files, some."""
        for part in self._parts:
            if len(part.ordinals):
                sizes = part.files.numbers("size").values[part.ordinals]
                yield part.reference, part.ordinals, sizes

    def schema_ids(self) -> set[int]:
        """The schemas that the files and their column files were written with."""
        schema_ids: set[int] = set()
        for part in self._parts:
            written = part.files.numbers("schema_id").values[part.ordinals]
            is_one = (written == written[:1]).all()  # np.unique loads numpy.ma at its first call
            schema_ids.update((written[:1] if is_one else np.unique(written)).tolist())
        return schema_ids.union(schema_id for each in self.layouts() for schema_id, _ in each)

    def layouts(self) -> set[Layout]:
        """The layouts of the files' column files."""
        found: set[Layout] = set()
        for part in self._parts:
            codes, layouts = part.files.layouts()
            if layouts != [()]:
                found.update(layouts[code] for code in np.unique(codes[part.ordinals]).tolist())
        return found

    def entries(self, *, statistics: bool = True) -> list[Entry]:
        """The files' entries, in the order in which their rows are read."""
        listed = [entry for part in self._parts for entry in part.entries(statistics=statistics)]
        orders = [part.order() for part in self._parts]
        if not orders:
            return []
        sequence, rows = (np.concatenate([order[place] for order in orders]) for place in (0, 1))
        places = np.lexsort((rows, sequence))
        same = (np.diff(sequence[places]) == 0) & (np.diff(rows[places]) == 0)
        if same.any():  # the name decides
            return sorted(listed, key=scan_order)
        return [listed[place] for place in places.tolist()]

    def splits(self, store: AtomicStore) -> LazySplits:
        """One split a file, in that order."""

        def make() -> tuple[Split, ...]:
            with in_time(store):
                return splits_of(self.entries(statistics=False), store)

        live = sum(part.sum_of("rows") - part.sum_of("delete_rows") for part in self._parts)
        size = sum(part.sum_of("size") for part in self._parts)
        return LazySplits(len(self), live, size, make)

    @property
    def live_rows(self) -> int:
        """Rows of the files that are not deleted."""
        return sum(part.sum_of("rows") - part.sum_of("delete_rows") for part in self._parts)
