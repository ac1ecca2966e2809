"""Reads sorted runs of a tree: the rows of their files with their keys, in the order of keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from fermion.predicate import RowRanges, candidate_names
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.options import MIB
from fermion_table.planning.filters import TableFilter, conjunction
from fermion_table.planning.split import FileSplit, ReadRequest
from fermion_table.reading.shared_file import FileAtHand, SharingReader
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.schema import KEY_COLUMN, free_name
from fermion_table.schema.selection import ROW_ID, ROW_KIND

Runs = Sequence[Sequence[FileSplit]]
"""Sorted runs from the newest to the oldest; of each its files in the order of keys."""
FILE_PLACE, ROW_PLACE = -1, -3
"""Where batches have the number of their file and of the row there: a column may have any name."""
HELD_BYTES = 32 * MIB
"""Rows of all runs that are held while they are merged, roughly, before they are folded."""
STEP_ROWS_MIN, STEP_ROWS_MAX = 2_048, 131_072
"""Rows that are read of a run at a time."""
SMALL_PIECE = 4
"""A piece is not cut off where it would be smaller than this part of the others."""
EXPANSION = 2
"""A guess: bytes of Arrow data for a byte of a file."""


def key_of(request: ReadRequest) -> PrimaryKey:
    """The key that the rows of a request are merged by."""
    assert request.key is not None
    return request.key


def key_filter(chosen: TableFilter | None, key: PrimaryKey) -> TableFilter | None:
    """The parts of a filter that say the same of all rows of a key: they read its columns alone."""
    if chosen is None:
        return None
    names = set(key.names)
    parts = tuple(
        part
        for part in chosen.parts
        if candidate_names(part) is not None and {path[0] for path in part.columns()} <= names
    )
    expression = conjunction(parts)
    return None if expression is None else TableFilter(expression, parts)


def merging_reader(
    reader: SplitReader, names: Iterable[str], *, row_ids: bool = False
) -> SplitReader:
    """Reads some top-level columns, and kinds, of the rows whose keys the filter selects.

    reader: Of a request with a key.
    row_ids: Whether the numbers of rows are read, too.
    """
    request = reader.request
    by_name = {field.name: field for field in request.table_fields}
    fields = [by_name[name] for name in names] + [ROW_KIND]
    if row_ids:
        taken = {field.name for field in fields}
        fields.append(msgspec.structs.replace(ROW_ID, name=free_name(ROW_ID.name, taken)))
    merging = replace(
        request,
        fields=tuple(fields),
        filter=key_filter(request.filter, key_of(request)),
        metadata=None,
    )
    return SplitReader(merging, io=reader.io, guard=reader.guard)


def run_batches(
    run: Iterable[FileSplit],
    reader: SplitReader,
    threads: int | None,
    numbers: dict[str, int] | None = None,
    rows: Mapping[str, RowRanges] | None = None,
    *,
    bytes_max: int = HELD_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The batches of a run with their keys; with the number of their file, where those are given.

    Row ids are the rows' numbers in their file.

    reader: A `merging_reader`.
    threads: For decoding a file.
    rows: By location: read these rows of a file, deleted or not; of other files those that are not
        deleted.
    bytes_max: Of a batch, roughly.
    """
    key, files = key_of(reader.request), FileAtHand(reader.io)
    finder = SharingReader(reader.request, reader, files)
    bare = SharingReader(replace(reader.request, filter=None), reader, files)
    try:
        for split in run:
            counted = replace(split, row_id_base=0)
            wanted = None if rows is None else rows.get(split.location)
            found = finder
            if wanted is None and reader.request.filter is not None:
                wanted, found = finder.find(counted, threads=threads), bare
            for batch in _pieces(counted, found, wanted, threads, bytes_max):
                arrays, names = [*batch.columns, key.tree_keys(batch)], batch.schema.names
                names.append(KEY_COLUMN)
                if numbers is not None:
                    number = pa.scalar(numbers[split.location], pa.int32())
                    arrays.append(pa.repeat(number, batch.num_rows))
                    names.append(free_name("_file", names))
                yield pa.RecordBatch.from_arrays(arrays, names=names)
    finally:
        files.close()


def _pieces(
    split: FileSplit,
    reader: SharingReader,
    rows: RowRanges | None,
    threads: int | None,
    bytes_max: int,
) -> Iterator[pa.RecordBatch]:
    """Some rows of a file (None: those not deleted), in batches of about so many bytes.

    They are cut where stripes begin, and within these at numbers that pages often end at.
    """
    found = reader.rows(split) if rows is None else rows
    left = RowRanges.all(split.rows) if found is None else found
    bounds = [*reader.stripe_starts(split), split.rows] if left else []
    step = _step(EXPANSION * split.size / max(split.rows, 1), bytes_max)
    while left:
        start = int(left.starts[0])
        place = bisect_right(bounds, start, 1, len(bounds) - 1)
        stop = _stop(start - bounds[place - 1], bounds[place] - bounds[place - 1], step)
        stop += bounds[place - 1]
        size = count = 0
        for batch in reader.read_file(split, rows=left.clip(start, stop), threads=threads):
            size, count = size + batch.nbytes, count + batch.num_rows
            yield batch
        step = _step(size / max(count, 1), bytes_max)
        left = left.clip(stop, split.rows)


def _step(row_bytes: float, bytes_max: int) -> int:
    """How many rows are read at a time: four to seven times a power of two."""
    rows = int(min(max(bytes_max / max(row_bytes, 1), STEP_ROWS_MIN), STEP_ROWS_MAX))
    unit = 1 << (rows.bit_length() - 3)
    return rows // unit * unit


def _stop(start: int, total: int, step: int) -> int:
    """The end of a piece of a stripe with so many rows; no small piece is left at its end."""
    stop = (start // step + 1) * step
    return stop if stop + step // SMALL_PIECE <= total else total
