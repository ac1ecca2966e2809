"""The order in time of the sorted runs that one commit adds to the trees of a primary-key table.

Every writer numbers its runs of a tree from 0 on. Files of several writers, or of several writes
of a transaction, that are committed together get numbers in the order of the writers and writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fermion_table.metadata.manifest import Entry


class RunNumbers:
    """Gives the runs of level 0 their `sequence_offset`, those of each tree ascending."""

    def __init__(self) -> None:
        self._next: dict[tuple[Any, ...], int] = {}

    def numbered(self, entries: Iterable[Entry]) -> list[Entry]:
        """The files of one writer, after those that were numbered before.

        Entries that are no runs of level 0, or whose place in time is fixed, stay as they are.
        """
        starts = dict(self._next)
        found = []
        for entry in entries:
            if entry.bucket is not None and entry.level == 0 and entry.sequence_start is None:
                tree = entry.partition, entry.bucket
                offset = starts.get(tree, 0) + entry.sequence_offset
                self._next[tree] = max(self._next.get(tree, 0), offset + 1)
                entry = msgspec.structs.replace(entry, sequence_offset=offset)
            found.append(entry)
        return found


def numbered_in_order(writers: Iterable[Iterable[Entry]]) -> list[Entry]:
    """The files of several writers, in the order of the writers."""
    numbers = RunNumbers()
    return [entry for entries in writers for entry in numbers.numbered(entries)]
