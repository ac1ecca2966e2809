"""Maps ↔ a column for each of their keys: taken apart, put together; the names of keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion import kernels
from fermion.columns import slots, validity
from fermion.columns.arrow_buffers import has_dictionary, list_ranges, own_validity
from fermion.columns.assemble import assemble
from fermion.columns.types import Bits, ColumnStreams, Node, column_node
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, NamedTuple
from fermion.layout import CHUNK_SLOTS_MAX
from fermion.options import Shred

if TYPE_CHECKING:
    from fermion.columns import shred
else:
    shred = LoadedWhenAskedFor("fermion.columns.shred")

Key = str | int

JOINED_ROWS_SHIFT = 6
"""``kernels.join_keys`` takes other entries by so many bits of their rows."""

_BRACKETS = r"(.+)\[(?:'((?:[^']|'')*)'|(-?[0-9]+))\]"


def key_name(column: str, key: Key) -> str:
    """What the column of a key is called: ``features['age']``, of an integer ``m[5]``."""
    shown = str(key) if isinstance(key, int) else "'{}'".format(key.replace("'", "''"))
    return f"{column}[{shown}]"


def split_key_name(name: str) -> tuple[str, str] | None:
    """The column and the key that a name such as ``features['age']`` means; None: it is none."""
    match = re.fullmatch(_BRACKETS, name, re.DOTALL) if name.endswith("]") else None
    if match is None:
        return None
    quoted = match[2]
    return match[1], match[3] if quoted is None else quoted.replace("''", "'")


def has_shreddable_keys(dtype: pa.DataType) -> bool:
    """Whether a type is a map whose keys are text or integers."""
    if not pat.is_map(dtype):
        return False
    key = dtype.key_type
    return bool(pat.is_string(key) or pat.is_large_string(key) or pat.is_integer(key))


def parse_key(dtype: pa.MapType, key: str, where: str) -> Key:
    """A key of a map from its text.

    Raises InvalidArgumentError: It is no value of the type of the keys.
    """
    if not pat.is_integer(dtype.key_type):
        return key
    try:
        return int(pa.scalar(int(key), dtype.key_type).as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        raise InvalidArgumentError(
            f"{where}: key {key!r}: expected a value of type {dtype.key_type}"
        ) from None


def keys_to_shred(column: str, dtype: pa.DataType, chosen: Shred, where: str) -> frozenset[Key]:
    """The keys of a column that are named to get columns; none where no list of them is given.

    Raises InvalidArgumentError: It is no map that can be shredded, or a key is none of it.
    """
    if not has_shreddable_keys(dtype):
        raise InvalidArgumentError(
            f"{where}: column {column!r} is {dtype}, expected a map with strings or integers as "
            "keys"
        )
    if has_dictionary(dtype.item_type) or pat.is_run_end_encoded(dtype.item_type):
        raise InvalidArgumentError(
            f"{where}: column {column!r}: values of {dtype.item_type} can't be in columns of keys; "
            "use the type of the values without dictionary or run ends"
        )
    named = chosen.keys if isinstance(chosen.keys, tuple) else ()
    return frozenset(parse_key(dtype, str(key), f"{where}: column {column!r}") for key in named)


def sorted_keys(keys: Sequence[Key]) -> list[int]:
    """The places of keys in the order in which entries of a row are read: by number, or bytes."""
    if keys and isinstance(keys[0], str):
        encoded = [str(key).encode() for key in keys]
        return sorted(range(len(keys)), key=encoded.__getitem__)
    return sorted(range(len(keys)), key=keys.__getitem__)


class Entries(NamedTuple):
    """The entries of some maps.

    rows: ``int64``, shape (entries,), ascending: the row of each.
    keys, items: Arrow arrays of one length.
    """

    rows: np.ndarray
    keys: pa.Array
    items: pa.Array


def entries_of(array: pa.MapArray) -> Entries:
    """The entries of maps, without those that Arrow holds below nulls."""
    starts, lengths = list_ranges(array)
    visible = validity.to_flags(own_validity(array), len(array))
    if not visible.all():
        lengths = np.where(visible, lengths, 0)
    rows = np.repeat(np.arange(len(array)), lengths)
    filled = np.flatnonzero(lengths)
    first, last = starts[filled], (starts + lengths)[filled]
    if not len(filled):
        values = array.values.slice(0, 0)
    elif np.array_equal(first[1:], last[:-1]):
        values = array.values.slice(int(first[0]), len(rows))
    else:
        pieces = zip(first.tolist(), lengths[filled].tolist(), strict=True)
        values = pa.concat_arrays([array.values.slice(*piece) for piece in pieces])
    return Entries(rows, values.field(0), values.field(1))


def are_sorted(array: pa.MapArray) -> bool:
    """Whether the entries of each map have ascending keys, and none of them twice."""
    starts, lengths = list_ranges(array)
    count = int(lengths.sum())
    if count < 2:
        return True
    keys = array.values.field(0).slice(int(starts[0]), count)
    flags = np.ones(count + 1, bool)
    ascending = pc.less(keys.slice(0, count - 1), keys.slice(1))
    flags[1:count] = ascending.fill_null(False).to_numpy(zero_copy_only=False)
    flags[starts - starts[0]] = True
    return bool(flags.all())


def map_of(
    dtype: pa.MapType, visible: np.ndarray, lengths: np.ndarray, keys: pa.Array, items: pa.Array
) -> pa.MapArray:
    """Maps of some entries, in the order of their rows.

    visible: ``bool``, shape (rows,): which maps are not null.
    lengths: ``int64``, shape (rows,): entries of each.
    Raises InvalidArgumentError: There are more entries than offsets of 32 bits can number.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > CHUNK_SLOTS_MAX:
        raise InvalidArgumentError(
            f"maps of {offsets[-1]} entries, expected at most {CHUNK_SLOTS_MAX} in one array: read "
            "fewer rows at once"
        )
    struct = pa.StructArray.from_arrays([keys, items], fields=[dtype.key_field, dtype.item_field])
    bits = None if visible.all() else pa.py_buffer(np.packbits(visible, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(dtype, len(lengths), buffers, children=[struct])


def gathered(values: pa.Array, indices: np.ndarray, node: Node) -> pa.Array:
    """Values by number; null for -1.

    indices: ``int64``, shape (n,).
    node: The tree of the values; nullable.
    """
    missing = indices < 0
    try:
        return values.take(pa.array(indices, mask=missing if missing.any() else None))
    except pa.ArrowNotImplementedError:  # views
        blank = ColumnStreams(1)
        slots.blank(node, 1, blank)
        source = slots.concatenate(node, [shred.shred(values, node), blank])
        chosen = np.where(missing, len(values), indices)
        return assemble(node, slots.take(node, source, chosen))


def words(array: pa.Array, node: Node) -> np.ndarray | None:
    """The values of an array as fixed-width numbers, a view; None: they are no numbers."""
    if node.form is None or chr(node.form[0]) not in "iuf":
        return None
    dtype = np.dtype(f"u{node.form[1]}")
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def valid_bits(array: pa.Array) -> np.ndarray:
    """The bits of an array's slots that kernels of maps take: none where no slot is null."""
    valid = own_validity(array)
    if valid is None:
        return np.empty(0, np.uint8)
    return valid.data if isinstance(valid, Bits) else np.zeros((len(array) + 7) // 8, np.uint8)


def looked_up(array: pa.MapArray, key: Any) -> pa.Array:
    """The value of a key in each map: null where a map is null or has no such key.

    Of several entries with the key the first one counts.
    """
    entries = entries_of(array)
    same = pc.equal(entries.keys, pa.scalar(key, entries.keys.type))
    places = np.flatnonzero(np.asarray(same.to_numpy(zero_copy_only=False), bool))
    rows, first = np.unique(entries.rows[places], return_index=True)
    indices = np.full(len(array), -1, np.int64)
    indices[rows] = places[first]
    node = column_node(array.type.item_field.with_nullable(True))
    return gathered(entries.items, indices, node)


def with_values(array: pa.MapArray, keys: Sequence[Key], values: Sequence[pa.Array]) -> pa.MapArray:
    """Maps in which some keys have given values, last in each map; where one is null, no such key.

    keys: Distinct.
    values: For each of them as many as there are maps, of the type of the items. A map that is
        null and gets a value is null no more.
    """
    old = entries_of(array)
    kept = np.ones(len(old.rows), bool)
    for key in keys:
        same = pc.equal(old.keys, pa.scalar(key, old.keys.type))
        kept &= ~np.asarray(same.to_numpy(zero_copy_only=False), bool)
    own = np.flatnonzero(kept)
    new = [np.flatnonzero(each.is_valid().to_numpy(zero_copy_only=False)) for each in values]
    rows = np.concatenate([old.rows[own], *new])
    order = np.argsort(rows, kind="stable")
    starts = len(kept) + len(array) * np.arange(len(keys))
    items = np.concatenate([own, *(start + each for start, each in zip(starts, new, strict=True))])
    names = np.repeat(len(kept) + np.arange(len(keys)), [len(each) for each in new])
    visible = validity.to_flags(own_validity(array), len(array)).copy()
    visible[rows] = True
    return map_of(
        array.type,
        visible,
        np.bincount(rows, minlength=len(array)),
        pa.concat_arrays([old.keys, pa.array(keys, old.keys.type)]).take(
            pa.array(np.concatenate([own, names])[order])
        ),
        gathered(
            pa.concat_arrays([old.items, *values]),
            items[order],
            column_node(array.type.item_field.with_nullable(True)),
        ),
    )


class _Joined(NamedTuple):
    """Entries of all rows: those of some keys, sorted.

    offsets: ``int64``, shape (rows + 1,): where those of each row begin.
    ranks: ``uint32``, shape (entries,).
    """

    offsets: np.ndarray
    ranks: np.ndarray
    items: pa.Array


class MapBuilder:
    """Puts maps together again: entries of a row come sorted by their keys.

    rest: Maps with the entries that are in no key's column.
    ranks: ``int64``, shape (entries of the rest,): their keys' places among all.
    node: The tree of the values; nullable.
    """

    def __init__(self, rest: pa.MapArray, ranks: np.ndarray, node: Node, where: str) -> None:
        own = entries_of(rest)
        self._type, self._node, self._where = rest.type, node, where
        self._visible = validity.to_flags(own_validity(rest), len(rest))
        blocks = _small(own.rows >> JOINED_ROWS_SHIFT, len(rest) >> JOINED_ROWS_SHIFT)
        order = np.lexsort((_small(ranks, int(ranks.max(initial=0))), blocks))
        self._rows, self._ranks = own.rows[order], ranks[order].astype(np.uint32)
        self._items = gathered(own.items, order, node) if len(order) else own.items
        self._parts: list[_Joined] = []
        self._first = 0

    def add(self, ranks: np.ndarray, columns: Sequence[pa.Array], stop: int) -> None:
        """Add the columns of some keys, and the entries of the rest before a rank.

        ranks: ``int64``, shape (columns,): ascending, from one call to the next, too.
        stop: Above all ranks; the next call goes on from it.
        Raises InvalidFileError: A map has a key twice.
        """
        total, node = len(self._visible), self._node
        values = pa.concat_arrays(columns) if columns else self._items.slice(0, 0)
        own = np.flatnonzero((self._ranks >= self._first) & (self._ranks < stop))
        items = gathered(self._items, own, node) if len(own) < len(self._items) else self._items
        rest_rows, rest_ranks, self._first = self._rows[own], self._ranks[own], stop
        entries = len(values) - values.null_count + len(items)
        offsets, out_ranks = np.empty(total + 1, np.int64), np.empty(entries, np.uint32)
        places, found = np.empty(len(items), np.int64), words(values, node)
        source = np.arange(len(values)) if found is None else found
        out = np.empty(entries, source.dtype)
        kernels.join_keys(
            source,
            valid_bits(values),
            ranks.astype(np.uint32),
            total,
            rest_rows,
            rest_ranks,
            offsets,
            out_ranks,
            out,
            places,
        )
        later = places > offsets[rest_rows]
        if (out_ranks[places[later]] == out_ranks[places[later] - 1]).any():
            raise InvalidFileError(f"{self._where}: a map has a key twice")
        if found is None:
            out[places] = np.arange(len(values), len(values) + len(items))
            joined = gathered(pa.concat_arrays([values, items]), out, node)
        else:
            out[places] = words(items, node)
            bits = None
            if items.null_count:
                flags = np.ones(entries, bool)
                flags[places] = validity.to_flags(own_validity(items), len(items))
                bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
            buffers = [bits, pa.py_buffer(out)]
            joined = pa.Array.from_buffers(values.type, entries, buffers, items.null_count)
        self._parts.append(_Joined(offsets, out_ranks, joined))

    def build(self, keys: pa.Array) -> pa.MapArray:
        """The maps.

        keys: All keys, sorted: those that ranks number.
        Raises InvalidFileError: A map that is null has entries.
        Raises InvalidArgumentError: There are too many entries for one array.
        """
        offsets, ranks, items = self._parts[0]
        if len(self._parts) > 1:
            offsets = np.sum([part.offsets for part in self._parts], axis=0)
            order, starts, base = np.empty(int(offsets[-1]), np.int64), offsets[:-1].copy(), 0
            for part in self._parts:
                lengths, size = np.diff(part.offsets), len(part.ranks)
                shift = np.repeat(starts - part.offsets[:-1], lengths)
                order[np.arange(size) + shift] = np.arange(base, base + size)
                starts, base = starts + lengths, base + size
            ranks = np.concatenate([part.ranks for part in self._parts])[order]
            items = gathered(
                pa.concat_arrays([part.items for part in self._parts]), order, self._node
            )
        lengths = np.diff(offsets)
        if (lengths[~self._visible] > 0).any():
            raise InvalidFileError(f"{self._where}: a map that is null has entries")
        return map_of(self._type, self._visible, lengths, keys.take(pa.array(ranks)), items)


def _small(numbers: np.ndarray, largest: int) -> np.ndarray:
    """Numbers of as few bytes as they need: NumPy sorts those of 16 bits in linear time."""
    return numbers.astype(np.uint16 if largest < 1 << 16 else np.uint32)
