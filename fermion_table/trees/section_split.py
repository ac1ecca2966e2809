"""Splits of a scan of a primary-key table; a section: files of a tree that have to be merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.options import FOLD_COST, OPEN_COST_BYTES, PICK_COST
from fermion_table.planning.plan import splits_of
from fermion_table.planning.split import FileReader, FileSplit, Split
from fermion_table.planning.tree_plan import TreePlan
from fermion_table.reading.split_reader import SplitReader
from fermion_table.storage.store import AtomicStore
from fermion_table.trees.section_reader import count_section, read_section
from fermion_table.trees.visible_rows import picks_rows


@dataclass(frozen=True, slots=True)
class SectionSplit:
    """Files of a tree whose keys overlap. It is read as a whole.

    Attributes
    ----------
    runs
        Sorted runs from the newest to the oldest; of each its files in the order of keys.
    merge_cost
        How many times as much as reading its bytes merging them costs.
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

    Raises
    ------
    UnsafeStorage
        See `splits_of`.
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
