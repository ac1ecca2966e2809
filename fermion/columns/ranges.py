"""Sets of rows as sorted ranges, with the algebra that pruning needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fermion.arguments import integers
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class RowRanges:
    """A set of row numbers: half-open ranges, sorted, disjoint, not touching, none empty.

    Build one with the class methods, which bring any input into that form.

    Attributes
    ----------
    starts
        ``int64``, shape (r,): first row of each range, inclusive.
    stops
        ``int64``, shape (r,): one past the last row of each range.
    """

    starts: np.ndarray
    stops: np.ndarray
    _listed: np.ndarray | None = None  # the row numbers, where they are at hand

    @classmethod
    def empty(cls) -> RowRanges:
        """No rows."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def all(cls, num_rows: int) -> RowRanges:
        """Rows 0 to ``num_rows``, exclusive."""
        return cls.from_bounds([0], [num_rows])

    @classmethod
    def from_bounds(cls, starts: object, stops: object) -> RowRanges:
        """The union of ranges in any order; empty ones are dropped, touching ones joined.

        Parameters
        ----------
        starts, stops
            Integers (see `arguments.integers`), shape (n,): inclusive starts, exclusive stops.
        """
        first, last = integers(starts, "starts"), integers(stops, "stops")
        if first.shape != last.shape or first.ndim != 1:
            raise InvalidArgumentError(
                f"row ranges: {first.shape} starts but {last.shape} stops; expected equal lengths"
            )
        filled = first < last
        first, last = first[filled], last[filled]
        if len(first) < 2:
            return cls(first, last)
        if np.any(first[1:] < first[:-1]):
            order = np.argsort(first, kind="stable")
            first, last = first[order], last[order]
        reach = np.maximum.accumulate(last)
        begins = np.empty(len(first), bool)
        begins[0] = True
        np.greater(first[1:], reach[:-1], out=begins[1:])
        ends = np.append(np.flatnonzero(begins)[1:] - 1, len(first) - 1)
        return cls(first[begins], reach[ends])

    @classmethod
    def from_units(cls, boundaries: np.ndarray, wanted: np.ndarray) -> RowRanges:
        """The rows of some units (pages, chunks, files).

        Parameters
        ----------
        boundaries
            ``int64``, shape (u + 1,): unit i is rows ``boundaries[i]`` to ``boundaries[i + 1]``.
        wanted
            ``bool``, shape (u,).
        """
        if wanted.all():
            return cls.from_bounds(boundaries[:1], boundaries[-1:])
        return cls.from_bounds(boundaries[:-1][wanted], boundaries[1:][wanted])

    @classmethod
    def from_indices(cls, indices: np.ndarray) -> RowRanges:
        """The rows listed, in any order, repeats allowed."""
        rows = integers(indices, "indices")
        if rows.ndim == 1 and len(rows) > 1 and (rows[1:] > rows[:-1]).all():
            is_far = rows[1:] > rows[:-1] + 1
            return cls(
                np.concatenate((rows[:1], rows[1:][is_far])),
                np.concatenate((rows[:-1][is_far], rows[-1:])) + 1,
            )
        return cls.from_bounds(rows, rows + 1)

    @classmethod
    def from_listed(cls, rows: np.ndarray) -> RowRanges:
        """The rows of an ``int64`` array, ascending, each once; `to_indices` gives it back."""
        if not len(rows):
            return cls.empty()
        last = np.flatnonzero(rows[1:] - rows[:-1] != 1)
        starts = np.concatenate((rows[:1], rows[last + 1]))
        return cls(starts, np.concatenate((rows[last], rows[-1:])) + 1, rows)

    def to_mask(self, num_rows: int) -> np.ndarray:
        """``bool``, shape (num_rows,): which rows are in the set; rows past the end are dropped."""
        inside = self.clip(0, num_rows)
        edges = np.zeros(2 * len(inside) + 2, np.int64)
        edges[1:-1:2], edges[2:-1:2], edges[-1] = inside.starts, inside.stops, num_rows
        is_inside = np.arange(len(edges) - 1) % 2 == 1
        return np.repeat(is_inside, np.diff(edges))

    def to_indices(self) -> np.ndarray:
        """``int64``, shape (total,): the row numbers in ascending order."""
        if self._listed is not None:
            return self._listed
        lengths = self.stops - self.starts
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.starts - before, lengths) + np.arange(lengths.sum(), dtype=np.int64)

    @property
    def total(self) -> int:
        """How many rows are in the set."""
        return int((self.stops - self.starts).sum())

    def intersect(self, other: RowRanges) -> RowRanges:
        """Rows in both."""
        for some, one in ((self, other), (other, self)):
            if len(one) == 1:
                return some.clip(int(one.starts[0]), int(one.stops[0]))
        low = np.searchsorted(other.stops, self.starts, side="right")
        high = np.searchsorted(other.starts, self.stops, side="left")
        counts = np.maximum(high - low, 0)
        mine = np.repeat(np.arange(len(self.starts)), counts)
        theirs = np.arange(len(mine)) + np.repeat(low - (np.cumsum(counts) - counts), counts)
        return RowRanges(
            np.maximum(self.starts[mine], other.starts[theirs]),
            np.minimum(self.stops[mine], other.stops[theirs]),
        )

    def union(self, other: RowRanges) -> RowRanges:
        """Rows in either."""
        return RowRanges.from_bounds(
            np.concatenate((self.starts, other.starts)), np.concatenate((self.stops, other.stops))
        )

    def complement(self, num_rows: int) -> RowRanges:
        """Rows of 0 to ``num_rows``, exclusive, that are not in the set."""
        inside = self.clip(0, num_rows)
        starts = np.concatenate(([0], inside.stops))
        stops = np.concatenate((inside.starts, [num_rows]))
        filled = starts < stops
        return RowRanges(starts[filled], stops[filled])

    def in_units(self, boundaries: np.ndarray) -> np.ndarray:
        """Which units have a row of the set: ``bool``, shape (u,).

        boundaries: Where units begin, in rows, and the end: ``int64``, shape (u + 1,).
        """
        starts = boundaries[:-1]
        at = np.searchsorted(self.stops, starts, side="right")
        inside = at < len(self.starts)
        inside[inside] = self.starts[at[inside]] < boundaries[1:][inside]
        return inside & (starts < boundaries[1:])

    def clip(self, start: int, stop: int) -> RowRanges:
        """Rows of the set from ``start`` to ``stop``, exclusive; row numbers are kept."""
        if len(self) > 1 and self.starts[0] >= start and self.stops[-1] <= stop:
            return self
        first = np.maximum(self.starts, start)
        last = np.minimum(self.stops, stop)
        filled = first < last
        return RowRanges(first[filled], last[filled])

    def shift(self, delta: int) -> RowRanges:
        """Every row number plus ``delta``."""
        return RowRanges(self.starts + delta, self.stops + delta)

    def __and__(self, other: RowRanges) -> RowRanges:
        return self.intersect(other)

    def __or__(self, other: RowRanges) -> RowRanges:
        return self.union(other)

    def __len__(self) -> int:
        return len(self.starts)

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.starts.tolist(), self.stops.tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowRanges):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.stops, other.stops)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{start}:{stop}" for start, stop in list(self)[:8])
        more = ", ..." if len(self) > 8 else ""
        return f"RowRanges([{shown}{more}], total={self.total})"


def join_near(ranges: RowRanges, gap_rows_max: int) -> RowRanges:
    """The same rows and the gaps of at most so many rows between them."""
    if len(ranges) < 2:
        return ranges
    is_far = ranges.starts[1:] - ranges.stops[:-1] > gap_rows_max
    return RowRanges(
        np.concatenate((ranges.starts[:1], ranges.starts[1:][is_far])),
        np.concatenate((ranges.stops[:-1][is_far], ranges.stops[-1:])),
    )


def mask_within(rows: RowRanges, of: RowRanges) -> np.ndarray:
    """Which rows of a set are in a subset: ``bool``, shape (of.total,)."""
    low, high = int(of.starts[0]), int(of.stops[-1])
    mask: np.ndarray = rows.shift(-low).to_mask(high - low)
    return mask if len(of) == 1 else mask[of.shift(-low).to_indices()]
