"""A scan: a question to one snapshot, planned from metadata and read by threads over files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args, overload

import msgspec
import numpy as np
import pyarrow as pa

from fermion import telemetry
from fermion.arguments import flag, integer, integers
from fermion.display import ShownText, facts_repr, html_facts, location_text, names_text
from fermion.engine import read_ahead, take_batch_rows, take_table_rows
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, NamedTuple, dataclass
from fermion.forks import cached_property
from fermion.options import TRAINING_LANES, TRAINING_WINDOW_ROWS, BlobForm
from fermion.predicate import RowRanges, column_of
from fermion.progress import ShowsProgress, showing, watched
from fermion.redaction import redacted
from fermion_table.argument_checks import check_columns
from fermion_table.metadata.history import KeptVersions, expiry_guard, until_expiry
from fermion_table.metadata.manifest import Entry, Layout, check_layouts
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.options import PART_BYTES
from fermion_table.planning.filters import TableFilter, both, field_at, table_filter
from fermion_table.planning.min_max import MinMax, add_exact_bounds
from fermion_table.planning.plan import (
    LiveFiles,
    PruningStep,
    ScanPlan,
    files_that_must_match,
    plan_scan,
    prune_manifests,
    splits_of,
)
from fermion_table.planning.split import BATCH_ROWS, FileSplit, ReadRequest, Split, first_rows
from fermion_table.reading.split_reader import IoTotals, SplitReader
from fermion_table.scanning.arrow_rows import ArrowRows, types_hint
from fermion_table.schema.conversion import empty_columns
from fermion_table.schema.schema import Field, PathLike, TableSchema, decode_metadata, has_buckets
from fermion_table.schema.selection import (
    map_keys,
    named_columns,
    queryable_fields,
    select_columns,
)
from fermion_table.schema.value_codec import has_plain_json
from fermion_table.storage.store import AtomicStore, access_of, in_time

if TYPE_CHECKING:
    import duckdb
    import polars

    from fermion.engine import Last, OnDamage, Shuffle, TrainingReader, VariantValue
    from fermion.typing import FilterLike
    from fermion_table.merging import fold, primary_key
    from fermion_table.merging.primary_key import PrimaryKey
    from fermion_table.planning import tree_plan
    from fermion_table.planning.tree_plan import TreePlan
    from fermion_table.reading import run_reader
    from fermion_table.scanning import parts, polars_source
    from fermion_table.scanning.arrow_dataset import ScanDataset
    from fermion_table.scanning.parts import ScanPart
    from fermion_table.trees import section_reader
else:  # a scan of a table without a primary key needs none of them
    fold = LoadedWhenAskedFor("fermion_table.merging.fold")
    parts = LoadedWhenAskedFor("fermion_table.scanning.parts")
    polars_source = LoadedWhenAskedFor("fermion_table.scanning.polars_source")
    primary_key = LoadedWhenAskedFor("fermion_table.merging.primary_key")
    run_reader = LoadedWhenAskedFor("fermion_table.reading.run_reader")
    section_reader = LoadedWhenAskedFor("fermion_table.trees.section_reader")
    tree_plan = LoadedWhenAskedFor("fermion_table.planning.tree_plan")

_Result = TypeVar("_Result")
ScanMode = Literal["snapshot", "read_optimized"]

SMALL_FILE_BYTES = 64 * 1024
"""Threads over local files that are smaller pass Python's lock to and fro, and gain nothing."""
FILES_AHEAD = 2
"""Files that are read ahead of what the threads are busy with."""


@dataclass(frozen=True, kw_only=True)
class Scan(ArrowRows):
    """Rows of one snapshot: columns and filter. Nothing is read before a result is requested.

    Make one with `Table.scan`. It stays what it is when the table moves on, and when it is pickled;
    the pickle holds the ``storage_options``, credentials too.
    """

    store: AtomicStore
    snapshot: Snapshot
    schemas: Mapping[int, TableSchema]
    table_schema: TableSchema
    columns: tuple[PathLike, ...] | None = None
    filter: TableFilter | None = None
    limit: int | None = None
    threads: int | None = None
    batch_rows: int = BATCH_ROWS
    mode: ScanMode = "snapshot"
    blobs: BlobForm = "bytes"
    merges_level0: bool = False  # for changes of rows, whatever merge_on_read says
    io: IoTotals = field(default_factory=IoTotals, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, minimum in (("limit", 0), ("threads", 1), ("batch_rows", 1)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, integer(value, name, minimum=minimum))
        if self.mode not in get_args(ScanMode):
            raise InvalidArgumentError(
                f"mode={self.mode!r}: expected one of {', '.join(get_args(ScanMode))}"
            )
        _ = self._request  # a column that does not exist is an error now, not when reading

    def __getstate__(self) -> dict[str, Any]:
        """What was asked, without what was planned: that may hold open files."""
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    @cached_property
    def key(self) -> PrimaryKey | None:
        """The primary key by which rows are merged; None: they are not."""
        stored = self.schemas[self.snapshot.schema.id]
        if not has_buckets(stored):
            return None
        return primary_key.scanned_key(self.table_schema, stored, merges_level0=self.merges_level0)

    @cached_property
    def _versions(self) -> Mapping[int, TableSchema]:
        """What files were written with, without fields that the snapshot had dropped."""
        own = self.schemas[self.snapshot.schema.id]
        return self.schemas if own is self.table_schema else KeptVersions(self.schemas, own)

    @cached_property
    def _request(self) -> ReadRequest:
        schema, where, columns = self.table_schema, self.store.location, self.columns
        if columns is not None:
            columns = tuple(named_columns(schema, columns, where=where))
        keys = map_keys(schema, columns or (), where=where)
        fields = select_columns(schema, columns, where=where, keys=keys)
        paths = self.filter.paths if self.filter is not None else []
        names = {field.name for field in fields} | {path[0] for path in paths}
        names |= {schema.by_id[each.map_id].name for each in keys.values()}
        if self.key is not None:
            if self.table_schema.row_id_name in names:
                raise InvalidArgumentError(
                    f"{self.store.location}: rows of a table with a primary key have no "
                    f"{self.table_schema.row_id_name!r}: its key tells them apart"
                )
            names.update(fold.columns_to_merge(self.key, names & self.table_schema.by_name.keys()))
        metadata = decode_metadata(self.table_schema.stored_metadata)
        return ReadRequest(
            fields=fields,
            table_fields=tuple(
                field for field in queryable_fields(self.table_schema) if field.name in names
            ),
            file_fields={},
            filter=self.filter,
            metadata=metadata or None,
            storage_options=self.store.storage_options,
            timeout_s=access_of(self.store).timeout_s,
            batch_rows=self.batch_rows,
            key=self.key,
            map_keys=tuple(keys.values()),
            blobs=self.blobs,
        )

    @cached_property
    def reader(self) -> SplitReader:
        """What reads the splits of `plan`: picklable, for engines."""
        request = self._request
        ids = {field.id for field in request.table_fields}
        check_layouts(self._layouts, self.schemas, self.store.location)
        return SplitReader(
            replace(
                request,
                file_fields={
                    schema_id: tuple(
                        field for field in self._versions[schema_id].fields if field.id in ids
                    )
                    for schema_id in self._schema_ids
                },
            ),
            io=self.io,
            guard=expiry_guard(self.store, self.snapshot),
        )

    @property
    def _schema_ids(self) -> set[int]:
        return self._files[0].schema_ids()

    @property
    def _layouts(self) -> set[Layout]:
        return self._files[0].layouts()

    @property
    def _threads(self) -> int:
        return self.threads or os.cpu_count() or 1

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return self._request.arrow_schema()

    @cached_property
    def _files(self) -> tuple[LiveFiles, list[PruningStep]]:
        """The files that may hold rows, and how they were found."""
        snapshot = self.snapshot
        wanted = self.filter
        if self.key is not None:  # another row of the key may be what the filter selects
            wanted = run_reader.key_filter(wanted, self.key) if self.mode == "snapshot" else None
        with in_time(self.store), until_expiry(self.store, snapshot):
            references, step = prune_manifests(self.store, snapshot, wanted, self.table_schema)
            files = LiveFiles(self.store, snapshot, references)
            steps = files.prune(self._versions, self.table_schema, wanted)
        return files, [step, *steps] if snapshot.manifests else steps

    @cached_property
    def entries(self) -> tuple[list[Entry], list[PruningStep]]:
        """The files that may hold rows, in the order of their rows, and how they were found."""
        with in_time(self.store), until_expiry(self.store, self.snapshot):
            if self.key is not None:
                return self._trees.entries, self._trees.steps
            files, steps = self._files
            return files.entries(), steps

    @cached_property
    def _trees(self) -> TreePlan:
        """The files of a primary-key table that may hold rows, and which of them are merged."""
        assert self.key is not None
        files, steps = self._files
        plan = tree_plan.plan_trees(
            files.entries(), self.key, self._versions, self.table_schema, self.filter, self.mode
        )
        return replace(plan, steps=[*steps, *plan.steps])

    @cached_property
    def _plan(self) -> ScanPlan:
        splits: Sequence[Split]
        with in_time(self.store):
            files, steps = self._files
            if self.key is None:
                splits = files.splits(self.store)
            else:
                with until_expiry(self.store, self.snapshot):
                    splits = section_reader.tree_splits(self._trees, self.store, self.key)
                    steps = self._trees.steps
            return ScanPlan(snapshot_id=self.snapshot.id, splits=splits, steps=tuple(steps))

    def plan(self) -> ScanPlan:
        """Plan the scan: the files that are read, and the steps of pruning."""
        return self._plan

    def parts(self, bytes_target: int = PART_BYTES) -> Iterator[ScanPart[Self]]:
        """The scan in parts, for tables of millions of files: whoever reads a part plans it.

        The first part comes at once, and memory does not depend on the number of files. Rows come
        in the scan's order only within a part. With a limit or a primary key there is one part; a
        scan of no files has none.

        Parameters
        ----------
        bytes_target
            Bytes of files a part, roughly; opening a file counts as 4 MiB.
        """
        return parts.scan_parts(self, integer(bytes_target, "bytes_target", minimum=1))

    def explain(self, *, files: int = 0) -> str:
        """Describe what is read and why: from the table to files, stripes and pages.

        Parameters
        ----------
        files
            Open up to so many of the files (their metadata only) for what their statistics leave.
        """
        files = integer(files, "files", minimum=0)
        names = names_text(self.schema.names, "columns")
        lines = [f"scan of {redacted(self.store.location)}: {names}", self.plan().explain()]
        if self.filter is not None:
            lines.insert(1, f"filter: {self.filter.shown}")
        planned = (file for split in self.plan().splits for file in split.files)
        for file in itertools.islice(planned, files):
            with until_expiry(self.store, self.snapshot):
                pruning = self.reader.prune(file)
            if pruning is None:
                lines.append(f"{file.file}: not opened, its rows are null or constant")
                continue
            lines.append(
                f"{file.file}: {pruning.stripes_kept:,} of {pruning.stripes:,} stripes, "
                f"{pruning.pages_kept:,} of {pruning.pages:,} pages, {pruning.rows_kept:,} of "
                f"{pruning.rows:,} rows to look at ({pruning.rows_certain:,} certain)"
            )
        return ShownText("\n".join(lines))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches, a few files read ahead."""
        watching = telemetry.watching
        if watching is None:
            return self._batches()
        return watching.batches(
            "fermion.scan", self._batches(), self.store.location, self.io.as_dict
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows_left = self.limit
        if rows_left == 0:
            return
        splits: Sequence[Split] = self.plan().splits
        with until_expiry(self.store, self.snapshot):
            if rows_left is not None and self.filter is None:
                splits = first_rows(splits, rows_left)
            batches = _read_all(self.reader, splits, self._threads)
        while True:
            with until_expiry(self.store, self.snapshot):
                batch = next(batches, None)
            if batch is None:
                return
            if rows_left is not None:
                batch = batch.slice(0, rows_left)
                rows_left -= batch.num_rows
            yield batch
            if rows_left == 0:
                return

    def _rows_expected(self) -> int:
        """How many rows there will be, roughly; 0: the filter decides."""
        if self.filter is not None:
            return 0
        rows = self.plan().rows
        return rows if self.limit is None else min(rows, self.limit)

    def to_arrow(self, *, progress: ShowsProgress = None) -> pa.Table:
        """The rows as a table.

        Parameters
        ----------
        progress
            As of `Table.append`, of the rows that are read.
        """
        with showing(progress):
            if len(self.schema):
                batches = watched(self.to_batches(), "reading rows", self._rows_expected)
                return pa.Table.from_batches(batches, schema=self.schema)
        rows = self.count()
        return pa.Table.from_batches([empty_columns(self.schema, rows)])

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> polars.DataFrame: ...

    @overload
    def to_polars(self, *, lazy: Literal[True]) -> polars.LazyFrame: ...

    @overload
    def to_polars(self, *, lazy: bool) -> polars.DataFrame | polars.LazyFrame: ...

    def to_polars(self, *, lazy: bool = False) -> polars.DataFrame | polars.LazyFrame:
        """The rows as a polars frame; a lazy one reads only the columns that it uses."""
        return polars_source.lazy_frame(self) if flag(lazy, "lazy") else super().to_polars()

    def to_dataset(self) -> ScanDataset:
        """The rows as a `pyarrow.dataset.Dataset`, into which engines push columns and filters."""
        from fermion_table.scanning.arrow_dataset import (
            ScanDataset,  # pyarrow.dataset is slow to import
        )

        return ScanDataset(self)

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB, which reads only the columns and rows that it uses.

        ``float16`` comes as ``float32``, which DuckDB has.

        Raises InvalidArgumentError: DuckDB has no type for columns, which are named.
        """
        import duckdb  # optional

        from fermion_table.scanning.arrow_dataset import WideningDataset  # as in `to_dataset`

        if connection is None:
            connection = duckdb.default_connection()
        elif not hasattr(connection, "from_arrow"):
            found = type(connection).__name__
            raise TypeError(f"connection: expected a connection of DuckDB, found {found}")
        try:
            return connection.from_arrow(WideningDataset(self))
        except duckdb.NotImplementedException as error:
            hint = types_hint(error, [self.schema])
            raise InvalidArgumentError(f"to_duckdb: {error}{hint}") from error

    def count(self) -> int:
        """Count the rows; opens only the files that metadata do not decide."""
        with until_expiry(self.store, self.snapshot):
            return self._count()

    def _count(self) -> int:
        plan = self.plan()
        if self.filter is None and plan.is_exact:
            total = plan.rows
        elif self.filter is None:
            total = _count_rows(self.reader, plan.splits, self._threads)
        else:
            reader = self.select(()).reader  # only what the filter reads
            entries = self.unmerged
            decided = files_that_must_match(entries, self._versions, self.table_schema, self.filter)
            raw, merged = plan.splits[: len(entries)], plan.splits[len(entries) :]
            undecided = [split for split, certain in zip(raw, decided, strict=True) if not certain]
            total = sum(
                entry.live_rows for entry, certain in zip(entries, decided, strict=True) if certain
            ) + _count_rows(reader, [*undecided, *merged], self._threads)
        return total if self.limit is None else min(total, self.limit)

    def min_max(self, column: PathLike) -> tuple[pa.Scalar, pa.Scalar]:
        """Minimum and maximum of a column; null if there is no value.

        NaN counts as no value. Without a filter and a limit only files are read whose bounds are
        not exact or that have lost rows.

        Raises
        ------
        ColumnNotFoundError
        InvalidArgumentError
            A column whose values have no order.
        """
        path, chain = self._ordered(column)
        min_max = MinMax(chain[-1].type)
        scan = replace(self, columns=(path,))
        if self.filter is None and self.limit is None:
            undecided = add_exact_bounds(self.unmerged, self._versions, chain, min_max)
            undecided += self.entries[0][len(self.unmerged) :]
            files = msgspec.structs.replace(self.snapshot, manifests=(), tail=tuple(undecided))
            scan = replace(scan, snapshot=files)
        for batch in scan.to_batches():
            min_max.add(column_of(batch, path))
        return min_max.result()

    def known_min_max(self, column: PathLike) -> tuple[pa.Scalar, pa.Scalar] | None:
        """As `min_max`, from metadata alone; None if data files would have to be read.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError
            As `min_max`.
        """
        _, chain = self._ordered(column)
        if self.filter is not None or self.limit is not None:
            return None
        min_max = MinMax(chain[-1].type)
        if len(self.unmerged) < len(self.entries[0]) or add_exact_bounds(
            self.unmerged, self._versions, chain, min_max
        ):
            return None
        return min_max.result()

    @property
    def unmerged(self) -> list[Entry]:
        """The first of `entries`: files that are read as they are; the others are merged."""
        return self.entries[0] if self.key is None else self._trees.raw

    def _ordered(self, column: PathLike) -> tuple[tuple[str, ...], Sequence[Field]]:
        """The path of a column whose values have an order, and its fields."""
        schema = self.table_schema
        path = schema.resolve(column, where=self.store.location)
        top = schema.by_name.get(path[0])
        chain = None if top is None else field_at((top,), path)
        if chain is None or chain[-1].children or not has_plain_json(chain[-1].type):
            raise InvalidArgumentError(f"{self.store.location}: column {column!r} has no order")
        return path, chain

    def head(self, n: int = 10) -> pa.Table:
        """The first rows."""
        return self.head_scan(integer(n, "n", minimum=0)).to_arrow()

    def sample(self, n: int, *, seed: int | None = None) -> pa.Table:
        """Rows drawn at random, each as likely as any other, in the order of the scan.

        Of an append table only files are read that hold a row that was drawn; of a primary-key
        table all are, as rows are merged.

        Parameters
        ----------
        n
            How many; all where there are fewer.
        seed
            The same one draws the same rows of a snapshot; None: others each time.
        """
        n = integer(n, "n", minimum=0)
        if seed is not None:
            seed = integer(seed, "seed", minimum=0, maximum=2**128 - 1)
        rows = self._numbered_rows
        return self._read_rows(_drawn(rows.total, n, seed), rows)

    def take(self, rows: Sequence[int] | np.ndarray | pa.Array) -> pa.Table:
        """Rows by their numbers in the scan, in any order, with repeats.

        Reads what `sample` reads.

        Parameters
        ----------
        rows
            From 0 to `count`, exclusive: numbers among the rows that the filter selects.

        Raises
        ------
        TypeError
            No integers.
        InvalidArgumentError
            A number that no row has.
        """
        wanted = integers(rows, "rows")
        numbered = self._numbered_rows
        outside = wanted[(wanted < 0) | (wanted >= numbered.total)]
        if len(outside):
            raise InvalidArgumentError(
                f"{redacted(self.store.location)}: rows: expected numbers from 0 to "
                f"{numbered.total:,}, exclusive, found {outside[0]}"
            )
        unique, places = np.unique(wanted, return_inverse=True)
        if not len(self.schema) or np.array_equal(unique, wanted):
            return self._read_rows(wanted, numbered)
        return take_table_rows(self._read_rows(unique, numbered), places)

    @property
    def _numbered_rows(self) -> _NumberedRows:
        """How many rows there are, and in which files."""
        splits = self.plan().splits
        files = [split for split in splits if isinstance(split, FileSplit)]
        if self.limit is not None or len(files) < len(splits):
            return _NumberedRows(self.count(), None)
        with until_expiry(self.store, self.snapshot):
            counts = [self.reader.count_file(file) for file in files]
        return _NumberedRows(sum(counts), list(zip(files, counts, strict=True)))

    def _read_rows(self, numbers: np.ndarray, rows: _NumberedRows) -> pa.Table:
        """Rows by their numbers, ascending, each at most once."""
        if not len(self.schema):
            return pa.Table.from_batches([empty_columns(self.schema, len(numbers))])
        if rows.files is None:
            batches = _rows_at(self.to_batches(), numbers)
        else:
            batches = self._rows_of_files(rows.files, numbers)
        return pa.Table.from_batches(batches, schema=self.schema)

    def _rows_of_files(
        self, files: Sequence[tuple[FileSplit, int]], drawn: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """Rows by their numbers in the scan, from the files that hold any."""
        start = 0
        for file, count in files:
            low, high = np.searchsorted(drawn, (start, start + count))
            if low < high:
                with until_expiry(self.store, self.snapshot):
                    numbers = self.reader.find(file).to_indices()[drawn[low:high] - start]
                rows = RowRanges.from_indices(numbers)
                yield from self.reader.read_file(file, rows=rows)
            start += count

    def training(
        self,
        *,
        batch_rows: int,
        seed: int = 0,
        shuffle: Shuffle | None = "rows",
        rank: int | None = None,
        world_size: int | None = None,
        last: Last = "short",
        lanes: int = TRAINING_LANES,
        window_rows: int = TRAINING_WINDOW_ROWS,
        threads: int | None = None,
        fill: Mapping[str, Any] | None = None,
        mask: bool = False,
        on_damage: OnDamage = "error",
    ) -> TrainingReader:
        """The rows for training a model, shuffled, as any number of ranks and workers share them.

        Rows that the filter does not select, and those of a primary-key table that are replaced by
        others which are yet to be merged, are left out of the batches after they were dealt.

        Parameters
        ----------
        batch_rows
            Rows of a batch, of one rank.
        seed
            Of the random order: 0 to 2**128 - 1.
        shuffle
            ``"rows"``: blocks of rows come in random order, and the rows of many blocks are mixed;
            ``"blocks"``: only the former; ``"batches"``: all rows with one ``batch_id`` come
            together, batch ids in random order; None: rows in their order.
        rank, world_size
            Which part of each global step of ``batch_rows * world_size`` rows this reader gives;
            None: that of torch.distributed if it is in use, else ``RANK`` and ``WORLD_SIZE`` of the
            environment, else all.
        last
            What becomes of rows that make no full step: ``"short"``: they are a step with fewer
            rows; ``"drop"``: they are left out; ``"repeat"``: rows from the start of the epoch's
            order fill the step.
        lanes
            Among how many streams of blocks a batch is divided; a property of the order.
        window_rows
            Rows of all lanes that are mixed with each other and held in memory; a property of the
            order.
        threads
            That read; None takes the number of processors.
        fill
            What stands for nulls, by column, in columns that are NumPy arrays.
        mask
            Whether `TrainingBatch.mask` tells where nulls are.
        on_damage
            What becomes of a block whose bytes are damaged: an ``"error"`` that says where, or
            ``"skip"``: its rows are left out, with ``shuffle="batches"`` all rows of each batch id
            in it, and `TrainingReader.stats` and the log tell.

        Raises
        ------
        ColumnNotFoundError
        InvalidArgumentError
            An argument has a value that is not possible here.
        TypeError
        """
        # Not at the top: few who scan train, and others should not wait for the import.
        from fermion.engine import TrainingOptions, TrainingReader
        from fermion_table.scanning.training_blocks import ScanBlocks

        if self.limit is not None:
            raise InvalidArgumentError("a scan with a limit can't be trained from: it has no order")
        return TrainingReader(
            ScanBlocks(self),
            TrainingOptions(
                batch_rows=batch_rows,
                seed=seed,
                shuffle=shuffle,
                rank=rank,
                world_size=world_size,
                last=last,
                lanes=lanes,
                window_rows=window_rows,
                threads=threads,
                fill=fill,
                mask=mask,
                on_damage=on_damage,
            ),
        )

    def head_scan(self, n: int | None) -> Scan:
        """The same with at most ``n`` rows."""
        if n is not None:
            n = integer(n, "n", minimum=0)
        limits = [limit for limit in (n, self.limit) if limit is not None]
        return replace(self, limit=min(limits, default=None))

    def select(self, columns: Sequence[PathLike | VariantValue]) -> Scan:
        """The same with other columns."""
        return replace(self, columns=check_columns(columns, "columns"))

    def where(self, filter: FilterLike | None) -> Scan:
        """The scan with an additional filter.

        Parameters
        ----------
        filter
            Anything that `fermion` takes as a filter, over the table's columns.
        """
        more = table_filter(filter, self.table_schema, where=self.store.location)
        if self.limit is not None and more is not None:
            raise InvalidArgumentError("a scan with a limit can't be filtered any further")
        return replace(self, filter=both(self.filter, more))

    @property
    def io_stats(self) -> dict[str, int]:
        """Requests and bytes so far, of this scan and of scans derived from it.

        ``files`` opened, ``requests``, ``bytes_requested`` and ``bytes_used``.
        """
        return self.io.as_dict()

    def __repr__(self) -> str:
        return facts_repr(f"Scan of {location_text(self.store.location)}", self._facts())

    def _repr_html_(self) -> str:
        return html_facts(f"Scan of {location_text(self.store.location)}", self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "snapshot": str(self.snapshot.id),
            "columns": self.columns and names_text(self.schema.names, "columns"),
            "filter": self.filter and self.filter.shown,
            "limit": self.limit,
            "mode": None if self.mode == "snapshot" else self.mode,
        }


class _NumberedRows(NamedTuple):
    """How many rows a scan has; and its files with the rows of each, or None if it merges any."""

    total: int
    files: Sequence[tuple[FileSplit, int]] | None


def _drawn(total: int, n: int, seed: int | None) -> np.ndarray:
    """Numbers of rows, ascending, each at most once: ``int64``."""
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(total, size=min(n, total), replace=False, shuffle=False))


def _rows_at(batches: Iterator[pa.RecordBatch], drawn: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Rows by their numbers in a stream of batches."""
    start = 0
    for batch in batches:
        low, high = np.searchsorted(drawn, (start, start + batch.num_rows))
        if low < high:
            yield take_batch_rows(batch, drawn[low:high] - start)
        start += batch.num_rows


def _read_all(
    reader: SplitReader, splits: Sequence[Split], threads: int
) -> Iterator[pa.RecordBatch]:
    """The batches of all splits in order; one big file is decoded by several threads."""
    if splits and _are_small(splits):
        threads = 1
        if len(splits) > 1 and (gathering := reader.gathering(splits)) is not None:
            yield from gathering.gathered(splits)
            return
    # The few rows that indexes name are there before threads have begun.
    named = 0
    while threads > 1 and named < len(splits) - 1:
        if (rows := reader.indexed_rows(splits[named])) is None:
            break
        yield from reader.read_file(splits[named].files[0], rows=rows, threads=1)
        named += 1
    splits = splits[named:]
    if threads == 1 or len(splits) < 2:
        for split in splits:
            yield from reader.read(split, threads=threads)
        return

    def read(split: Split) -> list[pa.RecordBatch]:
        return list(reader.read(split, threads=1))

    for batches in _map_ordered(read, splits, threads):
        yield from batches


def _count_rows(reader: SplitReader, splits: Sequence[Split], threads: int) -> int:
    """How many rows of some splits the filter selects."""
    if len(splits) > 1 and _are_small(splits):
        if (gathering := reader.gathering(splits)) is not None:
            return sum(batch.num_rows for batch in gathering.gathered(splits))
        return sum(reader.count(split, threads=1) for split in splits)
    return sum(_map_ordered(lambda split: reader.count(split, threads=1), splits, threads))


def _are_small(splits: Sequence[Split]) -> bool:
    """Whether threads are of no use, as files are local and small."""
    files = [file for split in splits for file in split.files]
    is_local = "://" not in files[0].location
    return is_local and sum(file.size for file in files) < SMALL_FILE_BYTES * len(files)


def _map_ordered(
    function: Callable[[Split], _Result], splits: Sequence[Split], threads: int
) -> Iterator[_Result]:
    """The results in order, computed by threads, only a few ahead of the one that is wanted."""
    tasks = (partial(function, split) for split in splits)
    return read_ahead(tasks, threads + FILES_AHEAD + 1, threads=threads)


@dataclass(frozen=True, kw_only=True)
class FileScan(Scan):
    """A scan of some files that need not be live."""

    files: tuple[Entry, ...] = ()
    key = None  # rows as they are stored

    @cached_property
    def entries(self) -> tuple[list[Entry], list[PruningStep]]:
        """The files that may hold rows, and how they were found."""
        return plan_scan(self.files, self._versions, self.table_schema, self.filter)

    @property
    def _schema_ids(self) -> set[int]:
        return {schema_id for entry in self.entries[0] for schema_id in entry.schema_ids}

    @property
    def _layouts(self) -> set[Layout]:
        return {entry.layout for entry in self.entries[0]}

    @cached_property
    def _plan(self) -> ScanPlan:
        kept, steps = self.entries
        splits = splits_of(kept, self.store)
        return ScanPlan(snapshot_id=self.snapshot.id, splits=splits, steps=tuple(steps))
