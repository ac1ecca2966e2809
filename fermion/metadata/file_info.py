"""What a finished file holds: the summary that a writer gives back."""

from __future__ import annotations

from collections.abc import Mapping

from fermion.display import short_repr
from fermion.exports import dataclass
from fermion.options import SortKey
from fermion.statistics.bounds import ColumnStatistics

BATCH_ID = "batch_id"
INDEX_IN_BATCH = "index_in_batch"
VIRTUAL_COLUMNS = (BATCH_ID, INDEX_IN_BATCH)


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The batches of a file: smallest and greatest id, their number, and their order."""

    min: int
    max: int
    count: int
    sorted: bool


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What was written.

    Attributes
    ----------
    path
        As it was given.
    size, tail_length
        Bytes of the file, and of everything after the CMBs: reading that many from the end opens
        the file.
    num_rows, num_columns, num_stripes
        Counts; columns are the user's.
    columns_with_data
        Ordinals of top-level columns that have a CMB; all others are null in every row.
    statistics
        By path, for scalar leaves reached through structs alone.
    sort_order
        What the rows are sorted by, the first key matters most; empty where that is not known.
    file_id
        The file's identity, 32 hexadecimal digits: no other file has it.
    batch
        None for a file that was not written in batch mode, or holds no batch.
    """

    path: str
    size: int
    tail_length: int
    num_rows: int
    num_columns: int
    num_stripes: int
    columns_with_data: frozenset[int]
    statistics: Mapping[tuple[str, ...], ColumnStatistics]
    batch: BatchRange | None = None
    sort_order: tuple[SortKey, ...] = ()
    file_id: str | None = None

    __repr__ = short_repr
