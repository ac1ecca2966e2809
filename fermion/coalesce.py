"""Which byte ranges to request so that a set of wanted ranges is covered. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One contiguous read and the wanted ranges inside it.

    Attributes
    ----------
    offset, length
        Bytes of the file, from ``offset`` on.
    members
        Indices into the list of wanted ranges.
    """

    offset: int
    length: int
    members: tuple[int, ...]


def coalesce(
    ranges: Sequence[tuple[int, int]], *, gap_bytes_max: int, span_bytes_max: int
) -> list[Request]:
    """Join ranges that lie near each other.

    Parameters
    ----------
    ranges
        (offset, length) pairs in any order, overlaps allowed; empty ones are left out.
    gap_bytes_max
        Two ranges with at most this many unwanted bytes between them share a request.
    span_bytes_max
        A request does not grow past this, unless a single range is longer.

    Returns
    -------
    Requests in file order; every non-empty range is a member of exactly one.
    """
    order = sorted(
        (index for index, (_, length) in enumerate(ranges) if length), key=ranges.__getitem__
    )
    requests: list[Request] = []
    members: list[int] = []
    start = stop = 0
    for index in order:
        offset, length = ranges[index]
        end = offset + length
        fits = offset - stop <= gap_bytes_max and max(end, stop) - start <= span_bytes_max
        if members and (fits or end <= stop):
            members.append(index)
            stop = max(stop, end)
            continue
        if members:
            requests.append(Request(start, stop - start, tuple(members)))
        members, start, stop = [index], offset, end
    if members:
        requests.append(Request(start, stop - start, tuple(members)))
    return requests
