"""A split: the piece of a scan that one thread or task reads. Small, picklable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fermion_table.manifest import DeletionVector, Entry


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
    )
