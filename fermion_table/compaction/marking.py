"""Rows of the runs that a compaction leaves alone: merged with those of level 0, then marked.

With deletion vectors at most one row of a key is not deleted in the levels from 1 on. So a
compaction that takes level 0 merges its rows with the older row of their key, wherever that lies,
and marks it there as deleted. Only if the older row is the result, it stays, and the newer rows go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import msgspec
from pyroaring import BitMap64

from fermion.exports import dataclass
from fermion.predicate import RowRanges
from fermion_table.merging.sections import TreeFile, level0_of, overlapping_files, section_of
from fermion_table.metadata.deletion_vector import bitmap_of, ranges_of, write_vectors
from fermion_table.metadata.manifest import Entry
from fermion_table.planning.plan import splits_of
from fermion_table.planning.split import FileSplit
from fermion_table.reading.run_reader import key_of
from fermion_table.reading.split_reader import SplitReader
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.store import AtomicStore
from fermion_table.trees.replaced_rows import replaced_rows
from fermion_table.trees.visible_rows import picks_rows


@dataclass(frozen=True, slots=True)
class OlderRows:
    """What is merged with some files of level 0, and what of these is left out.

    runs: Older runs, from the newest to the oldest, whose rows are folded with those of level 0.
    rows: Which rows of files are read (see `run_reader.run_batches`).
    """

    runs: tuple[tuple[FileSplit, ...], ...] = ()
    rows: Mapping[str, RowRanges] = field(default_factory=dict)


class Marking:
    """The files of older runs, and which of their rows are replaced.

    older: Runs from the newest to the oldest, of files that the compaction does not take.
    reader: Of a request with a key.
    """

    def __init__(
        self, older: Sequence[Sequence[TreeFile]], reader: SplitReader, store: AtomicStore
    ) -> None:
        self._older, self._reader, self._store = older, reader, store
        self._replaced: dict[str, BitMap64] = {}

    def find(self, files: Iterable[TreeFile]) -> OlderRows:
        """The older rows of the keys of some files; those that are replaced will be marked.

        files: Of the compaction; only those of level 0 count.
        """
        newest = level0_of(files)
        meeting = [overlapping_files(run, newest)[0] for run in self._older]
        if not newest or not any(meeting):
            return OlderRows()
        newer, older = (
            [splits_of((file.entry for file in run), self._store) for run in runs if run]
            for runs in (section_of(newest).runs, meeting)
        )
        found = replaced_rows(newer, older, self._reader)
        for location, rows in found.replaced.items():
            self._replaced[location] = self._replaced.get(location, BitMap64()) | rows
        left = {
            split.location: self._live(split)
            & ranges_of(found.lost[split.location]).complement(split.rows)
            for run in newer
            for split in run
            if split.location in found.lost
        }
        if picks_rows(key_of(self._reader.request)):
            return OlderRows(rows=left)
        runs = [tuple(each for each in run if each.location in found.replaced) for run in older]
        merged = {location: ranges_of(rows) for location, rows in found.replaced.items()}
        return OlderRows(tuple(run for run in runs if run), left | merged)

    def entries(self, owned: OwnedFiles) -> tuple[list[Entry], list[Entry]]:
        """The files with rows that are replaced, as they are, and with these marked as deleted.

        Files that lose all rows have no second entry. What is written is one file of vectors.

        owned: Gets that file.
        """
        listed = [file.entry for run in self._older for file in run]
        placed = zip(listed, splits_of(listed, self._store), strict=True)
        hidden = [(entry, split) for entry, split in placed if split.location in self._replaced]
        gone = {
            entry.file: bitmap_of(self._live(split).complement(entry.rows))
            | self._replaced[split.location]
            for entry, split in hidden
        }
        left = {entry.file: entry for entry, _ in hidden if len(gone[entry.file]) < entry.rows}
        vectors = write_vectors(
            self._store,
            {file: gone[file] for file in left},
            {file: entry.rows for file, entry in left.items()},
            owned,
        )
        marked = [
            msgspec.structs.replace(
                entry, deletion_vector=vectors[file], delete_rows=vectors[file].rows
            )
            for file, entry in left.items()
        ]
        return [entry for entry, _ in hidden], marked

    def _live(self, split: FileSplit) -> RowRanges:
        """The rows of a file that are not deleted."""
        live = self._reader.rows(split)
        return RowRanges.all(split.rows) if live is None else live
