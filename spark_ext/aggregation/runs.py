"""Rows with equal keys that follow each other become one: where rows are sorted by the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

SHARE_MAX = 0.6
"""Runs for each row, up to which joining them pays."""


def joined_runs(
    rows: pa.RecordBatch, keys: Sequence[str], states: Sequence[tuple[str, str]]
) -> pa.RecordBatch:
    """One row for each run of equal keys; the same batch where that would not pay.

    rows: Keys, then states. Only integers without nulls are joined.
    keys: Their names; without keys all rows are one run.
    states: Names and kinds: ``sum``, ``min`` or ``max``. No sum may be too large for 64 bits.
    """
    if not rows.num_rows or not all(
        pat.is_integer(column.type) and not column.null_count for column in rows.columns
    ):
        return rows
    changes = np.zeros(rows.num_rows - 1, bool)
    for name in keys:
        values = rows[name].to_numpy()
        changes |= values[1:] != values[:-1]
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    if len(starts) > SHARE_MAX * rows.num_rows:
        return rows
    joined = [pa.array(rows[name].to_numpy()[starts], rows[name].type) for name in keys]
    for name, kind in states:
        joined.append(pa.array(_REDUCED[kind](rows[name].to_numpy(), starts), rows[name].type))
    return pa.RecordBatch.from_arrays(joined, names=[*keys, *(name for name, _ in states)])


_REDUCED: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduceat,
    "min": np.minimum.reduceat,
    "max": np.maximum.reduceat,
}
