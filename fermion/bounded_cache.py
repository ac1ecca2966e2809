"""A bounded cache of results, the only one that is written by hand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from fermion import telemetry
from fermion.forks import Lock


class BoundedCache:
    """Least recently used first out; safe to share between threads.

    Parameters
    ----------
    size_max
        Sum of the sizes that values were put in with.
    """

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._size = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """The value of a key, None if it is not (or no longer) here."""
        with self._lock.get():
            entry = self._values.get(key)
            if entry is not None:
                self._values.move_to_end(key)
        if telemetry.watching is not None:
            telemetry.watching.count("fermion.cache.lookups", 1, hit=entry is not None)
        return None if entry is None else entry[0]

    def put(self, key: Hashable, value: Any, size: int = 1) -> None:
        """Keep a value; one that alone exceeds the bound is not kept."""
        if size > self.size_max:
            return
        with self._lock.get():
            replaced = self._values.pop(key, None)
            self._size += size - (replaced[1] if replaced else 0)
            self._values[key] = (value, size)
            while self._size > self.size_max:
                _, (_, dropped) = self._values.popitem(last=False)
                self._size -= dropped

    def keep_only(self, is_wanted: Callable[[Any], bool]) -> None:
        """Forget the values of all other keys."""
        with self._lock.get():
            for key in [key for key in self._values if not is_wanted(key)]:
                self._size -= self._values.pop(key)[1]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock.get():
            self._values.clear()
            self._size = 0

    def values(self) -> list[Any]:
        """What is kept, the least recently used first."""
        with self._lock.get():
            return [value for value, _ in self._values.values()]

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """Sum of the sizes of what is kept."""
        return self._size
