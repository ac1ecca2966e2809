"""A data file, or some of its rows, as a split of a scan."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Protocol

import pyarrow as pa

from fermion.display import short_repr
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.column_file import Runs, problem_beside
from fermion_table.metadata.manifest import DeletionVector, Entry, as_data_file
from fermion_table.metadata.shared_files import SharedFiles
from fermion_table.options import OPEN_COST_BYTES
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
        runs = sorted(self.columns)
        firsts = [first for first, _ in runs]
        lasts = [-1, *accumulate((last for _, last in runs), max)]
        return [each for each in fields if lasts[bisect_right(firsts, each.id)] >= each.id]

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
