"""The merge engine ``partial_update``: of every column the last value that is not null.

Columns of a sequence group are replaced together, or aggregated, by their own sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.aggregation import (
    Values,
    check_taken_back,
    folded_rows,
    values_in_range,
)
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.key_groups import (
    ABSENT,
    UPDATE_BEFORE,
    Folded,
    KeyGroups,
    StoredRows,
    after_deletions,
    is_retraction,
    one_by_one,
)
from fermion_table.merge_engines.sequence_groups import after_removals, fold_group
from fermion_table.schema.key_options import KeyOptions


class PartialUpdate(MergeEngine):
    """The last value of each column that is not null, or what its sequence group says."""

    name = "partial_update"
    can_remove_rows = True
    has_sequence_groups = True
    fills_defaults = False

    def fold(self, stored: StoredRows, options: KeyOptions) -> Folded:
        """The row of each key, filled from its rows.

        A deletion removes what came before it, an update's old row is ignored then; or, with
        sequence groups, a retraction concerns the columns of its groups alone, a key of retractions
        alone has no row, and a deletion that is not older than what came before it, by the sequence
        of a group that removes rows, removes that. Otherwise rows of a key with retractions, and of
        one whose sum or product is out of range, stay as they are where older rows may exist.
        """
        rows, groups, kinds = stored.rows, stored.groups, stored.kinds
        retracts, sequence_groups = None, options.sequence_groups
        removes = options.remove_record_on_delete
        if kinds is not None and is_retraction(kinds[groups.order]).any():
            self.check_retractions(options, kinds[groups.order])
            if removes:
                groups = groups.rows_where(kinds[groups.order] != UPDATE_BEFORE)
            retracts = is_retraction(kinds)
            if not stored.is_oldest:
                groups, retracts = one_by_one(groups, retracts), None
            elif removes:
                groups, retracts = after_deletions(groups, kinds), None
            else:
                if options.removing_sequences:
                    groups = after_removals(
                        rows, groups, kinds, sequence_groups, options.removing_sequences
                    )
                groups = _with_additions(groups, retracts)

        names = dict.fromkeys(rows.schema.names)

        def computed(some: KeyGroups) -> Values:
            values: Values = {}
            for group in sequence_groups:
                if not all(name in names for name in group.sequence):
                    continue  # none of its columns is wanted
                values.update(fold_group(rows, some, group, retracts, names=names))
            additions = some if retracts is None else some.rows_where(~retracts[some.order])
            done = {*stored.key_columns, *values}
            plain = [name for name in names if name not in done]
            return values | {name: last_non_null(rows.column(name), additions) for name in plain}

        groups, values = values_in_range(computed, stored, groups)
        return folded_rows(groups, values, None if stored.is_oldest else kinds)

    def check_retractions(self, options: KeyOptions, kinds: np.ndarray) -> None:
        """Refuse those that take nothing back."""
        if not is_retraction(kinds).any():
            return
        if not options.remove_record_on_delete and not options.sequence_groups:
            raise InvalidArgumentError(
                "merge_engine=partial_update: found a delete or update_preimage; set "
                "ignore_delete=true to drop such rows, "
                "partial_update.remove_record_on_delete=true to remove the row of the key, or use "
                "sequence groups (fields.<sequence>.sequence_group)"
            )
        for group in options.sequence_groups:
            check_taken_back(group.functions, kinds)

    def check_sequence_fields(self, fields: Sequence[str]) -> None:
        """Refuse them: sequence groups have their own."""
        if fields:
            raise InvalidArgumentError(
                "sequence.field with merge_engine=partial_update: a late row can't be put in its "
                "place once others were merged; use sequence groups "
                "(fields.<sequence>.sequence_group): they keep their own sequence"
            )


def _with_additions(groups: KeyGroups, retracts: np.ndarray) -> KeyGroups:
    """The groups with an addition among their rows."""
    if not len(groups.starts):
        return groups
    has_addition = np.logical_or.reduceat(~retracts[groups.order], groups.starts)
    return groups.rows_where(np.repeat(has_addition, groups.lengths))


def last_non_null(column: pa.Array, groups: KeyGroups) -> np.ndarray:
    """The row of each key's last value that is not null: ``int64``, shape (g,), or `ABSENT`."""
    if not column.null_count:
        return groups.order[groups.ends - 1]
    valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.order]
    places = np.where(valid, np.arange(len(groups.order)), -1)
    last = np.maximum.reduceat(places, groups.starts) if len(groups.starts) else groups.starts
    return np.where(last < 0, ABSENT, groups.order[last])
