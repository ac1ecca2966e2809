"""Writes a Fermion file: data first, metadata last, nothing at all after an error."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import pyarrow as pa

from fermion.arguments import flag, integer, integers, with_method
from fermion.columns.arrow_input import (
    BatchCopier,
    batches_of,
    is_in_memory,
    is_plain,
    record_batch_reader,
)
from fermion.columns.ordered_dictionaries import OrderedDictionaries, check_ordered
from fermion.columns.types import Node, has_ordered
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.forks import ThreadPool, process
from fermion.io.sink import open_sink
from fermion.io.source import PathLike
from fermion.layout import (
    ALIGNED_PAGE_START,
    BLOB_ALIGNMENT,
    BLOB_KEY,
    CHUNK_SLOTS_MAX,
    INT64_MAX,
    INT64_MIN,
    PAGE_ALIGNMENT,
    SETTING_CHECKSUM_SHIFT,
    ChecksumKind,
    Setting,
    align,
)
from fermion.metadata.cmb import ChunkRecord
from fermion.metadata.file_info import VIRTUAL_COLUMNS, FileInfo
from fermion.metadata.footer import FileIdentity, build_head
from fermion.metadata.schema_area import build_schema_area, shapes_of
from fermion.metadata.sort_order import OrderCheck, build_sort_order, sort_ordinals
from fermion.options import (
    WriteOptions,
    WriteOverrides,
    columns_per_task,
    thread_count,
    write_options,
)
from fermion.pages.batches import BatchLog, encode_batches, stream_types, wrong_position
from fermion.pages.frame import bind_page, bind_pages
from fermion.pages.global_dictionary import encode_dictionary
from fermion.pages.pages import EncodedStream
from fermion.reading.verify import verify_written
from fermion.statistics.bloom import BuiltFilters
from fermion.statistics.bounds import ColumnStatistics
from fermion.typing import TableLike
from fermion.writing.column import ColumnPlans, check_option_columns, encode_column, physical_order
from fermion.writing.flat import COLUMNS_PER_CALL, ColumnGroup, ColumnSet, page_bytes
from fermion.writing.log import Chunk, Path, page_starts
from fermion.writing.maps import shredded_columns
from fermion.writing.metadata import FileContents, key_value_texts
from fermion.writing.stripe_limits import StripeLimits, is_limited

if TYPE_CHECKING:
    from fermion.blobs import writing as blob_writing
    from fermion.blobs.writing import BlobSink, BlobWriter
else:  # few files have blobs
    blob_writing = LoadedWhenAskedFor("fermion.blobs.writing")

STRIPE_BYTES_MAX = 2 * 1024**3
BLOCK_PADDING_MAX = 0.05  # of a block of storage
THREADED_BYTES_MIN = 512 * 1024
"""Bytes of a stripe from which on threads gain more than it costs to start them."""
# Of columns with fewer bytes the threads would pass Python's lock to and fro for longer than they
# work without it.
THREADED_COLUMN_BYTES_MIN = 64 * 1024


def _is_limited(node: Node) -> bool:
    return is_limited(node.type)


def _is_special(node: Node) -> bool:
    return not is_plain(node.type)


class Writer:
    """Writes one file, stripe by stripe. A context manager; after an exception there is no file.

    What ``path`` held before is replaced by `close`, and stays as it was after anything else: an
    exception, `abort`, or a writer that is dropped.

    Parameters
    ----------
    path
        A path, an fsspec URL, or any object with ``write()``.
    schema
        The Arrow schema; what is written must have its names and types, in its order.
    options
        How to write; `WriteOptions`.
    key_value_metadata
        The user's own metadata, beside the schema's: text, or UTF-8, which comes back as text.
    storage_options
        For fsspec.
    blob_sink
        Where long values of blob columns go (`fermion.blobs.BlobSink`); None: into this file.

    Raises
    ------
    UnsupportedTypeError, TypeError, InvalidArgumentError
        At once: a type that the format cannot hold, wrong arguments, metadata that are no text.
    """

    def __init__(
        self,
        path: PathLike | Any,
        schema: pa.Schema,
        *,
        options: WriteOptions | None = None,
        key_value_metadata: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
        storage_options: dict[str, Any] | None = None,
        blob_sink: BlobSink | None = None,
    ) -> None:
        self.options = write_options(options)
        if not isinstance(schema, pa.Schema):
            raise TypeError(f"schema: expected a pyarrow.Schema, found {type(schema).__name__}")
        self.schema = schema
        self.info: FileInfo | None = None
        where = str(path)
        with_method(blob_sink, "blob_sink", "write_blob")
        self._stored_schema, self._blobs = self._with_references(schema, where, blob_sink)
        schema = self._stored_schema
        own = self.options
        if self._blobs is not None:  # the sums of their sizes are in metadata
            sizes = [f"{field.name}.size" for field in self._blobs.columns.values()]
            own = own.with_overrides({"summaries": [*own.summaries, *sizes]})
        plans = ColumnPlans(schema, own, where)
        check_option_columns(self.options, plans)
        check_ordered(plans.nodes, where)
        self._sort_ordinals = sort_ordinals(schema.names, self.options.sort_keys, where)
        self._order = OrderCheck(self.options.sort_keys)
        self._plans = plans
        placed = physical_order(schema.names, self.options.column_order, where)
        self._columns = ColumnSet.of(plans, self.options, placed)
        self._maps = shredded_columns(schema, self.options, where)
        self._key_values = key_value_texts(key_value_metadata)
        self._log = self._columns.log
        self._batch_records: list[list[ChunkRecord]] = [[], [], []]
        self._batches: BatchLog | None = None
        self._blooms: list[tuple[ChunkRecord, BuiltFilters]] = []
        self._has_index_area = False
        self._copier = BatchCopier(schema, plans.of_shapes(_is_special))
        self._pending: list[pa.RecordBatch] = []
        self._settled = 0
        self._pending_rows = self._pending_bytes = self._rows = 0
        self._stripe_rows: list[int] = []
        self._limits = StripeLimits(plans.of_shapes(_is_limited), plans.of_shapes(has_ordered))
        self._ordered = OrderedDictionaries()
        # No chunk may pass 4 GiB once it is encoded, nor 2**31 - 1 slots, whatever was asked for.
        self._stripe_bytes_max = min(self.options.stripe_bytes_for(len(plans)), STRIPE_BYTES_MAX)
        self._stripe_rows_max = min(self.options.stripe_rows, CHUNK_SLOTS_MAX)
        self._position = 0
        self._identity = FileIdentity.new()
        self._state = "open"
        self._threads, self._made_in = thread_count(self.options.threads), process()
        self._executor = ThreadPool(self._threads)
        self._path = where
        self._schema_area = build_schema_area(
            schema, compress_metadata=self.options.compress_schema
        )
        self._sink = open_sink(
            path,
            durable=self.options.durable,
            read_back=self.options.read_back,
            storage_options=storage_options,
            block_bytes=self.options.block_bytes,
        )
        try:
            self._begin()
        except BaseException:
            self.abort()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._state == "open":
            self.close()
        elif kind is not None:
            self.abort()

    def _begin(self) -> None:
        self._put(build_head())

    def _with_references(
        self, schema: pa.Schema, where: str, sink: BlobSink | None
    ) -> tuple[pa.Schema, BlobWriter | None]:
        """What is stored of a schema, and what puts the values of blob columns where they go."""
        if not any(BLOB_KEY in (each.metadata or ()) for each in shapes_of(schema).columns):
            return schema, None
        stored, given = blob_writing.blob_fields(schema, where)
        for key in self.options.sort_keys:
            if key.name in {each.name for each in stored.values()}:
                raise InvalidArgumentError(f"{where}: sorted_by names the blob column {key.name!r}")
        fields = [stored.get(ordinal, field) for ordinal, field in enumerate(schema)]
        writer = blob_writing.BlobWriter(
            stored,
            given,
            self.options.blob_inline_bytes,
            sink,
            self.options.checksum != "none",
            where,
        )
        return pa.schema(fields, schema.metadata), writer if stored else None

    def _put_blob(self, value: memoryview) -> int:
        """Write a value into this file, between its stripes."""
        self._put(bytes(-self._position % BLOB_ALIGNMENT))
        self._put(value)
        return self._position - len(value)

    def _with_blobs_put(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._blobs is None else self._blobs.stored(batch, self._put_blob)

    def _given(self, data: TableLike) -> Iterator[pa.RecordBatch]:
        """The batches of what a caller gives, as they are stored."""
        batches = batches_of(data, self.schema, self._path)
        return batches if self._blobs is None else map(self._with_blobs_put, batches)

    def write(self, data: TableLike, *, copy: bool = True) -> None:
        """Append rows from any Arrow producer.

        Parameters
        ----------
        data
            The rows.
        copy
            Rows that wait for the rest of their stripe are copied, so that the caller, or the
            producer's next batch, may change the memory. False: nobody changes it before `close`.

        Raises
        ------
        InvalidArgumentError
            When names or types differ from the schema, or the file is in batch mode.
        """
        copy = flag(copy, "copy")
        self._check_open()
        if self._batches is not None:
            raise InvalidArgumentError(
                f"{self._path}: write() after append_batch(): a file holds batches or plain rows"
            )
        try:
            stays = is_in_memory(data)
            for batch in self._given(data):
                self._add(batch, copy)
                if not stays:
                    self._settle(copy)
            self._settle(copy)
        except BaseException:
            self.abort()
            raise

    def append_batch(
        self, batch_id: int | None, data: TableLike, *, copy: bool = True, positions: Any = None
    ) -> None:
        """Append one batch, which never crosses a page boundary.

        Parameters
        ----------
        batch_id
            Any int64, in any order, repeated or not; None takes the next free number.
        data
            All rows of the batch, from any Arrow producer; none at all is a legal batch.
        copy
            As of `write`.
        positions
            What ``index_in_batch`` is for each row: integers from 0 on that ascend. None: the rows
            are counted from 0. Rows that are left of a batch are written again with theirs.

        Raises
        ------
        InvalidArgumentError
            After `write`, for an id that is no int64, a user column with a virtual one's name,
            more values in a dictionary than its indices can number, or positions that do not ascend
            or are not as many as the rows.
        """
        copy = flag(copy, "copy")
        self._check_open()
        if self._batches is None:
            self._start_batch_mode()
        assert self._batches is not None
        if batch_id is None:
            number = self._batches.next_id
        else:
            number = integer(batch_id, "batch_id", minimum=INT64_MIN, maximum=INT64_MAX)
        places = None if positions is None else integers(positions, "positions")
        try:
            given = self._given(data)
            kept = map(self._copier.copy, given) if copy else given
            batches = [batch for batch in kept if batch.num_rows]
            rows = sum(batch.num_rows for batch in batches)
            size = sum(batch.nbytes for batch in batches)
            if places is not None:
                self._check_positions(number, places, rows)
            if self._pending_rows and not self._fits(rows, size):
                self._flush()
            wrong = self._limits.add(batches)
            if wrong is not None and self._pending_rows:
                self._flush()
                wrong = self._limits.add(batches)
            if wrong is not None:
                raise InvalidArgumentError(f"{self._path}: batch {number}: {wrong}")
            for batch in batches:
                self._keep(batch, batch.nbytes)
            self._settled = len(self._pending)
            self._batches.add(number, rows, places)
        except BaseException:
            self.abort()
            raise

    def _start_batch_mode(self) -> None:
        if self._rows or self._pending_rows:
            raise InvalidArgumentError(
                f"{self._path}: append_batch() after write(): a file holds batches or plain rows"
            )
        for name in VIRTUAL_COLUMNS:
            if name in self.schema.names:
                raise InvalidArgumentError(
                    f"{self._path}: column {name!r} has the name of a virtual column of batch mode"
                )
        self._batches = BatchLog()

    def _check_positions(self, batch_id: int, positions: np.ndarray, rows: int) -> None:
        wrong = f"expected {rows} positions, one a row, found {len(positions)}"
        if len(positions) == rows:
            wrong = wrong_position(positions, np.array([0, rows])) or ""
        if wrong:
            raise InvalidArgumentError(f"{self._path}: batch {batch_id}: positions: {wrong}")

    def _check_open(self) -> None:
        state = self._state if self._made_in is process() else "that of another process"
        if state != "open":
            raise InvalidArgumentError(f"{self._path}: the writer is {state}")

    def _fits(self, rows: int, size: int) -> bool:
        return (
            self._pending_rows + rows <= self._stripe_rows_max
            and self._pending_bytes + size <= self._stripe_bytes_max
        )

    def _keep(self, batch: pa.RecordBatch, size: int) -> None:
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += size

    def _settle(self, copy: bool) -> None:
        """See to it that the rows that wait do not change: copy them, or rely on the caller."""
        if copy:
            waiting = self._pending[self._settled :]
            self._pending[self._settled :] = map(self._copier.copy, waiting)
        self._settled = len(self._pending)

    def _add(self, batch: pa.RecordBatch, copy: bool) -> None:
        while batch.num_rows:
            size = batch.nbytes  # looks at every column
            row_bytes = max(size / batch.num_rows, 1 / 8)
            room = min(
                self._stripe_rows_max - self._pending_rows,
                int((self._stripe_bytes_max - self._pending_bytes) / row_bytes),
            )
            if room <= 0 and self._pending_rows:
                self._flush()
                continue
            is_whole = room >= batch.num_rows
            head = batch if is_whole else batch.slice(0, max(room, 1))
            size = size if is_whole else head.nbytes
            if copy and self._limits.kept:
                head = self._copier.copy(head, self._limits.kept)
            if self._limits.add([head]) is not None:
                self._flush()
                self._limits.add([head])
            self._keep(head, size)
            if is_whole:
                return
            batch = batch.slice(head.num_rows)

    def _flush(self) -> None:
        batches = self._batches
        if not self._pending_rows and not (batches and batches.ids):
            return
        table = pa.Table.from_batches(self._pending, schema=self._stored_schema)
        self._pending, self._settled = [], 0
        self._ordered.add(len(self._stripe_rows), self._limits.begin())
        if self._sort_ordinals:
            wrong = self._order.first_wrong([table.column(each) for each in self._sort_ordinals])
            if wrong is not None:
                raise InvalidArgumentError(f"{self._path}: sorted_by: {wrong}")
        ends = batches.ends() if batches is not None else None
        parts = [each.split(table.column(each.ordinal)) for each in self._maps]
        for each, part in zip(self._maps, parts, strict=True):
            table = table.set_column(each.ordinal, each.field, pa.chunked_array([part[0]]))
        columns: Iterable[ColumnGroup] = self._encode(self._columns, table, ends)
        streams: list[EncodedStream] = []
        if batches is not None:
            streams = encode_batches(batches, self.options)
        if self.options.block_bytes is not None:
            columns = list(columns)
            size = sum(group.size for group in columns) + page_bytes(streams)
            self._pad_to_block(self.options.block_bytes, size)
        self._place_columns(self._columns, self._pending_rows, columns)
        for each, (_, tables) in zip(self._maps, parts, strict=True):
            each.columns.log.begin_stripe(self._pending_rows)
            for first, values in tables():
                self._place_groups(each.columns, self._encode(each.columns, values, ends, first))
        self._place(streams)
        for records, stream in zip(self._batch_records, streams, strict=False):
            records.append(stream.record)
        if batches is not None:
            batches.clear()
        self._stripe_rows.append(self._pending_rows)
        self._rows += self._pending_rows
        self._pending_rows = self._pending_bytes = 0

    def _encode(
        self, columns: ColumnSet, table: pa.Table, ends: np.ndarray | None, first: int = 0
    ) -> Iterator[ColumnGroup]:
        """The columns of a stripe, in the order that their data get in the file.

        first: The ordinal, within the set, of the table's first column.
        """
        placed = np.asarray(columns.placed[first : first + table.num_columns], np.int64)
        flat = columns.flat.columns(table, first) if ends is None else None

        def encode_flat(start: int) -> ColumnGroup:
            ordinals = placed[start : start + step]
            if flat is None:
                return ColumnGroup(
                    ordinals, bytearray(), np.zeros((len(ordinals), len(Chunk)), np.int64)
                )
            return ColumnGroup(ordinals, *columns.flat.encode(flat, ordinals))

        def encode_rest(group: ColumnGroup) -> ColumnGroup:
            for ordinal in group.left().tolist():
                array = table.column(ordinal - first)
                group.others[ordinal] = encode_column(columns.plans[ordinal], array, ends)
            return group

        column_bytes = self._pending_bytes / max(len(placed), 1)
        small = column_bytes < THREADED_COLUMN_BYTES_MIN
        step = COLUMNS_PER_CALL if small else columns_per_task(len(placed))
        starts = range(0, len(placed), step)
        threads = self._threads
        worth = threads > 1 and len(starts) > 1 and self._pending_bytes >= THREADED_BYTES_MIN
        spread = self._executor.map if worth else map
        if small:
            yield from map(encode_rest, spread(encode_flat, starts))
        else:
            yield from spread(lambda start: encode_rest(encode_flat(start)), starts)

    def _place_columns(self, columns: ColumnSet, rows: int, groups: Iterable[ColumnGroup]) -> None:
        """Write the columns of a stripe, in the order that `_encode` gives them."""
        columns.log.begin_stripe(rows)
        self._place_groups(columns, groups)

    def _place_groups(self, columns: ColumnSet, groups: Iterable[ColumnGroup]) -> None:
        for group in groups:
            for run in group.runs():
                if isinstance(run, slice):
                    self._place_flat(columns, group, run)
                else:
                    self._place(group.others[run].streams)
                    columns.log.add(run, group.others[run])

    def _place_flat(self, columns: ColumnSet, group: ColumnGroup, run: slice) -> None:
        """Write neighbours that the kernel encoded: their pages, in one piece."""
        chunks = group.chunks[run]
        starts, stop = page_starts(chunks)
        pages, shift = group.pages, self._position - int(chunks[0, Chunk.OFFSET])
        bind_pages(pages, self._page_key, starts, shift)
        chunks[:, Chunk.OFFSET] += shift
        columns.log.add_flat(group.ordinals[run], chunks)
        first = self._position - shift
        self._put(pages if stop - first == len(pages) else pages[first:stop])

    def _place(self, streams: Sequence[EncodedStream]) -> None:
        place_key = self._page_key
        for stream in streams:
            if stream.pages:
                # Pages are multiples of it, so where one starts right all the next ones do.
                self._put(bytes(self._gap_before_page()))
                stream.record.offset = self._position
                self._blooms += [(stream.record, filters) for filters in stream.filters]
                for page in stream.pages:
                    bind_page(page, place_key, self._position)
                    self._put(page)

    def _pad_to_block(self, block_bytes: int, size: int) -> None:
        """Start a block of storage where pages would cross its end and little is lost."""
        size += self._gap_before_page()
        room = -self._position % block_bytes
        if room < size and room <= BLOCK_PADDING_MAX * block_bytes:
            self._put(bytes(room))

    def _gap_before_page(self) -> int:
        """Bytes up to where a page may start."""
        if self.options.align != PAGE_ALIGNMENT:
            return 0
        return (ALIGNED_PAGE_START - self._position) % PAGE_ALIGNMENT

    @property
    def _page_key(self) -> int:
        """What checksums of pages are bound with; 0 where pages have none."""
        return self._identity.place_key if self.options.checksum != "none" else 0

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._sink.write(data)
        self._position += len(data)

    def abort(self) -> None:
        """Discard the file. A second call does nothing."""
        if self._state == "open":
            self._state = "aborted"
            self._release()
            self._sink.abort()

    def _release(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def close(self) -> FileInfo:
        """Write the metadata and make the file visible.

        Returns
        -------
        What was written. A second call returns it again.

        Raises
        ------
        InvalidFileError
            With ``read_back``, for a file that does not hold what was written. It does not appear.
        """
        if self.info is not None:
            return self.info
        self._check_open()
        try:
            self._flush()
            self._release()
            info = self._finish()
            if self.options.read_back:
                verify_written(self._sink.written())
            self._sink.commit()
        except BaseException:
            self.abort()
            raise
        self._state, self.info = "closed", info
        return info

    def _batch_streams(self) -> list[list[ChunkRecord]] | None:
        """What describes the streams of the batch column; None outside batch mode."""
        if self._batches is None:
            return None
        streams = stream_types(has_positions=self._batches.has_positions)
        return self._batch_records[: len(streams)]

    def _finish(self) -> FileInfo:
        self._put(bytes(align(self._position) - self._position))
        self._put_index_area()
        contents = FileContents(
            schema=self._stored_schema,
            has_blobs=self._blobs is not None,
            schema_area=self._schema_area,
            plans=self._plans,
            log=self._log,
            stripe_rows=self._stripe_rows,
            batch_records=self._batch_streams(),
            key_values=self._key_values,
            settings=self._settings(),
            identity=self._identity,
            sort_order=build_sort_order(self._sort_ordinals, self.options.sort_keys),
            ordered_dictionaries=self._ordered.build(),
            maps=self._maps,
        )
        data, tail_length = contents.build(self._position)
        self._put(data)
        return FileInfo(
            path=self._path,
            size=self._position,
            tail_length=tail_length,
            num_rows=self._rows,
            num_columns=len(self._plans),
            num_stripes=len(self._stripe_rows),
            columns_with_data=frozenset(np.flatnonzero(self._log.has_data()).tolist()),
            statistics=self._statistics(),
            batch=self._batches.range if self._batches is not None else None,
            sort_order=self.options.sort_keys,
            file_id=self._identity.text,
        )

    def _statistics(self) -> Mapping[Path, ColumnStatistics]:
        """Of the leaves of columns, and of the columns of keys."""
        logs = [self._log, *(each.columns.log for each in self._maps)]
        found: list[Any] = [log.statistics() for log in logs]
        return ChainMap(*found) if self._maps else found[0]

    def _put_index_area(self) -> None:
        start = self._position
        for record, filters in self._blooms:
            record.extension[filters.tag] = filters.record(self._position)
            self._put(filters.data)
        for ordinal, plan in self._plans.made():
            for stream, dictionary in plan.dictionaries.items():
                if len(dictionary.entries):
                    own = self._log.column(ordinal).streams[stream]
                    page = encode_dictionary(
                        dictionary, own, self._position, self.options, self._page_key
                    )
                    self._put(page)
        self._has_index_area = self._position > start

    def _settings(self) -> int:
        settings = Setting.BATCH if self._batches is not None else Setting(0)
        if self._has_index_area:
            settings |= Setting.HAS_INDEX_AREA
        if self.options.compress_schema:
            settings |= Setting.SCHEMA_ZSTD
        if not self.options.column_index:
            settings |= Setting.NO_CIT
        if self._sort_ordinals:
            settings |= Setting.SORTED
        if self.options.align == PAGE_ALIGNMENT:
            settings |= Setting.ALIGN64
        kind = ChecksumKind[self.options.checksum.upper()]
        return int(settings) | kind << SETTING_CHECKSUM_SHIFT


def write_table(
    data: TableLike,
    path: PathLike | Any,
    *,
    options: WriteOptions | None = None,
    storage_options: dict[str, Any] | None = None,
    **overrides: Unpack[WriteOverrides],
) -> FileInfo:
    """Write any Arrow producer to one file.

    Parameters
    ----------
    data
        A table, batch, reader, iterable of batches, data frame or ``__arrow_c_stream__`` object.
    path
        A path, an fsspec URL, or any object with ``write()``.
    options, overrides
        `WriteOptions`, and single options that replace theirs: ``profile="compact"``.

    Returns
    -------
    What was written.

    Raises
    ------
    UnsupportedTypeError, InvalidArgumentError
        Nothing is left at ``path`` then.
    """
    chosen = write_options(options).with_overrides(overrides)
    reader = record_batch_reader(data)
    with Writer(path, reader.schema, options=chosen, storage_options=storage_options) as writer:
        writer.write(reader, copy=not is_in_memory(data))
        return writer.close()
