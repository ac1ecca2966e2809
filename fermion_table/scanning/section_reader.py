"""Reads a section of a tree: files that overlap, whose rows are merged by key.

There are two ways. Where a key's row is one of the rows stored (the engines ``deduplicate`` and
``first_row``), only keys are merged: that tells which rows of each file are visible, and the files
are then read as if the others were deleted, with all filters and only the columns that the query
names. Otherwise the rows are merged and folded, batch by batch in the order of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fermion.columns.rows import filter_batch_rows
from fermion.predicate import RowRanges, candidate_names
from fermion_table.merging.fold import columns_to_merge, fold
from fermion_table.merging.merge_engines.key_groups import is_retraction
from fermion_table.merging.merge_reader import merge_runs, pick_rows
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.scanning.file_split import FileSplit
from fermion_table.scanning.filters import TableFilter, conjunction, selected
from fermion_table.scanning.split_reader import ReadRequest, SplitReader
from fermion_table.schema.conversion import convert_batch, plan_reading
from fermion_table.schema.key_changes import KEY_COLUMN, KIND_COLUMN
from fermion_table.schema.selection import ROW_ID, ROW_KIND

Runs = Sequence[Sequence[FileSplit]]
"""Sorted runs from the newest to the oldest; of each its files in the order of keys."""
_FILE = "_file"
_PICKING = ("deduplicate", "first_row")
"""Engines whose result for a key is one of its rows."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows in the order of their keys.

    Attributes
    ----------
    rows
        The columns that were asked for.
    keys
        The key of each row (see `PrimaryKey.keys`).
    kinds
        ``int8``, shape (n,); None: no retraction is among them.
    """

    rows: pa.RecordBatch
    keys: pa.Array
    kinds: np.ndarray | None


def merged_rows(
    runs: Runs, reader: SplitReader, *, is_oldest: bool, threads: int | None = 1
) -> Iterator[KeyedRows]:
    """The rows of a section, folded, in the order of keys.

    Parameters
    ----------
    runs
        Of the section.
    reader
        Of a request with a key: its fields are those wanted, top-level ones; of its filter the
        parts that read the key alone are applied.
    is_oldest
        Whether no older rows of these keys exist, and none can come: see `fold`. Retractions are
        dropped then.
    threads
        For decoding a file.
    """
    request = reader.request
    key = _key_of(request)
    names = [field.name for field in request.fields]
    merging = _merging_reader(reader, columns_to_merge(key, names))
    merged = merge_runs(
        [_batches(run, merging, key, threads) for run in runs],
        sequence_columns=key.options.sequence_fields,
        is_descending=key.options.sequence_descending,
    )
    helpers = {KEY_COLUMN, KIND_COLUMN}
    for each in merged:
        rows = each.batch.select([name for name in each.batch.schema.names if name not in helpers])
        kinds = each.batch.column(KIND_COLUMN).to_numpy()
        folded = fold(rows, each.groups, key, kinds, is_oldest=is_oldest)
        if len(folded.rows):
            keys = each.batch.column(KEY_COLUMN).take(pa.array(folded.rows))
            yield KeyedRows(folded.gather(rows, names), keys, folded.kinds)


def read_section(
    runs: Runs, reader: SplitReader, *, threads: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a section that the query selects, as the query wants them.

    Parameters
    ----------
    runs
        Of the section.
    reader
        Of a request with a key.
    """
    request = reader.request
    if _key_of(request).options.merge_engine in _PICKING:
        for split, rows in visible_rows(runs, reader, threads=threads):
            yield from reader.read_file(split, rows=rows, threads=threads)
        return
    wanted = {field.id for field in request.fields}
    wanted.update(
        field.id
        for field in request.table_fields
        if request.filter is not None and field.name in {path[0] for path in request.filter.paths}
    )
    fields = tuple(field for field in request.table_fields if field.id in wanted and field.id > 0)
    folding = SplitReader(replace(request, fields=fields), io=reader.io, guard=reader.guard)
    conversions = plan_reading(request.fields, fields)
    residual = None if request.filter is None else conjunction(request.filter.parts)
    for each in merged_rows(runs, folding, is_oldest=True, threads=threads):
        rows = each.rows
        if residual is not None:
            rows = filter_batch_rows(rows, selected(residual, rows))
        if rows.num_rows:
            yield convert_batch(conversions, rows, reader.schema)


def count_section(runs: Runs, reader: SplitReader, *, threads: int | None = None) -> int:
    """How many rows of a section the query selects."""
    request = reader.request
    if request.filter is None and _key_of(request).options.merge_engine in _PICKING:
        return sum(rows.total for _, rows in visible_rows(runs, reader, threads=threads))
    bare = SplitReader(replace(request, fields=()), io=reader.io, guard=reader.guard)
    return sum(batch.num_rows for batch in read_section(runs, bare, threads=threads))


def visible_rows(
    runs: Runs, reader: SplitReader, *, threads: int | None = None
) -> list[tuple[FileSplit, RowRanges]]:
    """Which rows of the files of a section a scan shows, for an engine that picks rows.

    Files of which none is shown are left out. Of the reader's filter the parts that read the key
    alone are applied already.
    """
    key = _key_of(reader.request)
    names = (*key.names, *key.options.sequence_fields)
    merging = _merging_reader(reader, list(dict.fromkeys(names)), ROW_ID.name)
    splits = [split for run in runs for split in run]
    numbers = {split.location: number for number, split in enumerate(splits)}
    found: list[list[RowRanges]] = [[] for _ in splits]
    batches = [_batches(run, merging, key, threads, numbers) for run in runs]
    if key.options.sequence_fields or any(split.keys_repeated for split in splits):
        picked = _picked_by_folding(batches, key)
    else:
        picked = _picked(batches, key)
    for number, places in picked:
        found[number].append(RowRanges.from_indices(places))
    return [(split, _joined(ranges)) for split, ranges in zip(splits, found, strict=True) if ranges]


def _picked(
    runs: Sequence[Iterator[pa.RecordBatch]], key: PrimaryKey
) -> Iterator[tuple[int, np.ndarray]]:
    """Numbers of files, and rows of each that are shown: by the order of runs alone."""
    oldest_wins = key.options.merge_engine == "first_row"
    for batch, is_taken in pick_rows(runs, oldest_wins=oldest_wins):
        shown = is_taken & ~is_retraction(batch.column(KIND_COLUMN).to_numpy())
        if shown.any():
            number = batch.column(_FILE)[0].as_py()
            yield number, batch.column(ROW_ID.name).to_numpy()[shown]


def _picked_by_folding(
    runs: Sequence[Iterator[pa.RecordBatch]], key: PrimaryKey
) -> Iterator[tuple[int, np.ndarray]]:
    """The same, by the merge engine."""
    merged = merge_runs(
        runs,
        sequence_columns=key.options.sequence_fields,
        is_descending=key.options.sequence_descending,
    )
    for each in merged:
        batch = each.batch
        kinds = batch.column(KIND_COLUMN).to_numpy()
        chosen = fold(batch, each.groups, key, kinds, is_oldest=True).rows
        files = batch.column(_FILE).to_numpy()[chosen]
        places = batch.column(ROW_ID.name).to_numpy()[chosen]
        for number in np.unique(files).tolist():
            of_file = files == number
            yield number, places[of_file]


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


def _key_of(request: ReadRequest) -> PrimaryKey:
    assert request.key is not None
    return request.key


def _merging_reader(reader: SplitReader, names: Sequence[str], *virtual: str) -> SplitReader:
    """Reads some top-level columns, and kinds, of the rows whose keys the filter selects."""
    request = reader.request
    by_name = {field.name: field for field in request.table_fields}
    fields = [by_name[name] for name in names] + [ROW_KIND]
    if ROW_ID.name in virtual:
        fields.append(ROW_ID)
    merging = replace(
        request,
        fields=tuple(fields),
        filter=key_filter(request.filter, _key_of(request)),
        metadata=None,
    )
    return SplitReader(merging, io=reader.io, guard=reader.guard)


def _batches(
    run: Iterable[FileSplit],
    reader: SplitReader,
    key: PrimaryKey,
    threads: int | None,
    numbers: dict[str, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of a run with their keys; with the number of their file, where those are given.

    Row ids are the rows' numbers in their file.
    """
    for split in run:
        counted = replace(split, row_id_base=0)
        for batch in reader.read_file(counted, threads=threads):
            arrays, names = [*batch.columns, key.keys(batch)], [*batch.schema.names, KEY_COLUMN]
            if numbers is not None:
                number = pa.scalar(numbers[split.location], pa.int32())
                arrays.append(pa.repeat(number, batch.num_rows))
                names.append(_FILE)
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _joined(ranges: Sequence[RowRanges]) -> RowRanges:
    return RowRanges.from_bounds(
        np.concatenate([each.starts for each in ranges]),
        np.concatenate([each.stops for each in ranges]),
    )
