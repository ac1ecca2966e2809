"""Whether the files of primary-key tables make up sorted runs, as their entries say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fermion_table.errors import CorruptMetadata
from fermion_table.merging.sections import TreeFile, sorted_runs
from fermion_table.metadata.manifest import Entry


def check_trees(entries: Iterable[Entry]) -> Iterator[CorruptMetadata]:
    """What is wrong with the trees of a table: each run has files without keys in common.

    Parameters
    ----------
    entries
        Live files, with what they inherit; those without a bucket belong to no tree.

    Yields
    ------
    CorruptMetadata
        Names the file, or the run; one a tree.
    """
    trees: dict[tuple[Any, ...], list[TreeFile]] = {}
    for entry in entries:
        if entry.bucket is None:
            continue
        if not _has_bounds(entry):
            found = f"{entry.min_key!r} to {entry.max_key!r} at level {entry.level}"
            yield CorruptMetadata(entry.file, "a level and bounds of keys", found)
            continue
        trees.setdefault((entry.partition, entry.bucket), []).append(_tree_file(entry))
    for (partition, bucket), files in trees.items():
        try:
            sorted_runs(files)
        except CorruptMetadata as error:
            where = f"{error.path} of bucket {bucket} of partition {partition!r}"
            yield CorruptMetadata(where, error.expected, error.found)


def _has_bounds(entry: Entry) -> bool:
    return isinstance(entry.min_key, str) and isinstance(entry.max_key, str) and entry.level >= 0


def _tree_file(entry: Entry) -> TreeFile:
    """A file whose keys are compared as texts: hexadecimal digits order as the bytes do."""
    return TreeFile(
        min_key=entry.min_key,
        max_key=entry.max_key,
        level=entry.level,
        order=entry.sequence_number if entry.level == 0 else 0,
        size=entry.size,
    )
