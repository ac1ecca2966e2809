"""Aggregate functions that compute numbers: sum and product; nulls are left out, none gives null.

Whole numbers and decimals are added and multiplied exactly, whatever the sums on the way, so that
no result depends on an order: only the last one must be of the column's type. A product of
decimals is rounded to their scale, half away from zero; floats are added and multiplied as 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import unscaled_integer
from fermion_table.merge_engines.key_groups import GroupedColumn, GroupOverflow
from fermion_table.schema.field_functions import FieldFunction
from fermion_table.schema.transforms import plain

_LOW_BITS = np.int64(2**32 - 1)
_EXACT_MAX = 2.0**62
"""Products of whole numbers below this are computed by NumPy, greater ones by Python."""


def _sum(column: GroupedColumn, function: FieldFunction) -> pa.Array:
    dtype = column.values.type
    used, has_value = _used(column)
    if pat.is_integer(dtype):
        return _integer_sums(column, used, has_value)
    if pat.is_decimal(dtype):
        signs = _signs(column)
        totals = _by_group(
            column,
            used,
            _unscaled(column.values),
            lambda numbers, places: sum(
                number * int(sign) for number, sign in zip(numbers, signs[places], strict=True)
            ),
        )
        return _decimals(column, totals, has_value)
    numbers = np.where(used, _floats(column) * _signs(column), 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = column.reduced(np.add, numbers) + 0.0  # no -0.0, whatever was taken back
        return _as_floats(column, sums, has_value)


def _product(column: GroupedColumn, function: FieldFunction) -> pa.Array:
    dtype = column.values.type
    used, has_value = _used(column)
    if pat.is_floating(dtype):
        numbers = np.where(used, _floats(column), 1.0)
        with np.errstate(all="ignore"):
            if column.taken_back is None:
                return _as_floats(column, column.reduced(np.multiply, numbers), has_value)
            below = np.where(column.taken_back, numbers, 1.0)
            above = np.where(column.taken_back, 1.0, numbers)
            quotients = column.reduced(np.multiply, above) / column.reduced(np.multiply, below)
            return _as_floats(column, quotients, has_value)
    if pat.is_integer(dtype) and column.taken_back is None:
        found = _small_products(column, used, has_value)
        if found is not None:
            return found
    taken_back = np.zeros(len(used), bool) if column.taken_back is None else column.taken_back
    scale = dtype.scale if pat.is_decimal(dtype) else 0
    whole = _unscaled(column.values) if pat.is_decimal(dtype) else column.values.to_pylist()
    bad: list[int] = []

    def product(factors: list[int], places: np.ndarray) -> int:
        above = math.prod(
            each for each, at in zip(factors, places, strict=True) if not taken_back[at]
        )
        below = math.prod(each for each, at in zip(factors, places, strict=True) if taken_back[at])
        count = int(taken_back[places].sum())
        power = scale * (len(factors) - 2 * count - 1)  # digits to cut off
        above *= 10 ** max(0, -power)
        below *= 10 ** max(0, power)
        if not below or (count and not scale and above % below):
            bad.append(int(np.searchsorted(column.groups.ends, places[0], "right")))
            return 0
        return _rounded(above, below)

    totals = _by_group(column, used, whole, product)
    if bad:
        raise GroupOverflow("a product was taken back that is no factor", np.array(bad))
    if pat.is_decimal(dtype):
        return _decimals(column, totals, has_value)
    return _integers(column, totals, has_value)


def _used(column: GroupedColumn) -> tuple[np.ndarray, np.ndarray]:
    """Where values count, along the order, and which groups have any."""
    used = column.is_used & column.is_valid
    return used, column.reduced(np.logical_or, used)


def _signs(column: GroupedColumn) -> np.ndarray:
    """-1 where a value is taken back, else 1: ``int64``, shape (n,)."""
    if column.taken_back is None:
        return np.ones(len(column.groups.order), np.int64)
    return np.where(column.taken_back, np.int64(-1), np.int64(1))


def _integer_sums(column: GroupedColumn, used: np.ndarray, has_value: np.ndarray) -> pa.Array:
    """Sums of 96 bits, in two halves; their rows are far fewer than 2^31."""
    dtype = column.values.type
    numbers = _whole_numbers(column)
    signs = np.where(used, _signs(column), 0)
    high = (numbers >> numbers.dtype.type(32)).astype(np.int64) * signs
    low = (numbers & numbers.dtype.type(_LOW_BITS)).astype(np.int64) * signs
    low_sums = column.reduced(np.add, low)
    high_sums = column.reduced(np.add, high) + (low_sums >> np.int64(32))
    low_sums &= _LOW_BITS
    least, most = _range_of(dtype)
    is_above = (high_sums > most >> 32) | (
        (high_sums == most >> 32) & (low_sums > most & 0xFFFFFFFF)
    )
    is_below = (high_sums < least >> 32) | (
        (high_sums == least >> 32) & (low_sums < least & 0xFFFFFFFF)
    )
    _refuse(is_above | is_below, "sum", dtype)
    words = (high_sums.view(np.uint64) << np.uint64(32)) | low_sums.view(np.uint64)
    totals = words if pat.is_unsigned_integer(dtype) else words.view(np.int64)
    return pa.array(totals.astype(dtype.to_pandas_dtype()), dtype, mask=~has_value)


def _small_products(
    column: GroupedColumn, used: np.ndarray, has_value: np.ndarray
) -> pa.Array | None:
    """Products by NumPy; None where some may be too great for it."""
    dtype = column.values.type
    numbers = _whole_numbers(column)
    with np.errstate(over="ignore"):
        sizes = np.where(used, np.maximum(np.abs(numbers.astype(np.float64)), 1.0), 1.0)
        if (column.reduced(np.multiply, sizes) >= _EXACT_MAX).any():
            return None
        one = numbers.dtype.type(1)
        totals = column.reduced(np.multiply, np.where(used, numbers, one))
    least, most = _range_of(dtype)
    _refuse((totals > most) | (totals < least), "product", dtype)
    return pa.array(totals.astype(dtype.to_pandas_dtype()), dtype, mask=~has_value)


def _by_group(
    column: GroupedColumn,
    used: np.ndarray,
    numbers: list,
    total: Callable[[list, np.ndarray], int],
) -> list[int]:
    """The total of each group's numbers; 0 where it has none."""
    places = np.flatnonzero(used)
    cuts = np.searchsorted(places, column.groups.starts[1:])
    parts = np.split(places, cuts) if len(column.groups.starts) else []
    order = column.groups.order
    return [
        total([numbers[row] for row in order[part]], part) if len(part) else 0 for part in parts
    ]


def _whole_numbers(column: GroupedColumn) -> np.ndarray:
    """Along the order: ``uint64`` of unsigned columns, else ``int64``; 0 at nulls."""
    dtype = column.values.type
    wide = np.uint64 if pat.is_unsigned_integer(dtype) else np.int64
    filled = column.values.fill_null(0) if column.values.null_count else column.values
    return filled.to_numpy(zero_copy_only=False).astype(wide)[column.groups.order]


def _floats(column: GroupedColumn) -> np.ndarray:
    filled = column.values.cast(pa.float64())
    filled = filled.fill_null(0.0) if filled.null_count else filled
    return filled.to_numpy(zero_copy_only=False)[column.groups.order]


def _as_floats(column: GroupedColumn, totals: np.ndarray, has_value: np.ndarray) -> pa.Array:
    narrow = totals.astype(column.values.type.to_pandas_dtype())
    return pa.array(narrow, column.values.type, mask=~has_value)


def _unscaled(column: pa.Array) -> list:
    """Decimals as whole numbers of their last digit; None for null."""
    scale = column.type.scale
    return [
        None if each is None else unscaled_integer(each, scale)
        for each in plain(column).to_pylist()
    ]


def _rounded(above: int, below: int) -> int:
    """A quotient, half away from zero."""
    if below < 0:
        above, below = -above, -below
    quotient = (2 * abs(above) + below) // (2 * below)
    return quotient if above >= 0 else -quotient


def _integers(column: GroupedColumn, totals: list[int], has_value: np.ndarray) -> pa.Array:
    dtype = column.values.type
    least, most = _range_of(dtype)
    _refuse(np.array([not least <= each <= most for each in totals], bool), "product", dtype)
    return pa.array(totals, dtype, mask=~has_value)


def _decimals(column: GroupedColumn, totals: list[int], has_value: np.ndarray) -> pa.Array:
    dtype = column.values.type
    most = 10**dtype.precision
    _refuse(np.array([abs(each) >= most for each in totals], bool), "result", dtype)
    size = dtype.bit_width // 8
    raw = b"".join(each.to_bytes(size, "little", signed=True) for each in totals)
    valid = pa.array(has_value).buffers()[1] if len(totals) else None
    return pa.Array.from_buffers(dtype, len(totals), [valid, pa.py_buffer(raw)])


def _range_of(dtype: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(dtype.to_pandas_dtype())
    return int(info.min), int(info.max)


def _refuse(is_out: np.ndarray, what: str, dtype: pa.DataType) -> None:
    if is_out.any():
        raise GroupOverflow(f"the {what} is out of the range of {dtype}", np.flatnonzero(is_out))


FUNCTIONS: dict[str, Callable[[GroupedColumn, FieldFunction], pa.Array]] = {
    "sum": _sum,
    "product": _product,
}
