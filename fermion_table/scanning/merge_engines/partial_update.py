"""The merge engine ``partial_update``: of every column the last value that is not null."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.scanning.merge_engines.key_groups import (
    ABSENT,
    DELETE,
    UPDATE_BEFORE,
    Folded,
    KeyGroups,
    after_deletions,
    is_retraction,
    one_by_one,
)


def fold(
    batch: pa.RecordBatch,
    groups: KeyGroups,
    key_columns: Collection[str],
    kinds: np.ndarray | None = None,
    *,
    is_oldest: bool = True,
    remove_record_on_delete: bool = False,
) -> Folded:
    """The row of each key, filled from its rows. Folding some newest rows first changes no result.

    Parameters
    ----------
    key_columns
        Names of the key's columns.
    kinds
        Of all rows: ``int8``, shape (n,); None: no retraction is among them.
    is_oldest
        Whether no older rows of these keys exist. Otherwise rows of a key with retractions stay as
        they are, in order.
    remove_record_on_delete
        Whether a deletion removes what came before it. An update's old row is ignored then.

    Raises
    ------
    InvalidArgumentError
        A row is a retraction, and deletions do not remove rows.
    """
    if kinds is not None and is_retraction(kinds[groups.order]).any():
        if not remove_record_on_delete:
            raise InvalidArgumentError(
                "merge_engine=partial_update: found a delete or update_preimage; set "
                "ignore_delete=true to drop such rows, or "
                "partial_update.remove_record_on_delete=true to remove the row of the key"
            )
        groups = groups.rows_where(kinds[groups.order] != UPDATE_BEFORE)
        is_deletion = kinds == DELETE
        groups = after_deletions(groups, kinds) if is_oldest else one_by_one(groups, is_deletion)
    rows = groups.order[groups.ends - 1]
    values = {
        name: last_non_null(batch.column(name), groups)
        for name in batch.schema.names
        if name not in key_columns
    }
    found = None if kinds is None or is_oldest else kinds[rows]
    return Folded(rows, values, found if found is not None and (found == DELETE).any() else None)


def last_non_null(column: pa.Array, groups: KeyGroups) -> np.ndarray:
    """The row of each key's last value that is not null: ``int64``, shape (g,), or `ABSENT`."""
    if not column.null_count:
        return groups.order[groups.ends - 1]
    valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.order]
    places = np.where(valid, np.arange(len(groups.order)), -1)
    last = np.maximum.reduceat(places, groups.starts) if len(groups.starts) else groups.starts
    return np.where(last < 0, ABSENT, groups.order[last])
