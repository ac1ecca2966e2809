"""Reads sorted runs of a tree: the rows of their files with their keys, in the order of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from fermion.predicate import RowRanges, candidate_names
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.scanning.file_split import FileSplit
from fermion_table.scanning.filters import TableFilter, conjunction
from fermion_table.scanning.split_reader import ReadRequest, SplitReader
from fermion_table.schema.key_changes import KEY_COLUMN
from fermion_table.schema.selection import ROW_ID, ROW_KIND

Runs = Sequence[Sequence[FileSplit]]
"""Sorted runs from the newest to the oldest; of each its files in the order of keys."""
FILE_COLUMN = "_file"


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


def merging_reader(reader: SplitReader, names: Sequence[str], *virtual: str) -> SplitReader:
    """Reads some top-level columns, and kinds, of the rows whose keys the filter selects.

    Parameters
    ----------
    reader
        Of a request with a key.
    virtual
        ``_row_id``, where the numbers of rows are wanted too.
    """
    request = reader.request
    by_name = {field.name: field for field in request.table_fields}
    fields = [by_name[name] for name in names] + [ROW_KIND]
    if ROW_ID.name in virtual:
        fields.append(ROW_ID)
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
) -> Iterator[pa.RecordBatch]:
    """The batches of a run with their keys; with the number of their file, where those are given.

    Row ids are the rows' numbers in their file.

    Parameters
    ----------
    reader
        A `merging_reader`.
    threads
        For decoding a file.
    numbers
        By location.
    rows
        By location: read these rows of a file, deleted or not; of other files those that are not
        deleted.
    """
    key = key_of(reader.request)
    for split in run:
        counted = replace(split, row_id_base=0)
        wanted = None if rows is None else rows.get(split.location)
        for batch in reader.read_file(counted, rows=wanted, threads=threads):
            arrays, names = (
                [*batch.columns, key.tree_keys(batch)],
                [*batch.schema.names, KEY_COLUMN],
            )
            if numbers is not None:
                number = pa.scalar(numbers[split.location], pa.int32())
                arrays.append(pa.repeat(number, batch.num_rows))
                names.append(FILE_COLUMN)
            yield pa.RecordBatch.from_arrays(arrays, names=names)
