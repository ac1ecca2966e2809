"""Files in batch mode written again with some rows changed: every row stays in its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from fermion.engine import filter_batch_rows
from fermion.predicate import RowRanges
from fermion_table.metadata.manifest import Entry
from fermion_table.operations.assignments import overlaid
from fermion_table.operations.draft import Draft, mask_within
from fermion_table.reading.whole_rows import write_again

ChangeRows = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""New rows of the same schema for some rows, of which so many were changed before."""


def write_changed(
    draft: Draft, entry: Entry, kept: RowRanges, changed: RowRanges, change: ChangeRows
) -> tuple[Entry, ...]:
    """Write a file again, its rows and batches in their order; the draft does not change.

    Parameters
    ----------
    changed
        Those of them that `change` makes others of.

    Returns
    -------
    The new files, to take the place of the old one.
    """
    reader = draft.reader([entry])
    mask = mask_within(changed, kept, entry.rows)

    def batches() -> Iterator[pa.RecordBatch]:
        start = done = 0
        for batch in draft.read(reader, entry, kept):
            inside = mask[start : start + batch.num_rows]
            start += batch.num_rows
            if inside.any():
                batch = overlaid(batch, change(filter_batch_rows(batch, inside), done), inside)
                done += int(np.count_nonzero(inside))
            yield batch

    with draft.writer() as writer:
        write_again(writer, batches(), reader.schema, draft.batches(reader, entry, kept))
        (message,) = writer.prepare_commit()
    return message.entries
