"""Arrow data in memory that its owner uses again: every buffer of them is zeroed after a call.

The data are an Arrow stream that is read without a copy, so that all buffers of any type, those of
children, views and dictionaries too, are parts of one piece of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa


class RefilledMemory:
    """A table whose memory can be zeroed.

    Attributes
    ----------
    table
        Reads zeros, empty values and first dictionary entries after `zero`.
    """

    def __init__(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)
        self._bytes = np.frombuffer(bytearray(sink.getvalue()), np.uint8)
        self.table = pa.ipc.open_stream(pa.py_buffer(self._bytes)).read_all()

    def zero(self) -> None:
        """Overwrite everything."""
        self._bytes[:] = 0


def batches_of_one_memory(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The batches of tables, one after the other; each is zeroed before the next one is made."""
    for table in tables:
        for batch in table.to_batches():
            memory = RefilledMemory(pa.Table.from_batches([batch]))
            yield from memory.table.to_batches()
            memory.zero()
