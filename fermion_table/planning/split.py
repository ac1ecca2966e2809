"""A split: the part of a scan that one thread or task reads; a data file or some rows of one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa

from fermion.display import short_repr
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.column_file import Runs, ids_in, problem_beside
from fermion_table.metadata.manifest import DeletionVector, Entry, as_data_file
from fermion_table.metadata.shared_files import SharedFiles
from fermion_table.options import OPEN_COST_BYTES, TASK_BYTES
from fermion_table.schema.schema import Field


class FileReader(Protocol):
    """What a split reads its files with: see `SplitReader`."""

    def read_file(
        self, split: FileSplit, *, threads: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that the query selects, in the file's order."""

    def count_file(self, split: FileSplit, *, threads: int | None = None) -> int:
        """How many rows of a file the query selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSplit:
    """One data file, or some rows of it.

    Attributes
    ----------
    location
        What `fermion.open` takes.
    file
        The data file as the table names it, for messages.
    size, tail_length
        Bytes of the file; bytes at its end that open it.
    rows
        Rows of the file.
    schema_id
        The schema it was written with.
    columns
        Runs of field ids that hold data, as in the entry.
    fields
        Of a column file: runs of the ids of the fields that it has; None: a data file.
    column_files
        Files with some columns of the same rows; the last one that has a field counts.
    in_batches
        Whether it was written in batch mode.
    partition
        Partition values, as JSON values.
    row_range
        Rows to read, (start, stop), stop exclusive; None: all.
    deletion, deletion_location
        Rows of the file that are gone, and where that is stored.
    row_id_base
        Id of the file's first row.
    file_id
        The file's own identity, which it must have; None: not known.
    retractions, keys_repeated
        See `Entry`.
    shares
        Whether it lies on the table's own storage: only then the table's storage options go there.
    """

    location: str
    file: str
    size: int
    rows: int
    tail_length: int = 0
    schema_id: int = 0
    columns: Runs | None = None
    fields: Runs | None = None
    column_files: tuple[FileSplit, ...] = ()
    in_batches: bool = False
    partition: tuple[Any, ...] = ()
    row_range: tuple[int, int] | None = None
    deletion: DeletionVector | None = None
    deletion_location: str = ""
    row_id_base: int | None = None
    file_id: str | None = None
    retractions: int = 0
    keys_repeated: int = 0
    shares: bool = True

    __repr__ = short_repr

    @property
    def files(self) -> tuple[FileSplit]:
        """The file alone."""
        return (self,)

    @property
    def row_bounds(self) -> tuple[int, int]:
        """The numbers of the first row to read and of the one after the last, in the file."""
        return self.row_range or (0, self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of the file that stand for the rows to read."""
        first, last = self.row_bounds
        return self.size * (last - first) // max(self.rows, 1)

    @property
    def cost(self) -> int:
        """The same, and what opening the file costs."""
        return self.bytes + OPEN_COST_BYTES

    @property
    def rows_wanted(self) -> int:
        """Rows to read, before filtering; at most, of a part of a file with deleted rows."""
        if self.row_range is None:
            return self.rows - (self.deletion.rows if self.deletion is not None else 0)
        return self.row_range[1] - self.row_range[0]

    @property
    def is_exact(self) -> bool:
        """Whether `rows_wanted` is exact: which rows of a part are deleted is in another file."""
        return self.row_range is None or self.deletion is None

    def with_data(self, fields: Iterable[Field]) -> list[Field]:
        """Those of its top-level fields of which the file holds data."""
        if self.columns is None:
            return list(fields)
        listed = list(fields)
        held = ids_in(self.columns, (each.id for each in listed))
        return [each for each in listed if each.id in held]

    def part(self, start: int, stop: int) -> FileSplit:
        """The same with some of its rows, by their numbers in the file, stop exclusive."""
        return self if (start, stop) == self.row_bounds else replace(self, row_range=(start, stop))

    def head(self, rows: int) -> FileSplit:
        """The same without rows beyond the first so many; all of it where some are deleted."""
        if self.rows_wanted <= rows or self.deletion is not None:
            return self
        first = self.row_bounds[0]
        return self.part(first, first + rows)

    def read(self, reader: FileReader, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the query selects, in the file's order."""
        return reader.read_file(self, threads=threads)

    def count(self, reader: FileReader, *, threads: int | None = None) -> int:
        """How many rows the query selects."""
        return reader.count_file(self, threads=threads)


def file_split(
    entry: Entry,
    location: str,
    deletion_location: str = "",
    *,
    shares: bool = True,
    column_files: tuple[FileSplit, ...] = (),
) -> FileSplit:
    """A whole data file as a split.

    Parameters
    ----------
    location
        Where the file lies: see `shared_files`.
    deletion_location
        Where the file of its deletion vector lies.
    shares, column_files
        See `FileSplit`.
    """
    return FileSplit(
        location=location,
        file=entry.file,
        size=entry.size,
        rows=entry.rows,
        tail_length=entry.tail_length,
        schema_id=entry.schema_id,
        columns=entry.columns,
        column_files=column_files,
        in_batches=entry.batch is not None,
        partition=entry.partition,
        deletion=entry.deletion_vector,
        deletion_location=deletion_location,
        row_id_base=entry.row_id_base,
        file_id=entry.file_id,
        retractions=entry.retractions,
        keys_repeated=entry.keys_repeated,
        shares=shares,
    )


def beside(entry: Entry, files: SharedFiles) -> tuple[FileSplit, ...]:
    """The column files of an entry.

    Parameters
    ----------
    files
        Tells where they lie.

    Raises
    ------
    CorruptMetadata
        One has another number of rows or is there twice, or the data file belongs to a tree.
    UnsafeStorage
        The table may not name one of them.
    """
    problem = problem_beside(entry.rows, entry.bucket, entry.column_files)
    if problem is not None:
        raise CorruptMetadata(entry.file, *problem)
    made = []
    for each in entry.column_files:
        alone = as_data_file(each)
        split = file_split(alone, files.data(alone), shares=files.shares_storage(alone))
        made.append(replace(split, columns=entry.columns, fields=each.fields))
    return tuple(made)


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
