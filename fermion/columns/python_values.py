"""Values of Python that a column would not hold as they are."""

from __future__ import annotations

import datetime
import math
from collections.abc import ItemsView, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

_FRACTIONS = float, np.floating, Decimal
_NUMBERS = float, int, np.floating, np.integer
_TIMES = datetime.datetime, datetime.time, datetime.timedelta
_ITEMS = list, tuple, set, frozenset, ItemsView
_START = datetime.time()


def check_kept(values: Iterable[Any], dtype: pa.DataType) -> None:
    """Refuse values of Python that Arrow would cut off: fractions of integers and of units of time,
    the time of day of a date, numbers too large for a float, fields that a struct has not; also
    within lists, maps and structs.

    Raises pyarrow.ArrowException: Says which value.
    """
    if pat.is_dictionary(dtype):
        dtype = dtype.value_type
    if pat.is_struct(dtype):
        rows = [_by_name(each, dtype) for each in values if isinstance(each, (dict, tuple, list))]
        if unknown := set[Any]().union(*rows) - set(dtype.names):
            raise pa.ArrowInvalid(f"{min(unknown, key=repr)!r} is no field of {dtype}")
        for field in dtype:
            check_kept([row.get(field.name) for row in rows], field.type)
    elif pat.is_map(dtype):
        maps = (each.items() if isinstance(each, dict) else each for each in values)
        pairs = [each for items in maps if isinstance(items, _ITEMS) for each in items]
        for place, kind in enumerate((dtype.key_type, dtype.item_type)):
            check_kept([each[place] for each in pairs if isinstance(each, tuple)], kind)
    elif pat.is_nested(dtype) and hasattr(dtype, "value_type"):
        if pat.is_float64(dtype.value_type):
            return
        if pat.is_floating(dtype.value_type):
            values = list(values)
            for each in values:
                if isinstance(each, np.ndarray):
                    _check_finite(each, dtype.value_type)
            values = [each for each in values if isinstance(each, _ITEMS)]
        lists = (each for each in values if isinstance(each, _ITEMS) or _has_objects(each))
        check_kept([each for items in lists for each in items], dtype.value_type)
    elif pat.is_floating(dtype):
        if dtype.bit_width < 64:
            _check_finite(values, dtype)
    elif pat.is_integer(dtype) or (pat.is_temporal(dtype) and not pat.is_interval(dtype)):
        values = list(values)
        kinds = set(map(type, values))
        if getattr(dtype, "unit", "") in ("us", "ns"):
            kinds -= {*_TIMES}  # those of pandas alone are more exact
        if any(issubclass(kind, (*_FRACTIONS, *_TIMES)) for kind in kinds):
            for each in values:
                if isinstance(each, _FRACTIONS) and math.isfinite(each) and each != int(each):
                    raise pa.ArrowInvalid(f"{each!r} is no whole number")
                if isinstance(each, _TIMES) and each == each and _is_cut(each, dtype):
                    raise pa.ArrowInvalid(f"{each!r} is more exact than the type")


def _by_name(row: Any, dtype: pa.StructType) -> dict[str, Any]:
    """The values of a struct, which Arrow takes as a dict, as a tuple of them, or as pairs.

    Names may all be bytes.
    """
    if isinstance(row, tuple):
        return dict(zip(dtype.names, row, strict=False))
    named = dict(each for each in row if isinstance(each, tuple)) if isinstance(row, list) else row
    if named and all(isinstance(name, bytes) for name in named):
        return {name.decode(): value for name, value in named.items()}
    return named


def _check_finite(values: Iterable[Any], dtype: pa.DataType) -> None:
    """Refuse numbers that are infinite only in a type of floats."""
    if isinstance(values, np.ma.MaskedArray):
        values = values.compressed()
    elif not hasattr(values, "dtype") or values.dtype.kind not in "fiu":
        values = [each for each in values if isinstance(each, _NUMBERS)]
    elif values.dtype.itemsize * 8 <= dtype.bit_width and values.dtype.kind == "f":
        return
    numbers = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        is_lost = np.isinf(numbers.astype(dtype.to_pandas_dtype())) & np.isfinite(numbers)
    if is_lost.any():
        raise pa.ArrowInvalid(f"{numbers[is_lost][0]} is too large for {dtype}")


def _is_cut(value: Any, dtype: pa.DataType) -> bool:
    """Whether a time has parts below the unit of a type; values of pandas have nanoseconds."""
    is_span, unit = isinstance(value, datetime.timedelta), getattr(dtype, "unit", "")
    nanoseconds = getattr(value, "nanoseconds" if is_span else "nanosecond", 0)
    if pat.is_date(dtype):
        is_late = isinstance(value, datetime.datetime) and value.time() != _START
        return is_late or bool(nanoseconds)
    microseconds = value.microseconds if is_span else value.microsecond
    step = {"s": 1_000_000, "ms": 1_000}.get(unit, 1)
    return bool(microseconds % step or (nanoseconds and unit != "ns"))


def _has_objects(values: Any) -> bool:
    return getattr(getattr(values, "dtype", None), "kind", None) in ("f", "O")
