"""Results in order, while the next ones are already under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(tasks: Iterable[Callable[[], T]], at_once: int) -> Iterator[T]:
    """What each task returns, in order; ``at_once`` of them run or wait to be taken at a time.

    A task's error is raised in its turn; those behind it are waited for and dropped.
    """
    with ThreadPoolExecutor(at_once) as threads:
        under_way: deque[Future[T]] = deque()
        for task in tasks:
            under_way.append(threads.submit(task))
            if len(under_way) == at_once:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
