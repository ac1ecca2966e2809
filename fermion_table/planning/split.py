"""A split: the part of a scan that one thread or task reads."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from fermion_table.options import OPEN_COST_BYTES, TASK_BYTES
from fermion_table.planning.file_split import FileReader, FileSplit

PIECE_ROWS = 65_536
"""Files are cut at multiples of so many rows."""
_UNCUT = (0, 1)
"""Row bounds of a split that can't be cut: there is no row between them."""


class Split(Protocol):
    """The part of a scan that one thread or task reads. Small, picklable, immutable.

    `FileSplit` is one file, or some of its rows. Threads, tasks of engines and `SplitReader` know
    of a split what stands here, and nothing else.
    """

    @property
    def files(self) -> Sequence[FileSplit]:
        """The files that are read, with the rows of each."""

    @property
    def bytes(self) -> int:
        """Bytes of files that stand for the rows to read."""

    @property
    def cost(self) -> int:
        """Bytes of a file that is open, and read as it is, that take as long to read."""

    @property
    def rows_wanted(self) -> int:
        """Rows to read, before filtering, at most."""

    @property
    def is_exact(self) -> bool:
        """Whether `rows_wanted` is how many rows come, but for the filter."""

    @property
    def row_bounds(self) -> tuple[int, int] | None:
        """The rows between which it can be cut, stop exclusive; None: it can't be."""

    def part(self, start: int, stop: int) -> Self:
        """The same with some of its rows, start and stop within `row_bounds`."""

    def head(self, rows: int) -> Split:
        """The same without rows beyond the first so many, if that is known without reading."""

    def read(self, reader: FileReader, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the query of a reader selects, in their order.

        Parameters
        ----------
        reader
            Reads the files.
        threads
            For decoding them; None takes the number of processors.
        """

    def count(self, reader: FileReader, *, threads: int | None = None) -> int:
        """How many rows the query of a reader selects."""


def task_bytes(cost: int, bytes_target: int = TASK_BYTES, tasks_min: int = 1) -> int:
    """What one task reads at most, so that enough tasks share the cost of all files.

    Parameters
    ----------
    cost
        Bytes of all files, and `OPEN_COST_BYTES` for each of them.
    bytes_target, tasks_min
        As for `tasks`.
    """
    return max(OPEN_COST_BYTES, min(bytes_target, -(-cost // max(1, tasks_min))))


class Divisible(Protocol):
    """What `tasks` asks of the splits that it divides among tasks: see `Split`."""

    @property
    def bytes(self) -> int:
        """Bytes of files to read."""

    @property
    def cost(self) -> int:
        """Bytes of a file that is open, and read as it is, that take as long to read."""

    @property
    def row_bounds(self) -> tuple[int, int] | None:
        """The rows between which it can be cut, stop exclusive; None: it can't be."""

    def part(self, start: int, stop: int) -> Self:
        """The same with some of its rows."""


Part = TypeVar("Part", bound=Divisible)


def tasks(
    splits: Iterable[Part], bytes_target: int = TASK_BYTES, tasks_min: int = 1
) -> Iterator[tuple[Part, ...]]:
    """Splits as tasks of about equal cost, in order: big files cut, small ones together.

    Parameters
    ----------
    bytes_target
        Bytes of files a task, roughly; see `Split.cost`.
    tasks_min
        Make at least this many tasks, unless they would be cheaper than opening a file.
    """
    listed = list(splits)
    costs = [split.cost for split in listed]
    total = sum(costs)
    count = -(-total // task_bytes(total, bytes_target, tasks_min))
    task: list[Part] = []
    number, before = 1, 0
    for split, cost in zip(listed, costs, strict=True):
        first, last = split.row_bounds or _UNCUT
        ends = []
        while total * number // count < before + cost:
            ends.append(_row_near(split, total * number // count - before))
            number += 1
        before += cost
        if first in ends and task:
            yield tuple(task)
            task = []
        bounds = [first, *sorted({row for row in ends if first < row < last}), last]
        for start, stop in pairwise(bounds):
            task.append(split if (start, stop) == (first, last) else split.part(start, stop))
            if stop in ends:
                yield tuple(task)
                task = []
    if task:
        yield tuple(task)


def mixed_tasks(
    splits: Iterable[Part], bytes_target: int = TASK_BYTES, tasks_min: int = 1
) -> Iterator[tuple[Part, ...]]:
    """As `tasks`, but what can't be cut is in tasks of its own, before the others.

    These are files to be merged. The costliest come first, as nothing else can share their work:
    tasks that read files as they are fill the time until the last of them is done.
    """
    whole: list[Part] = []
    others: list[Part] = []
    for split in splits:
        (whole if split.row_bounds is None else others).append(split)
    if not whole:
        yield from tasks(others, bytes_target, tasks_min)
        return
    total = sum(split.cost for split in (*whole, *others))
    target = task_bytes(total, bytes_target, tasks_min)
    yield from _balanced(whole, -(-sum(split.cost for split in whole) // target))
    yield from tasks(others, target)


def _balanced(splits: Sequence[Part], count: int) -> Iterator[tuple[Part, ...]]:
    """Splits as so many tasks at most of about equal cost, the costliest first."""
    loads = [(0, number) for number in range(min(count, len(splits)))]
    chosen: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(splits)), key=lambda place: -splits[place].cost):
        load, number = loads[0]
        chosen[number].append(place)
        heapq.heapreplace(loads, (load + splits[place].cost, number))
    for _, number in sorted(loads, key=lambda each: (-each[0], each[1])):
        yield tuple(splits[place] for place in sorted(chosen[number]))


def _row_near(split: Divisible, cost: int) -> int:
    """Where to cut a split after so much of its cost: at an end if a part would be too small."""
    first, last = split.row_bounds or _UNCUT
    size = split.bytes
    share = cost / max(size + OPEN_COST_BYTES, 1)
    row = round((first + (last - first) * share) / PIECE_ROWS) * PIECE_ROWS
    part = size * (row - first) // max(last - first, 1)
    if min(part, size - part) >= OPEN_COST_BYTES and first < row < last:
        return row
    return first if 2 * cost < size + OPEN_COST_BYTES else last


def first_rows(splits: Sequence[Split], limit: int) -> list[Split]:
    """The splits that the first rows come from, the last one without more rows where it can be."""
    chosen: list[Split] = []
    left = limit
    for split in splits:
        if left <= 0:
            break
        split = split.head(left)
        chosen.append(split)
        left -= split.rows_wanted if split.is_exact else 0
    return chosen
