"""Which byte ranges to request so that a set of wanted ranges is covered. Pure: no I/O here."""

from __future__ import annotations

import numpy as np


def coalesce(
    ranges: np.ndarray, *, gap_bytes_max: int, span_bytes_max: int
) -> tuple[np.ndarray, np.ndarray]:
    """Join ranges that lie near each other.

    ranges: ``int64``, shape (n, 2): offset and length of each, in any order, overlaps allowed;
        empty ones are left out.
    gap_bytes_max: Two ranges with at most this many unwanted bytes between them share a request.
    span_bytes_max: A request does not grow past this, unless a single range is longer.
    Returns: ``int64``, shape (m, 2): offset and length of each contiguous read, in file order; and
        ``int64``, shape (n,): the request that holds each range, -1 for an empty one.
    """
    if len(ranges) and ranges[:, 1].all():  # few that lie together are one request
        start, stop = int(ranges[:, 0].min()), int(ranges.sum(1).max())
        if stop - start <= min(gap_bytes_max, span_bytes_max):
            return np.array([[start, stop - start]], np.int64), np.zeros(len(ranges), np.int64)
    members = np.full(len(ranges), -1, np.int64)
    order = np.flatnonzero(ranges[:, 1])
    order = order[np.argsort(ranges[order, 0], kind="stable")]
    if not len(order):
        return np.zeros((0, 2), np.int64), members
    offsets = ranges[order, 0]
    stops = np.maximum.accumulate(offsets + ranges[order, 1])
    breaks = np.flatnonzero(offsets[1:] - stops[:-1] > gap_bytes_max) + 1
    firsts: list[int] = []
    first, count = 0, len(order)
    while first < count:
        firsts.append(first)
        limit = max(int(offsets[first]) + span_bytes_max, int(stops[first]))
        after = int(np.searchsorted(breaks, first, "right"))
        gap = int(breaks[after]) if after < len(breaks) else count
        first = max(first + 1, min(int(np.searchsorted(stops, limit, "right")), gap))
    starts = offsets[firsts]
    ends = np.array([*firsts[1:], count], np.int64)
    members[order] = np.repeat(np.arange(len(firsts)), ends - np.array(firsts, np.int64))
    return np.stack((starts, stops[ends - 1] - starts), axis=1), members


def span_of(ranges: np.ndarray) -> tuple[int, int]:
    """First byte and end of ranges (offset and length each); 0 and 0 if all are empty."""
    filled = ranges if ranges[:, 1].all() else ranges[ranges[:, 1] > 0]
    if not len(filled):
        return 0, 0
    return int(filled[:, 0].min()), int(filled.sum(1).max())
