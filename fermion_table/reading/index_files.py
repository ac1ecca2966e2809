"""Index files: which rows of a data file have some values, found without reading the column.

An index file is a Fermion file beside a data file, made of one column of it. By the kind of the
index its columns are:

======  ===========================================================================================
kind    columns
======  ===========================================================================================
btree   a row for each block of up to 4,096 values, ascending: ``first`` and ``last``, its smallest
        and greatest value; ``values``, a list of them; ``rows``, a list of their row numbers.
        Nulls and NaN are left out
bitmap  a row for each distinct value, null too: ``value``; ``count``, how many rows have it; and
        ``rows``, their numbers as a 64-bit Roaring bitmap in its portable format
bloom   a row for each 65,536 rows of the data file: ``value``, null, of the type of the values;
        ``stop``, one past its last row; and ``filter``, a Bloom filter of its values
======  ===========================================================================================

An index only narrows what is read: the filter is tested on every row that is left. A file that is
missing or damaged is not used; the log says so, and `Table.verify` reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

import fermion
from fermion.engine import BloomFilters, blocks_that_may_match, one_batch
from fermion.errors import FermionError
from fermion.layout import INT64_MAX, INT64_MIN
from fermion.predicate import (
    Bounds,
    Expression,
    RowRanges,
    evaluate,
    ranges_that_may_match,
    rename_columns,
)
from fermion.redaction import logger, redacted
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.deletion_vector import ranges_of
from fermion_table.metadata.manifest import is_in
from fermion_table.planning.filters import conjunction, field_at, same_ids
from fermion_table.planning.split import FileSplit, ReadRequest, SplitIndex
from fermion_table.schema.schema import Field, Path
from fermion_table.storage.cache import shared_cache

VALUE = ("value",)
"""The column that a filter of an index reads."""
BLOCK_ROWS = 4_096
SHARE_MAX = 32
"""An index is of use where it leaves at most one row in so many, or as many as a block has."""
BLOOM_BLOCK_BYTES = 32
BLOCKS_SHARE_MAX = 8
"""So many blocks of a btree are read that hold one value in so many, at most, or two."""

_log = logger(__name__)

Opener = Callable[[FileSplit], AbstractContextManager[fermion.FermionFile]]


class IndexReader(Protocol):
    """Reads the index files of one kind."""

    @property
    def directory(self) -> tuple[str, ...]:
        """Columns that are read as a whole, and kept."""

    def rows(
        self, file: fermion.FermionFile, known: pa.RecordBatch, filter: Expression, num_rows: int
    ) -> RowRanges | None:
        """Rows of the data file outside of which a filter of `VALUE` selects none.

        known: The columns of `directory`.
        num_rows: Of the data file.
        Returns: None where the index can't tell, or they are too many.
        Raises FermionError, OSError: The file is damaged.
        """


class _BTree:
    directory = ("first", "last")

    def rows(
        self, file: fermion.FermionFile, known: pa.RecordBatch, filter: Expression, num_rows: int
    ) -> RowRanges | None:
        """See `IndexReader`."""
        may = blocks_that_may_match(filter, *known.columns)
        if may is None:
            return None
        (blocks,) = np.nonzero(may)
        if (len(blocks) - 2) * BLOCK_ROWS > num_rows // BLOCKS_SHARE_MAX:
            return None
        if not len(blocks):
            return RowRanges.empty()
        read = file.read(["values", "rows"], rows=RowRanges.from_indices(blocks))
        found = []
        for values, numbers in zip(*(column.chunks for column in read.columns), strict=True):
            own = numbers.flatten().to_numpy()
            batch = pa.RecordBatch.from_arrays([values.flatten()], names=list(VALUE))
            if batch.num_rows != len(own):
                raise _damaged(file, f"{batch.num_rows} row numbers", f"{len(own)}")
            found.append(own[_mask(filter, batch)].astype(np.int64))
        rows = np.concatenate(found)
        if len(rows) > max(num_rows // SHARE_MAX, BLOCK_ROWS):
            return None
        return _checked(file, RowRanges.from_indices(rows), num_rows)


class _Bitmap:
    directory = ("value", "count")

    def rows(
        self, file: fermion.FermionFile, known: pa.RecordBatch, filter: Expression, num_rows: int
    ) -> RowRanges | None:
        """See `IndexReader`."""
        (numbers,) = np.nonzero(_mask(filter, known))
        if not len(numbers):
            return RowRanges.empty()
        if int(known.column(1).to_numpy()[numbers].sum()) > max(num_rows // SHARE_MAX, BLOCK_ROWS):
            return None
        read = file.read(["rows"], rows=RowRanges.from_indices(numbers)).column(0)
        try:
            bitmaps = [BitMap64.deserialize(each.as_py()) for each in read]
        except (ValueError, IndexError) as error:
            raise _damaged(file, "roaring bitmaps", str(error)) from error
        return _checked(file, ranges_of(BitMap64.union(*bitmaps)), num_rows)


class _Bloom:
    directory = ("value", "stop", "filter")

    def rows(
        self, file: fermion.FermionFile, known: pa.RecordBatch, filter: Expression, num_rows: int
    ) -> RowRanges | None:
        """See `IndexReader`."""
        values, stops, filters = known.columns
        boundaries = np.append(0, stops.to_numpy()).astype(np.int64)
        _, starts, data = filters.buffers()
        places = np.frombuffer(starts, np.int64)[filters.offset :][: len(filters) + 1]
        lengths = np.diff(places)
        if boundaries[-1] != num_rows or (np.diff(boundaries) < 1).any():
            raise _damaged(file, f"ascending stops up to {num_rows}", f"{boundaries[1:].tolist()}")
        if filters.null_count or (lengths < 1).any() or (lengths % BLOOM_BLOCK_BYTES).any():
            raise _damaged(file, "Bloom filters", f"{lengths.tolist()} bytes")
        words = memoryview(data)[places[0] : places[-1]]
        blooms = BloomFilters(words, None, file.index.where, lengths // BLOOM_BLOCK_BYTES)
        bounds = Bounds(
            boundaries=boundaries,
            min=np.full(len(filters), INT64_MIN),
            max=np.full(len(filters), INT64_MAX),
            null_count=np.full(len(filters), -1),
            flags=np.zeros(len(filters), np.uint32),
            type=values.type,
            may_contain=lambda raws: blooms.may_contain(raws, values.type),
        )
        rows = ranges_that_may_match(filter, lambda _: bounds, num_rows)
        return rows if rows.total < num_rows else None


READERS: dict[str, IndexReader] = {"btree": _BTree(), "bitmap": _Bitmap(), "bloom": _Bloom()}
"""By the kind of index."""


def rows_by_index(request: ReadRequest, split: FileSplit, opened: Opener) -> RowRanges | None:
    """The rows of a data file outside of which the filter of a query selects none.

    opened: Opens index files.
    Returns: None where no index of the file tells.
    """
    if request.filter is None or not split.indexes:
        return None
    parts: dict[Path, list[Expression]] = {}
    for part in request.filter.parts:
        columns = part.columns()
        if len(columns) == 1 and not any(node.is_opaque for node in part.walk()):
            parts.setdefault(columns.pop(), []).append(part)
    wanted: RowRanges | None = None
    for path, of_column in parts.items():
        index = _index_of(request, split, field_at(request.table_fields, path))
        filter = conjunction([rename_columns(part, {path: VALUE}) for part in of_column])
        if index is None or filter is None:
            continue
        try:
            found = _rows(index, filter, split.rows, opened)
        except (FermionError, OSError) as error:
            _log.warning(
                "%s: index not used, as it can't be read: %s: %s; indexes.rebuild() makes it anew",
                redacted(index.file.location),
                type(error).__name__,
                error,
            )
            continue
        if found is not None:
            wanted = found if wanted is None else wanted & found
    return wanted


def holder_of(split: FileSplit, column: int) -> FileSplit:
    """The file that has a top-level field: the data file, or the last column file with it."""
    for each in reversed(split.column_files):
        if is_in(each.fields or (), column):
            return each
    return split


def _index_of(
    request: ReadRequest, split: FileSplit, chain: list[Field] | None
) -> SplitIndex | None:
    """The index of a field in a file, if there is one of the file that has the field now."""
    if not chain:
        return None
    found = next((each for each in split.indexes if each.field == chain[-1].id), None)
    if found is None or found.kind not in READERS:
        return None
    holder = holder_of(split, chain[0].id)
    if holder.file_id != found.indexed_file:
        return None
    # A field that the snapshot had dropped is null in all rows, whatever the file holds.
    return found if same_ids(request.file_fields[holder.schema_id], chain) else None


def _rows(index: SplitIndex, filter: Expression, num_rows: int, opened: Opener) -> RowRanges | None:
    reader = READERS[index.kind]
    with opened(index.file) as file:
        if file.num_rows != index.file.rows:
            raise _damaged(file, f"{index.file.rows} rows", f"{file.num_rows}")
        key = ("index", index.file.location, index.file.file_id)
        known: pa.RecordBatch | None = shared_cache.get(key)
        if known is None:
            read = file.read(reader.directory)
            empty = pa.RecordBatch.from_pylist([], schema=read.schema)
            known = one_batch(read.to_batches() or [empty])
            shared_cache.put(key, known, known.nbytes)
        return reader.rows(file, known, filter, num_rows)


def _mask(filter: Expression, batch: pa.RecordBatch) -> np.ndarray:
    mask = evaluate(filter, batch).fill_null(False)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


def _checked(file: fermion.FermionFile, rows: RowRanges, num_rows: int) -> RowRanges:
    """Row numbers of an index, if the data file has them.

    Raises CorruptMetadata.
    """
    if rows and rows.stops[-1] > num_rows:
        raise _damaged(file, f"rows below {num_rows}", f"row {rows.stops[-1] - 1}")
    return rows


def _damaged(file: fermion.FermionFile, expected: str, found: str) -> CorruptMetadata:
    return CorruptMetadata(file.index.where, expected, found)
