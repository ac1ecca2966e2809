"""Sequence groups of the engine ``partial_update``: columns with an order of their own."""

from __future__ import annotations

from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa

from fermion_table.merge_engines.aggregation import Values, aggregated
from fermion_table.merge_engines.key_groups import (
    ABSENT,
    DELETE,
    GroupedColumn,
    KeyGroups,
    group_rows,
    order_numbers,
)
from fermion_table.schema.field_functions import SequenceGroup


def fold_group(
    batch: pa.RecordBatch,
    groups: KeyGroups,
    group: SequenceGroup,
    retracts: np.ndarray | None = None,
    *,
    names: Container[str],
) -> Values:
    """The values of a group's columns for each key, of those that the batch has.

    Rows whose sequence is null in every column are left out. Of the others the one with the
    greatest sequence, of equal ones the last in time, gives the sequence and the columns, nulls
    included; null where it is a retraction. Aggregates take all of them, in order of the sequence.

    retracts: Which rows are retractions: ``bool``, by row number; None: none is.
    Raises GroupOverflow: A sum or product is out of range.
    """
    sequence = [batch.column(name) for name in group.sequence]
    counts = np.logical_or.reduce(
        [each.is_valid().to_numpy(zero_copy_only=False) for each in sequence]
    )
    ordered = _by_sequence(groups, sequence)
    columns = GroupedColumn(sequence[0], ordered)
    last = columns.rows_at(columns.last_where(counts[ordered.order]))
    values: Values = dict.fromkeys(group.sequence, last)
    plain = last if retracts is None else np.where(retracts[last] & (last != ABSENT), ABSENT, last)
    for name in group.columns:
        if name not in names:
            continue
        function = group.functions.get(name)
        values[name] = (
            plain
            if function is None
            else aggregated(batch.column(name), ordered, retracts, function, counts)
        )
    return values


def after_removals(
    batch: pa.RecordBatch,
    groups: KeyGroups,
    kinds: np.ndarray,
    sequence_groups: Sequence[SequenceGroup],
    removing: AbstractSet[str],
) -> KeyGroups:
    """The rows after the last deletion of each key that removes the row; some may have none.

    A deletion removes the row if the sequence of a group that removes is not null and not smaller
    than that of the row, which is forgotten then.

    kinds: By row number: ``int8``.
    removing: Names sequences of the groups that remove.
    """
    if not len(groups.starts):
        return groups
    chosen = [group for group in sequence_groups if not removing.isdisjoint(group.sequence)]
    ranks = np.stack([_ranks(batch, groups, group) for group in chosen], axis=1)
    is_deleted = kinds[groups.order] == DELETE
    kept = np.ones(len(groups.order), bool)
    for start, stop in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
        if is_deleted[start:stop].any():
            last = _last_removal(ranks[start:stop].tolist(), is_deleted[start:stop].tolist())
            kept[start : start + last + 1] = False
    return groups.rows_where(kept)


def _last_removal(ranks: list[list[int]], is_deleted: list[bool]) -> int:
    """The place of the last of a key's rows that removes what came before it; -1: none does."""
    last = -1
    newest = nothing = [-1] * len(ranks[0])
    for place, (row, is_deletion) in enumerate(zip(ranks, is_deleted, strict=True)):
        counts = [mine >= 0 and mine >= known for mine, known in zip(row, newest, strict=True)]
        if is_deletion and any(counts):
            last, newest = place, nothing
        else:
            newest = [max(mine, known) for mine, known in zip(row, newest, strict=True)]
    return last


def _ranks(batch: pa.RecordBatch, groups: KeyGroups, group: SequenceGroup) -> np.ndarray:
    """Numbers that order as a group's sequences, along the order; -1 where all are null."""
    rows = pa.array(groups.order)
    levels: list[np.ndarray] = []
    valid = np.zeros(len(groups.order), bool)
    for name in group.sequence:
        column = batch.column(name).take(rows)
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        valid |= is_valid
        levels += [is_valid.astype(np.int64), order_numbers(column)]
    ranks = np.unique(np.column_stack(levels), axis=0, return_inverse=True)[1].reshape(-1)
    return np.where(valid, ranks, -1)


def _by_sequence(groups: KeyGroups, sequence: list[pa.Array]) -> KeyGroups:
    """The same groups, their rows by the sequence and then as they were."""
    order = pa.array(groups.order)
    placed = group_rows(
        groups.numbers,
        np.arange(len(groups.order)),
        sequence=[each.take(order) for each in sequence],
    )
    return KeyGroups(groups.order[placed.order], placed.starts)
