"""A split: the piece of a scan that one thread or task reads. Small, picklable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fermion_table.manifest import DeletionVector, Entry

TASK_BYTES = 128 * 1024 * 1024
"""Bytes of files that one task reads, roughly."""
OPEN_COST_BYTES = 4 * 1024 * 1024
"""What opening a file costs, as bytes read."""
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


def split_of(entry: Entry, location: str, deletion_location: str = "") -> Split:
    """A whole data file as a split.

    Parameters
    ----------
    location
        Where the file lies: ``AtomicStore.locate`` of its path, or the entry's external path.
    deletion_location
        See `deletion_vector.vector_location`.
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
    )


def pieces(split: Split, bytes_max: int = TASK_BYTES) -> list[Split]:
    """A split as several of about equal numbers of rows, where its file is much bigger than asked.

    Parameters
    ----------
    bytes_max
        Bytes of the file that a piece stands for, roughly.
    """
    first, last = split.row_range or (0, split.rows)
    size = split.size * (last - first) // max(split.rows, 1)
    count = min(round(size / bytes_max), -(-(last - first) // PIECE_ROWS))
    if count < 2:
        return [split]
    step = -(-(last - first) // count // PIECE_ROWS) * PIECE_ROWS
    starts = range(first, last, step)
    return [replace(split, row_range=(start, min(start + step, last))) for start in starts]


def tasks(splits: Iterable[Split], bytes_target: int = TASK_BYTES) -> Iterator[tuple[Split, ...]]:
    """Splits as tasks of about equal cost, in order: big files cut, small ones together."""
    task: list[Split] = []
    cost = 0
    for split in splits:
        for piece in pieces(split, bytes_target):
            share = piece.size
            if piece.row_range is not None:
                share = share * (piece.row_range[1] - piece.row_range[0]) // max(piece.rows, 1)
            if task and cost + share + OPEN_COST_BYTES > bytes_target:
                yield tuple(task)
                task, cost = [], 0
            task.append(piece)
            cost += share + OPEN_COST_BYTES
    if task:
        yield tuple(task)


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
