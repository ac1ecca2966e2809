"""What is known of a column in each of some files or manifests: bounds, to ask a filter about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fermion.arguments import INT64_MAX, INT64_MIN
from fermion.engine import EXACT_FLAGS
from fermion.predicate import (
    Bounds,
    Expression,
    RowRanges,
    ranges_that_may_match,
    ranges_that_must_match,
)
from fermion_table.schema.schema import Path


@dataclass(frozen=True, slots=True)
class Unit:
    """What is known of one column in one file or manifest.

    Attributes
    ----------
    rows
        How many there are.
    min, max
        Keys of bounds, both inclusive.
    nulls
        How many; -1 when that is not known.
    flags
        `fermion.ChunkFlag` bits. Without HAS_MINMAX the bounds are not known.
    """

    rows: int
    min: int = INT64_MIN
    max: int = INT64_MAX
    nulls: int = -1
    flags: int = 0


def all_null(rows: int) -> Unit:
    """A unit where every row is null."""
    return Unit(rows, INT64_MAX, INT64_MIN, rows, EXACT_FLAGS)


def bounds_of(units: Sequence[Unit], dtype: pa.DataType) -> Bounds:
    """Units that follow each other from row 0 on.

    Parameters
    ----------
    dtype
        The type of the column in the units.
    """
    return Bounds(
        boundaries=_boundaries(units),
        min=np.array([unit.min for unit in units], np.int64),
        max=np.array([unit.max for unit in units], np.int64),
        null_count=np.array([unit.nulls for unit in units], np.int64),
        flags=np.array([unit.flags for unit in units], np.uint32),
        type=dtype,
    )


def units_that_may_match(
    expression: Expression, known: Mapping[Path, Bounds], units: Sequence[Unit]
) -> np.ndarray:
    """Which units may hold a row that a filter selects: ``bool``, shape (u,)."""
    return places_that_may_match(expression, known, _boundaries(units))


def places_that_may_match(
    expression: Expression, known: Mapping[Path, Bounds], boundaries: np.ndarray
) -> np.ndarray:
    """The same of units that lie between boundaries: ``int64``, shape (u + 1,), from 0 on."""
    ranges = ranges_that_may_match(expression, known.get, int(boundaries[-1]))
    starts = boundaries[:-1]
    at = np.searchsorted(ranges.stops, starts, side="right")
    inside = at < len(ranges.starts)
    inside[inside] = ranges.starts[at[inside]] < boundaries[1:][inside]
    return inside & (starts < boundaries[1:])


def units_that_must_match(
    expression: Expression, known: Mapping[Path, Bounds], units: Sequence[Unit]
) -> np.ndarray:
    """Which units hold only rows that a filter selects, and some: ``bool``, shape (u,)."""
    return places_that_must_match(expression, known, _boundaries(units))


def places_that_must_match(
    expression: Expression, known: Mapping[Path, Bounds], boundaries: np.ndarray
) -> np.ndarray:
    """Which of them hold only rows that a filter selects, and some: ``bool``, shape (u,)."""
    ranges = ranges_that_must_match(expression, known.get, int(boundaries[-1]))
    return _lie_within(ranges, boundaries[:-1], boundaries[1:])


def _lie_within(ranges: RowRanges, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    at = np.searchsorted(ranges.stops, starts, side="right")
    inside = at < len(ranges.starts)
    numbers = at[inside]
    inside[inside] = (ranges.starts[numbers] <= starts[inside]) & (
        ranges.stops[numbers] >= stops[inside]
    )
    return inside & (starts < stops)


def _boundaries(units: Sequence[Unit]) -> np.ndarray:
    return np.cumsum([0, *(unit.rows for unit in units)], dtype=np.int64)
