"""Results in order, while the next ones are already under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat, takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from fermion.deadline import carried
from fermion.forks import executor, process

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


def read_ahead(
    tasks: Iterable[Callable[[], T]], at_once: int, *, threads: int | None = None
) -> Iterator[T]:
    """What each task returns, in order; ``at_once`` of them run or wait to be taken at a time.

    A task's error is raised in its turn; those behind it are dropped, and waited for where they
    run. A forked process that goes on with the results of its parent runs the tasks itself.

    Parameters
    ----------
    threads
        That run them; None: ``at_once``.
    """
    started_in = process()
    pool = executor(threads or at_once)
    under_way: deque[tuple[Callable[[], T], Future[T]]] = deque()
    rest = iter(tasks)
    try:
        for task in rest:
            under_way.append((task, pool.submit(carried(task))))
            if len(under_way) == at_once:
                yield under_way.popleft()[1].result()
                if process() is not started_in:
                    break
        while under_way and process() is started_in:
            yield under_way.popleft()[1].result()
        for task, _ in under_way:  # empty, but in a forked process
            yield task()
        for task in rest:
            yield task()
    finally:
        if process() is started_in:
            pool.shutdown(cancel_futures=True)


def iterate_ahead(items: Iterator[T], at_once: int) -> Iterator[T]:
    """The items, the next ones made by a thread of its own while one is in use.

    Errors are as of `read_ahead`.

    Parameters
    ----------
    items
        Not to be used otherwise before the end.
    at_once
        How many there are at a time, the one in use included.
    """
    end: Any = object()
    tasks = repeat(partial(next, items, end))
    return takewhile(lambda item: item is not end, read_ahead(tasks, at_once, threads=1))
