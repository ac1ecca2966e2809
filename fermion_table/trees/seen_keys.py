"""Keys of the rows of a section that were read, and which other keys are among them.

Keys whose columns are all numbers (integers, dates or times) are held as one ``int64`` each, also
those of several columns: the columns of one section seldom take more than 63 bits together. Others
are bytes (see `key_encoding`), which take several times as long to make and to compare.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.engine import array_of, numbers_of
from fermion.exports import dataclass
from fermion_table.merging.merge_reader import places_in
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.key_encoding import direct_keys, encode_keys, is_number, key_ranks

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
    return numbers_of(column) if column.type == pa.int64() else column


def distinct(keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct key is first, in the order of keys; and of each key which one it is."""
    numbers = keys if isinstance(keys, np.ndarray) else key_ranks(keys)
    _, first, numbered = np.unique(numbers, return_index=True, return_inverse=True)
    return first, numbered


def pick(keys: Keys, places: np.ndarray) -> Keys:
    """Some of the keys, by their places."""
    return keys[places] if isinstance(keys, np.ndarray) else keys.take(array_of(places, pa.int64()))


def places_of(keys: Keys, wanted: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Where keys stand among sorted ones.

    keys: Ascending; may repeat.
    wanted: Of the same form, in any order.
    Returns: Places before the first key that is not smaller, and after the last one that is not
        greater: ``int64``, shape (w,) each.
    """
    return _places(keys, wanted, is_after=False), _places(keys, wanted, is_after=True)


def is_up_to(keys: Keys, bounds: Keys) -> np.ndarray:
    """Whether each key is not above its bound: ``bool``, of the shape of both."""
    if isinstance(keys, np.ndarray):
        return keys <= bounds
    return numbers_of(pc.less_equal(keys, bounds))


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
        is_below = numbers_of(compare(keys.take(array_of(middle, pa.int64())), wanted))
        is_open = low < high
        low = np.where(is_open & is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


Columns = tuple[np.ndarray, ...]
"""Direct keys (``int64``), an array for each column of the key."""
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Packing:
    """How the numbers of several columns become one number that sorts as they do.

    bounds: The least and the greatest number of each column, inclusive.
    """

    bounds: tuple[tuple[int, int], ...]

    @classmethod
    def over(cls, bounds: Sequence[tuple[int, int]]) -> Packing | None:
        """Of columns with these bounds, or wider ones; None: they take more than 63 bits."""
        spans = [high - low + 1 for low, high in bounds]
        wide = [
            (max(low - span, _LEAST), min(high + span, _MOST))
            for (low, high), span in zip(bounds, spans, strict=True)
        ]
        for each in (wide, bounds):
            packing = cls(tuple(each))
            if prod(packing._sizes) <= _MOST:
                return packing
        return None

    @property
    def _sizes(self) -> list[int]:
        return [high - low + 1 for low, high in self.bounds]

    def holds(self, bounds: Sequence[tuple[int, int]]) -> bool:
        """Whether columns with these bounds can be packed."""
        pairs = zip(self.bounds, bounds, strict=True)
        return all(
            low <= own_low and own_high <= high for (low, high), (own_low, own_high) in pairs
        )

    def inside(self, columns: Columns) -> np.ndarray:
        """Which rows can be packed: ``int64``, ascending."""
        inside = np.ones(len(columns[0]), bool)
        for (low, high), column in zip(self.bounds, columns, strict=True):
            inside &= (column >= low) & (column <= high)
        return np.flatnonzero(inside)

    def pack(self, columns: Columns) -> np.ndarray:
        """One number for each row, in the order of the keys: ``int64``, shape (n,), new."""
        packed = columns[0] - self.bounds[0][0]
        for column, (low, _), size in zip(
            columns[1:], self.bounds[1:], self._sizes[1:], strict=True
        ):
            packed *= size
            packed += column
            packed -= low
        return packed

    def unpack(self, packed: np.ndarray) -> Columns:
        """The inverse of `pack`."""
        columns = []
        for (low, _), size in zip(self.bounds[:0:-1], self._sizes[:0:-1], strict=True):
            packed, rest = np.divmod(packed, size)
            columns.append(rest + low)
        return (packed + self.bounds[0][0], *columns[::-1])


class SeenKeys:
    """The keys of the runs of a section that were read."""

    def __init__(self, key: PrimaryKey) -> None:
        self._key = key
        types = [key.types[key.names.index(name)] for name in key.tree_names]
        self._are_numbers = all(map(is_number, types))
        self._packing: Packing | None = None
        self._numbers = np.zeros(0, np.int64)  # sorted, without repeats
        self._texts: list[pa.Array] = []  # of each run

    def of(self, rows: pa.RecordBatch) -> Columns | pa.Array:
        """The keys of some rows, as the other methods take them.

        rows: With the columns of the key that tell the rows of a tree apart, without nulls there.
        Raises InvalidArgumentError: A null.
        """
        if not self._are_numbers:
            return self._key.tree_keys(rows)
        return tuple(direct_keys(rows.column(name), name) for name in self._key.tree_names)

    def add(self, parts: Sequence[Columns | pa.Array]) -> None:
        """Remember the keys of a run, which ascend."""
        parts = [part for part in parts if _length(part)]
        if not parts:
            return
        if isinstance(parts[0], pa.Array):
            self._texts.append(pa.concat_arrays(parts))
            return
        columns = tuple(map(np.concatenate, zip(*parts, strict=True)))
        packed = self._packed(columns)
        if packed is None:
            self._texts.append(_encoded(columns))
            return
        joined = np.sort(np.concatenate([self._numbers, packed]), kind="stable")
        is_new = np.ones(len(joined), bool)
        is_new[1:] = joined[1:] != joined[:-1]
        self._numbers = joined[is_new]

    def places(self, keys: Columns | pa.Array) -> np.ndarray:
        """Which of some ascending keys, none of them twice, are among these: ``int64``."""
        if not _length(keys):
            return np.zeros(0, np.int64)
        if isinstance(keys, pa.Array):
            return self._places_of_texts(keys)
        if self._texts:
            return self._places_of_texts(_encoded(keys))
        if not len(self._numbers):
            return np.zeros(0, np.int64)
        if len(keys) == 1:
            return self._places_of_numbers(keys[0])
        assert self._packing is not None
        if self._packing.holds(_bounds(keys)):
            return self._places_of_numbers(self._packing.pack(keys))
        rows = self._packing.inside(keys)
        if not len(rows):
            return rows
        inside = tuple(column[rows] for column in keys)
        return rows[self._places_of_numbers(self._packing.pack(inside))]

    def _packed(self, columns: Columns) -> np.ndarray | None:
        """One number for each key of a run; None where the keys are held as bytes from now on."""
        if self._texts:
            return None
        if len(columns) == 1:
            return columns[0]
        bounds = _bounds(columns)
        if self._packing is None:
            self._packing = Packing.over(bounds)
        elif not self._packing.holds(bounds):
            known = self._packing.unpack(self._numbers)
            wider = [
                (min(low, known_low), max(high, known_high))
                for (low, high), (known_low, known_high) in zip(bounds, _bounds(known), strict=True)
            ]
            self._packing = Packing.over(wider)
            if self._packing is None:
                self._texts, self._numbers = [_encoded(known)], np.zeros(0, np.int64)
            else:
                self._numbers = self._packing.pack(known)
        return None if self._packing is None else self._packing.pack(columns)

    def _places_of_numbers(self, keys: np.ndarray) -> np.ndarray:
        first, last = self._numbers.searchsorted(keys[0]), self._numbers.searchsorted(keys[-1])
        return places_in(self._numbers[first : last + 1], keys)

    def _places_of_texts(self, keys: pa.Array) -> np.ndarray:
        ends = keys.take(pa.array([0, len(keys) - 1]))
        near = []
        for texts in self._texts:
            starts, stops = places_of(texts, ends)
            near.append(texts.slice(starts[0], stops[1] - starts[0]))
        if not any(map(len, near)):
            return np.zeros(0, np.int64)
        is_seen = pc.is_in(keys, pa.chunked_array(near, pa.large_binary()))
        return np.flatnonzero(is_seen.to_numpy(zero_copy_only=False))


def _length(keys: Columns | pa.Array) -> int:
    return len(keys) if isinstance(keys, pa.Array) else len(keys[0])


def _bounds(columns: Columns) -> list[tuple[int, int]]:
    return [(int(column.min()), int(column.max())) for column in columns]


def _encoded(columns: Columns) -> pa.Array:
    return encode_keys([pa.array(column) for column in columns])
