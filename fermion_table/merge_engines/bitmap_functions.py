"""The aggregate function rbm64: the union of sets of numbers, serialized 64-bit roaring bitmaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from fermion.errors import InvalidArgumentError
from fermion_table.merge_engines.key_groups import ABSENT, GroupedColumn
from fermion_table.schema.field_functions import FieldFunction

NAME = "rbm64"


def _union(column: GroupedColumn, function: FieldFunction) -> np.ndarray | pa.Array:
    """The union of each group; a single value stays as it is."""
    used = column.is_used & column.is_valid
    first = column.first_where(used)
    last = column.last_where(used)
    rows = column.rows_at(first)
    several = np.flatnonzero(first != last)
    if not len(several):
        return rows
    unions = {}
    for group in several.tolist():
        places = np.arange(first[group], last[group] + 1)
        counted = column.groups.order[places[used[places]]]
        unions[group] = _serialized([column.values[row].as_py() for row in counted.tolist()])
    values = [
        unions[group] if group in unions else None if row == ABSENT else column.values[row].as_py()
        for group, row in enumerate(rows.tolist())
    ]
    return pa.array(values, column.values.type)


def _serialized(values: list[bytes]) -> bytes:
    """The bytes of a union: the same in whatever order and steps it was made."""
    found: BitMap64 = BitMap64.union(*map(BitMap64.deserialize, values))
    found.run_optimize()  # containers of the smallest form
    return bytes(found.serialize())


def check_bitmaps(rows: pa.RecordBatch, functions: Mapping[str, FieldFunction]) -> None:
    """Refuse values of columns of this function that are no bitmaps.

    Raises InvalidArgumentError: Names the column.
    """
    for name, function in functions.items():
        if function.name != NAME:
            continue
        for value in rows.column(name).drop_null().to_pylist():
            try:
                BitMap64.deserialize(value)
            except (ValueError, IndexError) as error:
                raise InvalidArgumentError(
                    f"column {name!r}: rbm64 expects serialized 64-bit roaring bitmaps (the "
                    f"portable format), found {len(value)} bytes: {error}"
                ) from None


FUNCTIONS: dict[str, Callable[[GroupedColumn, FieldFunction], np.ndarray | pa.Array]] = {
    NAME: _union,
}
