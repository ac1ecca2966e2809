"""Names and runs of ids that count how often they are looked at; calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
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


def calls(do: Callable[[], Any]) -> int:
    """How many functions written in Python are called."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(before)
    return count
