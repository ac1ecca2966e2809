"""Sections of a tree: files whose key intervals overlap, which have to be merged; pure functions.

The files of a tree are sorted runs. Sorted by their smallest keys they are cut wherever a file
begins above the greatest key so far: what lies on both sides of a cut has no key in common. A
section of one run needs no merging.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from sortedcontainers import SortedKeyList

from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata

Key = Any
"""The direct form of a key (``int``), or its bytes; the same for all files of a tree."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A data file of a tree.

    min_key, max_key: Bounds of its keys, both inclusive.
    level: 0, or the level of the run that it is part of.
    order: The place of a level-0 run in time, greater for newer ones; files of one flush share it.
        It says nothing at higher levels.
    entry: What the file is, for the caller.
    """

    min_key: Key
    max_key: Key
    level: int
    order: int
    size: int
    entry: Any = None

    @property
    def run(self) -> tuple[int, int]:
        """What files of one sorted run share; ascending from the newest run to the oldest."""
        return (0, -self.order) if self.level == 0 else (self.level, 0)


class SortedRun:
    """Files of one sorted run, in the order of their keys, which do not overlap."""

    def __init__(self, files: Iterable[TreeFile] = ()) -> None:
        self._files: SortedKeyList = SortedKeyList(key=lambda file: file.min_key)
        for file in files:
            self.add(file)

    def add(self, file: TreeFile) -> None:
        """Put a file in its place.

        Raises CorruptMetadata: Its keys overlap those of another one, or its bounds are the wrong
            way round.
        """
        if file.max_key < file.min_key:
            raise CorruptMetadata("a file of a tree", "min_key <= max_key", _shown(file))
        place = self._files.bisect_key_right(file.min_key)
        neighbours = self._files[max(place - 1, 0) : place + 1]
        for other in neighbours:
            if other.min_key <= file.max_key and file.min_key <= other.max_key:
                raise CorruptMetadata(
                    f"a sorted run of level {file.level}",
                    "files without keys in common",
                    f"{_shown(file)} and {_shown(other)}",
                )
        self._files.add(file)

    def __iter__(self) -> Iterator[TreeFile]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@dataclass(frozen=True, slots=True)
class Section:
    """Files whose key intervals overlap.

    runs: Sorted runs from the newest to the oldest; of each its files in the order of keys.
    """

    runs: tuple[tuple[TreeFile, ...], ...]

    @property
    def files(self) -> tuple[TreeFile, ...]:
        """All files, run by run."""
        return tuple(file for run in self.runs for file in run)

    @property
    def is_single_run(self) -> bool:
        """Whether no two files have a key in common."""
        return len(self.runs) == 1

    @property
    def min_key(self) -> Key:
        """The smallest key."""
        return min(run[0].min_key for run in self.runs)

    @property
    def max_key(self) -> Key:
        """The greatest key."""
        return max(run[-1].max_key for run in self.runs)


def sorted_runs(files: Iterable[TreeFile]) -> list[SortedRun]:
    """The runs of a tree from the newest to the oldest.

    Raises CorruptMetadata: Files of one run have keys in common.
    """
    runs: dict[tuple[int, int], SortedRun] = {}
    for file in files:
        runs.setdefault(file.run, SortedRun()).add(file)
    return [runs[run] for run in sorted(runs)]


def level0_of(files: Iterable[TreeFile]) -> list[TreeFile]:
    """The files that no compaction has taken yet."""
    return [file for file in files if file.level == 0]


def section_of(files: Iterable[TreeFile]) -> Section:
    """Files in the order of keys as one section, by run."""
    runs: dict[tuple[int, int], list[TreeFile]] = {}
    for file in files:
        runs.setdefault(file.run, []).append(file)
    return Section(tuple(tuple(runs[run]) for run in sorted(runs)))


def cut_sections(files: Iterable[TreeFile]) -> list[Section]:
    """The sections of a tree, in the order of keys. Equal bounds share a section.

    Raises CorruptMetadata: Files of one run have keys in common.
    """
    listed = list(files)
    sorted_runs(listed)  # checks them
    sections: list[Section] = []
    open_files: list[TreeFile] = []
    greatest: Any = None
    for file in sorted(listed, key=lambda file: file.min_key):
        if open_files and file.min_key > greatest:
            sections.append(section_of(open_files))
            open_files = []
        greatest = file.max_key if not open_files else max(greatest, file.max_key)
        open_files.append(file)
    return [*sections, section_of(open_files)] if open_files else sections


def overlapping_files(
    files: Iterable[TreeFile], others: Iterable[TreeFile]
) -> tuple[list[TreeFile], list[TreeFile]]:
    """The files that may have keys in common with some others, and those that can't."""
    spans = cut_sections(others)
    ends = [span.max_key for span in spans]
    overlapping: list[TreeFile] = []
    apart: list[TreeFile] = []
    for file in files:
        at = bisect_left(ends, file.min_key)
        meets = at < len(spans) and spans[at].min_key <= file.max_key
        (overlapping if meets else apart).append(file)
    return overlapping, apart


def _shown(file: TreeFile) -> str:
    return f"keys {file.min_key!r:.60} to {file.max_key!r:.60}"
