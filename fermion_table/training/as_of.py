"""For each label the newest row of its key that was there at the label's time: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError
from fermion_table.schema.matching import matching

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def newest_rows(
    label_keys: Sequence[pa.ChunkedArray],
    label_times: pa.ChunkedArray,
    source_keys: Sequence[pa.ChunkedArray],
    source_times: pa.ChunkedArray,
    within: int | None,
) -> np.ndarray:
    """The number of the source's row for each label, -1 where there is none: ``int64``.

    That is the row with the label's key and the largest time which is not after the label's; of
    rows with one key and time the last. Nulls in keys and times match nothing. Both sides are
    sorted by key and time, and searched.

    label_keys, source_keys: The columns of the key, of the same types on both sides.
    label_times, source_times: Of one type.
    within: How much older than the label a row may be, in units of the times; None: any age.
    """
    labels = len(label_times)
    keys, is_known = _codes(
        [
            _joined(of_label, of_row)
            for of_label, of_row in zip(label_keys, source_keys, strict=True)
        ]
    )
    times = _joined(label_times, source_times)
    is_known &= ~times.is_null().to_numpy(zero_copy_only=False)
    ticks = times.fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
    moments, ranks = np.unique(ticks, return_inverse=True)
    places = keys * (len(moments) + 1) + ranks
    rows = labels + np.flatnonzero(is_known[labels:])
    rows = rows[np.argsort(places[rows], kind="stable")]
    found = np.searchsorted(places[rows], places[:labels], "right") - 1
    matched = np.full(labels, -1, np.int64)
    candidates = np.flatnonzero((found >= 0) & is_known[:labels])
    of_row = rows[found[candidates]]
    fits = keys[of_row] == keys[candidates]
    if within is not None:
        ticks = ticks.view(np.uint64)  # differences are not negative, and may need 64 bits
        fits &= ticks[candidates] - ticks[of_row] <= np.uint64(within)
    matched[candidates[fits]] = of_row[fits] - labels
    return matched


def _joined(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    chunks = [*first.chunks, *second.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], first.type)


def _codes(columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """A number for each row, equal where all columns are, and whether no column is null."""
    codes = np.zeros(len(columns[0]), np.int64)
    is_known = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        encoded = matching(column).dictionary_encode()
        of_column = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        is_known &= ~encoded.indices.is_null().to_numpy(zero_copy_only=False)
        codes = np.unique(codes * max(len(encoded.dictionary), 1) + of_column, return_inverse=True)[
            1
        ]
    return codes, is_known


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of a type can order rows: timestamps, dates and integers."""
    return pat.is_timestamp(kind) or pat.is_date(kind) or pat.is_signed_integer(kind)


def stored_as(kind: pa.DataType) -> pa.DataType:
    """A type whose values are 64-bit integers, and that holds those of another one."""
    return (
        pa.timestamp("s") if pat.is_date32(kind) else kind if kind.bit_width == 64 else pa.int64()
    )


def ticks_of(within: timedelta, kind: pa.DataType, where: str) -> int:
    """A length of time in units of a column.

    Raises InvalidArgumentError: The column has no unit of time.
    """
    if pat.is_date32(kind):
        return within // timedelta(seconds=1)
    if pat.is_date64(kind):
        return within // timedelta(milliseconds=1)
    if not pat.is_timestamp(kind):
        raise InvalidArgumentError(
            f"{where}: within={within}: a column of {kind} has no unit of time"
        )
    ticks = within // timedelta(microseconds=1) * 1_000 // _UNIT_NS[kind.unit]
    return min(ticks, 2**64 - 1)  # no two times are further apart
