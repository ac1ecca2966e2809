"""RowRanges against plain Python sets of row numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.columns.ranges import join_near
from fermion.errors import InvalidArgumentError
from fermion.predicate import RowRanges

NUM_ROWS = 40

bounds = st.lists(st.tuples(st.integers(0, NUM_ROWS), st.integers(0, NUM_ROWS)), max_size=8)


def ranges_of(pairs) -> RowRanges:
    return RowRanges.from_bounds([a for a, _ in pairs], [b for _, b in pairs])


def set_of(pairs) -> set[int]:
    return {row for a, b in pairs for row in range(a, b)}


def check(ranges: RowRanges, expected: set[int]) -> None:
    """The rows are those expected, and the ranges are in canonical form."""
    assert set(ranges.to_indices().tolist()) == expected
    assert ranges.total == len(expected)
    assert bool(ranges) == bool(expected)
    assert ranges.starts.dtype == ranges.stops.dtype == np.int64
    assert np.all(ranges.starts < ranges.stops)
    assert np.all(ranges.stops[:-1] < ranges.starts[1:])


@given(bounds)
def test_any_bounds_become_sorted_disjoint_ranges(pairs):
    check(ranges_of(pairs), set_of(pairs))


@given(bounds, bounds)
def test_algebra_agrees_with_sets(left, right):
    a, b = ranges_of(left), ranges_of(right)
    check(a & b, set_of(left) & set_of(right))
    check(a | b, set_of(left) | set_of(right))
    check(a.complement(NUM_ROWS), set(range(NUM_ROWS)) - set_of(left))


@given(bounds, st.integers(0, NUM_ROWS), st.integers(0, NUM_ROWS), st.integers(0, 5))
def test_clip_and_shift_agree_with_sets(pairs, start, stop, delta):
    ranges = ranges_of(pairs)
    check(ranges.clip(start, stop), set_of(pairs) & set(range(start, stop)))
    check(ranges.shift(delta), {row + delta for row in set_of(pairs)})


@given(bounds)
def test_masks_and_indices_round_trip(pairs):
    ranges = ranges_of(pairs)
    mask = ranges.to_mask(NUM_ROWS)
    assert mask.dtype == bool
    assert RowRanges.from_indices(np.flatnonzero(mask)) == ranges
    indices = ranges.to_indices()
    check(RowRanges.from_indices(indices), set_of(pairs))
    assert RowRanges.from_indices(np.concatenate([indices[::-1], indices])) == ranges


@given(bounds, st.integers(0, 5))
def test_near_ranges_are_joined_with_the_gaps_between_them(pairs, gap):
    rows = sorted(set_of(pairs))
    between = {row for a, b in itertools.pairwise(rows) if b - a - 1 <= gap for row in range(a, b)}
    check(join_near(ranges_of(pairs), gap), {*rows, *between})


@given(bounds, st.integers(0, NUM_ROWS))
def test_a_mask_shorter_than_the_set_drops_rows_past_its_end(pairs, num_rows):
    mask = ranges_of(pairs).to_mask(num_rows)
    assert set(np.flatnonzero(mask).tolist()) == {row for row in set_of(pairs) if row < num_rows}


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=8))
def test_units_become_the_rows_between_their_boundaries(units):
    boundaries = np.cumsum([0, *(rows for rows, _ in units)])
    wanted = np.array([chosen for _, chosen in units], bool)
    expected = {
        row
        for at, (rows, chosen) in enumerate(units)
        if chosen
        for row in range(boundaries[at], boundaries[at] + rows)
    }
    check(RowRanges.from_units(boundaries, wanted), expected)


def test_all_and_empty_are_what_they_say():
    check(RowRanges.all(5), set(range(5)))
    check(RowRanges.all(0), set())
    check(RowRanges.empty(), set())
    assert list(RowRanges.from_bounds([3, 0], [5, 2])) == [(0, 2), (3, 5)]


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(InvalidArgumentError, match="equal lengths"):
        RowRanges.from_bounds([1, 2], [3])


@given(bounds, st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_units_with_a_row(pairs, lengths):
    boundaries = np.cumsum([0, *lengths])
    found = ranges_of(pairs).in_units(boundaries).tolist()
    rows = set_of(pairs)
    assert found == [not rows.isdisjoint(range(a, b)) for a, b in itertools.pairwise(boundaries)]
