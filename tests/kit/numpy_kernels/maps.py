"""The kernels for keys of maps again in NumPy: what the compiled ones must agree with."""

from __future__ import annotations

import numpy as np

from tests.kit.numpy_kernels.nulls import _flags


def _valid(bits: np.ndarray, count: int) -> np.ndarray:
    return _flags(bits, 0, count) if len(bits) else np.ones(count, bool)


def _check(codes: np.ndarray, rows: np.ndarray, keys: int) -> None:
    if len(rows) != len(codes) or (len(codes) and codes.max() >= keys):
        raise ValueError("rows or codes do not fit")


def count_keys(codes: np.ndarray, rows: np.ndarray, bits: np.ndarray, counts: np.ndarray) -> int:
    """Sort for neighbours that are equal, and count by bins."""
    _check(codes, rows, len(counts))
    counts += np.bincount(codes[_valid(bits, len(codes))], minlength=len(counts))
    order = np.lexsort((rows, codes))
    same = (np.diff(codes[order].astype(np.int64)) == 0) & (np.diff(rows[order]) == 0)
    return int(order[1:][same].min()) if same.any() else -1


def spread_keys(
    values: np.ndarray,
    codes: np.ndarray,
    rows: np.ndarray,
    bits: np.ndarray,
    places: np.ndarray,
    total: int,
    out: np.ndarray,
    out_bits: np.ndarray,
) -> None:
    """Scatter by column and row."""
    _check(codes, rows, len(places))
    columns = len(out) // max(total, 1)
    if values.dtype.itemsize != out.dtype.itemsize or len(values) != len(codes):
        raise ValueError("values do not fit")
    if len(out) != columns * total or len(out_bits) != columns * ((total + 7) // 8):
        raise ValueError("out does not fit")
    if len(rows) and (rows.min() < 0 or rows.max() >= total or (np.diff(rows) < 0).any()):
        raise ValueError("a row is out of order, or outside")
    column = places[codes]
    own = np.flatnonzero((column >= 0) & (column < columns) & _valid(bits, len(codes)))
    out[column[own] * total + rows[own]] = values.view(out.dtype)[own]
    flags = np.zeros((columns, total), bool)
    flags[column[own], rows[own]] = True
    packed = np.packbits(flags, axis=1, bitorder="little") if columns else flags.astype(np.uint8)
    out_bits |= packed.reshape(-1)


def join_keys(
    values: np.ndarray,
    bits: np.ndarray,
    ranks: np.ndarray,
    rows: int,
    rest_rows: np.ndarray,
    rest_ranks: np.ndarray,
    offsets: np.ndarray,
    out_ranks: np.ndarray,
    out: np.ndarray,
    places: np.ndarray,
) -> None:
    """Sort all entries by row and rank."""
    blocks = rest_rows >> 6
    if len(values) != len(ranks) * rows or len(places) != len(rest_ranks) != len(rest_rows):
        raise ValueError("lengths differ")
    if len(rest_rows) and (rest_rows.min() < 0 or rest_rows.max() >= rows):
        raise ValueError("a row is outside")
    if (np.diff(blocks) < 0).any() or values.dtype.itemsize != out.dtype.itemsize:
        raise ValueError("rows are out of order, or items of another size")
    columns, own = np.nonzero(_valid(bits, len(values)).reshape(len(ranks), rows))
    all_rows = np.concatenate([own, rest_rows])
    all_ranks = np.concatenate([ranks[columns], rest_ranks])
    if not len(out_ranks) == len(out) == len(all_rows) or len(offsets) != rows + 1:
        raise ValueError("outputs do not fit")
    order = np.lexsort((all_ranks, all_rows))
    offsets[:] = np.concatenate(([0], np.cumsum(np.bincount(all_rows, minlength=rows))))
    out_ranks[:] = all_ranks[order]
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    out[inverse[: len(own)]] = values.view(out.dtype)[columns * rows + own]
    places[:] = inverse[len(own) :]
