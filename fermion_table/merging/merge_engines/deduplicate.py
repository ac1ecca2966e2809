"""The merge engine ``deduplicate``: the last row of a key; none where that is a retraction."""

from __future__ import annotations

import numpy as np

from fermion_table.merging.merge_engines.key_groups import Folded, KeyGroups, is_retraction


def fold(groups: KeyGroups, kinds: np.ndarray | None = None, *, is_oldest: bool = True) -> Folded:
    """The last row of each key. Folding some newest rows first changes no result.

    Parameters
    ----------
    kinds
        Of all rows: ``int8``, shape (n,); None: no retraction is among them.
    is_oldest
        Whether no older rows of these keys exist. Otherwise retractions stay, as they hide older
        rows.
    """
    last = groups.order[groups.ends - 1]
    if kinds is None:
        return Folded(last)
    found = kinds[last]
    gone = is_retraction(found)
    if not is_oldest:
        return Folded(last, kinds=found if gone.any() else None)
    return Folded(last[~gone])
