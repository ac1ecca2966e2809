"""Sequence groups of the engine ``partial_update``: columns with an order of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fermion_table.merging.merge_engines.aggregation import Values, aggregated
from fermion_table.merging.merge_engines.key_groups import (
    ABSENT,
    GroupedColumn,
    KeyGroups,
    group_rows,
)
from fermion_table.schema.field_functions import SequenceGroup


def fold_group(
    batch: pa.RecordBatch,
    groups: KeyGroups,
    group: SequenceGroup,
    retracts: np.ndarray | None = None,
) -> Values:
    """The values of a group's columns for each key, of those that the batch has.

    Rows whose sequence is null in every column are left out. Of the others the one with the
    greatest sequence, of equal ones the last in time, gives the sequence and the columns, nulls
    included; null where it is a retraction. Aggregates take all of them, in order of the sequence.

    Parameters
    ----------
    retracts
        Which rows are retractions: ``bool``, by row number; None: none is.

    Raises
    ------
    GroupOverflow
        A sum or product is out of range.
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
        if name not in batch.schema.names:
            continue
        function = group.functions.get(name)
        values[name] = (
            plain
            if function is None
            else aggregated(batch.column(name), ordered, retracts, function, counts)
        )
    return values


def _by_sequence(groups: KeyGroups, sequence: list[pa.Array]) -> KeyGroups:
    """The same groups, their rows by the sequence and then as they were."""
    order = pa.array(groups.order)
    placed = group_rows(
        groups.numbers,
        np.arange(len(groups.order)),
        sequence=[each.take(order) for each in sequence],
    )
    return KeyGroups(groups.order[placed.order], placed.starts)
