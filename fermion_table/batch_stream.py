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
        With the virtual columns ``batch_id`` and ``index_in_batch``, all rows of each batch.
    schema
        Of ``rows``.

    Returns
    -------
    Pairs of batch id and rows, without the virtual columns. Two batches of one id in a row stay
    two; batches without rows do not show.
    """
    wanted = [name for name in schema.names if name not in (BATCH_ID.name, INDEX_IN_BATCH.name)]
    parts: list[pa.RecordBatch] = []
    number = 0
    plain = pa.schema([schema.field(name) for name in wanted])
    for batch in rows:
        ids = batch.column(BATCH_ID.name)
        places = batch.column(INDEX_IN_BATCH.name).to_numpy(zero_copy_only=False)
        data = batch.select(wanted)
        cuts = np.flatnonzero(places == 0).tolist()
        for start, stop in zip([0, *cuts], [*cuts, batch.num_rows], strict=True):
            if start < stop:
                if places[start] == 0:
                    if parts:
                        yield number, pa.Table.from_batches(parts, schema=plain)
                    parts, number = [], ids[start].as_py()
                parts.append(data.slice(start, stop - start))
    if parts:
        yield number, pa.Table.from_batches(parts, schema=plain)
