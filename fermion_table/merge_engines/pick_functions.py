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


def _first(column: GroupedColumn, usable: np.ndarray) -> np.ndarray:
    return column.rows_at(column.first_where(usable))


def _best(column: GroupedColumn, better: np.ufunc) -> np.ndarray:
    usable = column.is_used & column.is_valid
    numbers = order_numbers(column.values)[column.groups.order]
    bounds = np.iinfo(np.int64)
    worst = bounds.min if better is np.maximum else bounds.max
    best = column.reduced(better, np.where(usable, numbers, worst))
    is_best = usable & (numbers == np.repeat(best, column.groups.lengths))
    return _first(column, is_best)


FUNCTIONS: dict[str, Callable[[GroupedColumn, FieldFunction], np.ndarray]] = {
    "last_value": lambda column, _: _last(column, None),
    "last_non_null_value": lambda column, _: _last(column, column.is_valid),
    "first_value": lambda column, _: _first(column, column.is_used),
    "first_non_null_value": lambda column, _: _first(column, column.is_used & column.is_valid),
    "max": lambda column, _: _best(column, np.maximum),
    "min": lambda column, _: _best(column, np.minimum),
    "bool_or": lambda column, _: _best(column, np.maximum),
    "bool_and": lambda column, _: _best(column, np.minimum),
}
