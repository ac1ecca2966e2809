"""Aggregate functions whose result is one of the values: first, last, smallest, greatest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fermion_table.merge_engines.key_groups import ABSENT, GroupedColumn, order_numbers
from fermion_table.schema.field_functions import FieldFunction


def _last(column: GroupedColumn, valid: np.ndarray | None) -> np.ndarray:
    """Of each group the row of the last value; `ABSENT` where that was taken back."""
    usable = column.is_used if valid is None else column.is_used & valid
    last = column.last_where(usable)
    picked = column.rows_at(last)
    return (
        picked if column.taken_back is None else np.where(column.taken_back[last], ABSENT, picked)
    )


def _last_value(column: GroupedColumn, function: FieldFunction) -> np.ndarray:
    return _last(column, None)


def _last_non_null_value(column: GroupedColumn, function: FieldFunction) -> np.ndarray:
    return _last(column, column.is_valid)


def _first_value(column: GroupedColumn, function: FieldFunction) -> np.ndarray:
    return column.rows_at(column.first_where(column.is_used))


def _first_non_null_value(column: GroupedColumn, function: FieldFunction) -> np.ndarray:
    return column.rows_at(column.first_where(column.is_used & column.is_valid))


def _greatest(column: GroupedColumn, function: FieldFunction) -> np.ndarray:
    return _best(column, np.maximum)


def _least(column: GroupedColumn, function: FieldFunction) -> np.ndarray:
    return _best(column, np.minimum)


def _best(column: GroupedColumn, better: np.ufunc) -> np.ndarray:
    usable = column.is_used & column.is_valid
    numbers = order_numbers(column.values)[column.groups.order]
    bounds = np.iinfo(np.int64)
    worst = bounds.min if better is np.maximum else bounds.max
    best = column.reduced(better, np.where(usable, numbers, worst))
    is_best = usable & (numbers == np.repeat(best, column.groups.lengths))
    return column.rows_at(column.first_where(is_best))


FUNCTIONS: dict[str, Callable[[GroupedColumn, FieldFunction], np.ndarray]] = {
    "last_value": _last_value,
    "last_non_null_value": _last_non_null_value,
    "first_value": _first_value,
    "first_non_null_value": _first_non_null_value,
    "max": _greatest,
    "min": _least,
    "bool_or": _greatest,
    "bool_and": _least,
}
