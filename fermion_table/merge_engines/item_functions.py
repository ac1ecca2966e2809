"""Aggregate functions that gather items: listagg, collect, merge_map, nested_update.

Items are found by their places in the flat values of the column, so that none is turned into a
Python object: equal items have equal codes, and what is left is taken by place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion_table.merge_engines.key_groups import GroupedColumn
from fermion_table.schema.field_functions import FieldFunction


def _listagg(column: GroupedColumn, function: FieldFunction) -> pa.Array:
    """Texts with a delimiter between them; empty ones are left out. Null where none is left."""
    dtype = column.values.type
    texts = column.values.cast(pa.large_string()).take(pa.array(column.groups.order))
    valid = column.is_used & column.is_valid
    filled = valid & pc.greater(pc.binary_length(texts), 0).fill_null(False).to_numpy(
        zero_copy_only=False
    )
    places = np.flatnonzero(filled)
    offsets = np.append(np.searchsorted(places, column.groups.starts), len(places))
    items = texts.take(pa.array(places))
    if function.distinct:
        parts = pc.split_pattern(items, function.delimiter)
        counts = np.diff(_list_offsets(parts))
        items, numbers = parts.flatten(), np.repeat(_numbers(offsets), counts)
        is_text = pc.not_equal(items, "").to_numpy(zero_copy_only=False)
        items, numbers = items.filter(pa.array(is_text)), numbers[is_text]
        first, _ = _first_and_last(numbers, [_codes(items)])
        items, numbers = items.take(pa.array(first)), numbers[first]
        offsets = np.searchsorted(numbers, np.arange(len(offsets)))
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items)
    joined = pc.binary_join(lists, pa.scalar(function.delimiter, pa.large_string()))
    return pc.if_else(pa.array(np.diff(offsets) > 0), joined, None).cast(dtype)


def _collect(column: GroupedColumn, function: FieldFunction) -> pa.Array:
    flat = _Flat(column)
    codes = [_codes(flat.items)] if function.distinct or flat.taken_back is not None else []
    return flat.array(flat.left(codes, function.distinct, is_keyed=False))


def _merge_map(column: GroupedColumn, function: FieldFunction) -> pa.Array:
    flat = _Flat(column)
    return flat.array(flat.left([_codes(flat.items.field(0))], True, is_keyed=True))


def _nested_update(column: GroupedColumn, function: FieldFunction) -> pa.Array:
    flat = _Flat(column)
    if function.nested_key:
        fields = [flat.items.field(name) for name in function.nested_key]
        fields = [_under(flat.items, each) for each in fields]
        return flat.array(flat.left([_codes(each) for each in fields], True, is_keyed=True))
    codes = [_codes(flat.items)] if flat.taken_back is not None else []
    return flat.array(flat.left(codes, False, is_keyed=False, limit=function.count_limit))


class _Flat:
    """The items of a list or map column in the groups' order, one after the other."""

    def __init__(self, column: GroupedColumn) -> None:
        self.column = column
        self.dtype = column.values.type
        valid = column.is_used & column.is_valid
        self.has_value = column.reduced(np.logical_or, valid)
        rows = column.groups.order[valid]
        lists = column.values.take(pa.array(rows))
        counts = np.diff(_list_offsets(lists))
        self.items = _items_of(lists)
        self.numbers = np.repeat(column.groups.numbers[valid], counts)
        back = column.taken_back
        self.taken_back = None if back is None else np.repeat(back[valid], counts)
        first = column.first_where(valid)[column.groups.numbers[valid]]
        self.is_of_first = np.repeat(np.flatnonzero(valid) == first, counts)
        """Whether each item is of the first list of its group."""

    def left(
        self,
        codes: Sequence[np.ndarray],
        is_distinct: bool,
        *,
        is_keyed: bool,
        limit: int | None = None,
    ) -> list[np.ndarray]:
        """Places of the items that are left, and the places that hold them, in their order.

        codes: Equal where items are equal (`is_keyed`: where their keys are).
        is_keyed: Whether a later item takes the place of an earlier one, else it is dropped.
        limit: Of items that may be there for another one to be added; those of a group's first list
            all are.
        """
        if self.taken_back is not None:
            return self._left_of_changes(codes, is_distinct, is_keyed=is_keyed, limit=limit)
        if not is_distinct:
            places = np.arange(len(self.numbers))
            if limit is not None:
                starts = np.searchsorted(self.numbers, self.numbers)
                places = places[self.is_of_first | (places - starts < limit)]
            return [places, self.numbers[places]]
        first, last = _first_and_last(self.numbers, codes)
        return [last if is_keyed else first, self.numbers[first]]

    def _left_of_changes(
        self,
        codes: Sequence[np.ndarray],
        is_distinct: bool,
        *,
        is_keyed: bool,
        limit: int | None,
    ) -> list[np.ndarray]:
        """The same where items are taken back: one by one, in order of time."""
        assert self.taken_back is not None
        combined = list(zip(self.numbers.tolist(), *(each.tolist() for each in codes), strict=True))
        kept: dict[int, dict[int, int]] = {}  # by group: place of the first, place of the item
        where: dict[tuple, list[int]] = {}
        for place, (code, is_back) in enumerate(
            zip(combined, self.taken_back.tolist(), strict=True)
        ):
            group = kept.setdefault(code[0], {})
            found = where.setdefault(code, [])
            if is_back:
                if found:
                    del group[found.pop(0)]
            elif limit is not None and len(group) >= limit and not self.is_of_first[place]:
                continue
            elif not found or not is_distinct:
                group[place] = place
                found.append(place)
            elif is_keyed:
                group[found[0]] = place
        items = [item for number in sorted(kept) for item in kept[number].values()]
        numbers = [number for number in sorted(kept) for _ in kept[number]]
        return [np.array(items, np.int64), np.array(numbers, np.int64)]

    def array(self, left: list[np.ndarray]) -> pa.Array:
        """The lists or maps of all groups."""
        places, numbers = left
        count = len(self.has_value)
        offsets = np.searchsorted(numbers, np.arange(count + 1))
        items = self.items.take(pa.array(places))
        nulls = pa.array(~self.has_value) if not self.has_value.all() else None
        if pat.is_map(self.dtype):
            ends = pa.array(offsets.astype(np.int32))
            keys, values = items.field(0), items.field(1)
            return pa.MapArray.from_arrays(ends, keys, values, type=self.dtype, mask=nulls)
        if pat.is_large_list(self.dtype):
            ends = pa.array(offsets.astype(np.int64))
            return pa.LargeListArray.from_arrays(ends, items, type=self.dtype, mask=nulls)
        ends = pa.array(offsets.astype(np.int32))
        return pa.ListArray.from_arrays(ends, items, type=self.dtype, mask=nulls)


def _first_and_last(
    numbers: np.ndarray, codes: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Of equal items of a group the first place and the last, in the order of the first ones."""
    if not len(numbers):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort([*codes, numbers])  # stable: places ascend among equal items
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.logical_or.reduce(
        [each[order][1:] != each[order][:-1] for each in (numbers, *codes)]
    )
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    first, last = order[starts], order[ends - 1]
    by_place = np.argsort(first, kind="stable")
    return first[by_place], last[by_place]


def _codes(items: pa.Array) -> np.ndarray:
    """Numbers that are equal where items are: ``int64``, shape (n,)."""
    if pat.is_struct(items.type):
        columns = [_codes(_under(items, items.field(at))) for at in range(items.type.num_fields)]
        valid = items.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        rows = np.column_stack([valid, *columns]) if columns else valid[:, None]
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    if pat.is_dictionary(items.type):  # may hold a value twice
        items = items.dictionary_decode()
    try:
        encoded = items.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    except pa.ArrowNotImplementedError:  # lists, maps and run-end encoding
        known: dict[str, int] = {}
        return np.array(
            [known.setdefault(repr(each), len(known)) for each in items.to_pylist()], np.int64
        )


def _under(items: pa.Array, child: pa.Array) -> pa.Array:
    """A struct's child, null where the struct is."""
    return pc.if_else(items.is_valid(), child, None) if items.null_count else child


def _items_of(lists: pa.Array) -> pa.Array:
    """The items of a freshly taken list or map array, a map's as structs."""
    ends = _list_offsets(lists)
    if pat.is_map(lists.type):
        entries = [lists.keys, lists.items]
        names = ["key", "value"]
        struct = pa.StructArray.from_arrays(entries, names)
        return struct[ends[0] : ends[-1]] if len(struct) != ends[-1] - ends[0] else struct
    return lists.flatten()


def _list_offsets(lists: pa.Array) -> np.ndarray:
    if not len(lists):
        return np.zeros(1, np.int64)
    return lists.offsets.to_numpy().astype(np.int64)


def _numbers(offsets: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


FUNCTIONS: dict[str, Callable[[GroupedColumn, FieldFunction], pa.Array]] = {
    "listagg": _listagg,
    "collect": _collect,
    "merge_map": _merge_map,
    "nested_update": _nested_update,
}
