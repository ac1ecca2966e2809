"""The merge engine ``first_row``: the first row of a key in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.key_groups import Folded, StoredRows, is_retraction
from fermion_table.schema.key_options import KeyOptions


class FirstRow(MergeEngine):
    """The first row of each key; it takes no retractions."""

    name = "first_row"
    picks = True
    oldest_wins = True
    rows_change = False
    changelog_producers = ("none", "lookup")

    def fold(self, stored: StoredRows, options: KeyOptions) -> Folded:
        """The first row."""
        groups = stored.groups
        if stored.kinds is not None:
            self.check_retractions(options, stored.kinds[groups.order])
        return Folded(groups.order[groups.starts])

    def check_retractions(self, options: KeyOptions, kinds: np.ndarray) -> None:
        """Refuse every one."""
        if is_retraction(kinds).any():
            raise InvalidArgumentError(
                "merge_engine=first_row: found a delete or update_preimage, which takes no row "
                "back here; set ignore_delete=true to drop such rows, or use "
                "merge_engine=deduplicate"
            )

    def check_sequence_fields(self, fields: Sequence[str]) -> None:
        """Refuse them: time alone decides."""
        if fields:
            raise InvalidArgumentError(
                "sequence.field with merge_engine=first_row: the first row in time is kept; use "
                "merge_engine=deduplicate with sequence.field.sort_order=descending"
            )
