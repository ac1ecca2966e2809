"""Binary search for many keys at once, in the two forms that keys have (see `PrimaryKey.keys`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fermion_table.schema.key_encoding import key_ranks

Keys = Any
"""Direct keys (``int64``), or the bytes of keys."""

ONE_BY_ONE_MAX = 64
"""So many keys of bytes are searched for one by one, more of them side by side."""


class _Values(Sequence[bytes]):
    """The values of an array, each made when it is asked for."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: Any) -> Any:
        return self._array[place].as_py()


def keys_of(column: pa.Array) -> Keys:
    """Keys of a column as `PrimaryKey.keys` makes it; direct ones as NumPy has them."""
    return column.to_numpy() if column.type == pa.int64() else column


def distinct(keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct key is first, in the order of keys; and of each key which one it is."""
    numbers = keys if isinstance(keys, np.ndarray) else key_ranks(keys)
    _, first, numbered = np.unique(numbers, return_index=True, return_inverse=True)
    return first, numbered


def pick(keys: Keys, places: np.ndarray) -> Keys:
    """Some of the keys, by their places."""
    return keys[places] if isinstance(keys, np.ndarray) else keys.take(pa.array(places))


def places_of(keys: Keys, wanted: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Where keys stand among sorted ones.

    Parameters
    ----------
    keys
        Ascending; may repeat.
    wanted
        Of the same form, in any order.

    Returns
    -------
    Places before the first key that is not smaller, and after the last one that is not greater:
    ``int64``, shape (w,) each.
    """
    return _places(keys, wanted, is_after=False), _places(keys, wanted, is_after=True)


def is_up_to(keys: Keys, bounds: Keys) -> np.ndarray:
    """Whether each key is not above its bound: ``bool``, of the shape of both."""
    if isinstance(keys, np.ndarray):
        return keys <= bounds
    return pc.less_equal(keys, bounds).to_numpy(zero_copy_only=False)


def _places(keys: Keys, wanted: Keys, *, is_after: bool) -> np.ndarray:
    if isinstance(keys, np.ndarray):
        return np.asarray(np.searchsorted(keys, wanted, "right" if is_after else "left"))
    if len(wanted) <= ONE_BY_ONE_MAX:
        search = bisect_right if is_after else bisect_left
        found = [search(_Values(keys), key) for key in wanted.to_pylist()]
        return np.array(found, np.int64)
    compare = pc.less_equal if is_after else pc.less
    low = np.zeros(len(wanted), np.int64)
    high = np.full(len(wanted), len(keys))
    while (low < high).any():
        middle = np.minimum((low + high) // 2, max(len(keys) - 1, 0))
        is_below = compare(keys.take(pa.array(middle)), wanted).to_numpy(zero_copy_only=False)
        is_open = low < high
        low = np.where(is_open & is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low
