"""Maps of a stripe → the columns of their keys, and maps with the entries that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fermion.columns.maps import (
    Entries,
    Key,
    entries_of,
    gathered,
    key_name,
    keys_to_shred,
    map_of,
    scattered,
)
from fermion.columns.types import Node, column_node, slots_bytes
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.options import Shred, WriteOptions
from fermion.writing.column import ColumnPlans
from fermion.writing.flat import FlatWriter
from fermion.writing.log import FileLog

SPARSE_ROWS = 128
"""Of a stripe: by default a key that fewer rows have gets no column."""
KEYS_MAX = 1 << 20
LEFT_KEYS_MAX = 1 << 20
"""Keys without a column that are remembered; beyond that no key gets one any more."""
GROUP_BYTES = 64 * 1024 * 1024
"""Of the columns of keys that are in memory at once."""


@dataclass(slots=True)
class ColumnSet:
    """Columns that are written in the same way: the user's, or those of the keys of a map."""

    plans: ColumnPlans
    flat: FlatWriter
    log: FileLog
    placed: list[int]

    @classmethod
    def of(cls, plans: ColumnPlans, options: WriteOptions, placed: Iterable[int]) -> ColumnSet:
        """The columns of some plans, in the order of their data."""
        return cls(plans, FlatWriter(plans, options), FileLog(plans), list(placed))


class _Split(NamedTuple):
    """Maps of a stripe, taken apart.

    rest: The maps with the entries that are in no column.
    values: Of all others, by key.
    rows: ``int64``, shape (values,): the row of each.
    bounds: First and last (exclusive) of the values of each column; 0 and 0: it has none.
    """

    rest: pa.MapArray
    values: pa.Array
    rows: np.ndarray
    bounds: np.ndarray


@dataclass(slots=True)
class ShreddedMap:
    """A map column whose keys get columns, over all stripes of a file.

    keys: The keys that have a column, and its place.
    columns: How these are written.
    """

    ordinal: int
    field: pa.Field
    node: Node
    chosen: Shred
    options: WriteOptions
    columns: ColumnSet
    wanted: frozenset[Key] = frozenset()
    keys: dict[Key, int] = field(default_factory=dict)
    _left: set[Key] = field(default_factory=set)

    @classmethod
    def of(cls, ordinal: int, field: pa.Field, options: WriteOptions, where: str) -> ShreddedMap:
        """A column that the options name.

        Raises InvalidArgumentError: It is no map that can be shredded.
        """
        chosen = options.shred[field.name]
        wanted = keys_to_shred(field.name, field.type, chosen, f"{where}: shred")
        node = column_node(field.type.item_field.with_nullable(True), where=where)
        columns = ColumnSet.of(ColumnPlans(pa.schema([]), options), options, ())
        return cls(ordinal, field, node, chosen, options, columns, wanted)

    def split(self, column: pa.ChunkedArray) -> _Split:
        """Take the maps of a stripe apart; keys that are new may get columns.

        Raises InvalidArgumentError: A map has a key twice, or a key is null.
        """
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        array = pa.concat_arrays(chunks) if chunks else pa.array([], self.field.type)
        entries, rows = entries_of(array), len(array)
        if entries.keys.null_count:
            raise self._wrong(f"row {self._row_of(entries, entries.keys.is_null())}: a key is null")
        coded = entries.keys.dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        keys: list[Key] = coded.dictionary.to_pylist()
        valid = entries.items.is_valid().to_numpy(zero_copy_only=False)
        counts = np.bincount(codes[valid], minlength=len(keys))
        place_of = self._places(keys, counts, rows)
        order = np.argsort(codes.astype(np.uint16) if len(keys) < 1 << 16 else codes, kind="stable")
        ordered = codes[order]
        same = (np.diff(ordered) == 0) & (np.diff(entries.rows[order]) == 0)
        if same.any():
            at = order[int(np.argmax(same))]
            raise self._wrong(f"row {entries.rows[at]}: the key {keys[codes[at]]!r} comes twice")
        in_column = valid & (place_of[codes] >= 0) if len(codes) else valid
        inside = order[in_column[order]]
        stops = np.cumsum(np.where(place_of >= 0, counts, 0))
        bounds = np.zeros((len(self.keys), 2), np.int64)
        own = np.flatnonzero(place_of >= 0)
        bounds[place_of[own]] = np.stack((stops[own] - counts[own], stops[own]), axis=1)
        return _Split(
            self._rest(array, entries, np.flatnonzero(~in_column)),
            gathered(entries.items, inside, self.node),
            entries.rows[inside],
            bounds,
        )

    def _rest(self, array: pa.MapArray, entries: Entries, left: np.ndarray) -> pa.MapArray:
        visible = array.is_valid().to_numpy(zero_copy_only=False)
        rows, indices = entries.rows[left], pa.array(left)
        items = gathered(entries.items, left, self.node)
        own = Entries(rows, entries.keys.take(indices), items)
        return map_of(self.field.type, visible, own, np.bincount(rows, minlength=len(array)))

    def _places(self, keys: list[Key], counts: np.ndarray, rows: int) -> np.ndarray:
        """The place of the column of each key, -1 where it has none: ``int64``."""
        is_new = np.array([key not in self.keys and key not in self._left for key in keys], bool)
        new = np.flatnonzero(is_new & (counts > 0))
        limit = KEYS_MAX
        if isinstance(self.chosen.keys, int):
            limit = self.chosen.keys
            new = new[np.argsort(-counts[new], kind="stable")]
        elif self.chosen.keys == "all":
            new = new[counts[new] * SPARSE_ROWS >= rows]
        else:
            new = new[[keys[at] in self.wanted for at in new.tolist()]]
        is_nullable = all(each.nullable for each in self.node.walk())
        if len(self._left) >= LEFT_KEYS_MAX or (self.columns.log.has_stripes and not is_nullable):
            limit = 0
        before = len(self.keys)
        for at in np.sort(new[: max(limit - before, 0)]).tolist():
            self.keys[keys[at]] = len(self.keys)
        if len(self.keys) > before:
            self._grow()
        places = np.array([self.keys.get(key, -1) for key in keys], np.int64)
        self._left.update(keys[at] for at in np.flatnonzero((places < 0) & (counts > 0)).tolist())
        return places

    def _grow(self) -> None:
        item = self.field.type.item_field.with_nullable(True)
        named = [item.with_name(key_name(self.field.name, key)) for key in self.keys]
        plans = ColumnPlans(pa.schema(named), self.options)
        self.columns.plans, self.columns.flat = plans, FlatWriter(plans, self.options)
        self.columns.log.grow(plans)
        self.columns.placed = list(range(len(plans)))

    def tables(self, parts: _Split) -> Iterator[tuple[int, pa.Table]]:
        """The columns of keys of a stripe, some at once, and the place of the first."""
        rows, names = len(parts.rest), self.columns.plans.names
        width = sum(
            slots_bytes(each.physical, rows)
            for each in self.node.walk()
            if each.physical is not None
        )
        step = max(GROUP_BYTES // max(width, 1), 1)
        bounds = parts.bounds.tolist()
        for first in range(0, len(names), step):
            arrays = [
                scattered(
                    parts.values.slice(start, stop - start), parts.rows[start:stop], rows, self.node
                )
                for start, stop in bounds[first : first + step]
            ]
            yield first, pa.Table.from_arrays(arrays, names[first : first + step])

    def _row_of(self, entries: Entries, mask: pa.BooleanArray) -> int:
        return int(entries.rows[np.argmax(mask.to_numpy(zero_copy_only=False))])

    def _wrong(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"shred: column {self.field.name!r}: {what}")


def shredded_maps(schema: pa.Schema, options: WriteOptions, where: str) -> list[ShreddedMap]:
    """The maps that the options name, in the order of the columns.

    Raises InvalidArgumentError: The schema lacks one, or it can't be shredded.
    """
    for name in options.shred:
        if schema.get_field_index(name) < 0:
            raise InvalidArgumentError(
                f"{where}: shred names column {name!r}, expected the name of one column"
            )
    return [
        ShreddedMap.of(ordinal, field, options, where)
        for ordinal, field in enumerate(schema)
        if field.name in options.shred
    ]
