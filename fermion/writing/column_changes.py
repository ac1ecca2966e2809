"""Columns added to a file, dropped, or put in another order, without encoding the others again.

The new file has the old one's data and CMBs byte for byte, then data and CMBs of the columns that
were added, then an index whose entries say where each CMB is (EXT_CIT). It appears under its name
only when it is complete, so a crash leaves the old file as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from fermion.arguments import first_repeated, integer, several
from fermion.columns.arrow_input import BatchCopier, is_in_memory, record_batch_reader
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedVersionError
from fermion.io.remote import resolve
from fermion.io.sink import check_target, copy_start
from fermion.io.source import CountingSource, PathLike, open_source
from fermion.layout import (
    FILE_STATISTICS_ENTRY,
    SETTING_CHECKSUM_MASK,
    Incompat,
    SectionKind,
    Setting,
    align,
)
from fermion.metadata.cit import build_extended_cit, build_indexed, build_name_index
from fermion.metadata.cmb import trailer_checksums
from fermion.metadata.file_info import VIRTUAL_COLUMNS, FileInfo
from fermion.metadata.footer import KNOWN_SIZES
from fermion.metadata.map_keys import VariantPaths, build_map_keys
from fermion.metadata.schema_area import build_field_ids, build_schema_area
from fermion.metadata.sort_order import build_sort_order
from fermion.options import ReadOptions, WriteOptions, WriteOverrides, write_options
from fermion.reading.batches import BatchLookup
from fermion.reading.index import FileIndex
from fermion.reading.projection import ColumnName
from fermion.typing import TableLike
from fermion.writing.file import Writer
from fermion.writing.metadata import (
    FILE_STATISTICS_COLUMNS_MAX,
    blank_footer,
    build_end,
    build_stripe_table,
    encode_key_values,
)

GAP_BYTES, SPAN_BYTES = 64 * 1024, 4 * 1024 * 1024
NO_COLUMNS = pa.schema([])


def add_columns(
    path: PathLike | Any,
    data: TableLike,
    *,
    destination: PathLike | Any | None = None,
    options: WriteOptions | None = None,
    storage_options: dict[str, Any] | None = None,
    **overrides: Unpack[WriteOverrides],
) -> None:
    """Add columns after those of a file; existing data are copied without decoding.

    Parameters
    ----------
    path
        The file: a local path, or with a ``destination`` also an fsspec URL or bytes.
    data
        The new columns from any Arrow producer, as many rows as the file has.
    destination
        Where the result goes; None replaces the file, at once and only when all is written.
    options, overrides
        How the new columns are written: `WriteOptions`, and single options that replace theirs.
        Stripes, checksums and alignment are the file's.

    Raises
    ------
    InvalidArgumentError
        For another number of rows, a name that the file has, or a ``sorted_by``. The file is then
        as it was.
    UnsupportedVersionError
        For a file whose structs are larger than those that this version writes.
    """
    chosen = write_options(options).with_overrides(overrides)
    reader = record_batch_reader(data)
    with _opened(path, storage_options) as index:
        _check_names(index, reader.schema)
        if chosen.sorted_by:
            raise InvalidArgumentError(
                f"{index.where}: sorted_by: only rows that are being written have an order"
            )
        if chosen.shred:
            raise InvalidArgumentError(
                f"{index.where}: shred: only maps of files that are written whole can be shredded"
            )
        if index.footer.sizes != KNOWN_SIZES:
            raise UnsupportedVersionError(
                f"{index.where}: structs of {index.footer.sizes} bytes; this version can add "
                f"columns to files with structs of {KNOWN_SIZES} bytes"
            )
        target = _target(path, destination, storage_options)
        kept = range(index.footer.num_columns)
        with _ColumnAppender(index, kept, target, reader.schema, chosen, storage_options) as writer:
            copy = BatchCopier(reader.schema).copy
            writer.append(reader if is_in_memory(data) else map(copy, reader))


def drop_columns(
    path: PathLike | Any,
    columns: Sequence[ColumnName],
    *,
    destination: PathLike | Any | None = None,
    storage_options: dict[str, Any] | None = None,
) -> None:
    """Drop top-level columns, by name or ordinal; their bytes stay in the file, unused.

    Parameters and errors are those of `select_columns`.
    """
    with _opened(path, storage_options) as index:
        dropped = set(_ordinals(index, columns))
        kept = [each for each in range(index.footer.num_columns) if each not in dropped]
        _select(index, kept, _target(path, destination, storage_options), storage_options)


def select_columns(
    path: PathLike | Any,
    columns: Sequence[ColumnName],
    *,
    destination: PathLike | Any | None = None,
    storage_options: dict[str, Any] | None = None,
) -> None:
    """Keep these top-level columns, in this order; data are copied without decoding.

    Parameters
    ----------
    path
        The file: a local path, or with a ``destination`` also an fsspec URL or bytes.
    columns
        Names or ordinals, each once.
    destination
        Where the result goes; None replaces the file, at once and only when all is written.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
        The file is then as it was.
    """
    with _opened(path, storage_options) as index:
        target = _target(path, destination, storage_options)
        _select(index, _ordinals(index, columns), target, storage_options)


def _select(
    index: FileIndex, kept: Sequence[int], target: Any, storage_options: dict[str, Any] | None
) -> None:
    with _ColumnAppender(index, kept, target, NO_COLUMNS, WriteOptions(), storage_options):
        pass


@contextmanager
def _opened(path: Any, storage_options: dict[str, Any] | None) -> Iterator[FileIndex]:
    with closing(open_source(path, storage_options)) as source:
        counting = CountingSource(source, gap_bytes_max=GAP_BYTES, span_bytes_max=SPAN_BYTES)
        yield FileIndex(counting, ReadOptions())


def _target(path: Any, destination: Any, storage_options: dict[str, Any] | None) -> Any:
    """Where the result goes: never over what is being read, unless that is replaced at once."""
    is_named = isinstance(path, (str, os.PathLike))
    if destination is not None:
        check_target(destination, "destination")
    if destination is not None and not (is_named and str(destination) == str(path)):
        return destination
    if not is_named or resolve(path, storage_options)[0] is not None:
        name = str(path) if is_named else type(path).__name__
        raise InvalidArgumentError(
            f"{name}: expected another destination: only local files can be replaced at once"
        )
    return path


def _ordinals(index: FileIndex, columns: Sequence[ColumnName]) -> list[int]:
    found: list[int] = []
    for column in several(columns, "columns", "a list of names"):
        if isinstance(column, str):
            column = index.find(column)
        elif not isinstance(column, tuple):
            column = integer(column, "columns")
        if not isinstance(column, int) or not 0 <= column < index.footer.num_columns:
            raise InvalidArgumentError(
                f"{index.where}: expected a top-level column by name, or an ordinal below "
                f"{index.footer.num_columns}; found {column!r}"
            )
        found.append(column)
    repeated = first_repeated(found)
    if repeated is not None:
        raise InvalidArgumentError(f"{index.where}: column {repeated} comes twice")
    return found


def _check_names(index: FileIndex, schema: pa.Schema) -> None:
    taken = set(index.all_names)
    if index.footer.is_batch:
        taken |= set(VIRTUAL_COLUMNS)
    for name in schema.names:
        if name in taken:
            raise InvalidArgumentError(f"{index.where}: column {name!r} is there already")
        taken.add(name)


class _ColumnAppender(Writer):
    """Writes a file that starts with another one's data and CMBs.

    kept: Ordinals of the columns to keep, in their new order.
    schema: Of the columns that follow them.
    """

    def __init__(
        self,
        index: FileIndex,
        kept: Sequence[int],
        target: Any,
        schema: pa.Schema,
        options: WriteOptions,
        storage_options: dict[str, Any] | None,
    ) -> None:
        self._index, self._kept = index, list(kept)
        self._kept_maps = {
            place: index.map_keys[ordinal]
            for place, ordinal in enumerate(self._kept)
            if ordinal in index.map_keys
        }
        options = replace(
            options,
            checksum=index.footer.checksum_kind.name.lower(),  # type: ignore[arg-type]
            align=64 if index.footer.is_aligned else 8,
        )
        super().__init__(target, schema, options=options, storage_options=storage_options)
        # What is copied stays bound, or not, as it is; the file is another one all the same.
        self._identity = self._identity._replace(place_key=index.footer.place_key)

    def _begin(self) -> None:
        length = self._index.footer.tail_offset
        copy_start(self._index.source.source, self._sink, length)
        self._position = length

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the new columns, cut into the file's stripes."""
        lookup = None
        if self._index.footer.is_batch:
            lookup = BatchLookup(self._index, checks=self._index.footer.page_checks(True))
        wanted = self._index.stripe_rows.tolist()
        for stripe, parts in enumerate(_pieces(iter(batches), wanted, self._index.where)):
            parts = list(map(self._with_blobs_put, parts))
            table = pa.Table.from_batches(parts, schema=self._stored_schema)
            ends = lookup.stripe(stripe)[1][1:] if lookup is not None else None
            wrong = self._limits.add(table.to_batches())
            if wrong is not None:
                raise InvalidArgumentError(f"{self._index.where}: stripe {stripe}: {wrong}")
            self._ordered.add(stripe, self._limits.begin())
            self._pending_bytes = table.nbytes
            groups = self._encode(self._columns, table, ends)
            self._place_columns(self._columns, wanted[stripe], groups)

    def _finish(self) -> FileInfo:
        index, footer = self._index, self._index.footer
        self._put(bytes(align(self._position) - self._position))
        self._put_index_area()
        cmb_offset, stripe_rows = self._position, index.stripe_rows.tolist()
        cmbs, lengths = self._log.blocks()
        self._put(build_indexed(cmbs, lengths, cmb_offset, self._identity.place_key))
        fields = index.all_fields()
        metadata = index.schema_area.metadata()
        schema = pa.schema([*(fields[each] for each in self._kept), *self._stored_schema], metadata)
        order = self._sort_order()
        ordered = index.ordered_dictionaries.selected(self._kept)
        ordered = ordered.joined(self._ordered, len(self._kept))
        key_counts = [each.count for each in self._kept_maps.values()]
        kept = self._kept_maps.values()
        of_variants = int(Incompat.VARIANT_PATHS | Incompat.VARIANT_RANKS)
        incompat = footer.incompat & ~(int(Incompat.MAP_KEYS) | of_variants)
        incompat |= Incompat.EXT_CIT | (Incompat.MAP_KEYS if kept else 0)
        if any(isinstance(each, VariantPaths) for each in kept):
            incompat |= footer.incompat & of_variants
        incompat |= Incompat.BLOBS if self._blobs is not None else 0
        end = build_end(
            blank_footer(
                cmbs=(cmb_offset, self._position - cmb_offset),
                columns=(len(schema), footer.is_batch + sum(key_counts)),
                num_rows=footer.num_rows,
                num_stripes=footer.num_stripes,
                settings=self._changed_settings(bool(order)),
                identity=self._identity,
                incompat=int(incompat),
                sizes=footer.sizes,
            ),
            build_schema_area(schema, compress_metadata=footer.has_compressed_schema),
            {
                SectionKind.FIELD_IDS: build_field_ids(schema) or b"",
                SectionKind.KEY_VALUE: encode_key_values(index.key_value_metadata),
                SectionKind.FILE_STATISTICS: self._statistics_section(len(schema)),
                SectionKind.SORT_ORDER: order,
                SectionKind.ORDERED_DICTIONARIES: ordered.build(),
                SectionKind.MAP_KEYS: build_map_keys(
                    {place: each.stored() for place, each in self._kept_maps.items()},
                    key_counts,
                ),
                SectionKind.STRIPE_TABLE: build_stripe_table(stripe_rows),
                SectionKind.NAME_INDEX: build_name_index(schema.names),
            },
            self._cit(cmbs, lengths, cmb_offset),
        )
        self._put(end)
        return FileInfo(
            path=self._path,
            size=self._position,
            tail_length=len(end),
            num_rows=footer.num_rows,
            num_columns=len(schema),
            num_stripes=footer.num_stripes,
            columns_with_data=frozenset(),
            statistics=self._log.statistics(),
            file_id=self._identity.text,
        )

    def _cit(self, cmbs: bytearray, lengths: np.ndarray, cmb_offset: int) -> bytes:
        """An entry for each kept column, each new one, and the system columns."""
        index, footer = self._index, self._index.footer
        old = [
            *self._kept,
            *range(footer.num_columns, footer.num_columns + footer.is_batch),
            *(ordinal for each in self._kept_maps.values() for ordinal in each.ordinals),
        ]
        ranges = index.cit.ranges(old)
        buffers, places, _ = index.block_places(old)
        sums = trailer_checksums(buffers, places)
        starts = np.cumsum(lengths) - lengths
        new_places = np.stack((np.zeros_like(starts), starts, lengths), axis=1)
        new_sums = trailer_checksums([memoryview(cmbs)], new_places)
        new = np.stack((cmb_offset + starts, lengths), axis=1)
        at = len(self._kept)
        return build_extended_cit(
            np.concatenate((ranges[:at], new, ranges[at:])),
            np.concatenate((sums[:at], new_sums, sums[at:])),
        )

    def _changed_settings(self, is_sorted: bool) -> int:
        settings = self._index.footer.settings & (sum(Setting) | SETTING_CHECKSUM_MASK)
        settings &= ~int(Setting.NO_CIT | Setting.SORTED)
        if self._has_index_area:
            settings |= Setting.HAS_INDEX_AREA
        return settings | Setting.SORTED if is_sorted else settings

    def _sort_order(self) -> bytes:
        """What the rows are still known to be sorted by: the keys before the first that is gone."""
        ordinals, keys = [], []
        places = {ordinal: place for place, ordinal in enumerate(self._kept)}
        for ordinal, key in self._index.sort_order:
            if ordinal not in places:
                break
            ordinals.append(places[ordinal])
            keys.append(key)
        return build_sort_order(ordinals, keys)

    def _statistics_section(self, columns: int) -> bytes:
        """Bounds of the kept columns, as the file says, and of the new ones."""
        section = self._index.sections.get(SectionKind.FILE_STATISTICS)
        if columns > FILE_STATISTICS_COLUMNS_MAX:
            return b""
        old = np.zeros(0, FILE_STATISTICS_ENTRY)
        if section is not None:
            if section[1] % FILE_STATISTICS_ENTRY.itemsize:
                raise InvalidFileError(
                    f"{self._index.where}: file statistics of {section[1]} bytes"
                )
            old = np.frombuffer(self._index.tail.view(*section), FILE_STATISTICS_ENTRY)
        known = {int(entry["ordinal"]): entry for entry in old}
        found = np.zeros(columns, FILE_STATISTICS_ENTRY)
        has = np.zeros(columns, bool)
        for ordinal, before in enumerate(self._kept):
            if before in known:
                found[ordinal], has[ordinal] = known[before], True
        for place, name in enumerate(self._plans.names):
            own = self._log.column(place).merged().get((name,))
            ordinal = len(self._kept) + place
            if own is not None:
                found[ordinal] = 0, int(own.flags), own.min, own.max, own.null_count
                has[ordinal] = True
        found["ordinal"] = np.arange(columns)
        return found[has].tobytes()


def _pieces(
    batches: Iterator[pa.RecordBatch], wanted: Sequence[int], where: str
) -> Iterator[list[pa.RecordBatch]]:
    """Rows in pieces of given lengths, which must be all of them."""
    batch, found, total = None, 0, sum(wanted)
    for rows in wanted:
        parts: list[pa.RecordBatch] = []
        while rows:
            if batch is None or not batch.num_rows:
                batch = next(batches, None)
                if batch is None:
                    raise InvalidArgumentError(f"{where}: expected {total} rows, found {found}")
                continue
            parts.append(batch.slice(0, rows))
            batch = batch.slice(rows)
            rows -= parts[-1].num_rows
            found += parts[-1].num_rows
        yield parts
    while batch is None or not batch.num_rows:
        batch = next(batches, None)
        if batch is None:
            return
    raise InvalidArgumentError(f"{where}: expected {total} rows, found more")
