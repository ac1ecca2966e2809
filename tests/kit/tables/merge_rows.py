"""Rows to merge, drawn and as tables, and keys in groups: for the tests of merge engines."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from fermion_table.merge_engines.key_groups import Folded, KeyGroups, group_rows

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


def as_rows(batch: pa.RecordBatch) -> list[str]:
    """Return rows as texts, in which NaN is equal to itself and -0.0 is not 0.0."""
    return [
        repr({name: tuple(each) if name == "?" else each for name, each in row.items()})
        for row in batch.to_pylist()
    ]


def check(found: Folded, rows: list[Row], expected: list[Row | None], schema: pa.Schema) -> None:
    keys = list(by_key(rows))
    wanted = [{"k": key, **row} for key, row in zip(keys, expected, strict=True) if row is not None]
    batch = found.gather(batch_of(rows, schema))
    batch.validate(full=True)
    assert as_rows(batch) == as_rows(batch_of(wanted, schema))
    assert found.kinds is None


def runs_folded(rows, cuts, schema, fold) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return what is left where each run is folded alone, as ones that are not the oldest."""
    batches, kinds = [], []
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, stop in itertools.pairwise(bounds):
        run = rows[start:stop]
        batch = batch_of(run, schema)
        found = fold(batch, groups_of(run), kinds_of(run), is_oldest=False)
        batches.append(found.gather(batch))
        kinds.append(np.zeros(len(found.rows), np.int8) if found.kinds is None else found.kinds)
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    merged = table.to_batches()[0] if table.num_rows else batch_of([], schema)
    return merged, np.concatenate(kinds)
