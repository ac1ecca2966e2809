"""The merge engine ``deduplicate``: the last row of a key; none where that is a retraction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.key_groups import Folded, KeyGroups, is_retraction
from fermion_table.schema.key_options import KeyOptions


class Deduplicate(MergeEngine):
    """The last row of each key."""

    name = "deduplicate"
    picks = True
    replaces = True

    def fold(
        self,
        rows: pa.RecordBatch,
        groups: KeyGroups,
        options: KeyOptions,
        key_columns: Sequence[str],
        kinds: np.ndarray | None,
        *,
        is_oldest: bool,
    ) -> Folded:
        """The last row; retractions stay where older rows may exist, as they hide these."""
        last = groups.order[groups.ends - 1]
        if kinds is None:
            return Folded(last)
        last_kinds = kinds[last]
        gone = is_retraction(last_kinds)
        if not is_oldest:
            return Folded(last, kinds=last_kinds if gone.any() else None)
        return Folded(last[~gone])
