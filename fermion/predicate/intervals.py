"""Filters of one column as intervals or sets of raw values, which kernels test without Arrow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import is_string_like, strip_wrappers
from fermion.exports import NamedTuple
from fermion.predicate.expression import Comparison, IsIn, StartsWith
from fermion.predicate.literals import equal_raws, raw_limits, resolve


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


class Members(NamedTuple):
    """Values that are not null match where they are in a set, or where they are not.

    values: Raw values: all of them ``int``, or all ``bytes``; each once.
    is_inverted: Whether all other values match.
    """

    values: list[Any]
    is_inverted: bool = False


class TextRange(NamedTuple):
    """Strings that are not null match from ``low`` on, in the order of their bytes, and below
    ``high``, where there is one."""

    low: bytes
    high: bytes | None


def members(expression: Comparison | IsIn, dtype: pa.DataType) -> Members | None:
    """The raw values that are equal to a literal of a filter; None where these are no whole
    numbers or strings, or the filter asks for an order or for NULL.

    Parameters
    ----------
    expression
        Bound to a column of type ``dtype``.
    """
    storage = strip_wrappers(dtype)
    if not (_is_whole(storage) or is_string_like(storage)):
        return None
    if isinstance(expression, IsIn):
        literals = expression.values
    elif expression.operator in ("==", "!="):
        literals = (expression.value,)
    else:
        return None
    if any(each is None for each in literals):
        return None
    is_inverted = isinstance(expression, Comparison) and expression.operator == "!="
    return Members(list(dict.fromkeys(equal_raws(literals, storage))), is_inverted)


def text_range(expression: Comparison | StartsWith, dtype: pa.DataType) -> TextRange | None:
    """The strings that a filter selects; None where these are no strings, or no range of them.

    Parameters
    ----------
    expression
        Bound to a column of type ``dtype``.
    """
    storage = strip_wrappers(dtype)
    if not is_string_like(storage):
        return None
    if isinstance(expression, StartsWith):
        prefix = expression.prefix
        low = prefix.encode() if isinstance(prefix, str) else prefix
        return TextRange(low, _behind(low))
    operator, raw = resolve(expression.operator, expression.value, storage)
    if operator in ("<", "<="):
        return TextRange(b"", raw if operator == "<" else raw + b"\0")
    if operator in (">", ">="):
        return TextRange(raw if operator == ">=" else raw + b"\0", None)
    return None


def _behind(prefix: bytes) -> bytes | None:
    """The first string behind all with a prefix; None where there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


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
