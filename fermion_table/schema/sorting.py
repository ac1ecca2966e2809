"""The order of rows in a file: sorted by columns, or along a Z-order curve through several.

The Z-order of rows is that of their codes: each column's values become ranks, spread evenly over
the same number of bits, and the bits of all columns are interleaved, the first column's first.
Neighbours on the curve are near each other in every column, so that a file's bounds are narrow in
all of them.

G. M. Morton, "A Computer Oriented Geodetic Data Base and a New Technique in File Sequencing", IBM,
Ottawa, 1966.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.engine import one_batch, stable_order, take_batch_rows
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.schema import value_codec
from fermion_table.schema.transforms import plain

CODE_BITS = 63
COLUMN_BITS_MAX = 21
"""Bits of a column's rank in a code: cells finer than this bring nothing."""
CURVE_COLUMNS_MAX = 16

_CURVE = re.compile(r"\s*zorder\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How rows are sorted, nulls last.

    columns: Names of top-level columns; the first matters most.
    is_curve: Whether all of them matter alike: Z-order.
    """

    columns: tuple[str, ...]
    is_curve: bool = False

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise InvalidArgumentError(f"sort_by: a column comes twice in {list(self.columns)}")
        if self.is_curve and not 2 <= len(self.columns) <= CURVE_COLUMNS_MAX:
            raise InvalidArgumentError(
                f"zorder: found {len(self.columns)} columns, expected 2 to {CURVE_COLUMNS_MAX}"
            )

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns whose values have no order.

        Raises InvalidArgumentError.
        """
        for name in self.columns:
            dtype = schema.field(name).type
            if not value_codec.has_plain_json(dtype):
                raise InvalidArgumentError(
                    f"sort_by: column {name!r} is {dtype}; expected booleans, numbers, strings, "
                    "binary, dates or times"
                )

    def indices(self, table: pa.Table) -> np.ndarray:
        """The rows in this order: ``int64``, shape (num_rows,). Equal rows keep theirs."""
        keys = [_key(table.column(name)) for name in self.columns]
        if self.is_curve:
            return stable_order(interleaved([_ranks(key) for key in keys]))
        names = [str(place) for place in range(len(keys))]
        order = pc.sort_indices(
            pa.table(keys, names=names),
            sort_keys=[(name, "ascending") for name in names],  # nulls last
        )
        return order.to_numpy().astype(np.int64)


def parse_order(given: Sequence[str] | str) -> RowOrder:
    """An order from text: names of columns, or ``"zorder(a, b)"``.

    Raises InvalidArgumentError.
    """
    listed = [given] if isinstance(given, str) else list(given)
    match = _CURVE.fullmatch(listed[0]) if len(listed) == 1 else None
    if match is None:
        return RowOrder(tuple(listed))
    return RowOrder(tuple(name.strip() for name in match[1].split(",")), is_curve=True)


def sorted_rows(batches: Sequence[pa.RecordBatch], order: RowOrder) -> pa.RecordBatch:
    """All rows of some batches in an order; a copy.

    batches: Of one schema; at least one.
    Raises InvalidArgumentError: The dictionaries of a column together have more values than its
        indices can number, or its text, bytes or items are more than 2 GiB.
    """
    try:
        whole = one_batch(batches)
    except pa.ArrowInvalid as error:
        schema = batches[0].schema
        narrow = [each.name for each in schema if pat.is_dictionary(each.type)]
        raise InvalidArgumentError(
            f"rows can't be sorted together: {error}. Give the column wider indices by "
            f"Table.alter_column; found dictionaries in {narrow}"
        ) from error
    return take_batch_rows(whole, order.indices(pa.Table.from_batches([whole])))


def interleaved(ranks: Sequence[np.ndarray]) -> np.ndarray:
    """Morton codes.

    ranks: One array a column, ``int64``, shape (n,), from 0 on; equal values have equal ranks.
    Returns: ``int64``, shape (n,), none negative.
    """
    bits = min(COLUMN_BITS_MAX, CODE_BITS // len(ranks))
    codes = np.zeros(len(ranks[0]), np.int64)
    cells = [_spread(each, bits) for each in ranks]
    for bit in reversed(range(bits)):
        for cell in cells:
            codes = (codes << 1) | ((cell >> bit) & 1)
    return codes


def _spread(ranks: np.ndarray, bits: int) -> np.ndarray:
    """Ranks spread evenly over so many bits, so that every column's first bit halves its rows."""
    greatest = int(ranks.max(initial=0))
    return ranks * ((1 << bits) - 1) // max(greatest, 1)


def _key(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return plain(whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole)


def _ranks(key: pa.Array) -> np.ndarray:
    """Dense ranks, nulls last: ``int64``, shape (n,)."""
    encoded = key.dictionary_encode(null_encoding="encode")
    order = pc.sort_indices(encoded.dictionary).to_numpy()  # nulls last
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()]
