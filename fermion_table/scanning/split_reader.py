"""Reads splits, file by file, as record batches of the schema that a query asked for.

A file is read under its own names and types; what it lacks costs no request. The plan for it
depends on the schema it was written with and on which of its columns hold data, so files alike
share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

import fermion
from fermion import FilePruning
from fermion.columns.rows import filter_batch_rows
from fermion.display import short_repr
from fermion.predicate import Expression, RowRanges
from fermion.remote import TIMEOUT_S
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.deletion_vector import ranges_of, read_vector
from fermion_table.metadata.file_identity import check_identity
from fermion_table.scanning.batch_stream import batches_left
from fermion_table.scanning.file_split import FileSplit
from fermion_table.scanning.filters import TableFilter, conjunction, push_down, selected
from fermion_table.scanning.io_totals import IoTotals
from fermion_table.scanning.split import Split
from fermion_table.schema.conversion import Conversion, convert_batch, empty_columns, plan_reading
from fermion_table.schema.schema import Field, Path, field_to_arrow
from fermion_table.schema.selection import (
    BATCH_COLUMNS,
    ROW_ID,
    ROW_KIND,
    file_columns,
    select_paths,
)

BATCH_ROWS = 65_536
REMOTE_PREFETCH_BYTES = 512 * 1024
SMALL_ROWS, SMALL_BYTES = 32 * 1024, 512 * 1024
"""A local file of at most so many rows and bytes is read at once. Its statistics are not looked at
again: of the whole file the scan's plan did that, and to decode its pages costs no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a query wants of every split. Picklable.

    Attributes
    ----------
    fields
        Fields to give back, pruned below structs.
    table_fields
        Top-level fields, whole, that `fields` and the filter come from.
    file_fields
        Of each schema that files were written with, by its id: the top-level fields with ids of
        `table_fields`.
    filter
        Rows to give back; None: all.
    metadata
        Of the schema given back.
    storage_options
        For `fermion.open`; a pickle holds them, credentials too, and no ``repr`` shows them.
    batch_rows
        Rows a batch, at most.
    timeout_s
        See `StorageAccess`.
    key
        Of a primary-key table: what sections are merged by.
    """

    fields: tuple[Field, ...]
    table_fields: tuple[Field, ...]
    file_fields: Mapping[int, tuple[Field, ...]]
    filter: TableFilter | None = None
    metadata: Mapping[bytes, bytes] | None = None
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    batch_rows: int = BATCH_ROWS
    timeout_s: float = TIMEOUT_S
    key: PrimaryKey | None = None

    def arrow_schema(self) -> pa.Schema:
        """The schema given back."""
        fields = [field_to_arrow(field, field_ids=False) for field in self.fields]
        return pa.schema(fields, metadata=dict(self.metadata) if self.metadata else None)


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How files of one kind are read.

    Attributes
    ----------
    columns
        What their reader is asked for.
    pushed
        The filter that their reader applies.
    schema, conversions
        What its batches become.
    residual
        The filter that is applied then.
    final
        What becomes of that; None: it is what the query wants.
    row_id_place
        Where the ids of rows stand among the columns; None: they are not wanted.
    """

    columns: list[str | Path]
    pushed: Expression | None
    schema: pa.Schema
    conversions: list[Conversion]
    residual: Expression | None
    final: list[Conversion] | None
    row_id_place: int | None = None

    @property
    def needs_file(self) -> bool:
        """Whether a file has to be opened at all."""
        return bool(self.columns) or self.pushed is not None


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

    def plan(self, split: FileSplit) -> FilePlan:
        """How a file is read."""
        key = split.schema_id, split.columns, split.in_batches, split.retractions > 0
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _plan(self.request, self.schema, split)
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
        wanted = self.rows(split) if rows is None else rows
        for batch in self._file_batches(split, plan, threads, wanted):
            converted = convert_batch(plan.conversions, batch, plan.schema)
            if plan.residual is not None:
                converted = filter_batch_rows(converted, selected(plan.residual, converted))
            if plan.final is not None:
                converted = convert_batch(plan.final, converted, self.schema)
            if converted.num_rows:
                yield converted

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

    def batches(
        self, split: FileSplit, *, rows: RowRanges | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids and lengths of the batches that the rows of a file (see `read_file`) belong to."""
        wanted = self.rows(split) if rows is None else rows
        with self._open(split, 1) as file:
            ids, lengths = file.batches()
            self.io.add(file)
        return batches_left(ids, lengths, wanted)

    def prune(self, split: FileSplit) -> FilePruning | None:
        """What the statistics of a file leave to read; None if it need not be opened."""
        plan = self.plan(split)
        if not plan.needs_file:
            return None
        with self._opened(split, 1, at_once=False) as file:
            pruning = file.prune(plan.pushed, columns=plan.columns, rows=self.rows(split))
            self.io.add(file)
        return pruning

    def count(self, split: Split, *, threads: int | None = None) -> int:
        """How many rows of a split the filter selects."""
        return split.count(self, threads=threads)

    def count_file(self, split: FileSplit, *, threads: int | None = None) -> int:
        """How many rows of a file the filter selects."""
        plan = self.plan(split)
        if plan.pushed is None and plan.residual is None and split.row_range is None:
            return split.rows_wanted
        return self.find(split, threads=threads).total

    def find(self, split: FileSplit, *, threads: int | None = None) -> RowRanges:
        """Which rows of a file the filter selects, by their numbers in the file."""
        plan = self.plan(split)
        wanted = self.rows(split)
        if plan.pushed is not None:
            with self._open(split, threads) as file:
                wanted = file.find(plan.pushed, rows=wanted)
                self.io.add(file)
        elif wanted is None:
            wanted = RowRanges.all(split.rows)
        if plan.residual is None or not wanted:
            return wanted
        unpushed = replace(plan, pushed=None)
        masks = [
            selected(plan.residual, convert_batch(plan.conversions, batch, plan.schema))
            for batch in self._file_batches(split, unpushed, threads, wanted)
        ]
        return RowRanges.from_indices(wanted.to_indices()[np.concatenate(masks)])

    def _file_batches(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        if plan.row_id_place is not None:
            yield from self._numbered_batches(split, plan, threads, wanted)
            return
        rows = self.request.batch_rows
        if not plan.needs_file:
            total = split.rows if wanted is None else wanted.total
            for start in range(0, total, rows):
                yield empty_columns(pa.schema([]), min(rows, total - start))
            return
        with self._open(split, threads) as file:
            try:
                yield from file.iter_batches(
                    plan.columns, filter=plan.pushed, rows=wanted, batch_size=rows
                )
            finally:
                self.io.add(file)

    def _numbered_batches(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        """The same with the ids of rows; which rows a filter selects has to be known for those."""
        if plan.pushed is not None:
            with self._open(split, threads) as file:
                wanted = file.find(plan.pushed, rows=wanted)
                self.io.add(file)
        wanted = RowRanges.all(split.rows) if wanted is None else wanted
        ids = wanted.to_indices() + (split.row_id_base or 0)
        bare = replace(plan, pushed=None, row_id_place=None)
        start = 0
        for batch in self._file_batches(split, bare, threads, wanted):
            arrays, stop = batch.columns, start + batch.num_rows
            arrays.insert(plan.row_id_place or 0, pa.array(ids[start:stop], pa.int64()))
            yield pa.RecordBatch.from_arrays(arrays, names=[""] * len(arrays))
            start = stop

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
        file = fermion.open(
            split.location,
            storage_options=self.request.storage_options if split.shares else None,
            options=_read_options(threads, prefetch, not is_small, self.request.timeout_s),
        )
        try:
            check_identity(file, split.file_id, split.file)
        except BaseException:
            file.close()
            raise
        return file


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


def _plan(request: ReadRequest, schema: pa.Schema, split: FileSplit) -> FilePlan:
    fields_written = request.file_fields[split.schema_id]
    sources = split.with_data(fields_written)
    all_null = {field.id for field in fields_written}.difference(field.id for field in sources)
    if split.in_batches:
        sources += BATCH_COLUMNS
    if split.retractions:
        sources.append(ROW_KIND)
    pushed: list[Expression] = []
    residual: list[Expression] = []
    for part in request.filter.parts if request.filter is not None else ():
        inside = push_down(part, request.table_fields, sources)
        (residual if inside is None else pushed).append(part if inside is None else inside)
    fields = request.fields
    for part in residual:
        fields = _with_paths(fields, part, request.table_fields)
    paths, columns = file_columns(fields, [*sources, ROW_ID])
    if ROW_ID in columns:
        paths.remove((ROW_ID.name,))
    arrow = [field_to_arrow(field, field_ids=False) for field in fields]
    same = fields == request.fields
    return FilePlan(
        columns=[path[0] if path[0] in _VIRTUAL else path for path in paths],
        pushed=conjunction(pushed),
        schema=schema if same else pa.schema(arrow),
        conversions=plan_reading(fields, columns, all_null=all_null),
        residual=conjunction(residual),
        final=None if same else plan_reading(request.fields, fields),
        row_id_place=columns.index(ROW_ID) if ROW_ID in columns else None,
    )


_VIRTUAL = {field.name for field in BATCH_COLUMNS}


def _with_paths(
    fields: tuple[Field, ...], part: Expression, table_fields: tuple[Field, ...]
) -> tuple[Field, ...]:
    """Fields and what a part of a filter reads besides; a struct it reads from becomes whole."""
    fields_by_id = {field.id: field for field in fields}
    for path in sorted(part.columns()):
        (wanted,) = select_paths(table_fields, [path[:1]], where="filter")
        fields_by_id[wanted.id] = wanted
    return tuple(fields_by_id.values())
