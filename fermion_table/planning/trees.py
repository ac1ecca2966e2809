"""The trees of a primary-key table: its files by partition and bucket; pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fermion_table.errors import CorruptMetadata
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.merging.sections import TreeFile
from fermion_table.metadata.manifest import Entry

Tree = tuple[tuple[Any, ...], int]
"""Partition values, as JSON values, and bucket."""


def trees_of(entries: Iterable[Entry], key: PrimaryKey) -> dict[Tree, list[TreeFile]]:
    """The files of each tree, as the table's primary key orders them.

    Parameters
    ----------
    entries
        Live files, with what they inherit filled in.

    Raises
    ------
    CorruptMetadata
        A file without a bucket, a level or the bounds of its keys.
    """
    trees: dict[Tree, list[TreeFile]] = {}
    for entry in entries:
        file = tree_file(entry, key)
        trees.setdefault((entry.partition, entry.bucket or 0), []).append(file)
    return trees


def tree_file(entry: Entry, key: PrimaryKey) -> TreeFile:
    """A file of a tree.

    Raises
    ------
    CorruptMetadata
        See `trees_of`.
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
