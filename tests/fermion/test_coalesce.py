"""Coalescing covers every wanted byte and keeps to its limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fermion.coalesce import coalesce

RANGES = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 300)), max_size=40)


@given(RANGES, st.integers(0, 500), st.integers(1, 2_000))
def test_every_range_lies_in_exactly_one_request(ranges, gap, span):
    """Checks membership and containment for each non-empty range."""
    requests = coalesce(ranges, gap_bytes_max=gap, span_bytes_max=span)
    members = sorted(index for request in requests for index in request.members)
    assert members == [index for index, (_, length) in enumerate(ranges) if length]
    for request in requests:
        for index in request.members:
            offset, length = ranges[index]
            assert request.offset <= offset
            assert offset + length <= request.offset + request.length


@given(RANGES, st.integers(0, 500), st.integers(1, 2_000))
def test_requests_bridge_no_gap_and_no_span_beyond_the_limits(ranges, gap, span):
    """Recomputes the unwanted bytes between neighbours inside each request."""
    for request in coalesce(ranges, gap_bytes_max=gap, span_bytes_max=span):
        stop = request.offset
        for offset, length in sorted(ranges[index] for index in request.members):
            assert offset - stop <= gap
            stop = max(stop, offset + length)
        longest = max(ranges[index][1] for index in request.members)
        assert request.length <= max(span, longest)


def test_neighbours_share_one_request():
    """Three ranges end to end are one read."""
    (request,) = coalesce([(10, 5), (15, 5), (20, 5)], gap_bytes_max=0, span_bytes_max=100)
    assert (request.offset, request.length) == (10, 15)
