"""Values of Python that a column would not hold as they are."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import strip_wrappers

_FRACTIONS = float, np.floating, Decimal
_NUMBERS = float, int, np.floating, np.integer
_TIMES = datetime.datetime, datetime.time, datetime.timedelta
_NO_LISTS = str, bytes, bytearray, dict
_UNITS = "s", "ms", "us", "ns"
_START = datetime.time()


def check_kept(values: Iterable[Any], dtype: pa.DataType) -> None:
    """Refuse values of Python that Arrow would cut off: fractions of integers and of units of time,
    the time of day of a date, numbers too large for a float, fields that a struct has not; also
    within lists, maps, structs and the storage of extension types.

    Raises pyarrow.ArrowException: Says which value.
    """
    dtype = strip_wrappers(dtype)
    if pat.is_struct(dtype):
        rows = [_by_name(each, dtype) for each in values if isinstance(each, (dict, tuple, list))]
        if unknown := set[Any]().union(*rows) - set(dtype.names):
            raise pa.ArrowInvalid(f"{min(unknown, key=repr)!r} is no field of {dtype}")
        for field in dtype:
            check_kept([row.get(field.name) for row in rows], field.type)
    elif pat.is_map(dtype):
        maps = (each.items() if isinstance(each, dict) else each for each in values)
        pairs = [each for items in maps if _is_list(items) for each in items]
        check_kept(pairs, pa.struct([dtype.key_field, dtype.item_field]))
    elif pat.is_nested(dtype) and hasattr(dtype, "value_type"):
        items: list[Any] = []
        for each in filter(_is_list, values):
            if _kind(each) not in ("", "O"):
                _check_cell(each, dtype.value_type)
            elif not pat.is_float64(dtype.value_type):
                items.extend(each)
        check_kept(items, dtype.value_type)
    elif pat.is_floating(dtype):
        if dtype.bit_width < 64:
            _check_finite(values, dtype)
    elif pat.is_integer(dtype) or (pat.is_temporal(dtype) and not pat.is_interval(dtype)):
        values = list(values)
        kinds = set(map(type, values))
        if np.ndarray in kinds:
            values = [each[()] if isinstance(each, np.ndarray) else each for each in values]
            kinds = set(map(type, values))
        if getattr(dtype, "unit", "") in ("us", "ns"):
            kinds -= {*_TIMES}  # those of pandas alone are more exact
        if pat.is_temporal(dtype) and kinds & {np.datetime64, np.timedelta64}:
            for each in values:
                _check_unit(each, dtype)
        if any(issubclass(kind, (*_FRACTIONS, *_TIMES)) for kind in kinds):
            for each in values:
                if isinstance(each, _FRACTIONS) and math.isfinite(each) and each != int(each):
                    raise pa.ArrowInvalid(f"{each!r} is no whole number")
                if isinstance(each, _TIMES) and each == each and _is_cut(each, dtype):
                    raise pa.ArrowInvalid(f"{each!r} is more exact than the type")


def check_column(values: Any, dtype: pa.DataType) -> None:
    """Refuse a whole array of NumPy or pandas, without objects, that Arrow would cut off.

    Raises pyarrow.ArrowException: Says what.
    """
    found, dtype = values.dtype, strip_wrappers(dtype)
    if found.kind == "V" and found.names is not None:
        check_kept([dict.fromkeys(found.names)], dtype)
        for name in found.names if pat.is_struct(dtype) else ():
            check_column(values[name], dtype.field(name).type)
    elif found.kind in ("m", "M"):
        if isinstance(found, np.dtype) and not _is_readable(found, dtype):
            raise pa.ArrowInvalid(f"times of dtype {found}; convert them with astype")
        if found.kind == "M" and (pat.is_date(dtype) or pat.is_time(dtype)):
            times = np.asarray(values, None if isinstance(found, np.dtype) else "M8[us]")
            days = times.astype("M8[D]")
            is_cut = days != times if pat.is_date(dtype) else days != np.datetime64(0, "D")
            if (is_cut & ~np.isnat(times)).any():
                raise pa.ArrowInvalid(f"times of dtype {found} are more than the type holds")
    elif found.kind in ("f", "i", "u", "b", "c"):
        if pat.is_binary(dtype) or pat.is_fixed_size_binary(dtype) or pat.is_large_binary(dtype):
            raise pa.ArrowInvalid(f"numbers of dtype {found} are no bytes")
        if pat.is_boolean(dtype) and found.kind != "b":
            known = values.dropna() if hasattr(values, "dropna") else np.ma.compressed(values)
            other = np.setdiff1d(known, (0, 1))
            if len(other):
                raise pa.ArrowInvalid(f"{other[0]} is neither true (1) nor false (0)")
        if pat.is_floating(dtype) and dtype.bit_width < 64:
            _check_finite(values, dtype)


def readable(times: np.ndarray, dtype: pa.DataType | None) -> np.ndarray:
    """Times of NumPy in a unit that Arrow reads: of days it mixes up all but dates, and it takes no
    notice of the number in units such as 25 s.

    dtype: Of the column; None: Arrow chooses it.
    Returns: The array itself where Arrow reads it, or where the type has no times.
    Raises pyarrow.ArrowInvalid: A time is too large for the unit.
    """
    found = times.dtype
    column = None if dtype is None else strip_wrappers(dtype)
    unit, _ = np.datetime_data(found)
    if (
        _is_readable(found, column)
        or unit not in (*_UNITS, *("mhDWMY" if found.kind == "M" else "mhDW"))
        or not (column is None or hasattr(column, "unit") or pat.is_date(column))
    ):
        return times
    wanted = f"{found.kind}8[{unit if unit in _UNITS else 's'}]"
    converted = times.astype(wanted)
    is_kept = (converted.astype(found) == times) | np.isnat(times)
    if not np.ma.filled(is_kept, True).all():
        raise pa.ArrowInvalid(f"times of dtype {found} are too large for {wanted}")
    return converted


def _is_readable(found: np.dtype, dtype: pa.DataType | None) -> bool:
    """Whether Arrow reads times of NumPy as what they are, or refuses them."""
    unit, count = np.datetime_data(found)
    if unit == "D" and found.kind == "M":
        return count == 1 and (dtype is None or pat.is_date(dtype))
    return count == 1 and unit in _UNITS


def _kind(values: Any) -> str:
    """NumPy's letter for the values of an array of NumPy or pandas; empty for other values."""
    return getattr(getattr(values, "dtype", None), "kind", "")


def _is_list(value: Any) -> bool:
    return isinstance(value, (Collection, np.ndarray)) and not isinstance(value, _NO_LISTS)


def _check_cell(array: Any, dtype: pa.DataType) -> None:
    """Refuse an array of NumPy or pandas, one list among others, that Arrow would not keep."""
    if np.ma.is_masked(array):
        raise pa.ArrowInvalid("a masked array within a list: Arrow would take what it hides")
    dtype = strip_wrappers(dtype)
    if pat.is_temporal(dtype):
        _check_unit(array, dtype)
    elif array.dtype.kind == "f" and pat.is_integer(dtype):
        check_kept(np.ravel(array), dtype)
    elif pat.is_floating(dtype) and dtype.bit_width < 64:
        _check_finite(array, dtype)


def _check_unit(times: Any, dtype: pa.DataType) -> None:
    """Refuse times of NumPy within lists that have not the type's unit: Arrow takes their numbers.

    times: Any value, or an array; nothing else than times is checked.
    """
    found = getattr(times, "dtype", None)
    if not isinstance(found, np.dtype) or found.kind not in ("m", "M"):
        return
    expected = "dates or times of the module datetime"
    if pat.is_timestamp(dtype) or pat.is_duration(dtype):
        expected = f"{'datetime64' if pat.is_timestamp(dtype) else 'timedelta64'}[{dtype.unit}]"
    if str(found) != expected:
        raise pa.ArrowInvalid(f"expected {expected} within a list, found {found}")


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


def _check_finite(values: Any, dtype: pa.DataType) -> None:
    """Refuse numbers that are infinite only in a type of floats, and integers that 16 bits round.

    Arrow itself refuses integers that wider floats would round.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = values.compressed()
    kind = _kind(values)
    if kind not in ("f", "i", "u"):
        values = [each for each in values if isinstance(each, _NUMBERS)]
    elif kind == "f" and values.dtype.itemsize * 8 <= dtype.bit_width:
        return
    numbers = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        narrow = numbers.astype(dtype.to_pandas_dtype())
    is_lost = np.isinf(narrow) & np.isfinite(numbers)
    if is_lost.any():
        raise pa.ArrowInvalid(f"{numbers[is_lost][0]} is too large for {dtype}")
    if dtype.bit_width == 16 and kind != "f":
        is_whole = np.array([isinstance(each, (int, np.integer)) for each in values], bool)
        if (is_lost := is_whole & (narrow != numbers)).any():
            raise pa.ArrowInvalid(f"{numbers[is_lost][0]} would be rounded as {dtype}")


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
