"""Splits of a primary-key table, and sections: files that overlap, whose rows are merged by key.

There are three ways. Where a key's row is one of the rows stored (the engines ``deduplicate`` and
``first_row``), runs are read one after the other, without the rows whose keys were seen before
(`shown_rows`). If these keys are too many, or the order of runs does not decide alone, keys are
merged: that tells which rows of each file are visible, and the files are then read as if the others
were deleted (`visible_rows`). For other engines the rows are merged and folded, batch by batch in
the order of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from fermion.engine import array_of, filter_batch_rows, numbers_of
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.predicate import RowRanges
from fermion_table.merge_engines.key_groups import Folded, KeyGroups, Unfoldable
from fermion_table.merging.fold import columns_to_merge, fold
from fermion_table.merging.merge_reader import merge_runs
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.options import FOLD_COST, OPEN_COST_BYTES, PICK_COST
from fermion_table.planning.filters import conjunction, selected
from fermion_table.planning.plan import splits_of
from fermion_table.planning.split import FileReader, FileSplit, ReadRequest, Split
from fermion_table.planning.tree_plan import TreePlan
from fermion_table.reading.run_reader import HELD_BYTES, Runs, key_of, merging_reader, run_batches
from fermion_table.reading.split_reader import SplitReader
from fermion_table.schema.conversion import convert_batch, plan_reading
from fermion_table.schema.schema import KEY_COLUMN, KIND_COLUMN, Field
from fermion_table.storage.store import AtomicStore
from fermion_table.trees.shown_rows import holds_few_keys, read_shown
from fermion_table.trees.visible_rows import picks_rows, visible_rows

if TYPE_CHECKING:
    from fermion_table.schema import blob_columns
else:  # few tables have blobs
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")


@dataclass(frozen=True, slots=True)
class SectionSplit:
    """Files of a tree whose keys overlap. It is read as a whole.

    runs: Sorted runs from the newest to the oldest; of each its files in the order of keys.
    merge_cost: How many times as much as reading its bytes merging them costs.
    """

    runs: tuple[tuple[FileSplit, ...], ...]
    merge_cost: int = FOLD_COST

    @property
    def files(self) -> tuple[FileSplit, ...]:
        """All files, run by run."""
        return tuple(file for run in self.runs for file in run)

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)

    @property
    def cost(self) -> int:
        """Bytes of a file that is open, and read as it is, that take as long to read."""
        return self.merge_cost * self.bytes + OPEN_COST_BYTES * len(self.files)

    @property
    def rows_wanted(self) -> int:
        """Rows stored: at most so many come."""
        return sum(file.rows_wanted for file in self.files)

    @property
    def is_exact(self) -> bool:
        """No: how many rows are replaced or deleted is not known."""
        return False

    @property
    def row_bounds(self) -> None:
        """None: it can't be cut."""
        return

    def part(self, start: int, stop: int) -> SectionSplit:
        """All of it."""
        return self

    def head(self, rows: int) -> SectionSplit:
        """All of it."""
        return self

    def read(self, reader: FileReader, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the query of a reader selects, merged by key."""
        return read_section(self.runs, cast(SplitReader, reader), threads=threads)

    def count(self, reader: FileReader, *, threads: int | None = None) -> int:
        """How many rows the query of a reader selects."""
        return count_section(self.runs, cast(SplitReader, reader), threads=threads)


def tree_splits(plan: TreePlan, store: AtomicStore, key: PrimaryKey) -> tuple[Split, ...]:
    """One split a file that needs no merging, then one a section that does.

    Raises UnsafeStorage: See `splits_of`.
    """
    is_picked = picks_rows(key) and not key.options.sequence_fields
    merge_cost = PICK_COST if is_picked else FOLD_COST
    sections = [
        SectionSplit(
            tuple(splits_of((file.entry for file in run), store) for run in section.runs),
            merge_cost,
        )
        for section in plan.merged
    ]
    return (*splits_of(plan.raw, store), *sections)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows in the order of their keys.

    keys: The key of each row (see `PrimaryKey.tree_keys`).
    kinds: ``int8``, shape (n,); None: no retraction is among them.
    is_folded: Whether they are what folding makes of the keys; else these keys can't be folded.
    """

    rows: pa.RecordBatch
    keys: pa.Array
    kinds: np.ndarray | None
    is_folded: bool = True


def merged_rows(
    runs: Runs,
    reader: SplitReader,
    *,
    is_oldest: bool,
    rows: Mapping[str, RowRanges] | None = None,
    threads: int | None = 1,
    held_bytes: int = HELD_BYTES,
    unfoldable: list[Unfoldable] | None = None,
) -> Iterator[KeyedRows]:
    """The rows of a section, folded, in the order of keys.

    runs: Of the section.
    reader: Of a request with a key: its fields are those wanted, top-level ones; of its filter the
        parts that read the key alone are applied.
    is_oldest: Whether no older rows of these keys exist, and none can come: see `fold`. Retractions
        are dropped then.
    rows: See `run_batches`.
    threads: For decoding a file.
    held_bytes: Of the rows of all runs that are held at a time, roughly.
    unfoldable: Gets what says which keys can't be folded; their rows are given as they are. None:
        such a key is an error.
    Raises InvalidArgumentError: See `fold`.
    """
    request = reader.request
    key = key_of(request)
    names = [field.name for field in request.fields]
    merging = merging_reader(reader, columns_to_merge(key, names))
    share = held_bytes // max(len(runs), 1)
    merged = merge_runs(
        [run_batches(run, merging, threads, rows=rows, bytes_max=share) for run in runs],
        sequence_columns=key.options.sequence_fields,
        is_descending=key.options.sequence_descending,
    )
    helpers = {KEY_COLUMN, KIND_COLUMN}
    for each in merged:
        batch = each.batch.select([name for name in each.batch.schema.names if name not in helpers])
        kinds = numbers_of(each.batch.column(KIND_COLUMN))

        def fold_some(
            some: KeyGroups,
            is_oldest: bool,
            batch: pa.RecordBatch = batch,
            kinds: np.ndarray = kinds,
        ) -> Folded:
            return fold(batch, some, key, kinds, is_oldest=is_oldest)

        for folded, is_folded in _folded(each.groups, fold_some, is_oldest, unfoldable):
            if len(folded.rows):
                keys = each.batch.column(KEY_COLUMN).take(array_of(folded.rows, pa.int64()))
                yield KeyedRows(folded.gather(batch, names), keys, folded.kinds, is_folded)


def _folded(
    groups: KeyGroups,
    fold_some: Callable[[KeyGroups, bool], Folded],
    is_oldest: bool,
    unfoldable: list[Unfoldable] | None,
) -> Iterator[tuple[Folded, bool]]:
    """Keys folded, in their order; those that can't be come apart from the others."""
    try:
        folded = fold_some(groups, is_oldest)
    except Unfoldable as error:
        if unfoldable is None:
            raise
        unfoldable.append(error)
        is_bad = np.zeros(len(groups.starts), bool)
        is_bad[groups.numbers[np.isin(groups.order, error.rows)]] = True
    else:
        yield folded, True
        return
    cuts = [0, *(np.flatnonzero(np.diff(is_bad)) + 1).tolist(), len(is_bad)]
    for start, stop in pairwise(cuts):
        some = groups.between(start, stop)
        if is_bad[start]:
            yield fold_some(some, False), False
        else:
            yield from _folded(some, fold_some, is_oldest, unfoldable)


def read_section(
    runs: Runs, reader: SplitReader, *, threads: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a section that the query selects, as the query wants them.

    runs: Of the section.
    reader: Of a request with a key.
    """
    request = reader.request
    if picks_rows(key_of(request)):
        if holds_few_keys(runs, key_of(request)):
            yield from read_shown(runs, reader, threads=threads)
            return
        for split, rows in visible_rows(runs, reader, threads=threads):
            yield from reader.read_file(split, rows=rows, threads=threads)
        return
    wanted = {field.id for field in request.fields}
    wanted.update(each.map_id for each in request.map_keys)
    filtered = set() if request.filter is None else {path[0] for path in request.filter.paths}
    wanted.update(field.id for field in request.table_fields if field.name in filtered)
    fields = tuple(field for field in request.table_fields if field.id in wanted and field.id > 0)
    whole = replace(request, fields=fields, map_keys=())
    folding = SplitReader(whole, io=reader.io, guard=reader.guard)
    as_wanted = conversion_of(request, fields, reader.schema)
    residual = None if request.filter is None else conjunction(request.filter.parts)
    for each in merged_rows(runs, folding, is_oldest=True, threads=threads):
        rows = each.rows
        if residual is not None:
            rows = filter_batch_rows(rows, selected(residual, rows))
        if rows.num_rows:
            yield as_wanted(rows)


def conversion_of(
    request: ReadRequest, fields: tuple[Field, ...], schema: pa.Schema
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What makes of merged rows with whole columns those that a request wants.

    fields: Of the rows: the columns that its fields come from, and the maps of its keys.
    schema: Of the request.
    """
    keys = request.map_keys
    conversions = plan_reading(request.fields, (*fields, *(each.field for each in keys)))
    if request.blobs != "bytes":
        conversions = blob_columns.wanted_conversions(conversions, schema)
    maps = {field.id: place for place, field in enumerate(fields)}

    def convert(rows: pa.RecordBatch) -> pa.RecordBatch:
        for each in keys:
            values = each.values_of(rows.column(maps[each.map_id]))
            rows = rows.append_column(each.field.name, values)
        return convert_batch(conversions, rows, schema)

    return convert


def count_section(runs: Runs, reader: SplitReader, *, threads: int | None = None) -> int:
    """How many rows of a section the query selects."""
    request = reader.request
    if request.filter is None and picks_rows(key_of(request)):
        return sum(rows.total for _, rows in visible_rows(runs, reader, threads=threads))
    bare = SplitReader(replace(request, fields=()), io=reader.io, guard=reader.guard)
    return sum(batch.num_rows for batch in read_section(runs, bare, threads=threads))


def split_text(splits: Iterable[Split]) -> str:
    """The splits of a task as text, for engines that are not written in Python.

    It is JSON, a list of objects: a `FileSplit` is its fields; files of a tree that are merged are
    ``{"runs": [[file, ...], ...], "merge_cost": ...}``. Only the version that wrote it reads it.
    """
    return msgspec.json.encode(list(splits)).decode()


def splits_from_text(text: str) -> list[Split]:
    """The splits that `split_text` was given.

    Raises
    ------
    InvalidArgumentError
        It is no such text.
    """
    try:
        objects = msgspec.json.decode(text, type=list[dict[str, Any]])
        made: list[Split] = []
        for each in objects:
            kind: type[Any] = SectionSplit if "runs" in each else FileSplit
            made.append(msgspec.convert(each, kind))
        return made
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidArgumentError(f"no splits of a scan: {error}; found {text[:80]!r}") from None
