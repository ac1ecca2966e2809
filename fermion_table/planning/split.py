"""A split: the part of a scan that one thread or task reads; and how its files are read.

A split is a data file or some rows of one. Reading is planned from schemas, before any file is
opened: a file is read under its own names and types, and what it lacks costs no request. The plan
depends on the schema that a file was written with and on which of its columns hold data, so files
alike share one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import pyarrow as pa

from fermion.deadline import TIMEOUT_S
from fermion.display import short_repr
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.options import BlobForm
from fermion.predicate import Expression
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.manifest import (
    DeletionVector,
    Entry,
    Runs,
    as_data_file,
    fields_by_file,
    ids_in,
    problem_beside,
)
from fermion_table.metadata.shared_files import SharedFiles
from fermion_table.options import OPEN_COST_BYTES, TASK_BYTES
from fermion_table.planning.filters import TableFilter, conjunction, push_down
from fermion_table.schema.conversion import Conversion, filled_bytes_of, plan_reading
from fermion_table.schema.schema import Field, Path, field_to_arrow
from fermion_table.schema.selection import (
    BATCH_COLUMNS,
    ROW_ID,
    ROW_KIND,
    MapKey,
    file_columns,
    select_paths,
)

if TYPE_CHECKING:
    from fermion_table.merging.primary_key import PrimaryKey
    from fermion_table.schema import blob_columns
else:  # few tables have blobs
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")


class FileReader(Protocol):
    """What a split reads its files with: see `SplitReader`."""

    def read_file(
        self, split: FileSplit, *, threads: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that the query selects, in the file's order."""

    def count_file(self, split: FileSplit, *, threads: int | None = None) -> int:
        """How many rows of a file the query selects."""


@dataclass(frozen=True, slots=True)
class SplitIndex:
    """An index file of a data file: `field`, `kind` and `indexed_file` as of an `IndexFile`."""

    field: int
    kind: str
    indexed_file: str
    file: FileSplit


@dataclass(frozen=True, slots=True)
class SplitBlobs:
    """A blob file of a data file: what references call it, where it lies, and its bytes."""

    name: str
    location: str
    size: int
    shares: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSplit:
    """One data file, or some rows of it.

    Attributes
    ----------
    location
        What `fermion.open` takes.
    file
        The data file as the table names it, for messages.
    size, tail_length
        Bytes of the file; bytes at its end that open it.
    rows
        Rows of the file.
    schema_id
        The schema it was written with.
    columns
        Runs of field ids that hold data, as in the entry.
    fields
        Of a column file: runs of the ids of the fields that it has; None: a data file.
    column_files
        Files with some columns of the same rows; the last one that has a field counts.
    indexes
        Files that tell where values are in it.
    blob_files
        Files that its references, or those of its column files, name.
    in_batches
        Whether it was written in batch mode.
    partition
        Partition values, as JSON values.
    row_range
        Rows to read, (start, stop), stop exclusive; None: all.
    deletion, deletion_location
        Rows of the file that are gone, and where that is stored.
    row_id_base
        Id of the file's first row.
    file_id
        The file's own identity, which it must have; None: not known.
    retractions, keys_repeated
        See `Entry`.
    shares
        Whether it lies on the table's own storage: only then the table's storage options go there.
    """

    location: str
    file: str
    size: int
    rows: int
    tail_length: int = 0
    schema_id: int = 0
    columns: Runs | None = None
    fields: Runs | None = None
    column_files: tuple[FileSplit, ...] = ()
    indexes: tuple[SplitIndex, ...] = ()
    blob_files: tuple[SplitBlobs, ...] = ()
    in_batches: bool = False
    partition: tuple[Any, ...] = ()
    row_range: tuple[int, int] | None = None
    deletion: DeletionVector | None = None
    deletion_location: str = ""
    row_id_base: int | None = None
    file_id: str | None = None
    retractions: int = 0
    keys_repeated: int = 0
    shares: bool = True

    __repr__ = short_repr

    @property
    def files(self) -> tuple[FileSplit]:
        """The file alone."""
        return (self,)

    @property
    def row_bounds(self) -> tuple[int, int]:
        """The numbers of the first row to read and of the one after the last, in the file."""
        return self.row_range or (0, self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of the file that stand for the rows to read."""
        first, last = self.row_bounds
        return self.size * (last - first) // max(self.rows, 1)

    @property
    def cost(self) -> int:
        """The same, and what opening the file costs."""
        return self.bytes + OPEN_COST_BYTES

    @property
    def rows_wanted(self) -> int:
        """Rows to read, before filtering; at most, of a part of a file with deleted rows."""
        if self.row_range is None:
            return self.rows - (self.deletion.rows if self.deletion is not None else 0)
        return self.row_range[1] - self.row_range[0]

    @property
    def is_exact(self) -> bool:
        """Whether `rows_wanted` is exact: which rows of a part are deleted is in another file."""
        return self.row_range is None or self.deletion is None

    def with_data(self, fields: Iterable[Field]) -> list[Field]:
        """Those of its top-level fields of which the file holds data."""
        if self.columns is None:
            return list(fields)
        listed = list(fields)
        held = ids_in(self.columns, (each.id for each in listed))
        return [each for each in listed if each.id in held]

    def part(self, start: int, stop: int) -> FileSplit:
        """The same with some of its rows, by their numbers in the file, stop exclusive."""
        return self if (start, stop) == self.row_bounds else replace(self, row_range=(start, stop))

    def head(self, rows: int) -> FileSplit:
        """The same without rows beyond the first so many; all of it where some are deleted."""
        if self.rows_wanted <= rows or self.deletion is not None:
            return self
        first = self.row_bounds[0]
        return self.part(first, first + rows)

    def read(self, reader: FileReader, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the query selects, in the file's order."""
        return reader.read_file(self, threads=threads)

    def count(self, reader: FileReader, *, threads: int | None = None) -> int:
        """How many rows the query selects."""
        return reader.count_file(self, threads=threads)


def file_split(
    entry: Entry,
    location: str,
    deletion_location: str = "",
    *,
    shares: bool = True,
    column_files: tuple[FileSplit, ...] = (),
    indexes: tuple[SplitIndex, ...] = (),
    blob_files: tuple[SplitBlobs, ...] = (),
) -> FileSplit:
    """A whole data file as a split.

    location: Where the file lies: see `shared_files`.
    deletion_location: Where the file of its deletion vector lies.
    shares, column_files, indexes, blob_files: See `FileSplit`.
    """
    return FileSplit(
        location=location,
        file=entry.file,
        size=entry.size,
        rows=entry.rows,
        tail_length=entry.tail_length,
        schema_id=entry.schema_id,
        columns=entry.columns,
        column_files=column_files,
        indexes=indexes,
        blob_files=blob_files,
        in_batches=entry.batch is not None,
        partition=entry.partition,
        deletion=entry.deletion_vector,
        deletion_location=deletion_location,
        row_id_base=entry.row_id_base,
        file_id=entry.file_id,
        retractions=entry.retractions,
        keys_repeated=entry.keys_repeated,
        shares=shares,
    )


def beside(entry: Entry, files: SharedFiles) -> tuple[FileSplit, ...]:
    """The column files of an entry.

    files: Tells where they lie.
    Raises CorruptMetadata: One has another number of rows or is there twice, or the data file
        belongs to a tree.
    Raises UnsafeStorage: The table may not name one of them.
    """
    problem = problem_beside(entry.rows, entry.bucket, entry.column_files)
    if problem is not None:
        raise CorruptMetadata(entry.file, *problem)
    made = []
    for each in entry.column_files:
        alone = as_data_file(each)
        split = file_split(
            alone,
            files.data(alone),
            shares=files.shares_storage(alone),
            blob_files=blob_files_of(entry, files) if entry.blob_files else (),
        )
        made.append(replace(split, columns=entry.columns, fields=each.fields))
    return tuple(made)


def indexes_of(entry: Entry, files: SharedFiles) -> tuple[SplitIndex, ...]:
    """The index files of an entry; parameters as of `beside`.

    Raises UnsafeStorage.
    """
    made = []
    for each in entry.indexes:
        alone = as_data_file(each)
        file = file_split(alone, files.data(alone), shares=files.shares_storage(alone))
        made.append(SplitIndex(each.field, each.kind, each.indexed_file, file))
    return tuple(made)


def blob_files_of(entry: Entry, files: SharedFiles) -> tuple[SplitBlobs, ...]:
    """The blob files of an entry; parameters as of `beside`.

    Raises UnsafeStorage.
    """
    made = []
    for each in entry.blob_files:
        alone = Entry(path=each.path, external_path=each.external_path, size=each.size, rows=0)
        shares = files.shares_storage(alone)
        made.append(SplitBlobs(each.name, files.data(alone), each.size, shares))
    return tuple(made)


PIECE_ROWS = 65_536
"""Files are cut at multiples of so many rows."""
_UNCUT = (0, 1)
"""Row bounds of a split that can't be cut: there is no row between them."""


class Divisible(Protocol):
    """What `tasks` asks of the splits that it divides among tasks."""

    @property
    def bytes(self) -> int:
        """Bytes of files that stand for the rows to read."""

    @property
    def cost(self) -> int:
        """Bytes of a file that is open, and read as it is, that take as long to read."""

    @property
    def row_bounds(self) -> tuple[int, int] | None:
        """The rows between which it can be cut, stop exclusive; None: it can't be."""

    def part(self, start: int, stop: int) -> Self:
        """The same with some of its rows, start and stop within `row_bounds`."""


class Split(Divisible, Protocol):
    """The part of a scan that one thread or task reads. Small, picklable, immutable.

    `FileSplit` is one file, or some of its rows. Threads, tasks of engines and `SplitReader` know
    of a split what stands here, and nothing else.
    """

    @property
    def files(self) -> Sequence[FileSplit]:
        """The files that are read, with the rows of each."""

    @property
    def rows_wanted(self) -> int:
        """Rows to read, before filtering, at most."""

    @property
    def is_exact(self) -> bool:
        """Whether `rows_wanted` is how many rows come, but for the filter."""

    def head(self, rows: int) -> Split:
        """The same without rows beyond the first so many, if that is known without reading."""

    def read(self, reader: FileReader, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that the query of a reader selects, in their order.

        Parameters
        ----------
        reader
            Reads the files.
        threads
            For decoding them; None takes the number of processors.
        """

    def count(self, reader: FileReader, *, threads: int | None = None) -> int:
        """How many rows the query of a reader selects."""


def task_bytes(cost: int, bytes_target: int = TASK_BYTES, tasks_min: int = 1) -> int:
    """What one task reads at most, so that enough tasks share the cost of all files.

    Parameters
    ----------
    cost
        Bytes of all files, and `OPEN_COST_BYTES` for each of them.
    bytes_target, tasks_min
        As for `tasks`.
    """
    return max(OPEN_COST_BYTES, min(bytes_target, -(-cost // max(1, tasks_min))))


Part = TypeVar("Part", bound=Divisible)


def tasks(
    splits: Iterable[Part], bytes_target: int = TASK_BYTES, tasks_min: int = 1
) -> Iterator[tuple[Part, ...]]:
    """Splits as tasks of about equal cost, in order: big files cut, small ones together.

    bytes_target: Bytes of files a task, roughly; see `Split.cost`.
    tasks_min: Make at least this many tasks, unless they would be cheaper than opening a file.
    """
    listed = list(splits)
    costs = [split.cost for split in listed]
    total = sum(costs)
    count = -(-total // task_bytes(total, bytes_target, tasks_min))
    task: list[Part] = []
    number, before = 1, 0
    for split, cost in zip(listed, costs, strict=True):
        first, last = split.row_bounds or _UNCUT
        ends = []
        while total * number // count < before + cost:
            ends.append(_row_near(split, total * number // count - before))
            number += 1
        before += cost
        if first in ends and task:
            yield tuple(task)
            task = []
        bounds = [first, *sorted({row for row in ends if first < row < last}), last]
        for start, stop in pairwise(bounds):
            task.append(split if (start, stop) == (first, last) else split.part(start, stop))
            if stop in ends:
                yield tuple(task)
                task = []
    if task:
        yield tuple(task)


def mixed_tasks(
    splits: Iterable[Part], bytes_target: int = TASK_BYTES, tasks_min: int = 1
) -> Iterator[tuple[Part, ...]]:
    """As `tasks`, but what can't be cut is in tasks of its own, before the others.

    These are files to be merged. The costliest come first, as nothing else can share their work:
    tasks that read files as they are fill the time until the last of them is done.
    """
    whole: list[Part] = []
    others: list[Part] = []
    for split in splits:
        (whole if split.row_bounds is None else others).append(split)
    if not whole:
        yield from tasks(others, bytes_target, tasks_min)
        return
    total = sum(split.cost for split in (*whole, *others))
    target = task_bytes(total, bytes_target, tasks_min)
    yield from _balanced(whole, -(-sum(split.cost for split in whole) // target))
    yield from tasks(others, target)


def _balanced(splits: Sequence[Part], count: int) -> Iterator[tuple[Part, ...]]:
    """Splits as so many tasks at most of about equal cost, the costliest first."""
    loads = [(0, number) for number in range(min(count, len(splits)))]
    chosen: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(splits)), key=lambda place: -splits[place].cost):
        load, number = loads[0]
        chosen[number].append(place)
        heapq.heapreplace(loads, (load + splits[place].cost, number))
    for _, number in sorted(loads, key=lambda each: (-each[0], each[1])):
        yield tuple(splits[place] for place in sorted(chosen[number]))


def _row_near(split: Divisible, cost: int) -> int:
    """Where to cut a split after so much of its cost: at an end if a part would be too small."""
    first, last = split.row_bounds or _UNCUT
    size = split.bytes
    share = cost / max(size + OPEN_COST_BYTES, 1)
    row = round((first + (last - first) * share) / PIECE_ROWS) * PIECE_ROWS
    part = size * (row - first) // max(last - first, 1)
    if min(part, size - part) >= OPEN_COST_BYTES and first < row < last:
        return row
    return first if 2 * cost < size + OPEN_COST_BYTES else last


def first_rows(splits: Iterable[Split], limit: int) -> list[Split]:
    """The splits that the first rows come from, the last one without more rows where it can be.

    Parameters
    ----------
    splits
        Of a plan without a filter, in its order.
    limit
        Rows that are wanted.
    """
    chosen: list[Split] = []
    left = limit
    for split in splits:
        if left <= 0:
            break
        split = split.head(left)
        chosen.append(split)
        left -= split.rows_wanted if split.is_exact else 0
    return chosen


BATCH_ROWS = 65_536
FILLED_BATCH_BYTES = 1024**3
"""Bytes of the columns of a batch that a file lacks: if they are wide, batches have fewer rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a query wants of every split. Picklable.

    fields: Fields to give back, pruned below structs.
    table_fields: Top-level fields, whole, that `fields` and the filter come from.
    file_fields: Of each schema that files were written with, by its id: the top-level fields with
        ids of `table_fields`.
    filter: Rows to give back; None: all.
    metadata: Of the schema given back.
    storage_options: For `fermion.open`; a pickle holds them, credentials too, and no ``repr`` shows
        them.
    batch_rows: Rows a batch, at most.
    timeout_s: See `StorageAccess`.
    key: Of a primary-key table: what sections are merged by.
    map_keys: Those of `fields` that are keys of maps, or paths of Variants.
    filters_late: Whether readers of files give all rows, which are filtered then.
    blobs: What comes of columns of blobs.
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
    map_keys: tuple[MapKey, ...] = ()
    filters_late: bool = False
    blobs: BlobForm = "bytes"

    def arrow_field(self, field: Field) -> pa.Field:
        """What is given back of a field."""
        arrow = field_to_arrow(field, field_ids=False)
        if self.blobs == "bytes":
            return arrow
        return blob_columns.wanted_field(arrow, self.blobs, self.storage_options)

    def arrow_schema(self) -> pa.Schema:
        """The schema given back."""
        fields = [self.arrow_field(field) for field in self.fields]
        return pa.schema(fields, metadata=dict(self.metadata) if self.metadata else None)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How column files of one kind are read.

    place: Among the column files of the split.
    columns, pushed: As of a `FilePlan`.
    """

    place: int
    columns: list[str | Path]
    pushed: Expression | None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How files of one kind are read.

    columns: What their reader is asked for.
    pushed: The filter that their reader applies.
    schema, conversions: What its batches become.
    residual: The filter that is applied then.
    final: What becomes of that; None: it is what the query wants.
    row_id_place: Where the ids of rows stand among the columns; None: they are not wanted.
    beside: What the readers of column files are asked for. Their columns come after the others.
    filled_bytes: Bytes of each row in columns that the file lacks.
    """

    columns: list[str | Path]
    pushed: Expression | None
    schema: pa.Schema
    conversions: list[Conversion]
    residual: Expression | None
    final: list[Conversion] | None
    row_id_place: int | None = None
    beside: tuple[ColumnPlan, ...] = ()
    filled_bytes: int = 0

    def batch_rows(self, wanted: int) -> int:
        """Rows of a batch, so that what the file lacks takes bounded memory."""
        return min(wanted, max(FILLED_BATCH_BYTES // max(self.filled_bytes, 1), 1))

    @property
    def needs_data_file(self) -> bool:
        """Whether the data file has to be opened."""
        return bool(self.columns) or self.pushed is not None

    @property
    def needs_file(self) -> bool:
        """Whether a file has to be opened at all."""
        return self.needs_data_file or bool(self.beside)

    @property
    def searches(self) -> bool:
        """Whether a reader applies a filter."""
        return self.pushed is not None or any(each.pushed is not None for each in self.beside)

    @property
    def unpushed(self) -> FilePlan:
        """The same for rows that readers' filters have selected already."""
        beside = tuple(replace(each, pushed=None) for each in self.beside if each.columns)
        return replace(self, pushed=None, beside=beside)


def plan_file(request: ReadRequest, schema: pa.Schema, split: FileSplit) -> FilePlan:
    """How a file, and what lies beside it, are read.

    split: The file, or one like it.
    """
    written = _fields_written(request, split)
    sources = [split.with_data(fields) for fields in written]
    all_null = {field.id for fields in written for field in fields}
    all_null.difference_update(field.id for fields in sources for field in fields)
    if split.in_batches:
        sources[0] += BATCH_COLUMNS
    if split.retractions:
        sources[0].append(ROW_KIND)
    pushed: list[list[Expression]] = [[] for _ in sources]
    residual: list[Expression] = []
    for part in request.filter.parts if request.filter is not None else ():
        inside = (push_down(part, request.table_fields, fields) for fields in sources)
        found = next(((place, each) for place, each in enumerate(inside) if each is not None), None)
        if found is None or request.filters_late:
            residual.append(part)
        else:
            pushed[found[0]].append(found[1])
    fields = request.fields
    for part in residual:
        fields = _with_paths(fields, part, request.table_fields)
    sources[0].append(ROW_ID)
    for each in request.map_keys:
        for source in sources:
            source += each.of_file(source)
    asked = [file_columns(fields, each) for each in sources]
    columns = [column for _, found_columns in asked for column in found_columns]
    if ROW_ID in columns:
        asked[0][0].remove(ROW_ID.name)
    paths = [each for each, _ in asked]
    filters = [conjunction(each) for each in pushed]
    beside = tuple(
        ColumnPlan(place - 1, paths[place], filters[place])
        for place in range(1, len(sources))
        if paths[place] or filters[place] is not None
    )
    arrow = [request.arrow_field(field) for field in fields]
    same = fields == request.fields
    conversions = plan_reading(fields, columns, all_null=all_null)
    final = None if same else plan_reading(request.fields, fields)
    if request.blobs != "bytes":
        conversions = blob_columns.wanted_conversions(conversions, arrow)
        final = final and blob_columns.wanted_conversions(final, schema)
    return FilePlan(
        columns=paths[0],
        pushed=filters[0],
        schema=schema if same else pa.schema(arrow),
        conversions=conversions,
        residual=conjunction(residual),
        final=final,
        row_id_place=columns.index(ROW_ID) if ROW_ID in columns else None,
        beside=beside,
        filled_bytes=filled_bytes_of(conversions),
    )


def _fields_written(request: ReadRequest, split: FileSplit) -> list[list[Field]]:
    """The fields that count of the data file, and of each column file."""
    layout = tuple((each.schema_id, each.fields or ()) for each in split.column_files)
    if not layout:
        return [list(request.file_fields[split.schema_id])]
    return fields_by_file(request.file_fields, split.schema_id, layout)


def _with_paths(
    fields: tuple[Field, ...], part: Expression, table_fields: tuple[Field, ...]
) -> tuple[Field, ...]:
    """Fields and what a part of a filter reads besides; a struct it reads from becomes whole."""
    fields_by_id = {field.id: field for field in fields}
    for path in sorted(part.columns()):
        (wanted,) = select_paths(table_fields, [path[:1]], where="filter")
        fields_by_id[wanted.id] = wanted
    return tuple(fields_by_id.values())
