"""Merging sorted runs while they are read: keys in order, the rows of each key together.

Of each run one batch is held. Keys below the *watermark*, the least of the last keys loaded, are
complete: no run can bring another row of them. They are given away in windows of about the size of
one batch, and the runs that are at the watermark load their next batch. So memory is about one
batch a run, however long the runs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.engine import filter_batch_rows, numbers_of, one_batch
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.merge_engines.key_groups import KeyGroups, group_rows, is_retraction
from fermion_table.schema.key_encoding import key_ranks
from fermion_table.schema.schema import KEY_COLUMN, KIND_COLUMN

FEW = 4
"""A window is not given away while it has less than this part of the bytes of one batch."""


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rows of some neighbouring keys, all of each key.

    batch: The rows, run by run.
    groups: The rows by key, and within a key from the oldest to the newest.
    """

    batch: pa.RecordBatch
    groups: KeyGroups


def merge_runs(
    runs: Sequence[Iterable[pa.RecordBatch]],
    *,
    sequence_columns: Sequence[str] = (),
    is_descending: bool = False,
) -> Iterator[MergedRows]:
    """Merge sorted runs.

    runs: From the newest to the oldest. Of each its batches, all of one schema, sorted by key; rows
        of one key are in order of time. The column of keys (`KEY_COLUMN`) is ``int64`` (direct) or
        large binary (bytes), without nulls.
    sequence_columns: Columns that order the rows of a key before time does.
    is_descending: Whether the smallest sequence is the newest.
    Yields: In the order of keys; none is empty.
    Raises CorruptMetadata: A run is not sorted.
    Raises InvalidArgumentError: A key column of another type, or with nulls.
    """
    for taken in _windows(runs):
        yield _merged(taken, sequence_columns, is_descending)


def hidden_rows(
    runs: Sequence[Iterable[pa.RecordBatch]],
    *,
    oldest_wins: bool = False,
) -> list[np.ndarray]:
    """Of each run the rows that are not the results of their keys: others hide them.

    The same as `merge_runs` with the engine ``deduplicate`` (or ``first_row``), for runs without
    sequence fields in which no key is repeated; rows are not put in order, which is far faster.

    runs: As for `merge_runs`; of no run two rows have the same key. Batches may have a
        column of kinds: retractions are no results.
    oldest_wins: Whether the row of the oldest run is taken, not that of the newest.
    Returns: Of each run row numbers, counted from 0 through its batches: ``int64``, ascending.
    Raises CorruptMetadata, InvalidArgumentError: As `merge_runs`.
    """
    hidden: list[list[np.ndarray]] = [[np.zeros(0, np.int64)] for _ in runs]
    before = [0] * len(runs)
    for taken in _windows(runs):
        numbers = [number for number, (keys, _) in enumerate(taken) if keys]
        found = _comparable([taken[number][0] for number in numbers])
        pairs = list(zip(numbers, found, strict=True))
        seen = np.zeros(0, np.int64)
        for at, (number, keys) in enumerate(pairs if oldest_wins else pairs[::-1], 1):
            run = len(runs) - 1 - number
            is_hidden = np.zeros(len(keys), bool)
            is_hidden[places_in(seen, keys)] = True
            kinds = _kinds_of(taken[number][1])
            gone = is_hidden if kinds is None else is_hidden | is_retraction(kinds)
            hidden[run].append(np.flatnonzero(gone) + before[run])
            before[run] += len(keys)
            if at < len(pairs):
                seen = np.sort(np.concatenate((seen, keys[~is_hidden])), kind="stable")
    return [np.concatenate(parts) for parts in hidden]


def places_in(some: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where sorted keys without repeats hold some others, sorted too: ``int64``, shape (m,)."""
    if len(some) > len(keys):
        places = np.searchsorted(some, keys)
        places[places == len(some)] = 0
        return np.flatnonzero(some[places] == keys)
    places = np.searchsorted(keys, some)
    count = int(np.searchsorted(places, len(keys)))
    places = places[:count]
    return places[keys[places] == some[:count]]


def _kinds_of(batches: Sequence[pa.RecordBatch]) -> np.ndarray | None:
    """The kinds of rows; None: no retraction is among them."""
    if not any(KIND_COLUMN in batch.schema.names for batch in batches):
        return None
    parts = [
        numbers_of(batch.column(KIND_COLUMN))
        if KIND_COLUMN in batch.schema.names
        else np.zeros(batch.num_rows, np.int8)
        for batch in batches
    ]
    return np.concatenate(parts)


def shared_keys(
    newer: Sequence[Iterable[pa.RecordBatch]],
    older: Sequence[Iterable[pa.RecordBatch]],
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """The rows of the keys that newer and older runs have in common.

    newer, older: Runs as for `merge_runs`.
    Yields: Of some neighbouring keys the rows of the newer runs and those of the older ones, the
        oldest run first; neither is empty.
    Raises CorruptMetadata, InvalidArgumentError: As `merge_runs`.
    """
    for taken in _windows([*newer, *older]):
        present = [(at, *each) for at, each in enumerate(taken) if each[0]]
        numbers = _comparable([keys for _, keys, _ in present])
        count = sum(at < len(older) for at, _, _ in present)  # the older runs come first
        if count in (0, len(present)):
            continue
        old, new = np.concatenate(numbers[:count]), np.concatenate(numbers[count:])
        old_rows, new_rows = (
            one_batch([batch for _, _, batches in some for batch in batches])
            for some in (present[:count], present[count:])
        )
        is_old_shared, is_new_shared = np.isin(old, new), np.isin(new, old)
        if is_old_shared.any():
            yield (
                filter_batch_rows(new_rows, is_new_shared),
                filter_batch_rows(old_rows, is_old_shared),
            )


def _comparable(runs: Sequence[list]) -> list[np.ndarray]:
    """The keys of each run as numbers that compare as they do."""
    if all(isinstance(each, np.ndarray) for keys in runs for each in keys):
        return [keys[0] if len(keys) == 1 else np.concatenate(keys) for keys in runs]
    ranks = key_ranks(pa.concat_arrays([each for keys in runs for each in keys]))
    counts = [sum(map(len, keys)) for keys in runs]
    return np.split(ranks, np.cumsum(counts)[:-1])


def _windows(
    runs: Sequence[Iterable[pa.RecordBatch]],
) -> Iterator[list[tuple[list, list[pa.RecordBatch]]]]:
    """Of each run, from the oldest to the newest, the rows of the next keys: all rows of each."""
    cursors = [_Cursor(run, at) for at, run in enumerate(runs)]
    try:
        while True:
            for cursor in cursors:
                if not cursor.count:
                    cursor.load()
            if not any(cursor.count for cursor in cursors):
                return
            lasts = [cursor.last for cursor in cursors if not cursor.is_exhausted]
            watermark = min(lasts) if lasts else None
            for mark in _marks(cursors, watermark):
                taken = [cursor.take_below(mark) for cursor in reversed(cursors)]
                if any(len(keys) for keys, _ in taken):
                    yield taken
            for cursor in cursors:
                if not cursor.is_exhausted and cursor.last == watermark:
                    cursor.load()
    finally:
        for cursor in cursors:
            cursor.close()


def _marks(cursors: Sequence[_Cursor], watermark: Any) -> list[Any]:
    """Where the windows up to the watermark end, which is the last; none where it is too small.

    Runs that are alike reach the ends of their batches together: what is complete is then almost
    nothing, until it is almost all that is loaded.
    """
    below = sum(cursor.bytes_below(watermark) for cursor in cursors)
    usual = sum(cursor.batch_bytes for cursor in cursors) / len(cursors)
    if watermark is not None and below * FEW < usual:
        return []
    longest = max(cursors, key=lambda cursor: cursor.bytes_below(watermark))
    return [*longest.keys_between(watermark, int(below / max(usual, 1))), watermark]


class _Cursor:
    """A run: the rows that are loaded and not given away yet."""

    def __init__(self, run: Iterable[pa.RecordBatch], number: int) -> None:
        self._batches = iter(run)
        self._number = number
        self._loaded: list[pa.RecordBatch] = []
        self.is_exhausted = False
        self.last: Any = None  # the key of the last row loaded
        self.batch_bytes = 0  # of the batch loaded last
        self._row_bytes = 0.0

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self._loaded)

    def bytes_below(self, watermark: Any) -> float:
        """About how many bytes the rows of keys below the watermark have; None: all rows."""
        counts = (_count_below(self._keys(batch), watermark) for batch in self._loaded)
        return self._row_bytes * sum(counts)

    def keys_between(self, watermark: Any, parts: int) -> list[Any]:
        """Keys that cut the rows below the watermark into so many parts, ascending."""
        keys = [self._keys(batch) for batch in self._loaded]
        counts = [_count_below(each, watermark) for each in keys]
        places = [sum(counts) * part // parts for part in range(1, parts)]
        found = []
        for each, count in zip(keys, counts, strict=True):
            found += [_at(each, place) for place in places if 0 <= place < count]
            places = [place - count for place in places]
        return found

    def load(self) -> None:
        """Load the next batch that has rows, if there is one."""
        for batch in self._batches:
            if batch.num_rows:
                self._check(batch)
                self._loaded.append(batch)
                self.batch_bytes = batch.nbytes
                self._row_bytes = self.batch_bytes / batch.num_rows
                self.last = _at(self._keys(batch), batch.num_rows - 1)
                return
        self.is_exhausted = True

    def take_below(self, watermark: Any) -> tuple[list, list[pa.RecordBatch]]:
        """Give away the rows of keys below the watermark, of all keys where there is none."""
        keys, batches, left = [], [], []
        for batch in self._loaded:
            found = self._keys(batch)
            place = _count_below(found, watermark)
            if place:
                keys.append(found[:place])
                batches.append(batch.slice(0, place))
            if place < batch.num_rows:
                left.append(batch.slice(place))
        self._loaded = left
        return keys, batches

    def close(self) -> None:
        """End the run's iterator, where it is a generator."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def _keys(self, batch: pa.RecordBatch) -> np.ndarray | pa.Array:
        column = batch.column(KEY_COLUMN)
        return numbers_of(column) if column.type == pa.int64() else column

    def _check(self, batch: pa.RecordBatch) -> None:
        column = batch.column(KEY_COLUMN)
        if column.type not in (pa.int64(), pa.large_binary()) or column.null_count:
            raise InvalidArgumentError(
                f"column {KEY_COLUMN!r} of run {self._number}: expected int64 or "
                f"large_binary without nulls, found {column.type} with {column.null_count} nulls"
            )
        keys = self._keys(batch)
        is_sorted = bool(pc.all(pc.greater_equal(column[1:], column[:-1]), min_count=0).as_py())
        if not is_sorted or (self.last is not None and _at(keys, 0) < self.last):
            raise CorruptMetadata(
                f"run {self._number} of a tree", "rows sorted by key", "a smaller key after another"
            )


def _merged(
    taken: list[tuple[list, list[pa.RecordBatch]]],
    sequence_columns: Sequence[str],
    is_descending: bool,
) -> MergedRows:
    """Rows of the runs, the oldest run first, so that their order is that of time."""
    keys = [each for found, _ in taken for each in found]
    batch = one_batch([each for _, batches in taken for each in batches])
    if isinstance(keys[0], np.ndarray):
        numbers = np.concatenate(keys)
    else:
        numbers = key_ranks(pa.concat_arrays(keys))
    sequence = [batch.column(name) for name in sequence_columns]
    times = np.arange(len(numbers))
    groups = group_rows(numbers, times, sequence=sequence, is_descending=is_descending)
    return MergedRows(batch, groups)


def _at(keys: np.ndarray | pa.Array, place: int) -> Any:
    found = keys[place]
    return int(found) if isinstance(keys, np.ndarray) else found.as_py()


def _count_below(keys: np.ndarray | pa.Array, watermark: Any) -> int:
    """How many of sorted keys are below the watermark; None: all."""
    if watermark is None:
        return len(keys)
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, watermark, "left"))
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < watermark:
            low = middle + 1
        else:
            high = middle
    return low
