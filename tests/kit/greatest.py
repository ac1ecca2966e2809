"""A merge engine that the project does not have, in one file: of each column the greatest value.

`register` adds it to the registry; a process that imports this module by `sitecustomize` has it.
"""

from __future__ import annotations

from fermion_table.merge_engines.aggregation import aggregated, folded_rows
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.key_groups import (
    Folded,
    StoredRows,
    after_deletions,
    is_retraction,
    one_by_one,
)
from fermion_table.merge_engines.registry import ENGINES
from fermion_table.schema.field_functions import FieldFunction
from fermion_table.schema.key_options import KeyOptions

MAX = FieldFunction(name="max")


class Greatest(MergeEngine):
    """The greatest value of each column; a deletion removes the row."""

    name = "greatest"
    can_remove_rows = True

    def fold(self, stored: StoredRows, options: KeyOptions) -> Folded:
        """Rows of a key with deletions stay apart until no older ones can exist."""
        groups, kinds = stored.groups, stored.kinds
        if kinds is not None:
            if stored.is_oldest:
                groups, kinds = after_deletions(groups, kinds), None
            else:
                groups = one_by_one(groups, is_retraction(kinds))
        values = {
            name: aggregated(stored.rows.column(name), groups, None, MAX)
            for name in stored.rows.schema.names
            if name not in stored.key_columns
        }
        return folded_rows(groups, values, kinds)


def register() -> None:
    """Add the engine to those that tables may have."""
    ENGINES[Greatest.name] = Greatest()
