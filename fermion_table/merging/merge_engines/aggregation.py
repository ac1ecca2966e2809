"""The merge engine ``aggregation``: of every column an aggregate of its values, by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.merging.merge_engines import (
    bitmap_functions,
    item_functions,
    number_functions,
    pick_functions,
)
from fermion_table.merging.merge_engines.key_groups import (
    Folded,
    GroupedColumn,
    GroupOverflow,
    KeyGroups,
    after_deletions,
    is_retraction,
    one_by_one,
)
from fermion_table.schema.field_functions import FieldFunction

Values = dict[str, np.ndarray | pa.Array]

_FUNCTIONS: Mapping[str, Callable[[GroupedColumn, FieldFunction], np.ndarray | pa.Array]] = {
    **pick_functions.FUNCTIONS,
    **number_functions.FUNCTIONS,
    **item_functions.FUNCTIONS,
    **bitmap_functions.FUNCTIONS,
}


def fold(
    batch: pa.RecordBatch,
    groups: KeyGroups,
    functions: Mapping[str, FieldFunction],
    kinds: np.ndarray | None = None,
    *,
    is_oldest: bool = True,
    remove_record_on_delete: bool = False,
) -> Folded:
    """The aggregated row of each key. Folding some newest rows first changes no result.

    But for rounding: sums and products of floats and products of decimals are rounded each time.

    Parameters
    ----------
    functions
        By name of every column that is no key.
    kinds
        Of all rows: ``int8``, shape (n,); None: no retraction is among them.
    is_oldest
        Whether no older rows of these keys exist. Otherwise rows of a key with retractions, and of
        one whose sum or product is out of range, stay as they are, in order.
    remove_record_on_delete
        Whether a deletion removes what came before it; else it takes its values back.

    Raises
    ------
    InvalidArgumentError
        A sum or product out of range; a retraction of what is not there: a product by 0, or that is
        no multiple. The message names the key.
    """
    retracts = None
    if kinds is not None and is_retraction(kinds[groups.order]).any():
        retracts = is_retraction(kinds)
        if not is_oldest:
            groups, retracts = one_by_one(groups, retracts), None
        elif remove_record_on_delete:
            groups = after_deletions(groups, kinds)

    def computed(found: KeyGroups) -> Values:
        return {
            name: aggregated(batch.column(name), found, retracts, function)
            for name, function in functions.items()
            if name in batch.schema.names
        }

    key_columns = [name for name in batch.schema.names if name not in functions]
    groups, values = values_in_range(computed, batch, groups, key_columns, is_oldest=is_oldest)
    rows = groups.order[groups.ends - 1]
    found = None if kinds is None or is_oldest else kinds[rows]
    return Folded(rows, values, found if found is not None and is_retraction(found).any() else None)


def check_retractions(
    functions: Mapping[str, FieldFunction], kinds: np.ndarray, *, removes: bool = False
) -> None:
    """Refuse retractions that a function does not take back.

    Parameters
    ----------
    kinds
        Of the rows: ``int8``.
    removes
        Whether a deletion removes the row, so that only an update's old row is taken back.

    Raises
    ------
    InvalidArgumentError
    """
    taken_back = (kinds == 1) if removes else is_retraction(kinds)
    if not taken_back.any():
        return
    for name, function in functions.items():
        if function.refuses_retractions:
            raise InvalidArgumentError(
                f"merge_engine=aggregation: found a delete or update_preimage, and {function.name} "
                f"of column {name!r} takes no value back; set fields.{name}.ignore_retract=true; "
                "or make a table with ignore_delete=true or "
                "aggregation.remove_record_on_delete=true"
            )


def aggregated(
    column: pa.Array,
    groups: KeyGroups,
    retracts: np.ndarray | None,
    function: FieldFunction,
    used: np.ndarray | None = None,
) -> np.ndarray | pa.Array:
    """The aggregate of each key: numbers of rows to take it from, or the values.

    Of a function that refuses retractions there are only those that were written before the column
    was added. They hold its default, as all rows that are older than it, and count as these do: so
    they do once a compaction has made one row of them.

    Parameters
    ----------
    retracts
        Which rows are retractions: ``bool``, by row number; None: none is.
    used
        Which rows count: ``bool``, by row number; None: all.

    Raises
    ------
    GroupOverflow
    """
    if function.refuses_retractions:
        retracts = None
    taken_back = None if retracts is None else retracts[groups.order]
    grouped = GroupedColumn(column, groups, taken_back, ignores=function.ignore_retract)
    if used is not None:
        grouped.is_used = grouped.is_used & used[groups.order]
    return _FUNCTIONS[function.name](grouped, function)


def values_in_range(
    compute: Callable[[KeyGroups], Values],
    batch: pa.RecordBatch,
    groups: KeyGroups,
    key_columns: Sequence[str],
    *,
    is_oldest: bool,
) -> tuple[KeyGroups, Values]:
    """The values of all groups. Of keys whose values are out of range the rows stay apart.

    Raises
    ------
    InvalidArgumentError
        A value is out of range, and no older rows exist (`is_oldest`); names the key.
    """
    while True:
        try:
            return groups, compute(groups)
        except GroupOverflow as overflow:
            first = groups.order[groups.starts[overflow.groups]]
            if is_oldest:
                row = int(first[0])
                key = {name: batch.column(name)[row].as_py() for name in key_columns}
                raise InvalidArgumentError(f"key {key}: {overflow}") from None
            marked = np.zeros(batch.num_rows, bool)
            marked[first] = True
            groups = one_by_one(groups, marked)
