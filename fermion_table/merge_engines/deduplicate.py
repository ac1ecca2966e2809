"""The merge engine ``deduplicate``: the last row of a key; none where that is a retraction."""

from __future__ import annotations

from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.key_groups import Folded, StoredRows, is_retraction
from fermion_table.schema.key_options import KeyOptions


class Deduplicate(MergeEngine):
    """The last row of each key."""

    name = "deduplicate"
    picks = True
    replaces = True

    def fold(self, stored: StoredRows, options: KeyOptions) -> Folded:
        """The last row; retractions stay where older rows may exist, as they hide these."""
        last, kinds = stored.groups.order[stored.groups.ends - 1], stored.kinds
        if kinds is None:
            return Folded(last)
        last_kinds = kinds[last]
        gone = is_retraction(last_kinds)
        if not stored.is_oldest:
            return Folded(last, kinds=last_kinds if gone.any() else None)
        return Folded(last[~gone])
