"""A scan as a source of rows for training, by blocks, or by positions in any order."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

import fermion
from fermion.engine import (
    BLOCK_ROWS,
    BlockRows,
    BoundedCache,
    TrainingUnits,
    one_batch,
    take_batch_rows,
    take_table_rows,
)
from fermion.errors import InvalidArgumentError
from fermion.forks import Lock, cached_property
from fermion.predicate import RowRanges
from fermion_table.planning.split import FileSplit, ReadRequest, Split
from fermion_table.reading.split_reader import IoTotals, SplitReader
from fermion_table.schema.conversion import empty_columns

if TYPE_CHECKING:
    from fermion_table.metadata.snapshot import Snapshot
    from fermion_table.planning.filters import TableFilter
    from fermion_table.planning.plan import ScanPlan

FILES_OPEN = 128
ROW_SETS_KEPT = 64
"""Files with deleted rows whose numbers of live rows are kept: 8 bytes a row each."""


class Scan(Protocol):
    """What is asked of a scan (see `fermion_table.scanning.scan`)."""

    @property
    def snapshot(self) -> Snapshot:
        """What is read."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    @property
    def filter(self) -> TableFilter | None:
        """Which rows; None: all."""

    @property
    def io(self) -> IoTotals:
        """What has been read."""

    @property
    def reader(self) -> SplitReader:
        """Reads splits of the plan."""

    def plan(self) -> ScanPlan:
        """The splits."""

    def select(self, columns: Sequence[str | Sequence[str]]) -> Scan:
        """The same with other columns."""

    def count(self) -> int:
        """How many rows there are."""


class ScanBlocks:
    """The rows of a scan. Its parts are the splits of the plan.

    Slots of a data file are its live rows. Slots of a section, whose rows have to be merged, are
    its stored rows, of which the merged ones take the first: it is merged when one of them is
    wanted, into a local file that is as temporary as this object.

    scan: Has no limit.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self.schema = scan.schema

    def __reduce__(self) -> tuple[Callable[[Scan], ScanBlocks], tuple[Scan]]:
        return type(self), (self._scan,)

    @cached_property
    def _splits(self) -> tuple[Split, ...]:
        return tuple(self._scan.plan().splits)

    @cached_property
    def _finder(self) -> SplitReader:
        """Finds the rows that the filter selects."""
        reader = self._scan.select(()).reader
        return _PooledReader(reader.request, reader, self._reader)

    @cached_property
    def _reader(self) -> _PooledReader:
        """Reads rows by number."""
        reader = self._scan.reader
        return _PooledReader(replace(reader.request, filter=None), reader)

    @cached_property
    def _live(self) -> BoundedCache:
        return BoundedCache(ROW_SETS_KEPT)

    @cached_property
    def _merged(self) -> _MergedSections:
        return _MergedSections(self._scan.reader)

    @cached_property
    def slots(self) -> np.ndarray:
        """As of `BlockSource`; asked for before threads read blocks, which share both readers."""
        _ = self._reader, self._finder
        return np.array([self._slots_of(split) for split in self._splits], np.int64)

    def _slots_of(self, split: Split) -> int:
        if isinstance(split, FileSplit) and not split.is_exact:
            return len(self._live_rows(split) or ())
        return split.rows_wanted

    @property
    def identity(self) -> dict[str, Any]:
        """As of `BlockSource`."""
        snapshot, filter = self._scan.snapshot, self._scan.filter
        identity = {"snapshot": snapshot.id, "snapshot_hash": snapshot.hash}
        if filter is not None:
            identity["filter"] = hashlib.sha256(filter.shown.encode()).hexdigest()[:16]
        manifests, files = snapshot.manifests, snapshot.totals.files - len(snapshot.tail)
        is_whole = any(each.kind == "list" for each in manifests)  # parts name manifests
        if not is_whole and sum(each.live_entries for each in manifests) != files:
            paths = [each.location for each in self._splits if isinstance(each, FileSplit)]
            identity["part"] = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16]
        return identity

    def read(self, part: int, start: int, stop: int) -> BlockRows:
        """As of `BlockSource`.

        Raises VersionNotFound: A file is gone, as the snapshot has expired.
        """
        split = self._splits[part]
        if not isinstance(split, FileSplit):
            merged = self._merged.get(part, split)
            rows = one_batch(merged.slice(start, stop - start).to_batches() or [self._none])
            return BlockRows(rows, np.arange(rows.num_rows))
        live = self._live_rows(split)
        wanted = _numbers(split, live, start, stop)
        rows, slots = wanted, None
        if self._scan.filter is not None:
            first, last = int(wanted.starts[0]), int(wanted.stops[-1])
            rows = self._finder.find(replace(split, row_range=(first, last)))
            if rows != wanted:
                numbers = rows.to_indices()
                slots = numbers - first if live is None else np.searchsorted(live, numbers) - start
        reader: SplitReader = self._reader
        if self._scan.filter is None and split.rows <= BLOCK_ROWS:
            reader = self._scan.reader  # a file of one block, which is not wanted again: not held
        batches = list(reader.read_file(split, rows=rows, threads=1)) if rows else []
        return BlockRows(one_batch(batches or [self._none]), slots)

    def rows_of(self, part: int) -> int:
        """How many rows a part has, of a scan without a filter; a section is merged for it."""
        split = self._splits[part]
        is_file = isinstance(split, FileSplit)
        return int(self.slots[part]) if is_file else self._merged.get(part, split).num_rows

    def rows_at(self, part: int, places: np.ndarray) -> pa.RecordBatch:
        """Rows of a part by their places among its rows, of a scan without a filter.

        places: ``int64``, ascending, each once.
        """
        split = self._splits[part]
        if not isinstance(split, FileSplit):
            merged = self._merged.get(part, split)
            return one_batch(take_table_rows(merged, places).to_batches())
        live = self._live_rows(split)
        numbers = split.row_bounds[0] + places if live is None else live[places]
        rows = RowRanges.from_indices(numbers)
        return one_batch(list(self._reader.read_file(split, rows=rows, threads=1)))

    @property
    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def _live_rows(self, split: FileSplit) -> np.ndarray | None:
        """The numbers of a file's live rows: ``int64``; None: all are."""
        if split.deletion is None:
            return None
        key = split.location, split.row_range
        numbers = self._live.get(key)
        if numbers is None:
            rows = self._reader.rows(split)
            numbers = np.arange(split.rows) if rows is None else rows.to_indices()
            self._live.put(key, numbers)
        return numbers

    def count(self) -> int:
        """As of `BlockSource`."""
        return self._scan.count()

    def units(self) -> TrainingUnits:
        """As of `BlockSource`."""
        parts = []
        for split in self._splits:
            if not isinstance(split, FileSplit) or not split.in_batches:
                file = split.files[0].file
                raise InvalidArgumentError(
                    f"shuffle='batches': {file} was not written in batches (see append_batch), or "
                    "its rows are yet to be merged"
                )
            parts.append(self._reader.batches(split))
        return TrainingUnits.of_batches(parts)

    def bytes_read(self) -> int:
        """As of `BlockSource`."""
        return self._scan.io.as_dict()["bytes_requested"]


def _numbers(split: FileSplit, live: np.ndarray | None, start: int, stop: int) -> RowRanges:
    """The numbers in a file of some of its slots."""
    if live is not None:
        return RowRanges.from_indices(live[start:stop])
    first = split.row_bounds[0]
    return RowRanges.from_bounds([first + start], [first + stop])


class PositionReader:
    """Rows of a scan by their positions, again and again: files stay open from call to call.

    A position is the number of a row in the order of the scan.

    scan: Has neither a filter nor a limit.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan, self._blocks = scan, ScanBlocks(scan)

    @cached_property
    def _stops(self) -> np.ndarray:
        """The position after the last row of each part: ``int64``."""
        parts = range(len(self._scan.plan().splits))
        return np.cumsum([self._blocks.rows_of(part) for part in parts], dtype=np.int64)

    def take(self, positions: np.ndarray) -> pa.Table:
        """The rows, in the order of the positions (``int64``), repeats included.

        Raises InvalidArgumentError: There is no such row.
        Raises VersionNotFound: A file is gone, as the snapshot has expired.
        """
        stops = self._stops
        total = int(stops[-1]) if len(stops) else 0
        outside = positions[(positions < 0) | (positions >= total)]
        if len(outside):
            raise InvalidArgumentError(
                f"positions: expected numbers from 0 to {total:,}, exclusive, found {outside[0]}"
            )
        schema = self._scan.schema
        if not len(schema):
            return pa.Table.from_batches([empty_columns(schema, len(positions))])
        unique, places = np.unique(positions, return_inverse=True)
        cuts = np.searchsorted(unique, stops)
        begins = np.concatenate(([0], cuts[:-1]))
        batches = []
        for part in np.flatnonzero(cuts > begins).tolist():
            before = int(stops[part - 1]) if part else 0
            of_part = unique[begins[part] : cuts[part]] - before
            batches.append(self._blocks.rows_at(part, of_part))
        if not batches:
            return schema.empty_table()
        rows = one_batch(batches)
        if not np.array_equal(unique, positions):
            rows = take_batch_rows(rows, places)
        return pa.Table.from_batches([rows], schema=schema)


class _HeldTotals(IoTotals):
    """Adds to other totals what files that stay open were asked for since they were added last.

    totals: The others.
    """

    def __init__(self, totals: IoTotals) -> None:
        super().__init__()
        self._totals = totals
        self._added: WeakKeyDictionary[fermion.FermionFile, fermion.IoStats] = WeakKeyDictionary()

    def add(self, file: fermion.FermionFile) -> None:
        """Count what a file was asked for since the last time."""
        with self._lock.get():
            now, before = file.io_stats, self._added.get(file)
            self._added[file] = now
        files, before = (1, fermion.IoStats()) if before is None else (0, before)
        self._totals.add_stats(
            files,
            fermion.IoStats(
                now.requests - before.requests,
                now.bytes_requested - before.bytes_requested,
                now.bytes_used - before.bytes_used,
            ),
        )


class _PooledReader(SplitReader):
    """Keeps files open, as their blocks are read at different times.

    other: Whose files are used; None: own ones.
    """

    __slots__ = ("held",)

    def __init__(
        self, request: ReadRequest, reader: SplitReader, other: _PooledReader | None = None
    ) -> None:
        io = _HeldTotals(reader.io) if other is None else other.io
        super().__init__(request, io=io, guard=reader.guard)
        held = (BoundedCache(FILES_OPEN), _Locks()) if other is None else other.held
        self.held: tuple[BoundedCache, _Locks] = held

    def _open(
        self, split: FileSplit, threads: int | None
    ) -> AbstractContextManager[fermion.FermionFile]:
        files, locks = self.held
        with locks.of(split.location):
            file = files.get(split.location)
            if file is None:
                file = self._opened(split, threads, at_once=False)
                files.put(split.location, file)  # the last reference to it closes it
        return nullcontext(file)


class _Locks:
    """A lock for each of some keys: what one thread makes, others wait for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._locks: dict[Hashable, Lock] = {}

    def of(self, key: Hashable) -> threading.Lock:
        """The lock of a key."""
        with self._lock.get():
            return self._locks.setdefault(key, Lock()).get()


class _MergedSections:
    """Merged rows of sections: views of local files whose names are gone already.

    So nothing is left behind, and a forked process that ends takes nothing away from its parent.
    """

    def __init__(self, reader: SplitReader) -> None:
        self._reader = reader
        self._tables: dict[int, pa.Table] = {}
        self._locks = _Locks()

    def get(self, part: int, split: Split) -> pa.Table:
        """The merged rows of a section: views of the mapped file."""
        with self._locks.of(part):
            if part not in self._tables:
                self._tables[part] = self._merge(part, split)
            return self._tables[part]

    def _merge(self, part: int, split: Split) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="fermion-training-") as directory:
            path = str(Path(directory) / f"{part}.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, self._reader.schema) as file:
                for batch in self._reader.read(split, threads=1):
                    file.write_batch(batch)
            with pa.memory_map(path) as source:
                return pa.ipc.open_file(source).read_all()
