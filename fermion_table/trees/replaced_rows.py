"""Which rows of older runs newer ones replace, found by their keys alone.

Of the keys that newer and older runs have in common the merge engine decides. Where a key's row is
one of the rows stored, the greater sequence wins, or the older row (``first_row``): the loser goes,
and the winner stays as it is. Otherwise rows are folded, and one row takes the place of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from fermion.engine import filter_batch_rows, numbers_of, one_batch
from fermion.exports import dataclass
from fermion_table.merging.fold import groups_by_key
from fermion_table.merging.merge_reader import shared_keys
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.reading.run_reader import (
    FILE_PLACE,
    ROW_PLACE,
    Runs,
    key_of,
    merging_reader,
    run_batches,
)
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.schema import KEY_COLUMN


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """Rows by the location of their file, and by their numbers in it.

    replaced: Of older runs: a merge with the newer ones puts others in their place, or none.
    lost: Of newer runs: the older row of the key stays.
    """

    replaced: dict[str, BitMap64] = field(default_factory=dict)
    lost: dict[str, BitMap64] = field(default_factory=dict)


def replaced_rows(newer: Runs, older: Runs, reader: SplitReader) -> ReplacedRows:
    """Compare newer runs with older ones, key by key.

    Of each run one batch is in memory, and a bit for each row that is found.

    newer, older: Sorted runs from the newest to the oldest. Of the older ones at most one has rows
        of a key.
    reader: Of a request with a key.
    Raises CorruptMetadata: A run is not sorted.
    """
    key = key_of(reader.request)
    names = dict.fromkeys((*key.tree_names, *key.options.sequence_fields))
    merging = merging_reader(reader, names, row_ids=True)
    splits = [split for run in (*newer, *older) for split in run]
    numbers = {split.location: number for number, split in enumerate(splits)}
    found = ReplacedRows()
    shared = shared_keys(
        [run_batches(run, merging, 1, numbers) for run in newer],
        [run_batches(run, merging, 1, numbers) for run in older],
    )
    for new, old in shared:
        losing, going = _losers(new, old, key)
        for rows, places in ((losing, found.lost), (going, found.replaced)):
            for number, some in _by_file(rows):
                location = splits[number].location
                places[location] = places.get(location, BitMap64()) | some
    return found


def _losers(
    new: pa.RecordBatch, old: pa.RecordBatch, key: PrimaryKey
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Of all rows of some keys the new ones that do not count, and the old ones that are replaced.

    The keys are in both.
    """
    options = key.options
    if key.engine.oldest_wins:
        return new, old.slice(0, 0)
    if not key.engine.picks or not options.sequence_fields:
        return new.slice(0, 0), old
    rows = one_batch([old, new])
    groups = groups_by_key(rows, rows.column(KEY_COLUMN), key)
    is_new_last = groups.order[groups.ends - 1] >= old.num_rows
    is_replaced = np.zeros(rows.num_rows, bool)
    is_replaced[groups.order] = np.repeat(is_new_last, groups.lengths)
    return (
        filter_batch_rows(new, ~is_replaced[old.num_rows :]),
        filter_batch_rows(old, is_replaced[: old.num_rows]),
    )


def _by_file(rows: pa.RecordBatch) -> Iterator[tuple[int, BitMap64]]:
    """The numbers of files, and the rows of each."""
    files = numbers_of(rows.column(FILE_PLACE))
    places = numbers_of(rows.column(ROW_PLACE)).astype(np.uint64)
    for number in np.unique(files).tolist():
        yield number, BitMap64(places[files == number])
