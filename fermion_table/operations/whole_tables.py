"""Tables that callers give, as one batch."""

from __future__ import annotations

import pyarrow as pa

from fermion.engine import one_batch
from fermion.errors import InvalidArgumentError
from fermion_table.schema.repeated import nulls


def whole_table(rows: pa.Table, where: str) -> pa.RecordBatch:
    """All rows of a table in one batch; a copy where there are several.

    Raises
    ------
    InvalidArgumentError
        They do not fit; names ``where``.
    """
    batches = [batch for batch in rows.to_batches() if batch.num_rows]
    if not batches:
        empty = [nulls(field.type, 0) for field in rows.schema]
        return pa.RecordBatch.from_arrays(empty, schema=rows.schema)
    try:
        return one_batch(batches)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(
            f"{where}: {error}; give fewer rows at a time, or use large_string, large_binary, "
            "large_list or dictionaries with wider indices"
        ) from error
