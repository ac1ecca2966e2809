"""Splits rows that are sorted by batch id into whole batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from fermion.engine import BatchCopier
from fermion.errors import InvalidArgumentError


def batch_runs(
    batches: Iterable[pa.RecordBatch], id_column: int
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Split a stream of sorted rows where the batch id changes.

    batches: Record batches of one schema, sorted by the id column.
    id_column: Its index; integers without nulls.
    Yields: A batch id, and its rows as copies of parts of the record batches, with the id column.
    Raises InvalidArgumentError: A null among the ids, or ids that descend.
    """
    current: int | None = None
    held: list[pa.RecordBatch] = []
    copier: BatchCopier | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        copier = copier or BatchCopier(batch.schema)
        ids = _ids(batch, id_column)
        changes = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        for start, stop in pairwise([0, *changes.tolist(), batch.num_rows]):
            number = int(ids[start])
            if number != current:
                if current is not None:
                    if number < current:
                        raise InvalidArgumentError(
                            f"batch id {number} after {current}: expected rows sorted by batch id"
                        )
                    yield current, held
                current, held = number, []
            held.append(copier.copy(batch.slice(start, stop - start)))
    if current is not None:
        yield current, held


def _ids(batch: pa.RecordBatch, id_column: int) -> np.ndarray:
    column = batch.column(id_column)
    if column.null_count:
        name = batch.schema.field(id_column).name
        raise InvalidArgumentError(
            f"batch id column {name!r} holds {column.null_count} nulls; every row needs a batch id"
        )
    return column.cast(pa.int64()).to_numpy()
