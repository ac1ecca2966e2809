"""Runs a function for many columns, side by side where that is worth it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from fermion.options import columns_per_task

T = TypeVar("T")

# Fewer values out of fewer bytes are there before another thread has begun.
THREADED_SLOTS_MIN = 8 * 1024
THREADED_BYTES_MIN = 1024 * 1024


def run_by_size(
    executor: Executor | None,
    function: Callable[..., T],
    sizes: Sequence[int],
    slots: int,
    *columns: Sequence[Any],
) -> list[T]:
    """What a function gives for each item of some lists; side by side where that is worth it.

    Parameters
    ----------
    sizes
        Bytes that each item decodes; the longest is first, so that no thread is left alone with it.
    slots
        How many each item gives.
    """
    is_worth = slots * len(sizes) >= THREADED_SLOTS_MIN or sum(sizes) >= THREADED_BYTES_MIN
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    items = [[column[place] for place in order] for column in columns]
    found = run_each(executor if is_worth else None, function, *items)
    by_place = dict(zip(order, found, strict=True))
    return [by_place[place] for place in range(len(order))]


def run_each(
    executor: Executor | None, function: Callable[..., T], *columns: Sequence[Any]
) -> list[T]:
    """What a function gives for each item of some lists, in order; on threads if there are any."""
    count = len(columns[0])
    if executor is None or count < 2:
        return [function(*arguments) for arguments in zip(*columns, strict=True)]
    step = columns_per_task(count)

    def run(start: int) -> list[T]:
        parts = [column[start : start + step] for column in columns]
        return [function(*arguments) for arguments in zip(*parts, strict=True)]

    return [each for part in executor.map(run, range(0, count, step)) for each in part]
