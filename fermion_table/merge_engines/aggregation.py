"""The merge engine ``aggregation``: of every column an aggregate of its values, by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines import (
    bitmap_functions,
    item_functions,
    number_functions,
    pick_functions,
)
from fermion_table.merge_engines.engine import MergeEngine
from fermion_table.merge_engines.key_groups import (
    DELETE,
    UPDATE_BEFORE,
    Folded,
    GroupedColumn,
    GroupOverflow,
    KeyGroups,
    StoredRows,
    Unfoldable,
    after_deletions,
    is_retraction,
    one_by_one,
)
from fermion_table.schema.field_functions import FieldFunction
from fermion_table.schema.key_options import KeyOptions

Values = dict[str, np.ndarray | pa.Array]

_FUNCTIONS: Mapping[str, Callable[[GroupedColumn, FieldFunction], np.ndarray | pa.Array]] = {
    **pick_functions.FUNCTIONS,
    **number_functions.FUNCTIONS,
    **item_functions.FUNCTIONS,
    **bitmap_functions.FUNCTIONS,
}


class Aggregation(MergeEngine):
    """Each column by a function of its values."""

    name = "aggregation"
    can_remove_rows = True
    has_functions = True

    def fold(self, stored: StoredRows, options: KeyOptions) -> Folded:
        """The aggregated row of each key.

        A later fold changes no result, but for rounding: sums and products of floats and products
        of decimals are rounded each time. A retraction takes its values back, or a deletion removes
        what came before it. Rows of a key with retractions, and of one whose sum or product is out
        of range, stay as they are where older rows may exist.
        """
        rows, groups, kinds = stored.rows, stored.groups, stored.kinds
        retracts, functions = None, options.functions
        if kinds is not None and is_retraction(kinds[groups.order]).any():
            retracts = is_retraction(kinds)
            if not stored.is_oldest:
                groups, retracts = one_by_one(groups, retracts), None
            elif options.remove_record_on_delete:
                groups = after_deletions(groups, kinds)

        names = dict.fromkeys(rows.schema.names)

        def computed(some: KeyGroups) -> Values:
            return {
                name: aggregated(rows.column(name), some, retracts, function)
                for name, function in functions.items()
                if name in names
            }

        groups, values = values_in_range(computed, stored, groups)
        return folded_rows(groups, values, None if stored.is_oldest else kinds)

    def check_retractions(self, options: KeyOptions, kinds: np.ndarray) -> None:
        """Refuse those of functions that take nothing back."""
        check_taken_back(options.functions, kinds, removes=options.remove_record_on_delete)

    def without_value(self, options: KeyOptions, kinds: np.ndarray) -> np.ndarray:
        """Retractions, unless a deletion removes the row."""
        if options.remove_record_on_delete:
            return kinds == UPDATE_BEFORE
        return is_retraction(kinds)

    def says_nothing(self, options: KeyOptions, kinds: np.ndarray) -> np.ndarray:
        """Deletions that remove the row; other retractions hold what is taken back."""
        return (kinds == DELETE) & options.remove_record_on_delete

    def check_deletes_by_key(self, options: KeyOptions) -> None:
        """Refuse them where values are taken back."""
        if not (options.ignore_delete or options.remove_record_on_delete):
            raise InvalidArgumentError(
                "delete_keys with merge_engine=aggregation takes no values back: set "
                "aggregation.remove_record_on_delete=true, or write the rows to be taken back by "
                "upsert(data, change_type=...)"
            )


def folded_rows(groups: KeyGroups, values: Values, kinds: np.ndarray | None) -> Folded:
    """The last row of each key with other values; ``kinds``: of all rows, if any has to stay."""
    rows = groups.order[groups.ends - 1]
    stay = None if kinds is None else kinds[rows]
    return Folded(rows, values, stay if stay is not None and is_retraction(stay).any() else None)


def check_taken_back(
    functions: Mapping[str, FieldFunction], kinds: np.ndarray, *, removes: bool = False
) -> None:
    """Refuse retractions that a function does not take back.

    kinds: Of the rows: ``int8``.
    removes: Whether a deletion removes the row, so that only an update's old row is taken back.
    Raises InvalidArgumentError.
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

    retracts: Which rows are retractions: ``bool``, by row number; None: none is.
    used: Which rows count: ``bool``, by row number; None: all.
    Raises GroupOverflow.
    """
    if function.refuses_retractions:
        retracts = None
    taken_back = None if retracts is None else retracts[groups.order]
    grouped = GroupedColumn(column, groups, taken_back, ignores=function.ignore_retract)
    if used is not None:
        grouped.is_used = grouped.is_used & used[groups.order]
    return _FUNCTIONS[function.name](grouped, function)


def values_in_range(
    compute: Callable[[KeyGroups], Values], stored: StoredRows, groups: KeyGroups
) -> tuple[KeyGroups, Values]:
    """The values of all groups. Of keys whose values are out of range the rows stay apart.

    Raises Unfoldable: A value is out of range, and no older rows exist; names the
        key.
    """
    while True:
        try:
            return groups, compute(groups)
        except GroupOverflow as overflow:
            first = groups.order[groups.starts[overflow.groups]]
            if stored.is_oldest:
                row = int(first[0])
                key = {name: stored.rows.column(name)[row].as_py() for name in stored.key_columns}
                raise Unfoldable(f"key {key}: {overflow}", first) from None
            marked = np.zeros(stored.rows.num_rows, bool)
            marked[first] = True
            groups = one_by_one(groups, marked)
