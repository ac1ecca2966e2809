"""The merge engines as functions of what they use, for tests of single engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa

from fermion_table.merge_engines.key_groups import Folded, KeyGroups, StoredRows
from fermion_table.merge_engines.registry import ENGINES
from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from fermion_table.schema.key_options import KeyOptions

NO_ROWS = pa.RecordBatch.from_arrays([], names=[])


def _fold(
    name: str,
    rows: pa.RecordBatch,
    groups: KeyGroups,
    kinds: np.ndarray | None,
    *,
    is_oldest: bool = True,
    key_columns: Sequence[str] = (),
    **options: Any,
) -> Folded:
    made = KeyOptions(merge_engine=name, **options)
    return ENGINES[name].fold(StoredRows(rows, groups, key_columns, kinds, is_oldest), made)


def deduplicate(
    groups: KeyGroups, kinds: np.ndarray | None = None, *, is_oldest: bool = True
) -> Folded:
    """The last row of each key."""
    return _fold("deduplicate", NO_ROWS, groups, kinds, is_oldest=is_oldest)


def first_row(groups: KeyGroups, kinds: np.ndarray | None = None) -> Folded:
    """The first row of each key."""
    return _fold("first_row", NO_ROWS, groups, kinds)


def partial_update(
    rows: pa.RecordBatch,
    groups: KeyGroups,
    key_columns: Sequence[str],
    kinds: np.ndarray | None = None,
    *,
    is_oldest: bool = True,
    remove_record_on_delete: bool = False,
    sequence_groups: Sequence[SequenceGroup] = (),
    removing: AbstractSet[str] = frozenset(),
) -> Folded:
    """The row of each key, filled from its rows."""
    return _fold(
        "partial_update",
        rows,
        groups,
        kinds,
        is_oldest=is_oldest,
        key_columns=key_columns,
        remove_record_on_delete=remove_record_on_delete,
        sequence_groups=tuple(sequence_groups),
        removing_sequences=frozenset(removing),
    )


def aggregation(
    rows: pa.RecordBatch,
    groups: KeyGroups,
    functions: Mapping[str, FieldFunction],
    kinds: np.ndarray | None = None,
    *,
    is_oldest: bool = True,
    remove_record_on_delete: bool = False,
) -> Folded:
    """The aggregated row of each key."""
    return _fold(
        "aggregation",
        rows,
        groups,
        kinds,
        is_oldest=is_oldest,
        key_columns=[name for name in rows.schema.names if name not in functions],
        functions=functions,
        remove_record_on_delete=remove_record_on_delete,
    )
