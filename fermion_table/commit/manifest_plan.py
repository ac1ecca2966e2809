"""When entries move to a manifest, manifests merge, and dead entries go. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fermion_table.metadata.manifest import Entry, ManifestReference
from fermion_table.options import (
    INLINE_BYTES_MAX,
    INLINE_ENTRIES_MAX,
    MERGE_FANOUT,
    MERGE_INPUT_ENTRIES_MAX,
    REWRITE_DEAD_FRACTION,
)
from fermion_table.storage import json_codec


@dataclass(frozen=True, slots=True)
class InlinePlan:
    """What happens to a snapshot's inline entries, those that it holds itself.

    Attributes
    ----------
    flush
        The entries of earlier commits go into a manifest of their own.
    inline
        The entries of this commit go into the snapshot (else into a manifest of their own).
    """

    flush: bool
    inline: bool


def plan_inline(current: Sequence[Entry], added: Sequence[Entry]) -> InlinePlan:
    """Decide where the inline entries of a snapshot and the entries of a commit go.

    Parameters
    ----------
    current
        Entries of earlier commits that are still live.
    added
        Entries of this commit.
    """
    inline = fits_inline(added)
    flush = inline and bool(current) and not fits_inline((*current, *added))
    return InlinePlan(flush=flush, inline=inline)


def fits_inline(entries: Sequence[Entry]) -> bool:
    """Whether these entries fit into a snapshot: at most 64 of them and 64 KB."""
    if len(entries) > INLINE_ENTRIES_MAX:
        return False
    return sum(len(json_codec.encode(entry)) + 1 for entry in entries) <= INLINE_BYTES_MAX


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
    size_class, bound = 0, max(INLINE_ENTRIES_MAX * MERGE_FANOUT // 2, 1)
    while reference.live_entries > bound:
        size_class += 1
        bound *= MERGE_FANOUT
    return size_class
