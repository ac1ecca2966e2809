"""What is known of many data files, column by column: the form in which scans are planned.

`FileColumns` is asked for whole columns as NumPy arrays, so that planning does nothing file by
file. `ListedFiles` answers from entries in memory; `packed_manifest` from a file of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fermion.exports import dataclass
from fermion_table.metadata.manifest import Entry, Layout, paths_of

Partition = tuple[Any, ...]
PATHS = pa.schema({"path": pa.string(), "size": pa.int64()})
"""Files by their paths in the table, with their bytes."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One number of each file.

    values: ``int64``, shape (files,); 0 where there is none.
    known: ``bool``, shape (files,): where there is one.
    """

    values: np.ndarray
    known: np.ndarray


@dataclass(frozen=True, slots=True)
class FieldBounds:
    """Statistics of one field in each file; `flags` is known where there are any."""

    min: Numbers
    max: Numbers
    null_count: Numbers
    flags: Numbers


class FileColumns(Protocol):
    """Some data files, in the order of their ordinals; nothing is inherited yet."""

    def __len__(self) -> int:
        """How many there are."""

    def prepare(self, field_ids: Collection[int]) -> None:
        """Read in one go what a plan with a filter asks for: `PLANNED_WITH_FILTER`, and of the
        fields that the filter reads `has_column` and `bounds`."""

    def numbers(self, name: str) -> Numbers:
        """A number of each file: one of `NUMBERS`."""

    def partitions(self) -> tuple[np.ndarray, list[Partition]]:
        """Partition values: a code for each file, and what each code stands for."""

    def layouts(self) -> tuple[np.ndarray, list[Layout]]:
        """The layouts of their column files: a code for each file, and what each stands for."""

    def has_column(self, field_id: int) -> np.ndarray:
        """Whether each file may hold data of a field: ``bool``, shape (files,)."""

    def bounds(self, field_id: int) -> FieldBounds | None:
        """Statistics of a field; None if no file has any."""

    def entries(self, ordinals: np.ndarray, *, statistics: bool = True) -> list[Entry]:
        """The entries of some files; without statistics that may be much quicker."""

    def find(self, files: Collection[str]) -> dict[str, int]:
        """The ordinals of files by name, of those that are here; the last one of equal names."""

    def paths(self, ordinals: np.ndarray) -> pa.Table:
        """Some files, and the column files, blob files, indexes and deletion vectors of them, as
        `PATHS`: in no order, without those of other tables."""


def _batch(name: str) -> Callable[[Entry], int | None]:
    return lambda entry: None if entry.batch is None else getattr(entry.batch, name)


NUMBERS: dict[str, Callable[[Entry], int | None]] = {
    "size": lambda entry: entry.size,
    "rows": lambda entry: entry.rows,
    "delete_rows": lambda entry: entry.delete_rows,
    "schema_id": lambda entry: entry.schema_id,
    "level": lambda entry: entry.level,
    "sequence_offset": lambda entry: entry.sequence_offset,
    "sequence_start": lambda entry: entry.sequence_start,
    "row_offset": lambda entry: entry.row_offset,
    "row_id_base": lambda entry: entry.row_id_base,
    "added_snapshot": lambda entry: entry.added_snapshot,
    "batch.min": _batch("min"),
    "batch.max": _batch("max"),
}
"""What `FileColumns.numbers` knows, and where an entry has it."""

PLANNED_WITH_FILTER = ("schema_id", "rows")
"""Those that a plan of a scan with a filter asks for, of every file."""
PLANNED = ("schema_id", "rows", "delete_rows", "size")
"""Those that the plan of any scan asks for, of the files that are left."""
ORDERING = ("sequence_start", "sequence_offset", "row_id_base", "row_offset", "added_snapshot")
"""Those that tell the order of files."""
BATCH_BOUNDS = ("batch.min", "batch.max")
"""Those that tell which batches files have."""


class ListedFiles:
    """Entries in memory as `FileColumns`; columns are made when asked for, and kept."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._kept: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def prepare(self, field_ids: Collection[int]) -> None:
        """See `FileColumns`; all is here."""

    def numbers(self, name: str) -> Numbers:
        """See `FileColumns`."""
        if name not in self._kept:
            read = NUMBERS[name]
            self._kept[name] = numbers_of([read(entry) for entry in self._entries])
        found: Numbers = self._kept[name]
        return found

    def partitions(self) -> tuple[np.ndarray, list[Partition]]:
        """See `FileColumns`."""
        codes: dict[Partition, int] = {}
        each = [codes.setdefault(entry.partition, len(codes)) for entry in self._entries]
        return np.array(each, np.int64), list(codes)

    def layouts(self) -> tuple[np.ndarray, list[Layout]]:
        """See `FileColumns`."""
        if not any(entry.column_files for entry in self._entries):
            return np.zeros(len(self._entries), np.int64), [()]
        codes: dict[Layout, int] = {}
        each = [codes.setdefault(entry.layout, len(codes)) for entry in self._entries]
        return np.array(each, np.int64), list(codes)

    def has_column(self, field_id: int) -> np.ndarray:
        """See `FileColumns`."""
        return np.array([entry.has_column(field_id) for entry in self._entries], bool)

    def bounds(self, field_id: int) -> FieldBounds | None:
        """See `FileColumns`."""
        key = "bounds", field_id
        if key not in self._kept:
            found = [entry.stats.get(field_id) for entry in self._entries]
            self._kept[key] = None
            if any(each is not None for each in found):
                self._kept[key] = FieldBounds(
                    numbers_of([None if each is None else each.min for each in found]),
                    numbers_of([None if each is None else each.max for each in found]),
                    numbers_of([None if each is None else each.null_count for each in found]),
                    numbers_of([None if each is None else each.flags for each in found]),
                )
        bounds: FieldBounds | None = self._kept[key]
        return bounds

    def entries(self, ordinals: np.ndarray, *, statistics: bool = True) -> list[Entry]:
        """See `FileColumns`."""
        return [self._entries[ordinal] for ordinal in ordinals.tolist()]

    def find(self, files: Collection[str]) -> dict[str, int]:
        """See `FileColumns`."""
        return {
            entry.file: ordinal
            for ordinal, entry in enumerate(self._entries)
            if entry.file in files
        }

    def paths(self, ordinals: np.ndarray) -> pa.Table:
        """See `FileColumns`."""
        return paths_of_entries(self.entries(ordinals))


def paths_of_entries(entries: Iterable[Entry]) -> pa.Table:
    """The files of entries that lie in this table, as `PATHS`."""
    found = [item for entry in entries for item in paths_of(entry).items()]
    return path_table(found)


def path_table(items: Iterable[tuple[str, int]]) -> pa.Table:
    """Paths and sizes, as `PATHS`."""
    listed = list(items)
    columns = [path for path, _ in listed], [size for _, size in listed]
    return pa.table(list(map(pa.array, columns, PATHS.types)), schema=PATHS)


def numbers_of(values: Sequence[int | None]) -> Numbers:
    """A list of numbers, None where there is none."""
    known = np.array([value is not None for value in values], bool)
    if known.all():
        return Numbers(np.array(values, np.int64), known)
    return Numbers(np.array([0 if value is None else value for value in values], np.int64), known)
