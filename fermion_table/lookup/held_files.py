"""Data files that stay open from one lookup to the next, and their keys and rows once decoded.

Data files never change, so what is held can't be stale. A file that is no longer held is closed
when the last thread that reads it lets it go. A forked process goes on with the files of its
parent; a pickle holds none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext

import msgspec
import numpy as np
import pyarrow as pa

import fermion
from fermion.bounded_cache import BoundedCache
from fermion.engine import one_batch, take_batch_rows
from fermion.exports import dataclass
from fermion.forks import Lock
from fermion.predicate import RowRanges
from fermion_table.options import LOOKUP_FILES_MAX, LOOKUP_KEYS_BYTES, LOOKUP_ROWS_BYTES
from fermion_table.planning.split import FilePlan, FileSplit, ReadRequest
from fermion_table.reading.split_reader import SplitReader, Uncounted
from fermion_table.trees.seen_keys import Keys

ROWS_PER_ASKED = 1_024
"""A file is decoded once it was asked for one row in so many."""
EXPANSION = 8
"""A guess: bytes of Arrow data for a byte of a file, at most."""

Choice = tuple[str, bytes]
"""A file's location, and what is read of it."""


class HeldRows:
    """Rows of files, least recently used first out; safe to share between threads.

    bytes_max: Memory of the rows, at most.
    """

    def __init__(self, bytes_max: int = LOOKUP_ROWS_BYTES) -> None:
        self._bytes_max = bytes_max
        self._rows = BoundedCache(bytes_max)
        self._asked: dict[Choice, int] = {}
        self._lock = Lock()

    def get(self, choice: Choice) -> pa.RecordBatch | None:
        """All rows of a file; None if they are not held."""
        rows: pa.RecordBatch | None = self._rows.get(choice)
        return rows

    def is_worth(self, choice: Choice, wanted: int, rows: int, size: int) -> bool:
        """Whether to decode a file, as some of its rows are asked for.

        wanted: How many rows are asked for now.
        rows, size: Of the file: all its rows, and its bytes.
        """
        if size * EXPANSION > self._bytes_max:
            return False
        with self._lock.get():
            asked = self._asked[choice] = self._asked.get(choice, 0) + wanted
        return asked * ROWS_PER_ASKED >= rows

    def hold(self, choice: Choice, rows: pa.RecordBatch) -> None:
        """Keep all rows of a file, unless they take more than half of the memory."""
        if rows.nbytes <= self._bytes_max // 2:
            self._rows.put(choice, rows, rows.nbytes)

    def keep_only(self, locations: Collection[str]) -> None:
        """Let go of all other files."""
        with self._lock.get():
            for choice in [choice for choice in self._asked if choice[0] not in locations]:
                del self._asked[choice]
        self._rows.keep_only(lambda choice: choice[0] in locations)


REQUESTS_AT_ONCE = 8
"""Of a remote file: its pages lie apart, and one at a time would be waited for."""


@dataclass(slots=True)
class FileKeys:
    """The keys of a file.

    keys: Of all its rows, ascending.
    kinds: Of all its rows: ``int8``; None: no retraction is among them.
    """

    keys: Keys
    kinds: np.ndarray | None

    @property
    def bytes(self) -> int:
        """Memory."""
        kinds = 0 if self.kinds is None else self.kinds.nbytes
        return self.keys.nbytes + kinds


class HeldFiles:
    """Open files and keys, least recently used first out; safe to share between threads.

    files_max, bytes_max: How many files are open, and the memory of the keys, at most.
    """

    def __init__(
        self, files_max: int = LOOKUP_FILES_MAX, bytes_max: int = LOOKUP_KEYS_BYTES
    ) -> None:
        self._files_max = files_max
        self._bytes_max = bytes_max
        self._files = BoundedCache(files_max)
        self._keys = BoundedCache(bytes_max)
        self._asked: dict[str, int] = {}
        self._great: set[str] = set()
        self.rows = HeldRows()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[HeldFiles], tuple[int, int]]:
        return HeldFiles, (self._files_max, self._bytes_max)

    def file(self, location: str) -> fermion.FermionFile | None:
        """An open file; None if it is not held."""
        file: fermion.FermionFile | None = self._files.get(location)
        return file

    def hold(self, location: str, file: fermion.FermionFile) -> None:
        """Keep a file open."""
        self._files.put(location, file)

    def keys(self, location: str) -> FileKeys | None:
        """The keys of a file; None if they are not held."""
        keys: FileKeys | None = self._keys.get(location)
        return keys

    def has_room(self, location: str, size: int) -> bool:
        """Whether `hold_keys` would keep the keys of a file that may take so much memory."""
        return size <= self._bytes_max // 2 and location not in self._great

    def hold_keys(self, location: str, keys: FileKeys) -> None:
        """Keep the keys of a file, unless they take more than half of the memory."""
        if keys.bytes <= self._bytes_max // 2:
            self._keys.put(location, keys, keys.bytes)
            return
        with self._lock.get():
            self._great.add(location)

    def count(self, location: str, wanted: int) -> int:
        """How many keys a file was asked for so far, these included."""
        with self._lock.get():
            self._asked[location] = self._asked.get(location, 0) + wanted
            return self._asked[location]

    def keep_only(self, locations: Collection[str]) -> None:
        """Let go of all other files."""
        with self._lock.get():
            for location in [location for location in self._asked if location not in locations]:
                del self._asked[location]
            self._great.intersection_update(locations)
        self._files.keep_only(lambda location: location in locations)
        self._keys.keep_only(lambda location: location in locations)
        self.rows.keep_only(locations)


class HeldReader(SplitReader):
    """Reads data files that stay open.

    held: Where files stay.
    """

    __slots__ = ("_columns", "held")

    def __init__(self, request: ReadRequest, reader: SplitReader, held: HeldFiles) -> None:
        super().__init__(request, io=Uncounted(), guard=reader.guard)
        self.held = held
        self._columns: dict[int, bytes] = {}

    def some_rows(self, split: FileSplit, rows: np.ndarray) -> list[pa.RecordBatch]:
        """Some rows of a file, deleted or not; all are decoded where that is worth it.

        rows: ``int64``, ascending.
        """
        choice, held = (split.location, self._read_of(split.schema_id)), self.held.rows
        whole, is_near = held.get(choice), "://" not in split.location
        is_near = is_near and (not split.blob_files or self.request.blobs != "bytes")
        if whole is None and is_near and held.is_worth(choice, len(rows), split.rows, split.size):
            everything = RowRanges.all(split.rows)
            whole = one_batch(list(self.read_file(split, rows=everything, threads=1)))
            held.hold(choice, whole)
        if whole is not None:
            return [take_batch_rows(whole, rows)]
        return list(self.read_file(split, rows=RowRanges.from_indices(rows), threads=1))

    def _read_of(self, schema_id: int) -> bytes:
        """What is read of files of a schema version: columns, of those that count of the files."""
        known = self._columns.get(schema_id)
        if known is None:
            request = self.request
            asked = request.fields, request.file_fields[schema_id], request.blobs
            known = self._columns[schema_id] = msgspec.json.encode(asked)
        return known

    def _open(
        self, split: FileSplit, threads: int | None
    ) -> AbstractContextManager[fermion.FermionFile]:
        file = self.held.file(split.location)
        if file is None:
            threads = REQUESTS_AT_ONCE if "://" in split.location else 1
            file = self._opened(split, threads, at_once=False)
            self.held.hold(split.location, file)
        return nullcontext(file)

    def _file_batches(
        self, split: FileSplit, plan: FilePlan, threads: int | None, wanted: RowRanges | None
    ) -> Iterator[pa.RecordBatch]:
        """The same; of some rows all at once, as they are few."""
        if wanted is None or not plan.needs_file or plan.pushed is not None:
            yield from super()._file_batches(split, plan, threads, wanted)
            return
        with self._open(split, threads) as file:
            blobs = self.request.blobs
            yield from file.read(plan.columns, rows=wanted, blobs=blobs).to_batches()
