"""Rows to merge, drawn and as tables, and keys in groups: for the tests of merge engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fermion_table.merging.merge_engines.key_groups import KeyGroups, group_rows

KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
Row = dict[str, Any]


def by_key(rows: list[Row], key: str = "k") -> dict[Any, list[Row]]:
    """Return rows by key, in their order; keys ascending."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return dict(sorted(found.items()))


def batch_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch."""
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def kinds_of(rows: list[Row]) -> np.ndarray:
    """Return the kinds of rows; an insertion where a row says none."""
    return np.array([KINDS[row.get("_kind") or "+I"] for row in rows], np.int8)


def groups_of(rows: list[Row], key: str = "k", **sequence: Any) -> KeyGroups:
    """Return rows of an integer key in groups, in the order in which they are given."""
    keys = np.array([row[key] for row in rows], np.int64)
    return group_rows(keys, np.arange(len(rows)), **sequence)
