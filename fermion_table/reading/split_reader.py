"""Reads splits, file by file, as record batches of the schema that a query asked for.

Columns of the same rows that several files hold are put together again; what the files were asked
for is added up over threads. A data file must be the one that its entry names by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

import fermion
from fermion import FilePruning, telemetry
from fermion.display import short_repr
from fermion.engine import array_of, filter_batch_rows, joined_batches, open_source
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.forks import Lock
from fermion.predicate import Expression, RowRanges, bind, conjuncts
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.deletion_vector import ranges_of, read_vector
from fermion_table.planning.filters import TableFilter, both, selected
from fermion_table.planning.split import (
    FilePlan,
    FileSplit,
    ReadRequest,
    Split,
    SplitBlobs,
    plan_file,
)
from fermion_table.schema.conversion import convert_batch, empty_columns
from fermion_table.schema.schema import field_to_arrow

if TYPE_CHECKING:
    from fermion_table.reading import index_files
    from fermion_table.schema import blob_columns
else:  # few tables have indexes, or blobs
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")
    index_files = LoadedWhenAskedFor("fermion_table.reading.index_files")


def check_identity(file: fermion.FermionFile, expected: str | None, name: str) -> None:
    """Compare an open data file with the one that its entry speaks of.

    expected: The entry's ``file_id``; None, of entries that have none, is not compared.
    name: The file as the table names it, for the message.
    Raises CorruptMetadata: It is another file.
    """
    if expected is not None and file.file_id != expected:
        raise CorruptMetadata(
            name, f"the data file with id {expected}", f"another file, with id {file.file_id}"
        )


class IoTotals:
    """Sums of the `io_stats` of files; safe to share between threads, empty when unpickled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._files = self._requests = self._bytes_requested = self._bytes_used = 0

    def __reduce__(self) -> tuple[type[IoTotals], tuple[()]]:
        return IoTotals, ()

    def add(self, file: fermion.FermionFile) -> None:
        """Count a file that is about to be closed."""
        self.add_stats(1, file.io_stats)

    def add_stats(self, files: int, stats: fermion.IoStats) -> None:
        """Count what some files were asked for."""
        with self._lock.get():
            self._files += files
            self._requests += stats.requests
            self._bytes_requested += stats.bytes_requested
            self._bytes_used += stats.bytes_used
        if telemetry.watching is not None:
            telemetry.watching.count("fermion.file.requests", stats.requests)
            telemetry.watching.count("fermion.file.io", stats.bytes_requested)

    def as_dict(self) -> dict[str, Any]:
        """``files``, ``requests``, ``bytes_requested`` and ``bytes_used`` so far."""
        with self._lock.get():
            return {
                "files": self._files,
                "requests": self._requests,
                "bytes_requested": self._bytes_requested,
                "bytes_used": self._bytes_used,
            }


class Uncounted(IoTotals):
    """Counts nothing: for files that others count, or that stay open."""

    def add(self, file: fermion.FermionFile) -> None:
        """Do nothing."""


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Streams of the same rows as one, with the columns of the first, then of the second, ...

    Batches end where one of any stream does; columns have no names. All streams end together, or
    the shortest one ends it.
    """
    left: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        for place, stream in enumerate(streams):
            batch = left[place]
            while batch is None or not batch.num_rows:
                batch = next(stream, None)
                if batch is None:
                    return
            left[place] = batch
        batches = [batch for batch in left if batch is not None]
        rows = min(batch.num_rows for batch in batches)
        arrays = [column for batch in batches for column in batch.slice(0, rows).columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[""] * len(arrays))
        left = [batch.slice(rows) for batch in batches]


REMOTE_PREFETCH_BYTES = 512 * 1024
LOCAL_PREFETCH_BYTES = 64 * 1024
"""As much as is read of the end of a local file whose metadata are longer."""
SMALL_ROWS, SMALL_BYTES = 32 * 1024, 512 * 1024
"""A local file of at most so many rows and bytes is read at once. Its statistics are not looked at
again: of the whole file the scan's plan did that, and to decode its pages costs no more."""

GATHERED_COLUMNS_MAX = 16
"""Of small files that are filtered together: all columns of them are decoded."""


@dataclass(slots=True)
class SplitReader:
    """Reads splits of one query; holds no open files, and may be used by many threads.

    Attributes
    ----------
    request, schema
        What is read, and what of it comes back.
    io
        What has been read.
    guard
        Makes the context in which a split is read: of a snapshot's, see `history.expiry_guard`.
    """

    request: ReadRequest
    schema: pa.Schema = field(init=False)
    io: IoTotals = field(default_factory=IoTotals)
    guard: Callable[[], AbstractContextManager[None]] = nullcontext
    _plans: dict[Any, FilePlan] = field(default_factory=dict)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        self.schema = self.request.arrow_schema()

    def where(self, filter: Expression) -> SplitReader:
        """A reader of those of the rows that another filter selects, too.

        Parameters
        ----------
        filter
            Of columns that are read.
        """
        request = self.request
        fields = [field_to_arrow(field, field_ids=False) for field in request.table_fields]
        bound = bind(filter, pa.schema(fields))
        chosen = both(request.filter, TableFilter(bound, conjuncts(bound)))
        return replace(self, request=replace(request, filter=chosen), _plans={})

    def plan(self, split: FileSplit) -> FilePlan:
        """How a file is read."""
        beside = tuple((each.schema_id, each.fields) for each in split.column_files)
        key = split.schema_id, split.columns, split.in_batches, split.retractions > 0, beside
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = plan_file(self.request, self.schema, split)
        return plan

    def read(self, split: Split, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a split that the query selects, in their order.

        Parameters
        ----------
        threads
            For decoding files; None takes the number of processors.

        Raises
        ------
        VersionNotFound
            A file is gone, as the snapshot has expired.
        """
        return split.read(self, threads=threads)

    def read_file(
        self, split: FileSplit, *, rows: RowRanges | None = None, threads: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that the query selects, in the file's order.

        Parameters
        ----------
        rows
            Read these rows of the file, deleted or not; None: those of `rows`.
        threads
            For decoding the file; None takes the number of processors.

        Raises
        ------
        VersionNotFound
            The file is gone, as the snapshot has expired.
        """
        with self.guard():
            yield from self._read_file(split, rows, threads)

    def _read_file(
        self, split: FileSplit, rows: RowRanges | None, threads: int | None
    ) -> Iterator[pa.RecordBatch]:
        plan = self.plan(split)
        wanted = self._indexed(split, self.rows(split)) if rows is None else rows
        if wanted is not None and not wanted:
            return
        for batch in self._file_batches(split, plan, threads, wanted):
            if self.request.blobs == "handles":
                batch = blob_columns.with_handles(plan.conversions, batch)
            converted = convert_batch(plan.conversions, batch, plan.schema)
            if plan.residual is not None:
                converted = filter_batch_rows(converted, selected(plan.residual, converted))
            if plan.final is not None:
                converted = convert_batch(plan.final, converted, self.schema)
            if converted.num_rows:
                yield converted

    def gathering(self, splits: Sequence[Split]) -> SplitReader | None:
        """A reader for `gathered`; None where the splits are not all small files, read whole, of
        which a filter reads few columns, whose values can all be compared.
        """
        request = self.request
        if request.filter is None or request.map_keys or len(request.fields) > GATHERED_COLUMNS_MAX:
            return None
        for split in splits:
            if (
                not isinstance(split, FileSplit)
                or split.rows > SMALL_ROWS
                or split.size > SMALL_BYTES
                or "://" in split.location
                or split.deletion is not None
                or split.row_range is not None
                or split.column_files
                or split.indexes
                or split.in_batches
                or split.retractions
            ):
                return None
        reader = replace(self, request=replace(request, filters_late=True), _plans={})
        plan = reader.plan(splits[0].files[0])
        is_plain = all(pat.is_primitive(each) or pat.is_string(each) for each in plan.schema.types)
        is_plain = is_plain and not any(map(pat.is_decimal, plan.schema.types))
        return reader if is_plain and len(plan.schema) <= GATHERED_COLUMNS_MAX else None

    def gathered(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """The rows of many small files that the query selects: the filter is tested, and rows are
        picked, once for some of them, at first for a few. Of the reader that `gathering` gives.

        Raises
        ------
        VersionNotFound
            A file is gone, as the snapshot has expired.
        """
        waiting: list[pa.RecordBatch] = []
        rows, rows_max, files_max = 0, min(SMALL_ROWS, self.request.batch_rows), 8
        for split in splits:
            (file,) = split.files
            if waiting and (rows + file.rows > rows_max or len(waiting) >= files_max):
                yield from self._picked(waiting)
                waiting, rows, files_max = [], 0, 2 * files_max
            plan = self.plan(file)
            with self.guard():
                for batch in self._file_batches(file, plan, 1, None):
                    waiting.append(convert_batch(plan.conversions, batch, plan.schema))
            rows += file.rows
        yield from self._picked(waiting)

    def _picked(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the filter selects of batches that all plans of `filters_late` give."""
        plan = next(iter(self._plans.values()))
        assert plan.residual is not None
        for batch in joined_batches(batches):
            chosen = filter_batch_rows(batch, selected(plan.residual, batch))
            if plan.final is not None:
                chosen = convert_batch(plan.final, chosen, self.schema)
            if chosen.num_rows:
                yield chosen

    def rows(self, split: FileSplit) -> RowRanges | None:
        """The rows of the file that the split holds and that are not deleted; None: all."""
        wanted = None
        if split.row_range is not None:
            wanted = RowRanges.from_bounds(*([bound] for bound in split.row_range))
        if split.deletion is not None:
            options = self.request.storage_options if split.shares else None
            deleted = read_vector(
                split.deletion_location,
                split.deletion,
                split.rows,
                options,
                timeout_s=self.request.timeout_s,
            )
            live = ranges_of(deleted).complement(split.rows)
            wanted = live if wanted is None else wanted & live
        return wanted

    def indexed_rows(self, split: Split) -> RowRanges | None:
        """The rows of a local file that its indexes name; None where they can't tell.

        Raises
        ------
        VersionNotFound
            The file is gone, as the snapshot has expired.
        """
        if not isinstance(split, FileSplit) or "://" in split.location:
            return None
        with self.guard():
            found = self._by_index(split)
            wanted = None if found is None else self.rows(split)
        return found if found is None or wanted is None else wanted & found

    def _indexed(self, split: FileSplit, wanted: RowRanges | None) -> RowRanges | None:
        """Those of some rows (None: all) outside of which the filter selects none."""
        found = self._by_index(split)
        return wanted if found is None else found if wanted is None else wanted & found

    def _by_index(self, split: FileSplit) -> RowRanges | None:
        if not split.indexes or self.request.filter is None:
            return None

        @contextmanager
        def opened(index: FileSplit) -> Iterator[fermion.FermionFile]:
            with self._opened(index, 1, at_once=False) as file:
                yield file
                self.io.add(file)

        return index_files.rows_by_index(self.request, split, opened)

    def batches(
        self, split: FileSplit, *, rows: RowRanges | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids and lengths of the batches that the rows of a file (see `read_file`) belong to."""
        wanted = self.rows(split) if rows is None else rows
        with self.guard(), self._open(split, 1) as file:
            ids, lengths = file.batches()
            self.io.add(file)
        return batches_left(ids, lengths, wanted)

    def prune(self, split: FileSplit) -> FilePruning | None:
        """What the statistics of a file leave to read; None if it need not be opened.

        Of files beside each other, the first one that is read tells.
        """
        plan = self.plan(split)
        if not plan.needs_file:
            return None
        asked: FileSplit = split
        columns, pushed = plan.columns, plan.pushed
        if not plan.needs_data_file:
            first = plan.beside[0]
            asked = split.column_files[first.place]
            columns, pushed = first.columns, first.pushed
        with self.guard(), self._opened(asked, 1, at_once=False) as file:
            rows = self._indexed(split, self.rows(split))
            pruning = file.prune(pushed, columns=columns, rows=rows)
            self.io.add(file)
        return pruning

    def count(self, split: Split, *, threads: int | None = None) -> int:
        """How many rows of a split the filter selects."""
        return split.count(self, threads=threads)

    def count_file(self, split: FileSplit, *, threads: int | None = None) -> int:
        """How many rows of a file the filter selects."""
        plan = self.plan(split)
        if not plan.searches and plan.residual is None and split.row_range is None:
            return split.rows_wanted
        return self.find(split, threads=threads).total

    def find(self, split: FileSplit, *, threads: int | None = None) -> RowRanges:
        """Which rows of a file the filter selects, by their numbers in the file."""
        with self.guard():
            return self._find(split, threads)

    def _find(self, split: FileSplit, threads: int | None) -> RowRanges:
        plan = self.plan(split)
        wanted = self._indexed(split, self.rows(split))
        if plan.searches:
            wanted = self._search(split, plan, threads, wanted)
        wanted = RowRanges.all(split.rows) if wanted is None else wanted
        if plan.residual is None or not wanted:
            return wanted
        masks = [
            selected(plan.residual, convert_batch(plan.conversions, batch, plan.schema))
            for batch in self._file_batches(split, plan.unpushed, threads, wanted)
        ]
        return RowRanges.from_indices(wanted.to_indices()[np.concatenate(masks)])

    def _file_batches(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        if plan.row_id_place is not None:
            yield from self._numbered_batches(split, plan, threads, wanted)
            return
        rows = plan.batch_rows(self.request.batch_rows)
        if not plan.needs_file:
            total = split.rows if wanted is None else wanted.total
            for start in range(0, total, rows):
                yield empty_columns(pa.schema([]), min(rows, total - start))
            return
        if plan.beside:
            yield from self._joined_batches(split, plan, threads, wanted)
            return
        with self._open(split, threads) as file:
            try:
                yield from file.iter_batches(
                    plan.columns,
                    filter=plan.pushed,
                    rows=wanted,
                    batch_size=rows,
                    blobs=self.request.blobs,
                )
            finally:
                self.io.add(file)

    def _numbered_batches(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        """The same with the ids of rows; which rows a filter selects has to be known for those."""
        if plan.searches:
            wanted = self._search(split, plan, threads, wanted)
        wanted = RowRanges.all(split.rows) if wanted is None else wanted
        ids = wanted.to_indices() + (split.row_id_base or 0)
        bare = replace(plan.unpushed, row_id_place=None)
        start = 0
        for batch in self._file_batches(split, bare, threads, wanted):
            arrays, stop = batch.columns, start + batch.num_rows
            arrays.insert(plan.row_id_place or 0, array_of(ids[start:stop], pa.int64()))
            yield pa.RecordBatch.from_arrays(arrays, names=[""] * len(arrays))
            start = stop

    def _search(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> RowRanges | None:
        """The rows that the readers' filters select, file after file."""
        for file_split, pushed in (
            (split, plan.pushed),
            *((split.column_files[each.place], each.pushed) for each in plan.beside),
        ):
            if pushed is not None and (wanted is None or wanted):
                with self._open(file_split, threads) as file:
                    wanted = file.find(pushed, rows=wanted)
                    self.io.add(file)
        return wanted

    def _joined_batches(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a data file and of its column files, side by side.

        The filter of one file says which rows are read of the others.
        """
        asked = [(split, plan.columns, plan.pushed)] if plan.needs_data_file else []
        asked += [
            (split.column_files[each.place], each.columns, each.pushed) for each in plan.beside
        ]
        rows = plan.batch_rows(self.request.batch_rows)
        is_alone = len(asked) == 1
        with ExitStack() as stack:
            files: list[fermion.FermionFile | None] = [None] * len(asked)

            def opened(place: int) -> fermion.FermionFile:
                file = files[place]
                if file is None:
                    file = stack.enter_context(self._open(asked[place][0], threads))
                    files[place] = file
                    stack.callback(self.io.add, file)
                return file

            for place, (_, _, pushed) in enumerate(asked):
                if pushed is not None and not is_alone and (wanted is None or wanted):
                    wanted = opened(place).find(pushed, rows=wanted)
            if wanted is not None and not wanted:
                return
            streams = [
                opened(place).iter_batches(
                    columns,
                    filter=pushed if is_alone else None,
                    rows=wanted,
                    batch_size=rows,
                    blobs=self.request.blobs,
                )
                for place, (_, columns, pushed) in enumerate(asked)
                if columns or is_alone
            ]
            if streams:
                yield from streams[0] if len(streams) == 1 else side_by_side(streams)
                return
        total = split.rows if wanted is None else wanted.total
        for start in range(0, total, rows):
            yield empty_columns(pa.schema([]), min(rows, total - start))

    def _open(
        self, split: FileSplit, threads: int | None
    ) -> AbstractContextManager[fermion.FermionFile]:
        """A file for as long as the context lasts."""
        return self._opened(split, threads)

    def _opened(
        self, split: FileSplit, threads: int | None, *, at_once: bool = True
    ) -> fermion.FermionFile:
        """Open a file; a small one is read at once, unless it stays open or is to be described."""
        prefetch, is_remote = None, "://" in split.location
        is_small = split.rows <= SMALL_ROWS and split.size <= SMALL_BYTES
        is_small = is_small and not is_remote and at_once
        if is_small:
            prefetch = SMALL_BYTES
        elif is_remote and split.tail_length:
            prefetch = max(split.tail_length, REMOTE_PREFETCH_BYTES)
        elif split.tail_length <= LOCAL_PREFETCH_BYTES:
            prefetch = split.tail_length or None
        file = fermion.open(
            split.location,
            storage_options=self.request.storage_options if split.shares else None,
            options=_read_options(threads, prefetch, not is_small, self.request.timeout_s),
            blob_files=_BlobFiles(split, self.request) if split.blob_files else None,
        )
        try:
            check_identity(file, split.file_id, split.file)
            if split.fields is not None and file.num_rows != split.rows:
                raise CorruptMetadata(
                    split.file, f"a column file of {split.rows} rows", f"{file.num_rows} rows"
                )
        except BaseException:
            file.close()
            raise
        return file


@dataclass(frozen=True, slots=True)
class _BlobFiles:
    """Opens the blob files of a split, and no others."""

    split: FileSplit
    request: ReadRequest

    def _find(self, name: str) -> SplitBlobs:
        for each in self.split.blob_files:
            if each.name == name:
                return each
        raise CorruptMetadata(
            self.split.file, "references to the blob files of its entry", f"one to {name!r}"
        )

    def open_blob_file(self, name: str) -> Any:
        """See `fermion.blobs.BlobFiles`."""
        found = self._find(name)
        options = self.request.storage_options if found.shares else None
        source = open_source(found.location, options, timeout_s=self.request.timeout_s)
        if source.size is None:
            source.size = found.size
        return source

    def blob_path(self, name: str) -> str:
        """See `fermion.blobs.BlobFiles`."""
        return self._find(name).location


@lru_cache(maxsize=64)
def _read_options(
    threads: int | None, prefetch_bytes: int | None, use_statistics: bool, timeout_s: float
) -> fermion.ReadOptions:
    return fermion.ReadOptions(
        threads=threads,
        prefetch_bytes=prefetch_bytes,
        use_statistics=use_statistics,
        timeout_s=timeout_s,
    )


def batches_left(
    ids: np.ndarray, lengths: np.ndarray, rows: RowRanges | None
) -> tuple[np.ndarray, np.ndarray]:
    """Batches of which only some rows are wanted; those that lose all their rows go.

    ids, lengths: Of every batch of a file, in order: see `fermion.FermionFile.batches`.
    rows: Of the file; None: all.
    Returns: Ids and lengths of the batches that are left.
    """
    if rows is None:
        return ids, lengths
    ends = np.concatenate(([0], np.cumsum(lengths)))
    wanted = np.concatenate(([0], np.cumsum(rows.to_mask(int(ends[-1])))))
    counts = np.diff(wanted[ends])
    kept = (counts > 0) | (lengths == 0)
    return ids[kept], counts[kept]
