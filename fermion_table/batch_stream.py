"""Rows with their batch ids → whole batches, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from fermion_table.column_selection import BATCH_ID, INDEX_IN_BATCH


def whole_batches(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[tuple[int, pa.Table]]:
    """Cut rows where a batch begins; a batch may span many record batches.

    Parameters
    ----------
    rows
        With the virtual columns ``batch_id`` and ``index_in_batch``; rows may be missing.
    schema
        Of ``rows``.

    Returns
    -------
    Pairs of batch id and rows, without the virtual columns. Two batches of one id in a row stay
    two (unless the second lacks as many rows at its start as the first had); batches without rows
    do not show.
    """
    wanted = [name for name in schema.names if name not in (BATCH_ID.name, INDEX_IN_BATCH.name)]
    parts: list[pa.RecordBatch] = []
    plain = pa.schema([schema.field(name) for name in wanted])
    number, last = 0, -1
    for batch in rows:
        if not batch.num_rows:
            continue
        ids = batch.column(BATCH_ID.name).to_numpy(zero_copy_only=False)
        places = batch.column(INDEX_IN_BATCH.name).to_numpy(zero_copy_only=False)
        data = batch.select(wanted)
        begins = (np.diff(ids) != 0) | (np.diff(places) <= 0)
        cuts = (np.flatnonzero(begins) + 1).tolist()
        for start, stop in zip([0, *cuts], [*cuts, batch.num_rows], strict=True):
            if parts and (int(ids[start]) != number or places[start] <= last):
                yield number, pa.Table.from_batches(parts, schema=plain)
                parts = []
            number, last = int(ids[start]), int(places[stop - 1])
            parts.append(data.slice(start, stop - start))
    if parts:
        yield number, pa.Table.from_batches(parts, schema=plain)
