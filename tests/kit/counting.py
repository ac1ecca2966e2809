"""Names and runs of ids that count how often they are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class CountedName(str):
    """A name that counts comparisons with other names, those of all instances together."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class CountedRuns(tuple[tuple[int, int], ...]):
    """Runs of field ids that count how many were looked at, those of all instances together."""

    visited = 0

    def __iter__(self) -> Iterator[Any]:
        for run in super().__iter__():
            CountedRuns.visited += 1
            yield run
