"""Which rows of the files of a section a scan shows, for merge engines that pick rows.

Only keys are read for that. Where the order of runs decides alone, the few rows that other runs
hide are found in each run; the rows are not put in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fermion.engine import numbers_of
from fermion.predicate import RowRanges
from fermion_table.merge_engines.key_groups import is_retraction
from fermion_table.merging.fold import fold
from fermion_table.merging.merge_reader import hidden_rows, merge_runs
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.planning.split import FileSplit
from fermion_table.reading.run_reader import (
    FILE_PLACE,
    HELD_BYTES,
    ROW_PLACE,
    Runs,
    key_filter,
    key_of,
    merging_reader,
    run_batches,
)
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.schema import KEY_COLUMN, KIND_COLUMN
from fermion_table.schema.selection import ROW_ID, ROW_KIND

KEY_BATCH_ROWS = 131_072
"""Rows of keys that are read at a time."""


def picks_rows(key: PrimaryKey) -> bool:
    """Whether a key's result is one of its rows as it is stored."""
    return key.engine.picks


def visible_rows(
    runs: Runs, reader: SplitReader, *, threads: int | None = None
) -> list[tuple[FileSplit, RowRanges]]:
    """Which rows of the files of a section a scan shows, for an engine that picks rows.

    Files of which none is shown are left out. Of the reader's filter the parts that read the key
    alone are applied already.
    """
    key = key_of(reader.request)
    is_repeated = any(split.keys_repeated for run in runs for split in run)
    if len(runs) == 1 and not is_repeated:
        return list(_not_retracted(runs[0], reader, threads))
    if key.options.sequence_fields or is_repeated:
        return _picked_by_folding(runs, reader, key, threads)
    read = [_RunKeys(run, reader, key, threads) for run in runs]
    hidden = hidden_rows(read, oldest_wins=key.engine.oldest_wins)
    return [shown for run, rows in zip(read, hidden, strict=True) for shown in run.shown(rows)]


def _not_retracted(
    run: Sequence[FileSplit], reader: SplitReader, threads: int | None
) -> Iterator[tuple[FileSplit, RowRanges]]:
    """The same of a run alone that has each key once: not even keys are read."""
    kinds = merging_reader(reader, (), row_ids=True)
    for split in run:
        counted = replace(split, row_id_base=0)
        shown = [
            RowRanges.from_indices(
                numbers_of(batch.column(ROW_ID.name))[
                    ~is_retraction(numbers_of(batch.column(KIND_COLUMN)))
                ]
            )
            for batch in kinds.read_file(counted, threads=threads)
        ]
        if any(shown):
            yield split, _joined(shown)


class _RunKeys:
    """The keys of a run, and which rows of its files these are of.

    run: Its files, in the order of keys.
    reader, key, threads: As of `visible_rows`.
    """

    def __init__(
        self, run: Sequence[FileSplit], reader: SplitReader, key: PrimaryKey, threads: int | None
    ) -> None:
        request = reader.request
        by_name = {field.name: field for field in request.table_fields}
        fields = tuple(by_name[name] for name in key.tree_names)
        bare = replace(
            request, fields=fields, filter=None, metadata=None, batch_rows=KEY_BATCH_ROWS
        )
        filtered = replace(bare, filter=key_filter(request.filter, key))
        with_kinds = replace(bare, fields=(*fields, ROW_KIND))
        self._chosen, self._keys, self._kinds = (
            SplitReader(each, io=reader.io, guard=reader.guard)
            for each in (filtered, bare, with_kinds)
        )
        self._run, self._key, self._threads = run, key, threads
        self._read: list[tuple[FileSplit, RowRanges | None]] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Keys, and kinds where a file has retractions."""
        for split in self._run:
            if self._chosen.request.filter is None:
                rows = self._chosen.rows(split)
            else:
                rows = self._chosen.find(split, threads=self._threads)
            self._read.append((split, rows))
            reader = self._kinds if split.retractions else self._keys
            for batch in reader.read_file(split, rows=rows, threads=self._threads):
                arrays, names = [self._key.tree_keys(batch)], [KEY_COLUMN]
                if split.retractions:
                    arrays.append(batch.column(KIND_COLUMN))
                    names.append(KIND_COLUMN)
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    def shown(self, hidden: np.ndarray) -> Iterator[tuple[FileSplit, RowRanges]]:
        """The files and their rows but the hidden ones, which are counted through the run."""
        start = 0
        for split, rows in self._read:
            rows = RowRanges.all(split.rows) if rows is None else rows
            stop = start + rows.total
            first, last = np.searchsorted(hidden, (start, stop))
            if last - first < stop - start:
                yield split, _without(rows, hidden[first:last] - start)
            start = stop


def _without(rows: RowRanges, places: np.ndarray) -> RowRanges:
    """Rows without some, which are counted through them: ``int64``, ascending."""
    if not len(places):
        return rows
    lengths = rows.stops - rows.starts
    before = np.cumsum(lengths) - lengths
    at = np.searchsorted(before, places, "right") - 1
    gone = RowRanges.from_indices(places + (rows.starts - before)[at])
    return rows & gone.complement(int(rows.stops[-1]))


def _picked_by_folding(
    runs: Runs, reader: SplitReader, key: PrimaryKey, threads: int | None
) -> list[tuple[FileSplit, RowRanges]]:
    """The same, by the merge engine."""
    names = dict.fromkeys((*key.tree_names, *key.options.sequence_fields))
    merging = merging_reader(reader, names, row_ids=True)
    splits = [split for run in runs for split in run]
    numbers = {split.location: number for number, split in enumerate(splits)}
    found: list[list[RowRanges]] = [[] for _ in splits]
    merged = merge_runs(
        [
            run_batches(run, merging, threads, numbers, bytes_max=HELD_BYTES // len(runs))
            for run in runs
        ],
        sequence_columns=key.options.sequence_fields,
        is_descending=key.options.sequence_descending,
    )
    for each in merged:
        batch = each.batch
        kinds = numbers_of(batch.column(KIND_COLUMN))
        chosen = fold(batch, each.groups, key, kinds, is_oldest=True).rows
        files = numbers_of(batch.column(FILE_PLACE))[chosen]
        places = numbers_of(batch.column(ROW_PLACE))[chosen]
        for number in np.unique(files).tolist():
            found[number].append(RowRanges.from_indices(places[files == number]))
    return [(split, _joined(ranges)) for split, ranges in zip(splits, found, strict=True) if ranges]


def _joined(ranges: Sequence[RowRanges]) -> RowRanges:
    return RowRanges.from_bounds(
        np.concatenate([each.starts for each in ranges]),
        np.concatenate([each.stops for each in ranges]),
    )
