"""Trees of a primary-key table: which files a scan reads as they are, which it merges; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.merging.sections import (
    Section,
    TreeFile,
    cut_sections,
    level0_of,
    overlapping_files,
    section_of,
)
from fermion_table.metadata.manifest import Entry
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.plan import PruningStep, plan_scan
from fermion_table.schema.schema import TableSchema

Tree = tuple[tuple[Any, ...], int]
"""Partition values, as JSON values, and bucket."""


def trees_of(entries: Iterable[Entry], key: PrimaryKey) -> dict[Tree, list[TreeFile]]:
    """The files of each tree, as the table's primary key orders them.

    entries: Live files, with what they inherit filled in.
    Raises CorruptMetadata: A file without a bucket, a level or the bounds of its keys.
    """
    trees: dict[Tree, list[TreeFile]] = {}
    for entry in entries:
        file = tree_file(entry, key)
        trees.setdefault((entry.partition, entry.bucket or 0), []).append(file)
    return trees


def tree_file(entry: Entry, key: PrimaryKey) -> TreeFile:
    """A file of a tree.

    Raises CorruptMetadata: See `trees_of`.
    """
    if entry.bucket is None or entry.level < 0:
        raise CorruptMetadata(
            entry.file, "a bucket and a level", f"{entry.bucket!r} and {entry.level!r}"
        )
    return TreeFile(
        min_key=key.parse_bound(entry.min_key, entry.file),
        max_key=key.parse_bound(entry.max_key, entry.file),
        level=entry.level,
        order=entry.sequence_number if entry.level == 0 else 0,
        size=entry.size,
        entry=entry,
    )


def is_folded(entry: Entry) -> bool:
    """Whether the rows of a file that no other one overlaps are what a reader sees."""
    return not entry.retractions and not entry.keys_repeated


@dataclass(frozen=True, slots=True)
class TreePlan:
    """What a scan reads of a primary-key table.

    raw: Files that need no merging.
    merged: Sections that do.
    steps: How planning got there.
    """

    raw: list[Entry]
    merged: list[Section]
    steps: list[PruningStep]

    @property
    def entries(self) -> list[Entry]:
        """All files."""
        return [*self.raw, *(file.entry for section in self.merged for file in section.files)]


def plan_trees(
    entries: Sequence[Entry],
    key: PrimaryKey,
    schemas: Mapping[int, TableSchema],
    schema: TableSchema,
    chosen: TableFilter | None,
    mode: str = "snapshot",
) -> TreePlan:
    """Cut the trees of a scan into sections.

    entries: The files that may hold rows of the keys that the filter selects.
    schemas, schema, chosen: As for `plan_scan`.
    mode: ``read_optimized``: the top level of each tree alone, so all files of trees are needed;
        with deletion vectors all levels from 1 on.
    Raises CorruptMetadata: A file that is no part of a tree, or files of one run with keys in
        common.
    """
    raw: list[Entry] = []
    merged: list[Section] = []
    sections = 0
    trees = trees_of(entries, key)
    is_merging = mode == "snapshot" and key.options.reads_level0
    for tree in sorted(trees, key=repr):
        files, alone = trees[tree], list[Section]()
        if key.options.deletion_vectors:
            files, settled = _unsettled(files if is_merging else levels_from_1(files))
            raw += [file.entry for file in settled if is_folded(file.entry)]
            alone = [section_of([file]) for file in settled if not is_folded(file.entry)]
            sections += len(settled) - len(alone)
        elif mode != "snapshot":
            files = top_level(files)
        for section in (*alone, *cut_sections(files)):
            sections += 1
            if section.is_single_run and all(is_folded(file.entry) for file in section.files):
                raw += [file.entry for file in section.files]
            else:
                merged.append(section)
    steps = [PruningStep("merge", "sections", sections, len(merged), "files whose keys overlap")]
    if not is_merging:
        read = TreePlan(raw, merged, []).entries
        behind = sum(each.rows for each in entries) - sum(each.rows for each in read)
        levels = "levels from 1 on" if key.options.deletion_vectors else "the top level alone"
        why = f"{levels}; {behind:,} newer rows are left out"
        name = mode if mode != "snapshot" else "deletion_vectors.merge_on_read=false"
        steps.insert(0, PruningStep(name, "files", len(entries), len(read), why))
    if chosen is not None:
        raw, pruned = plan_scan(raw, schemas, schema, chosen)
        steps += pruned
    return TreePlan(raw, merged, steps)


def levels_from_1(files: Sequence[TreeFile]) -> list[TreeFile]:
    """The files of a tree that a compaction has placed."""
    return [file for file in files if file.level > 0]


def top_level(files: Sequence[TreeFile]) -> list[TreeFile]:
    """The files of a tree's highest level; none of a tree that was never compacted."""
    top = max((file.level for file in files), default=0)
    return [file for file in files if file.level == top > 0]


def _unsettled(files: Sequence[TreeFile]) -> tuple[list[TreeFile], list[TreeFile]]:
    """Level 0 and the files that it overlaps, and the others, with deletion vectors.

    In levels from 1 on the rows of a key that are not deleted are in one file, whatever overlaps
    it. Only level 0 hides some of them.
    """
    newest = level0_of(files)
    hidden, settled = overlapping_files(levels_from_1(files), newest)
    return [*newest, *hidden], settled
