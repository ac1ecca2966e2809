"""The live files of a snapshot, column by column: what a scan is planned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fermion_table.metadata.column_file import Layout
from fermion_table.metadata.file_columns import FileColumns, ListedFiles
from fermion_table.metadata.manifest import Entry, ManifestReference
from fermion_table.metadata.manifest_store import (
    inherited,
    live_ordinals,
    manifest_files,
    scan_order,
)
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.plan import LazySplits, PruningStep, prune_parts, splits_of
from fermion_table.planning.split import Split
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.store import AtomicStore, in_time


@dataclass(frozen=True, slots=True)
class _Part:
    """Some files of one manifest, or of the tail (which inherit nothing)."""

    files: FileColumns
    ordinals: np.ndarray
    reference: ManifestReference | None

    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequence numbers and ids of first rows, with what is inherited."""
        start, first = (self.files.numbers(name) for name in ("sequence_start", "row_id_base"))
        offset = self.files.numbers("sequence_offset").values
        sequence, rows = start.values + offset, first.values
        if self.reference is not None:
            # What has no snapshot of its own inherits from its commit (see `Entry.inherit`).
            fresh = ~self.files.numbers("added_snapshot").known
            before = self.files.numbers("row_offset").values
            mine = self.reference
            sequence = np.where(fresh & ~start.known, mine.sequence_start + offset, sequence)
            rows = np.where(fresh & ~first.known, mine.row_id_start + before, rows)
        return sequence[self.ordinals], rows[self.ordinals]

    def entries(self, *, statistics: bool) -> list[Entry]:
        entries = self.files.entries(self.ordinals, statistics=statistics)
        if self.reference is None:
            return entries
        return [inherited(entry, self.reference) for entry in entries]

    def sum_of(self, name: str) -> int:
        return int(self.files.numbers(name).values[self.ordinals].sum())


class LiveFiles:
    """Files of a snapshot that may hold rows of a scan.

    Parameters
    ----------
    store
        Of the table.
    tail
        Entries that the snapshot holds itself.
    references
        The manifests to read.
    """

    def __init__(
        self, store: AtomicStore, tail: Sequence[Entry], references: Sequence[ManifestReference]
    ) -> None:
        self._parts = [_Part(ListedFiles(tail), np.arange(len(tail)), None)]
        for reference in references:
            files = manifest_files(store, reference)
            self._parts.append(_Part(files, live_ordinals(reference), reference))

    def __len__(self) -> int:
        return sum(len(part.ordinals) for part in self._parts)

    def prune(
        self,
        schemas: Mapping[int, TableSchema],
        schema: TableSchema,
        chosen: TableFilter | None,
    ) -> list[PruningStep]:
        """Leave out the files that metadata rules out (see `plan.plan_scan`)."""
        files = [(part.files, part.ordinals) for part in self._parts]
        kept, steps = prune_parts(files, schemas, schema, chosen)
        self._parts = [
            _Part(part.files, ordinals, part.reference)
            for part, ordinals in zip(self._parts, kept, strict=True)
            if len(ordinals)
        ]
        return steps

    def schema_ids(self) -> set[int]:
        """The schemas that the files and their column files were written with."""
        schema_ids: set[int] = set()
        for part in self._parts:
            schema_ids.update(
                np.unique(part.files.numbers("schema_id").values[part.ordinals]).tolist()
            )
        return schema_ids.union(schema_id for each in self.layouts() for schema_id, _ in each)

    def layouts(self) -> set[Layout]:
        """The layouts of the files' column files."""
        found: set[Layout] = set()
        for part in self._parts:
            codes, layouts = part.files.layouts()
            if layouts != [()]:
                found.update(layouts[code] for code in np.unique(codes[part.ordinals]).tolist())
        return found

    def entries(self, *, statistics: bool = True) -> list[Entry]:
        """The files' entries, in the order in which their rows are read."""
        listed = [entry for part in self._parts for entry in part.entries(statistics=statistics)]
        orders = [part.order() for part in self._parts]
        if not orders:
            return []
        sequence, rows = (np.concatenate([order[place] for order in orders]) for place in (0, 1))
        places = np.lexsort((rows, sequence))
        same = (np.diff(sequence[places]) == 0) & (np.diff(rows[places]) == 0)
        if same.any():  # the name decides
            return sorted(listed, key=scan_order)
        return [listed[place] for place in places.tolist()]

    def splits(self, store: AtomicStore) -> LazySplits:
        """One split a file, in that order."""

        def make() -> tuple[Split, ...]:
            with in_time(store):
                return splits_of(self.entries(statistics=False), store)

        live = sum(part.sum_of("rows") - part.sum_of("delete_rows") for part in self._parts)
        size = sum(part.sum_of("size") for part in self._parts)
        return LazySplits(len(self), live, size, make)

    @property
    def live_rows(self) -> int:
        """Rows of the files that are not deleted."""
        return sum(part.sum_of("rows") - part.sum_of("delete_rows") for part in self._parts)
