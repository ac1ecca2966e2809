"""Rows of files in batch mode → whole batches, in order, those without rows included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fermion.predicate import RowRanges
from fermion_table.schema.selection import BATCH_ID, INDEX_IN_BATCH


def batches_left(
    ids: np.ndarray, lengths: np.ndarray, rows: RowRanges | None
) -> tuple[np.ndarray, np.ndarray]:
    """Batches of which only some rows are wanted; those that lose all their rows go.

    Parameters
    ----------
    ids, lengths
        Of every batch of a file, in order: see `fermion.FermionFile.batches`.
    rows
        Of the file; None: all.

    Returns
    -------
    Ids and lengths of the batches that are left.
    """
    if rows is None:
        return ids, lengths
    ends = np.concatenate(([0], np.cumsum(lengths)))
    wanted = np.concatenate(([0], np.cumsum(rows.to_mask(int(ends[-1])))))
    counts = np.diff(wanted[ends])
    kept = (counts > 0) | (lengths == 0)
    return ids[kept], counts[kept]


class WholeBatch(NamedTuple):
    """A batch, or what is left of it.

    Attributes
    ----------
    rows
        Without the virtual columns.
    positions
        What ``index_in_batch`` was for each row: ``int64``, shape (rows,); None where it was not
        read.
    """

    batch_id: int
    rows: pa.Table
    positions: np.ndarray | None


def whole_batches(
    rows: Iterable[pa.RecordBatch], batches: tuple[np.ndarray, np.ndarray], schema: pa.Schema
) -> Iterator[WholeBatch]:
    """Cut rows where a batch begins; a batch may span many record batches.

    Parameters
    ----------
    rows
        As many as the batches have together.
    batches
        Their ids and lengths.
    schema
        Of ``rows``.
    """
    place = schema.get_field_index(INDEX_IN_BATCH.name)
    names = [name for name in schema.names if name not in (BATCH_ID.name, INDEX_IN_BATCH.name)]
    plain = pa.schema([schema.field(name) for name in names])
    source = iter(rows)
    left = pa.RecordBatch.from_pylist([], schema=plain)
    column: np.ndarray | None = None
    for batch_id, length in zip(*(column.tolist() for column in batches), strict=True):
        parts: list[pa.RecordBatch] = []
        positions: list[np.ndarray] = []
        missing = length
        while missing:
            if not left.num_rows:
                batch = next(source)
                left = batch.select(names)
                column = batch.column(place).to_numpy() if place >= 0 else None
            head = left.slice(0, missing)
            left = left.slice(head.num_rows)
            if column is not None:
                positions.append(column[: head.num_rows])
                column = column[head.num_rows :]
            missing -= head.num_rows
            parts.append(head)
        known = positions[0] if len(positions) == 1 else None
        if len(positions) > 1:
            known = np.concatenate(positions)
        yield WholeBatch(batch_id, pa.Table.from_batches(parts, schema=plain), known)
