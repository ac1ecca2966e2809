"""Columns of many pages."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa

import fermion
from fermion import WriteOptions

ROWS = 6_000
WORDS = ["", "a", "final deposits", "x" * 70, "carefully ironic requests sleep"]


def written(table: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    fermion.write_table(table, sink, options=WriteOptions(**options))
    return sink.getvalue().to_pybytes()


def comments(random: np.random.Generator, rows: int = ROWS) -> list[str]:
    return [f"{WORDS[place]} {number}" for number, place in enumerate(random.integers(0, 5, rows))]


def texts(random: np.random.Generator, rows: int = ROWS) -> list[str]:
    return [WORDS[place] for place in random.integers(0, 5, rows)]


def pages_of_pieces(random: np.random.Generator) -> list[str]:
    """More than twice the 64 KiB of a piece in 2,000 rows; every third text is empty."""
    return [text * 8 * (row % 3 > 0) for row, text in enumerate(comments(random))]


def prices(random: np.random.Generator, rows: int = ROWS) -> pa.Array:
    whole = [decimal.Decimal(int(value)) for value in random.integers(-(10**6), 10**6, rows)]
    return pa.array([value.scaleb(-2) for value in whole], pa.decimal128(15, 2))


COLUMNS = {
    "numbers": (lambda random: random.integers(-9, 10**6, ROWS), "for_bitpack"),
    "days": (lambda random: random.integers(0, 400, ROWS).astype("M8[D]"), "plain"),
    "prices": (prices, "narrow"),
    "codes": (lambda random: random.integers(0, 9, ROWS) * 1_000_003, "dictionary"),
    "same": (lambda random: np.full(ROWS, 7), "constant"),
    "texts": (texts, "dictionary"),
    "symbols": (comments, "fsst"),
    "pieces": (pages_of_pieces, "split_lengths"),
}
