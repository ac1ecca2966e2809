"""Any Arrow producer → one `pyarrow.RecordBatchReader`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from fermion.errors import InvalidArgumentError


def record_batch_reader(data: Any, *, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Read any Arrow producer as a stream of record batches, without copying where it can be.

    Parameters
    ----------
    data
        A table, a record batch, a reader, an iterable of either, a pandas or polars frame, a dict
        of columns, or any object with ``__arrow_c_stream__``.
    schema
        Wanted for an iterable that may be empty, and for pandas frames and dicts.

    Raises
    ------
    InvalidArgumentError
        When the object is none of these, or an empty iterable comes without a schema.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, dict):
        return pa.table(data, schema=schema).to_reader()
    if type(data).__module__.startswith("pandas."):
        return pa.Table.from_pandas(data, schema=schema, preserve_index=False).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        return _from_iterable(iter(data), schema)
    raise InvalidArgumentError(
        f"data: expected an Arrow table, batch, reader, an iterable of batches, a data frame or an "
        f"object with __arrow_c_stream__; found {type(data).__name__}"
    )


def _from_iterable(items: Iterator[Any], schema: pa.Schema | None) -> pa.RecordBatchReader:
    first = next(items, None)
    if first is None:
        if schema is None:
            raise InvalidArgumentError("data: an empty iterable needs a schema")
        return pa.RecordBatchReader.from_batches(schema, [])
    if not hasattr(first, "__arrow_c_stream__") and not hasattr(first, "__arrow_c_array__"):
        raise InvalidArgumentError(
            f"data: expected an iterable of record batches or tables; "
            f"found one of {type(first).__name__}"
        )
    head = record_batch_reader(first)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from head
        for item in items:
            yield from record_batch_reader(item)

    return pa.RecordBatchReader.from_batches(head.schema, batches())
