"""A split: the piece of a scan that one thread or task reads. Small, picklable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fermion_table.metadata.manifest import DeletionVector, Entry
from fermion_table.options import OPEN_COST_BYTES, TASK_BYTES

PIECE_ROWS = 65_536
"""Files are cut at multiples of so many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
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
    shares
        Whether it lies on the table's own storage: only then the table's storage options go there.
    """

    location: str
    file: str
    size: int
    rows: int
    tail_length: int = 0
    schema_id: int = 0
    columns: tuple[tuple[int, int], ...] | None = None
    in_batches: bool = False
    partition: tuple[Any, ...] = ()
    row_range: tuple[int, int] | None = None
    deletion: DeletionVector | None = None
    deletion_location: str = ""
    row_id_base: int | None = None
    file_id: str | None = None
    shares: bool = True

    @property
    def rows_wanted(self) -> int:
        """Rows to read, before filtering; at most, of a part of a file with deleted rows."""
        if self.row_range is None:
            return self.rows - (self.deletion.rows if self.deletion is not None else 0)
        return self.row_range[1] - self.row_range[0]

    def has_data(self, field_id: int) -> bool:
        """Whether the file holds data of a top-level field of its schema."""
        if self.columns is None:
            return True
        return any(first <= field_id <= last for first, last in self.columns)


def split_of(
    entry: Entry, location: str, deletion_location: str = "", *, shares: bool = True
) -> Split:
    """A whole data file as a split.

    Parameters
    ----------
    location
        Where the file lies: see `shared_files`.
    deletion_location
        Where the file of its deletion vector lies.
    shares
        See `Split`.
    """
    return Split(
        location=location,
        file=entry.file,
        size=entry.size,
        rows=entry.rows,
        tail_length=entry.tail_length,
        schema_id=entry.schema_id,
        columns=entry.columns,
        in_batches=entry.batch is not None,
        partition=entry.partition,
        deletion=entry.deletion_vector,
        deletion_location=deletion_location,
        row_id_base=entry.row_id_base,
        file_id=entry.file_id,
        shares=shares,
    )


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


def tasks(
    splits: Iterable[Split], bytes_target: int = TASK_BYTES, tasks_min: int = 1
) -> Iterator[tuple[Split, ...]]:
    """Splits as tasks of about equal cost, in order: big files cut, small ones together.

    Parameters
    ----------
    bytes_target
        Bytes of files a task, roughly; opening one counts as `OPEN_COST_BYTES`.
    tasks_min
        Make at least this many tasks, unless they would be cheaper than opening a file.
    """
    listed = list(splits)
    costs = [_bytes(split) + OPEN_COST_BYTES for split in listed]
    total = sum(costs)
    count = -(-total // task_bytes(total, bytes_target, tasks_min))
    task: list[Split] = []
    number, before = 1, 0
    for split, cost in zip(listed, costs, strict=True):
        first, last = split.row_range or (0, split.rows)
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
            whole = (start, stop) == (first, last)
            task.append(split if whole else replace(split, row_range=(start, stop)))
            if stop in ends:
                yield tuple(task)
                task = []
    if task:
        yield tuple(task)


def _bytes(split: Split) -> int:
    """Bytes of the file that stand for a split's rows."""
    first, last = split.row_range or (0, split.rows)
    return split.size * (last - first) // max(split.rows, 1)


def _row_near(split: Split, cost: int) -> int:
    """Where to cut a split after so much of its cost: at an end if a part would be too small."""
    first, last = split.row_range or (0, split.rows)
    size = _bytes(split)
    share = cost / max(size + OPEN_COST_BYTES, 1)
    row = round((first + (last - first) * share) / PIECE_ROWS) * PIECE_ROWS
    part = size * (row - first) // max(last - first, 1)
    if min(part, size - part) >= OPEN_COST_BYTES and first < row < last:
        return row
    return first if 2 * cost < size + OPEN_COST_BYTES else last


def first_rows(splits: Sequence[Split], limit: int) -> list[Split]:
    """The splits that the first rows come from, the last one cut where nothing is deleted."""
    chosen: list[Split] = []
    left = limit
    for split in splits:
        if left <= 0:
            break
        if split.rows_wanted > left and split.deletion is None:
            first = split.row_range[0] if split.row_range is not None else 0
            split = replace(split, row_range=(first, first + left))
        chosen.append(split)
        left -= split.rows_wanted
    return chosen
