"""A bounded cache of decoded metadata objects, by the hash of their stored bytes.

What a hash names never changes, so one cache serves every table of the process and nothing in
it can be stale.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from fermion.forks import Lock
from fermion_table.options import METADATA_CACHE_BYTES


class MetadataCache:
    """Least recently used first out; safe to share between threads.

    Parameters
    ----------
    bytes_max
        Sum of the sizes that values were put in with.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._bytes = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """The value of a key, None if it is not (or no longer) here."""
        with self._lock.get():
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value; one that alone exceeds the bound is not kept."""
        if size > self.bytes_max:
            return
        with self._lock.get():
            replaced = self._values.pop(key, None)
            self._bytes += size - (replaced[1] if replaced else 0)
            self._values[key] = (value, size)
            while self._bytes > self.bytes_max:
                _, (_, dropped) = self._values.popitem(last=False)
                self._bytes -= dropped

    def clear(self) -> None:
        """Forget everything."""
        with self._lock.get():
            self._values.clear()
            self._bytes = 0

    @property
    def bytes(self) -> int:
        """Size of what is kept."""
        return self._bytes


shared_cache = MetadataCache(METADATA_CACHE_BYTES)
