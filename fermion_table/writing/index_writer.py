"""Writes the index files of a data file, from a column of it as it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap64

import fermion
from fermion import arrow_compute as pc
from fermion.engine import bloom_filter_of, take_table_rows, unwrapped
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate import column_of
from fermion_table.metadata.manifest import Entry, IndexFile
from fermion_table.metadata.shared_files import options_for
from fermion_table.reading.index_files import BLOCK_ROWS
from fermion_table.schema.schema import Path, TableSchema
from fermion_table.schema.transforms import plain
from fermion_table.schema.value_codec import has_plain_json
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import index_path, unique_name

BLOCKS_AT_ONCE = 64
BLOOM_ROWS = 65_536
"""Rows of a filter of a bloom index."""
BITMAP_VALUES_MAX = 65_536
"""A file with more distinct values gets no bitmap index."""


def check_indexable(schema: TableSchema, path: Path, where: str) -> int:
    """The id of a field, if its values can be indexed.

    Raises InvalidArgumentError: A type without an order, or a field of a list or map.
    Raises ColumnNotFoundError.
    """
    field = schema.find(path, where=where)
    tops = [schema.find(path[:length], where=where) for length in range(1, len(path))]
    dtype = field.type
    dtype = dtype.value_type if pat.is_dictionary(dtype) else dtype
    if any(each.kind != "struct" for each in tops) or not has_plain_json(dtype):
        raise InvalidArgumentError(
            f"{where}: column {'.'.join(path)!r} is {field.type}: expected booleans, numbers, "
            "strings, binary, dates or times to index, at the top or in structs"
        )
    return field.id


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """Writes index files.

    owned: Whose they are.
    options: Of the data files: of these, threads and durability are those of index files too.
    """

    owned: OwnedFiles
    options: fermion.WriteOptions

    def with_indexes(
        self,
        entry: Entry,
        holder: str,
        file_id: str | None,
        wanted: Sequence[tuple[int, str, Path]],
    ) -> Entry:
        """An entry with index files that are made now, in place of those that it has of the fields.

        holder, file_id: The location and identity of the file that has the fields.
        wanted: The id of each field, the kind of index, and the field's path in that file.
        """
        if file_id is None or not wanted:
            return entry
        store = self.owned.store
        made = []
        options = options_for(store, holder)
        with fermion.open(holder, storage_options=options) as file:
            for field, kind, path in wanted:
                index = self._write(file, path, kind)
                if index is not None:
                    made.append(msgspec.structs.replace(index, field=field, indexed_file=file_id))
        fields = {field for field, _, _ in wanted}
        kept = [each for each in entry.indexes if each.field not in fields]
        return msgspec.structs.replace(entry, indexes=(*kept, *made))

    def _write(self, file: fermion.FermionFile, path: Path, kind: str) -> IndexFile | None:
        column = unwrapped(column_of(file.read([path]), path))
        parts = KINDS[kind](column)
        first = next(parts, None)
        if first is None:
            return None
        target = index_path(unique_name())
        self.owned.add(target)
        writer = fermion.Writer(
            self.owned.store.locate(target, for_writing=True),
            first.schema,
            options=replace(
                INDEX_OPTIONS, durable=self.options.durable, threads=self.options.threads
            ),
            storage_options=self.owned.store.storage_options,
        )
        self.owned.add(target, writer)
        writer.write(first)
        for batch in parts:
            writer.write(batch)
        info = writer.close()
        self.owned.add(target)
        return IndexFile(
            path=target,
            size=info.size,
            rows=info.num_rows,
            tail_length=info.tail_length,
            field=0,
            kind=kind,
            indexed_file="",
            file_id=info.file_id,
        )


INDEX_OPTIONS = fermion.WriteOptions(page_rows_max=BLOCK_ROWS, statistics=False)


def _btree(column: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """The rows of a btree index: at least one batch, perhaps without rows."""
    order = _ascending(column)
    step = BLOCKS_AT_ONCE * BLOCK_ROWS
    for start in range(0, max(len(order), 1), step):
        rows = order[start : start + step]
        values = _taken(column, rows)
        starts = np.arange(0, len(rows), BLOCK_ROWS)
        ends = np.append(starts[1:], len(rows))[: len(starts)]
        offsets = pa.array(np.append(starts, len(rows)).astype(np.int32))
        numbers = pa.array(rows.astype(np.uint32 if len(column) < 2**32 else np.uint64))
        arrays: list[Any] = [
            _taken(values, starts),
            _taken(values, ends - 1),
            pa.ListArray.from_arrays(offsets, values),
            pa.ListArray.from_arrays(offsets, numbers),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=["first", "last", "values", "rows"])


def _taken(column: pa.Array | pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    """Some values of a column, in one array."""
    taken = take_table_rows(pa.table([column], names=["value"]), rows).column(0)
    return taken.chunk(0) if taken.num_chunks == 1 else taken.combine_chunks()


def _ascending(column: pa.ChunkedArray) -> np.ndarray:
    """The rows in the order of their values, without those that are null or NaN."""
    keys = pa.chunked_array([plain(chunk) for chunk in column.chunks] or [plain(pa.nulls(0))])
    if pat.is_floating(keys.type):
        keys = keys.cast(pa.float64())
    left_out = keys.null_count
    if pat.is_floating(keys.type):
        left_out += pc.sum(pc.is_nan(keys)).as_py() or 0
    order = np.asarray(pc.sort_indices(keys))  # NaN and then nulls last
    return order[: len(order) - left_out]


def _bitmap(column: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """The rows of a bitmap index; nothing where there are too many distinct values."""
    whole = column.combine_chunks()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    encoded = plain(whole).dictionary_encode(null_encoding="encode")
    if len(encoded.dictionary) > BITMAP_VALUES_MAX:
        return
    codes = encoded.indices.to_numpy()
    rows = np.argsort(codes.astype(np.uint16), kind="stable")
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    firsts = np.cumsum(counts) - counts
    bitmaps = []
    for part in np.split(rows, firsts[1:]):
        bitmap = BitMap64(part.astype(np.uint64))
        bitmap.run_optimize()
        bitmaps.append(bitmap.serialize())
    arrays = [
        _taken(whole, rows[firsts]),
        pa.array(counts),
        pa.array(bitmaps, pa.large_binary()),
    ]
    yield pa.RecordBatch.from_arrays(arrays, names=["value", "count", "rows"])


def _bloom(column: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """The rows of a bloom index."""
    starts = range(0, len(column), BLOOM_ROWS)
    parts = [column.slice(start, BLOOM_ROWS).combine_chunks() for start in starts]
    arrays = [
        pa.nulls(len(parts), column.type),
        pa.array(np.cumsum([len(part) for part in parts])),
        pa.array([bloom_filter_of(part) for part in parts], pa.large_binary()),
    ]
    yield pa.RecordBatch.from_arrays(arrays, names=["value", "stop", "filter"])


KINDS = {"btree": _btree, "bitmap": _bitmap, "bloom": _bloom}
"""What makes the rows of an index file, by its kind."""
