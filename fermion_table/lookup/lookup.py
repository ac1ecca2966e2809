"""Rows by their keys: the runs of a tree are asked one after the other, for the keys still missing.

Where the engine takes one of a key's rows as it is, the first run that has the key decides: the
newest, or of ``first_row`` the oldest. Otherwise every run is asked, and the rows are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion.engine import (
    BoundedCache,
    array_of,
    numbers_of,
    one_batch,
    take_batch_rows,
    take_table_rows,
)
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.forks import cached_property
from fermion.predicate import RowRanges, col
from fermion_table.lookup.held_files import FileKeys, HeldFiles, HeldReader
from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.merging.fold import columns_to_merge, fold, groups_by_key
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.merging.sections import TreeFile, sorted_runs
from fermion_table.metadata.bucket_counts import BucketCounts, bucket_counts
from fermion_table.metadata.history import until_expiry
from fermion_table.options import MIB
from fermion_table.planning.filters import conjunction, table_filter
from fermion_table.planning.plan import LiveFiles, splits_of
from fermion_table.planning.split import FileSplit
from fermion_table.planning.tree_plan import Tree, trees_of
from fermion_table.scanning.scan import Scan
from fermion_table.schema import value_codec
from fermion_table.schema.conversion import empty_columns
from fermion_table.schema.schema import KIND_COLUMN, TableSchema
from fermion_table.schema.selection import ROW_KIND
from fermion_table.schema.transforms import plain, transformed
from fermion_table.storage.store import AtomicStore, in_time
from fermion_table.trees.seen_keys import (
    Keys,
    distinct,
    is_up_to,
    keys_of,
    pick,
    places_of,
)

if TYPE_CHECKING:
    from fermion_table.trees import section_reader
else:  # of merge engines that fold rows
    section_reader = LoadedWhenAskedFor("fermion_table.trees.section_reader")

PLANS_MAX = 2
"""Snapshots whose files a table object knows for lookups."""
READERS_MAX = 8
"""Choices of columns of a snapshot that it knows how to read."""
DECODED_BYTES_LOCAL, DECODED_BYTES_REMOTE = 16 * MIB, MIB
"""All keys of a file are decoded if they take at most about so much memory; of a local file at the
second lookup, at the first as of a remote one."""
ROWS_PER_KEY = 262_144
"""Those of a greater file, once it was asked for one key in so many rows."""
FEW_KEYS = 8
"""So many keys are compared with the bounds of a run before its files are asked."""
BYTES_PER_KEY = 24
"""A guess, for keys that are not numbers."""


class _Run:
    """A sorted run, and the bounds of its files' keys: arrays once a lookup may be about it."""

    def __init__(self, files: list[TreeFile], store: AtomicStore, key: PrimaryKey) -> None:
        self.files, self._store = files, store
        self._dtype = pa.int64() if key.is_direct else pa.large_binary()

    def may_hold(self, keys: Sequence[Any]) -> bool:
        """Whether it may hold one of few keys, as Python has them; none: nothing is known."""
        least, greatest = self.files[0].min_key, self.files[-1].max_key
        return not keys or any(least <= key <= greatest for key in keys)

    @cached_property
    def splits(self) -> tuple[FileSplit, ...]:
        """Its files."""
        return splits_of((file.entry for file in self.files), self._store)

    @cached_property
    def _bounds(self) -> tuple[Keys, Keys]:
        low = array_of([file.min_key for file in self.files], self._dtype)
        high = array_of([file.max_key for file in self.files], self._dtype)
        return keys_of(low), keys_of(high)

    def shares(self, keys: Keys, wanted: np.ndarray) -> Iterator[tuple[FileSplit, np.ndarray]]:
        """The files that may hold some of the keys, and which.

        keys: Ascending.
        wanted: Which of them: their numbers, ascending.
        """
        asked, (low, high) = pick(keys, wanted), self._bounds
        at = places_of(low, asked)[1] - 1
        inside = np.flatnonzero(at >= 0)
        inside = inside[is_up_to(pick(asked, inside), pick(high, at[inside]))]
        numbers, starts = np.unique(at[inside], return_index=True)
        for number, part in zip(numbers, np.split(wanted[inside], starts[1:]), strict=False):
            yield self.splits[number], part


@dataclass(slots=True)
class _Readers:
    """How the files of a snapshot are read for some columns."""

    keys: HeldReader
    rows: HeldReader


@dataclass(slots=True)
class _Plan:
    """What lookups know of a snapshot.

    earlier: Runs of earlier snapshots, by their first files: most are the same.
    runs: Of the trees that were asked, from the newest to the oldest.
    live: By file, the rows that are not deleted, where some are.
    """

    store: AtomicStore
    trees: dict[Tree, list[TreeFile]]
    bucket_counts: BucketCounts
    earlier: dict[str, _Run]
    runs: dict[Tree, list[_Run]] = field(default_factory=dict)
    readers: dict[object, _Readers] = field(default_factory=dict)
    live: dict[str, RowRanges] = field(default_factory=dict)

    def runs_of(self, tree: Tree, key: PrimaryKey) -> list[_Run]:
        """The runs of a tree; none of one without files."""
        found = self.runs.get(tree)
        if found is None:
            runs = map(list, sorted_runs(self.trees.get(tree, ())))
            found = self.runs[tree] = [self._run(files, key) for files in runs]
        return found

    def _run(self, files: list[TreeFile], key: PrimaryKey) -> _Run:
        known = self.earlier.get(files[0].entry.file)
        return known if known and known.files == files else _Run(files, self.store, key)

    @property
    def locations(self) -> set[str]:
        """The files that may be held."""
        known = chain.from_iterable(list(self.runs.values()))  # other threads add some
        return {split.location for run in known for split in run.splits}


class Lookups:
    """Finds rows by key, and keeps what it learns of a few snapshots for the next time.

    Safe to share between threads. A pickle holds nothing.
    """

    def __init__(self) -> None:
        self._held = HeldFiles()
        self._plans = BoundedCache(PLANS_MAX)

    def __reduce__(self) -> tuple[type[Lookups], tuple[()]]:
        return Lookups, ()

    def find(self, scan: Scan, keys: pa.RecordBatch) -> pa.Table:
        """The rows of a snapshot that have some keys.

        scan: Of the snapshot of a primary-key table; says which columns are wanted.
        keys: The key's columns, as `key_values.key_rows` makes them.
        Returns: The rows in the order of the keys, a row for each time that its key is asked for.
        Raises VersionNotFound: The snapshot has expired.
        """
        return self.find_with_places(scan, keys)[0]

    def find_with_places(self, scan: Scan, keys: pa.RecordBatch) -> tuple[pa.Table, np.ndarray]:
        """The same, and the places of the keys that have rows: ``int64``, one a row."""
        with until_expiry(scan.store, scan.snapshot):
            plan = self._plan(scan)
            readers = plan.readers.get((scan.columns, scan.blobs))
            if readers is None:
                if len(plan.readers) >= READERS_MAX:
                    plan.readers.clear()
                readers = _readers(scan, self._held)
                plan.readers[scan.columns, scan.blobs] = readers
            return _Lookup(scan, plan, readers, keys).found()

    def _plan(self, scan: Scan) -> _Plan:
        assert scan.key is not None
        snapshot = scan.snapshot
        known: _Plan | None = self._plans.get(snapshot.hash)
        if known is not None:
            return known
        with in_time(scan.store):
            files = LiveFiles(scan.store, snapshot)
            entries = files.entries(statistics=False)
            counts = bucket_counts(entries, scan.schemas)
            if not scan.key.options.reads_level0:
                entries = [entry for entry in entries if entry.level > 0]
            kept = chain.from_iterable(list(each.runs.values()) for each in self._plans.values())
            earlier = {run.files[0].entry.file: run for run in chain.from_iterable(kept)}
            plan = _Plan(scan.store, trees_of(entries, scan.key), counts, earlier)
        self._plans.put(snapshot.hash, plan)
        self._held.keep_only(set().union(*(kept.locations for kept in self._plans.values())))
        return plan


def _readers(scan: Scan, held: HeldFiles) -> _Readers:
    """What reads the keys of files, and their rows: columns wanted, or all that folding needs."""
    request, key = scan.reader.request, scan.key
    assert key is not None
    by_name = {each.name: each for each in request.table_fields}
    names = tuple(by_name[name] for name in key.names)
    keys = replace(request, fields=(*names, ROW_KIND), metadata=None)
    rows = request
    if not key.engine.picks_by_time(key.options):
        maps = {each.map_id for each in request.map_keys}
        tops = {each.name for each in request.fields} & by_name.keys()
        tops.update(each.name for each in request.table_fields if each.id in maps)
        wanted = columns_to_merge(key, sorted(tops))
        fields = (*(by_name[name] for name in wanted), ROW_KIND)
        rows = replace(request, fields=fields, metadata=None, map_keys=())
    return _Readers(*(HeldReader(each, scan.reader, held) for each in (keys, rows)))


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows of a file, and the numbers of their keys: ``int64``, ascending, shape (n,) each."""

    split: FileSplit
    rows: np.ndarray
    numbers: np.ndarray
    kinds: np.ndarray | None


class _Lookup:
    """One lookup: distinct keys are numbered in their order."""

    def __init__(self, scan: Scan, plan: _Plan, readers: _Readers, keys: pa.RecordBatch) -> None:
        assert scan.key is not None
        self._scan, self._plan, self._readers, self._key = scan, plan, readers, scan.key
        encoded = keys_of(self._key.keys(keys))
        first, self._numbered = distinct(encoded)
        self._rows = take_batch_rows(keys, first)
        self._keys = pick(encoded, first)
        self._few = self._keys.tolist() if len(first) <= FEW_KEYS else ()

    def found(self) -> tuple[pa.Table, np.ndarray]:
        """The rows, in the order of the keys that were asked for, and the places of those."""
        picks = self._key.engine.picks_by_time(self._key.options)
        batches, numbers = self._picked() if picks else self._folded()
        rows = np.full(len(self._keys), -1)
        rows[numbers] = np.arange(len(numbers))
        wanted = rows[self._numbered]
        places = np.flatnonzero(wanted >= 0)
        return self._table(batches, wanted[places]), places

    def _table(self, batches: list[pa.RecordBatch], wanted: np.ndarray) -> pa.Table:
        """Some rows of batches, counted through all of them."""
        schema = self._scan.schema
        if not schema.names:
            return pa.Table.from_batches([empty_columns(schema, len(wanted))])
        table = pa.Table.from_batches(batches, schema=schema)
        if np.array_equal(wanted, np.arange(table.num_rows)):
            return table
        try:
            return pa.Table.from_batches([take_batch_rows(one_batch(batches), wanted)], schema)
        except pa.ArrowInvalid:  # too much text for one array, or too many dictionary values
            return take_table_rows(table, wanted)

    def _picked(self) -> tuple[list[pa.RecordBatch], np.ndarray]:
        """The rows of the first runs that have the keys, and the keys' numbers."""
        is_first = self._key.engine.oldest_wins
        batches: list[pa.RecordBatch] = []
        numbers = [np.zeros(0, np.int64)]
        for tree, wanted in self._trees():
            runs = self._plan.runs_of(tree, self._key)
            for run in reversed(runs) if is_first else runs:
                if not run.may_hold(self._few):
                    continue
                decided = [wanted[:0]]
                for split, asked in run.shares(self._keys, wanted):
                    found = _one_of_each(self._in_file(split, asked), is_first=is_first)
                    decided.append(found.numbers)
                    seen = _without_retractions(found)
                    if len(seen.rows):
                        batches += self._read(seen)
                        numbers.append(seen.numbers)
                wanted = np.setdiff1d(wanted, np.concatenate(decided), assume_unique=True)
                if not len(wanted):
                    break
        return batches, np.concatenate(numbers)

    def _folded(self) -> tuple[list[pa.RecordBatch], np.ndarray]:
        """The rows that the merge engine makes of all runs, and the keys' numbers."""
        batches: list[pa.RecordBatch] = []
        parts = [np.zeros(0, np.int64)]
        for tree, wanted in self._trees():
            for run in reversed(self._plan.runs_of(tree, self._key)):
                for split, asked in run.shares(self._keys, wanted):
                    found = self._in_file(split, asked)
                    if len(found.rows):
                        batches += self._read(found)
                        parts.append(found.numbers)
        numbers = np.concatenate(parts)
        if not batches:
            return [], numbers
        rows, key = one_batch(batches), self._key
        groups = groups_by_key(rows, numbers, key)
        folded = fold(rows, groups, key, numbers_of(rows.column(KIND_COLUMN)), is_oldest=True)
        request = self._scan.reader.request
        whole = tuple(each for each in self._readers.rows.request.fields if each != ROW_KIND)
        made = folded.gather(rows, [each.name for each in whole])
        convert = section_reader.conversion_of(request, whole, self._scan.schema)
        return [convert(made)], numbers[folded.rows]

    def _trees(self) -> Iterator[tuple[Tree, np.ndarray]]:
        counts = self._plan.bucket_counts
        return _by_tree(self._rows, self._key, self._scan.table_schema, counts)

    def _read(self, found: _Found) -> list[pa.RecordBatch]:
        return self._readers.rows.some_rows(found.split, found.rows)

    def _in_file(self, split: FileSplit, asked: np.ndarray) -> _Found:
        """The rows of a file that have some keys, deleted ones left out."""
        keys = pick(self._keys, asked)
        known = self._known_keys(split, len(asked))
        if known is not None:
            rows, at, kinds = _matches(known, keys)
        else:
            candidates = self._candidates(split, asked)
            rows = candidates.to_indices()
            if len(asked) == 1 and self._key.is_direct and not split.retractions:
                at, kinds = np.zeros(len(rows), np.int64), None  # all of them have the key
            else:
                places, at, kinds = _matches(self._file_keys(split, candidates), keys)
                rows = rows[places]
        found = _Found(split, rows, asked[at], kinds)
        if split.deletion is None:
            return found
        live = self._plan.live.get(split.location)
        if live is None:
            live = self._readers.keys.rows(split) or RowRanges.empty()
            self._plan.live[split.location] = live
        return _some(found, live.to_mask(split.rows)[rows])

    def _known_keys(self, split: FileSplit, wanted: int) -> FileKeys | None:
        """All keys of a file, if they are known or worth decoding."""
        held = self._readers.keys.held
        known = held.keys(split.location)
        if known is None:
            asked = held.count(split.location, wanted)
            size = split.rows * (8 if self._key.is_direct else BYTES_PER_KEY)
            free = DECODED_BYTES_LOCAL
            if asked == wanted or "://" in split.location:  # most programs look up once
                free = min(free, DECODED_BYTES_REMOTE)
            is_asked_often = asked * ROWS_PER_KEY >= split.rows
            if (size <= free or is_asked_often) and held.has_room(split.location, size):
                known = self._file_keys(split, RowRanges.all(split.rows))
                held.hold_keys(split.location, known)
        return known

    def _file_keys(self, split: FileSplit, rows: RowRanges) -> FileKeys:
        """The keys of some rows of a file, and their kinds."""
        batches = list(self._readers.keys.read_file(split, rows=rows, threads=1)) if rows else []
        dtype = pa.int64() if self._key.is_direct else pa.large_binary()
        keys = pa.chunked_array([self._key.keys(batch) for batch in batches], dtype)
        kinds = None
        if split.retractions:
            parts = [batch.column(KIND_COLUMN) for batch in batches]
            kinds = numbers_of(pa.chunked_array(parts, pa.int8()).combine_chunks())
        return FileKeys(keys_of(keys.combine_chunks()), kinds)

    def _candidates(self, split: FileSplit, asked: np.ndarray) -> RowRanges:
        """Rows of a file that may have some keys, found by statistics and the key's columns."""
        some = take_batch_rows(self._rows, asked)
        parts = [
            col(name).isin(list(column)) for name, column in zip(self._key.names, some, strict=True)
        ]
        reader, scan = self._readers.keys, self._scan
        chosen = table_filter(conjunction(parts), scan.table_schema, where=scan.store.location)
        filtered = replace(reader.request, filter=chosen)
        return HeldReader(filtered, reader, reader.held).find(split, threads=1)


def _matches(known: FileKeys, keys: Keys) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """All rows with some keys: their numbers, which of the keys each has, and their kinds."""
    starts, stops = places_of(known.keys, keys)
    counts = stops - starts
    at = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(at)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return rows, at, None if known.kinds is None else known.kinds[rows]


def _some(found: _Found, kept: np.ndarray) -> _Found:
    kinds = None if found.kinds is None else found.kinds[kept]
    return _Found(found.split, found.rows[kept], found.numbers[kept], kinds)


def _one_of_each(found: _Found, *, is_first: bool) -> _Found:
    """The first or the last row of each key."""
    apart = found.numbers[1:] != found.numbers[:-1]
    edge = np.ones(min(1, len(found.numbers)), bool)
    return _some(found, np.concatenate([edge, apart] if is_first else [apart, edge]))


def _without_retractions(found: _Found) -> _Found:
    return found if found.kinds is None else _some(found, ~is_retraction(found.kinds))


def _by_tree(
    rows: pa.RecordBatch, key: PrimaryKey, schema: TableSchema, counts: BucketCounts
) -> Iterator[tuple[Tree, np.ndarray]]:
    """The trees that keys belong to, and the numbers of their keys, ascending.

    Keys of partitions without files have no trees.
    """
    if not rows.num_rows:
        return
    for partition, part in _by_partition(rows, schema):
        count = counts.get(partition)
        if count is None:
            continue
        if count == 1:
            yield (partition, 0), part
            continue
        some = rows if len(part) == rows.num_rows else take_batch_rows(rows, part)
        buckets = key.buckets(some, count)
        order = np.argsort(buckets, kind="stable")
        cuts = np.flatnonzero(np.diff(buckets[order])) + 1
        for places in np.split(order, cuts):
            yield (partition, int(buckets[places[0]])), part[places]


def _by_partition(
    rows: pa.RecordBatch, schema: TableSchema
) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
    """The partitions that keys belong to, and the numbers of their keys, ascending."""
    if not schema.partition_by:
        yield (), np.arange(rows.num_rows)
        return
    names = {each.id: each.name for each in schema.fields}
    codes: list[np.ndarray] = []
    texts: list[Sequence[object]] = []
    for each in schema.partition_by:
        column = rows.column(names[each.source_id])
        values = plain(transformed(each.transform, each.parameter, column)).dictionary_encode()
        codes.append(values.indices.to_numpy().astype(np.int64))
        texts.append([value_codec.encode_value(value) for value in values.dictionary])
    order = np.lexsort(codes)
    placed = np.stack(codes)[:, order]
    cuts = np.flatnonzero((placed[:, 1:] != placed[:, :-1]).any(axis=0)) + 1
    for part in np.split(order, cuts):
        at = (int(code[part[0]]) for code in codes)
        yield tuple(values[place] for values, place in zip(texts, at, strict=True)), part
