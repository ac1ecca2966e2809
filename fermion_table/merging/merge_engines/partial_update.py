"""The merge engine ``partial_update``: of every column the last value that is not null.

Columns of a sequence group are replaced together, or aggregated, by their own sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.merging.merge_engines import aggregation
from fermion_table.merging.merge_engines.aggregation import Values, values_in_range
from fermion_table.merging.merge_engines.key_groups import (
    ABSENT,
    UPDATE_BEFORE,
    Folded,
    KeyGroups,
    after_deletions,
    is_retraction,
    one_by_one,
)
from fermion_table.merging.merge_engines.sequence_groups import after_removals, fold_group
from fermion_table.schema.field_functions import SequenceGroup


def fold(
    batch: pa.RecordBatch,
    groups: KeyGroups,
    key_columns: Sequence[str],
    kinds: np.ndarray | None = None,
    *,
    is_oldest: bool = True,
    remove_record_on_delete: bool = False,
    sequence_groups: Sequence[SequenceGroup] = (),
    removing: AbstractSet[str] = frozenset(),
) -> Folded:
    """The row of each key, filled from its rows. Folding some newest rows first changes no result.

    Parameters
    ----------
    key_columns
        Names of the key's columns.
    kinds
        Of all rows: ``int8``, shape (n,); None: no retraction is among them.
    is_oldest
        Whether no older rows of these keys exist. Otherwise rows of a key with retractions, and of
        one whose sum or product is out of range, stay as they are, in order.
    remove_record_on_delete
        Whether a deletion removes what came before it. An update's old row is ignored then.
    sequence_groups
        Columns with a sequence of their own. A retraction concerns their columns alone, and a key
        of retractions alone has no row.
    removing
        Sequences of groups. A deletion that is not older than what came before it, by the sequence
        of such a group, removes that.

    Raises
    ------
    InvalidArgumentError
        A row is a retraction, deletions do not remove rows and there are no sequence groups, or a
        function of one does not take values back; or a value is out of range.
    """
    retracts = None
    if kinds is not None and is_retraction(kinds[groups.order]).any():
        check_retractions(kinds[groups.order], remove_record_on_delete, sequence_groups)
        if remove_record_on_delete:
            groups = groups.rows_where(kinds[groups.order] != UPDATE_BEFORE)
        retracts = is_retraction(kinds)
        if not is_oldest:
            groups, retracts = one_by_one(groups, retracts), None
        elif remove_record_on_delete:
            groups, retracts = after_deletions(groups, kinds), None
        else:
            if removing:
                groups = after_removals(batch, groups, kinds, sequence_groups, removing)
            groups = _with_additions(groups, retracts)

    def computed(found: KeyGroups) -> Values:
        values: Values = {}
        for group in sequence_groups:
            if not set(group.sequence).issubset(batch.schema.names):
                continue  # none of its columns is wanted
            values |= fold_group(batch, found, group, retracts)
        additions = found if retracts is None else found.rows_where(~retracts[found.order])
        plain = [name for name in batch.schema.names if name not in {*key_columns, *values}]
        return values | {name: last_non_null(batch.column(name), additions) for name in plain}

    groups, values = values_in_range(computed, batch, groups, key_columns, is_oldest=is_oldest)
    rows = groups.order[groups.ends - 1]
    found = None if kinds is None or is_oldest else kinds[rows]
    return Folded(rows, values, found if found is not None and is_retraction(found).any() else None)


def check_retractions(
    kinds: np.ndarray, removes: bool, sequence_groups: Sequence[SequenceGroup]
) -> None:
    """Refuse retractions that take nothing back.

    Parameters
    ----------
    kinds
        Of the rows: ``int8``.
    removes
        Whether a deletion removes the row.

    Raises
    ------
    InvalidArgumentError
    """
    if not is_retraction(kinds).any():
        return
    if not removes and not sequence_groups:
        raise InvalidArgumentError(
            "merge_engine=partial_update: found a delete or update_preimage; set "
            "ignore_delete=true to drop such rows, "
            "partial_update.remove_record_on_delete=true to remove the row of the key, or use "
            "sequence groups (fields.<sequence>.sequence_group)"
        )
    for group in sequence_groups:
        aggregation.check_retractions(group.functions, kinds)


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
