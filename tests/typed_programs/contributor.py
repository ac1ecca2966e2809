"""What a contributor writes beside the packages. Checked by `mypy --strict`, never run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_type

import pyarrow as pa

from fermion.typing import ArrowStream, FilterLike, KeysLike, TableLike
from fermion_table import Scan, Snapshot, Table
from fermion_table.engine import SplitReader, WriterMessage


class Rows:
    """Anything with ``__arrow_c_stream__`` is rows."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """An empty stream."""
        return pa.table({}).__arrow_c_stream__(requested_schema)


def engine(table: Table, data: TableLike, wanted: FilterLike, keys: KeysLike) -> Snapshot:
    """Write apart, commit once, read a split."""
    stream: ArrowStream = Rows()
    table.append(stream)
    table.append(Rows())
    scan = table.scan(filter=wanted)
    assert_type(scan, Scan)
    table.delete_keys(keys)
    writer = table.writer()
    writer.write(data)
    messages: Iterable[WriterMessage] = writer.prepare_commit()
    table.commit([data])  # type: ignore[list-item]
    number: TableLike = 5  # type: ignore[assignment]
    wrong: FilterLike = 1.5  # type: ignore[assignment]
    print(number, wrong, SplitReader)
    return table.commit(messages)
