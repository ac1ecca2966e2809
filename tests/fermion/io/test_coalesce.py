"""Coalescing covers every wanted byte and keeps to its limits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fermion.io.coalesce import coalesce

RANGES = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 300)), max_size=40)


def coalesced(ranges, gap, span):
    """Requests as (offset, length, members)."""
    wanted = np.array(ranges, np.int64).reshape(-1, 2)
    requests, members = coalesce(wanted, gap_bytes_max=gap, span_bytes_max=span)
    assert (members >= 0).tolist() == [length > 0 for _, length in ranges]
    return [
        (offset, length, np.flatnonzero(members == place).tolist())
        for place, (offset, length) in enumerate(requests.tolist())
    ]


@given(RANGES, st.integers(0, 500), st.integers(1, 2_000))
def test_every_range_lies_in_exactly_one_request(ranges, gap, span):
    """Checks membership and containment for each non-empty range."""
    requests = coalesced(ranges, gap, span)
    together = sorted(index for _, _, members in requests for index in members)
    assert together == [index for index, (_, length) in enumerate(ranges) if length]
    for start, size, members in requests:
        assert members
        for index in members:
            offset, length = ranges[index]
            assert start <= offset
            assert offset + length <= start + size


@given(RANGES, st.integers(0, 500), st.integers(1, 2_000))
def test_requests_bridge_no_gap_and_no_span_beyond_the_limits(ranges, gap, span):
    """Recomputes the unwanted bytes between neighbours inside each request."""
    for start, size, members in coalesced(ranges, gap, span):
        stop = start
        for offset, length in sorted(ranges[index] for index in members):
            assert offset - stop <= gap
            stop = max(stop, offset + length)
        longest = max(ranges[index][1] for index in members)
        assert size == stop - start <= max(span, longest)


@given(RANGES)
def test_ranges_that_fit_together_are_one_request(ranges):
    """No gap and no span is too large, so that there is nothing to keep them apart."""
    assert len(coalesced(ranges, 10_000, 10_000)) == any(length for _, length in ranges)


def test_neighbours_share_one_request():
    """Three ranges end to end are one read."""
    assert coalesced([(10, 5), (15, 5), (20, 5)], 0, 100) == [(10, 15, [0, 1, 2])]
