"""Small columns, one for each tree of encodings that the kernels over pages read."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

import fermion
from fermion import WriteOptions, col
from fermion.pages.pages import tree_label
from fermion.predicate import Expression
from fermion.reading.inspection import describe_pages

BLOCK = 1_024  # values that are packed together
ROWS = 2 * BLOCK + 76
WORDS = np.array(["AIR", "RAIL", "TRUCK", "SHIP"])
NOUNS = np.array(["carefully", "final", "deposits", "sleep", "above", "ironic", "requests"])


@dataclass(frozen=True)
class EncodedColumn:
    """A table with one column ``c``, and how it is stored.

    Attributes
    ----------
    make
        Its values.
    trees
        The encodings of its pages, as `fermion.pages.pages.tree_label` writes them.
    condition
        Selects some rows.
    options
        `fermion.WriteOptions` by name; the profile is the usual one.
    """

    make: Callable[[np.random.Generator], Any]
    trees: set[str]
    condition: Expression
    options: dict[str, Any] = field(default_factory=dict)

    def table(self) -> pa.Table:
        """The same rows at each call."""
        return pa.table({"c": self.make(np.random.default_rng(5))})

    def stored(self, **options: Any) -> bytes:
        """A file of the table."""
        sink = io.BytesIO()
        chosen = WriteOptions(**self.options, **options)
        fermion.write_table(self.table(), sink, options=chosen)
        return sink.getvalue()


def trees_of(data: bytes) -> set[str]:
    """The encodings of the pages of column ``c``."""
    with fermion.open(data) as file:
        streams = file.column("c").streams
        pages = [page for stream in streams for page in describe_pages(file.index, stream)]
    return {
        tree_label(page.tree) + ("" if page.codec == "none" else f" in {page.codec}")
        for page in pages
    }


def _forced(encoding: str, **options: Any) -> dict[str, Any]:
    return {"encodings": {"c": encoding}, **options}


def _patched(random: np.random.Generator) -> np.ndarray:
    values = random.integers(0, 8, ROWS)
    values[::301] = 10**6
    return values


def _decimals(random: np.random.Generator, rows: int = ROWS) -> np.ndarray:
    values = random.integers(0, 15, rows) / 4
    values[::401] = np.nan
    return values


def _prices(random: np.random.Generator) -> pa.Array:
    numbers = random.integers(0, 15, ROWS).tolist()
    return pa.array([Decimal(number).scaleb(-2) for number in numbers], pa.decimal128(15, 2))


def _steps(random: np.random.Generator) -> np.ndarray:
    return np.cumsum(random.integers(-1, 2, 600)).astype(np.int8)


def _texts(random: np.random.Generator) -> list[str]:
    return [" ".join(random.choice(NOUNS, n % 4)) for n in range(180)]


def _with_nulls(values: np.ndarray) -> pa.Array:
    return pa.array(values, mask=np.arange(len(values)) % 5 < 2)


_PAGES = {"page_rows_max": BLOCK}
_BIT = "for_bitpack"
_CODES = "dictionary(codes: for_bitpack)"
_WORD_ENTRIES = "dictionary: split_lengths(lengths: plain)"
ENCODED: dict[str, EncodedColumn] = {
    "packed": EncodedColumn(
        lambda random: random.integers(3, 11, ROWS),
        {_BIT},
        (col("c") >= 4) & (col("c") < 6),
        _PAGES,
    ),
    "packed_16": EncodedColumn(
        lambda random: random.integers(-3, 4, ROWS).astype(np.int16),
        {_BIT},
        col("c") > 1,
        _forced(_BIT, **_PAGES),
    ),
    "packed_in_one_page": EncodedColumn(
        lambda random: random.integers(3, 11, ROWS), {_BIT}, col("c") == 4
    ),
    "packed_in_a_small_page": EncodedColumn(
        lambda random: random.integers(3, 11, 400), {_BIT}, col("c") == 4
    ),
    "patched": EncodedColumn(_patched, {_BIT}, col("c") > 6, _PAGES),
    "runs": EncodedColumn(
        lambda random: np.repeat(random.integers(0, 9, 25), 90)[:ROWS],
        {"rle(lengths: for_bitpack, values: for_bitpack)"},
        col("c") == 5,
        _PAGES,
    ),
    "differences": EncodedColumn(
        lambda random: np.cumsum(random.integers(0, 4, ROWS)),
        {"delta(differences: for_bitpack)"},
        col("c").between(100, 300),
        _forced("delta", **_PAGES),
    ),
    "pcodec": EncodedColumn(
        lambda random: np.cumsum(random.integers(0, 4, ROWS)),
        {"pcodec"},
        col("c").between(100, 300),
        _PAGES,
    ),
    "pcodec_in_a_small_page": EncodedColumn(
        lambda random: np.cumsum(random.integers(0, 4, 600)), {"pcodec"}, col("c") < 300
    ),
    "codes": EncodedColumn(
        lambda random: np.array([10**15, 7, -3, 10**12 + 5])[random.integers(0, 4, ROWS)],
        {_CODES, "plain"},
        col("c").isin([7, 10**15]),
        _forced("dictionary", **_PAGES),
    ),
    "codes_in_one_page": EncodedColumn(
        lambda random: np.array([10**15, 7, -3, 10**12 + 5])[random.integers(0, 4, ROWS)],
        {"dictionary_local(codes: for_bitpack, dictionary: plain)"},
        col("c") <= 7,
        _forced("dictionary"),
    ),
    "decimals": EncodedColumn(
        _decimals, {"alp(integers: for_bitpack)", _CODES}, col("c") < 1.5, _PAGES
    ),
    "decimals_32": EncodedColumn(
        lambda random: _decimals(random, 500).astype(np.float32),
        {"alp(integers: for_bitpack)"},
        col("c") < 1.5,
        _forced("alp", page_rows_max=300),
    ),
    "prices": EncodedColumn(
        _prices, {"narrow(int64: for_bitpack)"}, col("c") < Decimal("0.055"), _PAGES
    ),
    "prices_of_a_dictionary": EncodedColumn(
        _prices,
        {_CODES, "narrow(int64: for_bitpack)"},
        col("c") < Decimal("0.055"),
        _forced("dictionary", **_PAGES),
    ),
    "words": EncodedColumn(
        lambda random: WORDS[random.integers(0, 4, ROWS)],
        {_CODES, "plain"},
        (col("c") != "RAIL") & (col("c") > "AIR"),
        _PAGES,
    ),
    "words_in_one_page": EncodedColumn(
        lambda random: WORDS[random.integers(0, 4, 600)],
        {f"dictionary_local(codes: for_bitpack, {_WORD_ENTRIES})"},
        col("c").starts_with("T"),
    ),
    "words_of_all_stripes": EncodedColumn(
        lambda random: WORDS[random.integers(0, 4, ROWS)],
        {"global_dictionary(codes: for_bitpack)"},
        col("c") == "AIR",
        {"global_dictionaries": ["c"], "stripe_rows": BLOCK},
    ),
    "symbols": EncodedColumn(
        _texts,
        {"fsst(lengths: for_bitpack)"},
        col("c").starts_with("final"),
        _forced("fsst", page_rows_max=100),
    ),
    "symbols_in_one_page": EncodedColumn(
        _texts, {"fsst(lengths: for_bitpack)"}, col("c") > "final", _forced("fsst")
    ),
    "texts": EncodedColumn(
        _texts,
        {"split_lengths(lengths: for_bitpack)"},
        col("c").starts_with("final"),
        _forced("split_lengths", page_rows_max=100),
    ),
    "texts_in_one_page": EncodedColumn(
        _texts,
        {"split_lengths(lengths: for_bitpack)"},
        col("c") > "final",
        _forced("split_lengths", compression_level=0),
    ),
    "plain_texts": EncodedColumn(
        lambda random: _texts(random)[:40],
        {"plain"},
        col("c") > "final",
        _forced("plain", page_rows_max=15),
    ),
    "bytes": EncodedColumn(_steps, {"plain in zstd"}, col("c") > 3),
    "zstd": EncodedColumn(
        _steps, {"zstd(content: plain)"}, col("c") > 3, _forced("zstd", page_rows_max=200)
    ),
    "lz4": EncodedColumn(
        _steps,
        {"lz4(content: plain)"},
        col("c") > 3,
        _forced("lz4", page_rows_max=300),
    ),
    "byte_streams": EncodedColumn(
        lambda random: (random.random(300) + 1).astype(np.float32),
        {"byte_stream_split(bytes: zstd(content: plain))", "plain"},
        col("c") > 1.5,
        _forced("byte_stream_split", page_rows_max=128),
    ),
    "plain": EncodedColumn(
        lambda random: random.normal(size=60), {"plain"}, col("c") > 1, {"page_rows_max": 20}
    ),
    "same": EncodedColumn(lambda _: np.full(ROWS, 7), {"constant"}, col("c") == 7, _PAGES),
    "flags": EncodedColumn(
        lambda random: random.random(ROWS) < 0.3,
        {"bitmap"},
        col("c"),
        _PAGES,
    ),
    "numbers_and_nulls": EncodedColumn(
        lambda random: _with_nulls(random.integers(0, 8, ROWS)),
        {_BIT, "bitmap"},
        col("c") > 5,
        _PAGES,
    ),
    "words_and_nulls": EncodedColumn(
        lambda random: _with_nulls(WORDS[random.integers(0, 4, 600)]),
        {"dictionary_local(codes: for_bitpack, dictionary: plain)", "bitmap"},
        col("c") == "AIR",
    ),
}
