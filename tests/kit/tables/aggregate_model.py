"""Aggregation of one key's rows, row by row: the model of the vectorised engine."""

from __future__ import annotations

import math
from decimal import localcontext
from typing import Any

from pyroaring import BitMap64

from fermion_table.schema.field_functions import FieldFunction

Row = dict[str, Any]


def place(value: Any) -> Any:
    """Return what a value is compared by: text as UTF-8, NaN above all floats, 0.0 above -0.0."""
    if isinstance(value, float):
        is_nan = math.isnan(value)
        return is_nan, 0.0 if is_nan else value, math.copysign(1, value)
    return value.encode() if isinstance(value, str) else value


def greater(one: Any, other: Any) -> bool:
    """Return whether a value is above another."""
    return bool(place(one) > place(other))


def add(function: FieldFunction, state: Any, is_first: bool, value: Any) -> Any:
    """Return the aggregate after one more value."""
    name = function.name
    if name == "last_value":
        return value
    if name == "first_value":
        return value if is_first else state
    if value is None:
        return state
    if name == "listagg":
        return _listed(function, state, value)
    if name in ("collect", "nested_update", "merge_map"):
        if state is None or function.count_limit is None:
            return _gathered(function, state, value)
        return [*state, *value[: max(0, function.count_limit - len(state))]]
    if state is None or name == "last_non_null_value":
        return value
    if name == "rbm64":
        return union(state, value)
    if name == "first_non_null_value":
        return state
    if name in ("sum", "product"):
        with localcontext(prec=100):
            return state + value if name == "sum" else state * value
    if name in ("max", "bool_or"):
        return value if greater(value, state) else state
    assert name in ("min", "bool_and")
    return value if greater(state, value) else state


def union(*bitmaps: bytes) -> bytes:
    """Return a serialized bitmap of the numbers of others."""
    numbers = set[int]().union(*map(BitMap64.deserialize, bitmaps))
    found = BitMap64(sorted(numbers))
    found.run_optimize()
    return bytes(found.serialize())


def take_back(function: FieldFunction, state: Any, value: Any) -> Any:
    """Return the aggregate after a value was taken back."""
    name = function.name
    if name == "last_value":
        return None
    if value is None:
        return state
    if name == "last_non_null_value":
        return None
    if name == "sum":
        with localcontext(prec=100):
            return (0 if state is None else state) - value
    left = list(state or [])
    for item in value:
        found = [
            at
            for at, each in enumerate(left)
            if identity(function, each) == identity(function, item)
        ]
        if found:
            del left[found[0]]
    return left


def identity(function: FieldFunction, item: Any) -> Any:
    """Return what makes an item the same as another one."""
    if function.name == "merge_map":
        return item[0]
    if function.nested_key:
        return tuple(item[name] for name in function.nested_key)
    return item


def _listed(function: FieldFunction, state: Any, value: str) -> str | None:
    texts = [text for text in (state, value) if text]
    if function.distinct:
        texts = [item for text in texts for item in text.split(function.delimiter) if item]
        texts = list(dict.fromkeys(texts))
    return function.delimiter.join(texts) or None


def _gathered(function: FieldFunction, state: Any, value: list) -> list:
    items = list(state or [])
    is_keyed = function.name == "merge_map" or bool(function.nested_key)
    for item in value:
        same = [
            at
            for at, each in enumerate(items)
            if identity(function, each) == identity(function, item)
        ]
        if is_keyed and same:
            items[same[0]] = item
        elif not (same and function.distinct):
            items.append(item)
    return items


def aggregated(
    rows: list[Row], functions: dict[str, FieldFunction], *, removes: bool = False
) -> Row | None:
    """Return one key's row, from its rows in order; None where it was removed.

    Of columns that were added after a row (`_older`) it has the default, whatever its kind.
    """
    state: Row = {}
    firsts = dict.fromkeys(functions, True)
    is_there = False
    for row in rows:
        kind = row.get("_kind") or "+I"
        if removes and kind == "-D":
            state, is_there, firsts = {}, False, dict.fromkeys(functions, True)
            continue
        is_there = True
        for name, function in functions.items():
            value = row.get(name)
            if kind[0] == "+" or name in row.get("_older", ()):
                state[name] = add(function, state.get(name), firsts[name], value)
                firsts[name] = False
            elif not function.ignore_retract:
                state[name] = take_back(function, state.get(name), value)
    return {name: state.get(name) for name in functions} if is_there else None
