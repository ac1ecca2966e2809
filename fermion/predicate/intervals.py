"""Comparisons of one column as intervals of its raw values, which kernels test without Arrow."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import strip_wrappers
from fermion.predicate.expression import Comparison
from fermion.predicate.literals import raw_limits, resolve


class Interval(NamedTuple):
    """Values that are not null match where they lie within the bounds, or where they do not.

    Attributes
    ----------
    low, high
        Raw values (see `literals.Resolved`), both inclusive; ``low > high``: there is none.
    is_inverted
        Whether the values outside match, NaN among them.
    """

    low: Any
    high: Any
    is_inverted: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no value lies within the bounds."""
        return bool(self.low > self.high)

    def intersect(self, other: Interval) -> Interval:
        """The values in both, of which neither is inverted."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


def interval(comparison: Comparison, dtype: pa.DataType) -> Interval | None:
    """The raw values that a comparison selects; None where these are no interval of numbers.

    Parameters
    ----------
    comparison
        Bound to a column of type ``dtype``.
    """
    storage = strip_wrappers(dtype)
    is_float = pat.is_float32(storage) or pat.is_float64(storage)
    if not is_float and not _is_whole(storage):
        return None
    low, high = (-math.inf, math.inf) if is_float else raw_limits(storage)
    operator, raw = resolve(comparison.operator, comparison.value, storage)
    if operator == "null":
        return None
    if operator == "always":
        return Interval(high, low, is_inverted=True)
    if operator == "never":
        return Interval(high, low)
    if operator in ("==", "!="):
        return Interval(raw, raw, operator == "!=")
    if operator in ("<", ">") and is_float and raw == (low if operator == "<" else high):
        return Interval(high, low)
    if operator in ("<", "<="):
        return Interval(low, raw if operator == "<=" else _next(raw, -1, storage))
    return Interval(raw if operator == ">=" else _next(raw, 1, storage), high)


def _next(raw: Any, direction: int, storage: pa.DataType) -> Any:
    """The raw value after one, or before it; floats are not the last."""
    if not pat.is_floating(storage):
        return raw + direction
    kind = np.float32 if pat.is_float32(storage) else np.float64
    return float(np.nextafter(kind(raw), kind(direction * math.inf)))


def _is_whole(storage: pa.DataType) -> bool:
    """Whether raw values are whole numbers of a type that compares as they do."""
    return (
        pat.is_integer(storage)
        or pat.is_date(storage)
        or pat.is_time(storage)
        or pat.is_timestamp(storage)
        or pat.is_duration(storage)
        or pat.is_decimal(storage)
    )
