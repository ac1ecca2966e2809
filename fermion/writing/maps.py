"""Maps of a stripe → the columns of their keys, and maps with the entries that have none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns import validity
from fermion.columns.arrow_buffers import own_validity
from fermion.columns.maps import (
    Entries,
    Key,
    entries_of,
    gathered,
    key_name,
    keys_to_shred,
    map_of,
    valid_bits,
    words,
)
from fermion.columns.types import Node, column_node, is_variant, slots_bytes
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, NamedTuple, dataclass
from fermion.metadata.map_keys import build_key_index
from fermion.options import Shred, WriteOptions
from fermion.writing.column import ColumnPlans
from fermion.writing.flat import ColumnSet, Tables

if TYPE_CHECKING:
    from fermion.writing import variants
    from fermion.writing.variants import ShreddedVariant
else:
    variants = LoadedWhenAskedFor("fermion.writing.variants")

SPARSE_ROWS = 128
"""Of a stripe: by default a key that fewer rows have gets no column."""
KEYS_MAX = 1 << 20
LEFT_KEYS_MAX = 1 << 20
"""Keys without a column that are remembered; beyond that no key gets one any more."""
GROUP_BYTES = 64 * 1024 * 1024
"""Of the columns of keys that are in memory at once."""


class _Split(NamedTuple):
    """Maps of a stripe, taken apart.

    entries: All entries.
    codes: ``uint32``, shape (entries,): the key of each, among those of the stripe.
    places: ``int64``, shape (keys of the stripe,): the column of each; -1: it has none.
    counts: ``int64``, shape (columns,): the values of each column.
    """

    entries: Entries
    codes: np.ndarray
    places: np.ndarray
    counts: np.ndarray


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

    def split(self, column: pa.ChunkedArray) -> tuple[pa.Array, Callable[[], Tables]]:
        """Take the maps of a stripe apart; keys that are new may get columns.

        Returns: The maps with the entries that are in no column, and what makes the columns.

        Raises InvalidArgumentError: A map has a key twice, or a key is null.
        """
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        array = pa.concat_arrays(chunks) if chunks else pa.array([], self.field.type)
        entries, rows = entries_of(array), len(array)
        if entries.keys.null_count:
            raise self._wrong(f"row {self._row_of(entries, entries.keys.is_null())}: a key is null")
        coded = entries.keys.dictionary_encode()
        codes = coded.indices.to_numpy().view(np.uint32)
        keys: list[Key] = coded.dictionary.to_pylist()
        counts = np.zeros(len(keys), np.int64)
        wrong = kernels.count_keys(codes, entries.rows, valid_bits(entries.items), counts)
        if wrong >= 0:
            key = keys[codes[wrong]]
            raise self._wrong(f"row {entries.rows[wrong]}: the key {key!r} comes twice")
        places = self._places(keys, counts, rows)
        own = np.flatnonzero(places >= 0)
        by_column = np.zeros(len(self.keys), np.int64)
        by_column[places[own]] = counts[own]
        rest = self._rest(array, entries, codes, places)
        return rest, partial(self._tables, _Split(entries, codes, places, by_column), rows)

    def _rest(
        self, array: pa.MapArray, entries: Entries, codes: np.ndarray, places: np.ndarray
    ) -> pa.MapArray:
        left = np.empty(0, np.int64)
        if entries.items.null_count or (places < 0).any():
            valid = validity.to_flags(own_validity(entries.items), len(codes))
            left = np.flatnonzero(~valid | (places < 0)[codes])
        visible = validity.to_flags(own_validity(array), len(array))
        lengths = np.bincount(entries.rows[left], minlength=len(array))
        items = gathered(entries.items, left, self.node)
        return map_of(self.field.type, visible, lengths, entries.keys.take(pa.array(left)), items)

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
            item = self.field.type.item_field.with_nullable(True)
            named = [item.with_name(key_name(self.field.name, key)) for key in self.keys]
            self.columns.grow(named, self.options)
        places = np.array([self.keys.get(key, -1) for key in keys], np.int64)
        self._left.update(keys[at] for at in np.flatnonzero((places < 0) & (counts > 0)).tolist())
        return places

    def stored(self) -> bytes:
        """The keys as the section MAP_KEYS has them."""
        return build_key_index([str(key) for key in self.keys])

    def _tables(self, parts: _Split, rows: int) -> Tables:
        """The columns of keys of a stripe, some at once, and the place of the first."""
        names = self.columns.plans.names
        width = sum(
            slots_bytes(each.physical, rows)
            for each in self.node.walk()
            if each.physical is not None
        )
        step = max(GROUP_BYTES // max(width, 1), 1)
        for first in range(0, len(names), step):
            counts = parts.counts[first : first + step].tolist()
            arrays = list(self._columns(parts, first, rows, counts))
            yield first, pa.Table.from_arrays(arrays, names[first : first + step])

    def _columns(
        self, parts: _Split, first: int, rows: int, counts: Sequence[int]
    ) -> Iterator[pa.Array]:
        """Some columns of keys: null where a row has no value.

        counts: Values of each, from the column ``first`` on.
        """
        items = parts.entries.items
        found = words(items, self.node)
        source = np.arange(len(items)) if found is None else found
        out = np.full((len(counts), rows), 0 if found is not None else -1, source.dtype)
        bits = np.zeros((len(counts), (rows + 7) // 8), np.uint8)
        kernels.spread_keys(
            source,
            parts.codes,
            parts.entries.rows,
            valid_bits(items),
            parts.places - first,
            rows,
            out.reshape(-1),
            bits.reshape(-1),
        )
        for values, flags, count in zip(out, bits, counts, strict=True):
            if found is None:
                yield gathered(items, values, self.node)
            else:
                buffers = [None if count == rows else pa.py_buffer(flags), pa.py_buffer(values)]
                yield pa.Array.from_buffers(items.type, rows, buffers, rows - count)

    def _row_of(self, entries: Entries, mask: pa.BooleanArray) -> int:
        return int(entries.rows[np.argmax(mask.to_numpy(zero_copy_only=False))])

    def _wrong(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"shred: column {self.field.name!r}: {what}")


def shredded_columns(
    schema: pa.Schema, options: WriteOptions, where: str
) -> list[ShreddedMap | ShreddedVariant]:
    """The maps and Variant columns that the options name, in the order of the columns.

    Raises InvalidArgumentError: The schema lacks one, or it can't be shredded.
    """
    for name in options.shred:
        if schema.get_field_index(name) < 0:
            raise InvalidArgumentError(
                f"{where}: shred names column {name!r}, expected the name of one column"
            )
    return [
        (variants.ShreddedVariant if is_variant(field) else ShreddedMap).of(
            ordinal, field, options, where
        )
        for ordinal, field in enumerate(schema)
        if field.name in options.shred
    ]
