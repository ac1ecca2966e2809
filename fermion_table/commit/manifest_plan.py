"""When metadata moves: tail to manifest, manifests into one, dead entries out. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fermion_table.metadata.manifest import Entry, ManifestReference
from fermion_table.options import (
    MERGE_FANOUT,
    MERGE_INPUT_ENTRIES_MAX,
    REWRITE_DEAD_FRACTION,
    TAIL_BYTES_MAX,
    TAIL_ENTRIES_MAX,
)
from fermion_table.storage import json_codec


@dataclass(frozen=True, slots=True)
class TailPlan:
    """What happens to a snapshot's tail.

    Attributes
    ----------
    flush
        The entries of earlier commits go into a manifest of their own.
    inline
        The entries of this commit go into the tail (else into a manifest of their own).
    """

    flush: bool
    inline: bool


def plan_tail(tail: Sequence[Entry], added: Sequence[Entry]) -> TailPlan:
    """Decide where the entries of the tail and of a commit go.

    Parameters
    ----------
    tail
        Entries of earlier commits that are still live.
    added
        Entries of this commit.
    """
    inline = fits_tail(added)
    return TailPlan(flush=inline and bool(tail) and not fits_tail((*tail, *added)), inline=inline)


def fits_tail(entries: Sequence[Entry]) -> bool:
    """Whether these entries fit into a tail: at most 64 of them and 64 KB."""
    if len(entries) > TAIL_ENTRIES_MAX:
        return False
    return sum(len(json_codec.encode(entry)) + 1 for entry in entries) <= TAIL_BYTES_MAX


def plan_merges(references: Sequence[ManifestReference]) -> list[tuple[int, ...]]:
    """Decide which manifests are rewritten into one, geometrically.

    Manifests are of one class when their live entries lie between the same powers of
    `MERGE_FANOUT`. As many of one class become one of (mostly) the next, so that an entry is
    rewritten O(log n) times in its life. A manifest with too many dead entries is rewritten
    alone, if not with others.

    Parameters
    ----------
    references
        A snapshot's manifests, none of them without live entries.

    Returns
    -------
    list of tuple of int
        Disjoint groups of positions in `references`, ascending.
    """
    classes: dict[int, list[int]] = {}
    for position, reference in enumerate(references):
        if reference.live_entries <= MERGE_INPUT_ENTRIES_MAX:
            classes.setdefault(_size_class(reference), []).append(position)
    merged = [tuple(group) for group in classes.values() if len(group) >= MERGE_FANOUT]
    placed = {position for group in merged for position in group}
    alone: list[tuple[int, ...]] = [
        (position,)
        for position, reference in enumerate(references)
        if position not in placed and needs_rewrite(reference)
    ]
    return sorted(merged + alone)


def needs_rewrite(reference: ManifestReference) -> bool:
    """Whether more than 30 % of a manifest's entries are dead."""
    return len(reference.dead) > REWRITE_DEAD_FRACTION * reference.entries


def _size_class(reference: ManifestReference) -> int:
    size_class, bound = 0, TAIL_ENTRIES_MAX * MERGE_FANOUT // 2
    while reference.live_entries > bound:
        size_class += 1
        bound *= MERGE_FANOUT
    return size_class
