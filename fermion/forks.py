"""What a forked process can't inherit: threads, connections, and locks that another thread held.

Only the thread that forks goes on in the child. A pool has no threads there, and a lock that some
other thread held at that moment is never released.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fermion.deadline import carried

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

_process = object()
_renewing = threading.Lock()


def process() -> object:
    """What stands for this process: another object in every forked child."""
    return _process


def _forked() -> None:
    global _process, _renewing
    _process, _renewing = object(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class PerProcess(Generic[T]):
    """A value that is made when it is first asked for, and made again by a forked process.

    Threads that ask at the same time may each make one, of which the last is kept.

    first: That of this process, if there is one already.
    """

    __slots__ = ("_made_in", "_make", "_value")

    def __init__(self, make: Callable[[], T], first: T | None = None) -> None:
        self._make = make
        self._made_in: object = None if first is None else _process
        self._value = first

    def get(self) -> T:
        """The value of this process."""
        value = self._value
        if self._made_in is not _process:
            value = self._value = self._make()
            self._made_in = _process
        return value  # type: ignore[return-value]

    @property
    def made(self) -> T | None:
        """The value of this process, None if there is none yet."""
        return self._value if self._made_in is _process else None


class Lock:
    """A lock that is free in a forked process, whoever held it: ``with lock.get(): ...``.

    Python's own lock is what ``with`` takes, as an interrupt can't come between taking that lock
    and entering the block. Between two lines of an ``__enter__`` of ours it could, and the lock
    would be held for ever.
    """

    __slots__ = ("_lock", "_made_in")

    def __init__(self) -> None:
        self._lock, self._made_in = threading.Lock(), _process

    def get(self) -> threading.Lock:
        """The lock of this process."""
        if self._made_in is not _process:
            self._renew()
        return self._lock

    def _renew(self) -> None:
        with _renewing:
            if self._made_in is not _process:
                self._lock = threading.Lock()
                self._made_in = _process


class ThreadPool:
    """Threads that start when they are first needed, in each process its own: an executor.

    What they do counts towards the deadline of the thread that asked for it (see `deadline`).
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = PerProcess(partial(executor, threads))

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        """Run a function in one of the threads."""
        return self._pool.get().submit(carried(function), *args, **options)

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """The function's results in order, as ``concurrent.futures.Executor.map`` gives them."""
        run = carried(function)
        return self._pool.get().map(run, *iterables, timeout=timeout, chunksize=chunksize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads of this process, if there are any."""
        pool = self._pool.made
        if pool is not None:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)


def executor(threads: int) -> ThreadPoolExecutor:
    """Threads of one process, as `concurrent.futures` has them."""
    from concurrent.futures import ThreadPoolExecutor  # with logging, 5 ms of a first query

    return ThreadPoolExecutor(threads)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 - stands for that of functools
        """`functools.cached_property` without the lock for all instances that it had before 3.12.

        A thread of the parent that holds it at a fork would stop the child for ever.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute, self._name = compute, compute.__name__
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value
