"""One time limit for all the requests that a call sends to a storage.

It belongs to the thread that opened it, and goes along to the threads of a pool with `carried`.
Local files never look at it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from fermion.errors import InvalidArgumentError

T = TypeVar("T")

TIMEOUT_S = 60.0
"""Seconds after which a call gives up its requests to a storage, with all that was tried again."""


class NoTimeLeft(TimeoutError):
    """The time of a call was over before a request was sent: it was not sent."""

    def __init__(self) -> None:
        super().__init__(
            "not sent, as earlier requests of the same call have taken all of its time (timeout_s)"
        )


class _Thread(threading.local):
    # Not a context variable: in some builds of Python new threads inherit those, and the threads of
    # a pool would keep a deadline that is long over.
    ends: float | None = None


_thread = _Thread()


def now() -> float:
    """Seconds of the clock that deadlines go by."""
    return time.monotonic()


class _Deadline:
    __slots__ = ("_before", "_clock", "_timeout_s")

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        self._timeout_s, self._clock = timeout_s, clock

    def __enter__(self) -> float:
        before = self._before = _thread.ends
        ends = self._clock() + self._timeout_s
        _thread.ends = ends if before is None else min(ends, before)
        return _thread.ends

    def __exit__(self, *_: object) -> None:
        _thread.ends = self._before


def deadline(timeout_s: float, clock: Callable[[], float] = now) -> AbstractContextManager[float]:
    """Let requests to storages inside a ``with`` block end after some seconds, all together.

    A block inside another one may end earlier, never later. A generator must not yield inside.

    timeout_s: Seconds.
    clock: Tells the time, in seconds.
    Returns: A context manager that gives the time by the clock at which it ends.
    """
    return _Deadline(timeout_s, clock)


def time_left(timeout_s: float = math.inf) -> float:
    """Seconds until the deadline of this thread, at most those given; 0 or less if it is over."""
    ends = _thread.ends
    return timeout_s if ends is None else min(timeout_s, ends - now())


def check_timeout(timeout_s: Any) -> None:
    """Refuse a time that is no positive number of seconds.

    Raises TypeError, InvalidArgumentError.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise TypeError(f"timeout_s={timeout_s!r}: expected a number of seconds")
    if not 0 < timeout_s < float("inf"):
        raise InvalidArgumentError(f"timeout_s={timeout_s!r}: expected more than 0 seconds")


def carried(function: Callable[..., T]) -> Callable[..., T]:
    """A function that another thread may call under the deadline of this one."""
    ends = _thread.ends
    if ends is None:
        return function

    def run(*arguments: object, **options: object) -> T:
        before, _thread.ends = _thread.ends, ends
        try:
            return function(*arguments, **options)
        finally:
            _thread.ends = before

    return run
