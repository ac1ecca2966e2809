"""Small files that show encodings, and larger ones of several blocks."""

from __future__ import annotations

import decimal
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tests.kit.files.feature import Feature


def compact() -> Feature:
    count = 100
    rng = np.random.default_rng(5)
    words = np.array(["carefully", "final", "deposits", "sleep", "above", "ironic"])
    texts = [" ".join(rng.choice(words, 5)) for _ in range(count)]
    columns = {
        "text": pa.array(texts),
        "walk": pa.array(np.cumsum(rng.integers(0, 9, count))),
        "real": pa.array(rng.integers(0, 500, count) / 4, pa.float32()),
        "hash": pa.array([rng.bytes(2) * 4 for _ in range(count)], pa.binary(8)),
    }
    return Feature(pa.table(columns), {"profile": "compact"}, filter="walk < 40")


NUMBER_ENCODINGS = ("plain", "for_bitpack", "delta", "pcodec", "rle", "dictionary", "zstd")


def number_encodings() -> Feature:
    values = pa.array([1000 + 3 * (i // 4) for i in range(200)])
    columns = dict.fromkeys(NUMBER_ENCODINGS, values)
    columns["constant"] = pa.array([42] * 200)
    columns["byte_stream_split"] = pa.array([i / 7 for i in range(200)], pa.float32())
    columns["narrow"] = pa.array([decimal.Decimal(i) for i in range(200)], pa.decimal128(30, 0))
    columns["alp"] = pa.array([i / 10 if i % 50 else float("nan") for i in range(200)])
    return Feature(pa.table(columns), {"encodings": {name: name for name in columns}})


def text_encodings() -> Feature:
    texts = pa.array([f"value {i % 9}" * (i % 4) for i in range(120)])
    columns = dict.fromkeys(("plain", "split_lengths", "dictionary", "zstd"), texts)
    columns["constant"] = pa.array(["same"] * 120)
    encodings = {name: name for name in columns}
    columns["flags"] = pa.array([i % 3 == 0 for i in range(120)])
    return Feature(pa.table(columns), {"encodings": {**encodings, "flags": "bitmap"}})


def symbols() -> Feature:
    texts = [f"value {i % 7} of many values" * (i % 3) for i in range(90)]
    columns = {
        "text": pa.array(texts),
        "maybe": pa.array([None if i % 5 == 1 else text for i, text in enumerate(texts)]),
        "raw": pa.array([text.encode() + bytes([i, 255]) for i, text in enumerate(texts)]),
    }
    options = {"profile": "random", "encodings": dict.fromkeys(columns, "fsst")}
    return Feature(pa.table(columns), options, filter="text LIKE 'value 3%'")


def lz4_blocks() -> Feature:
    """Pieces of strings, nodes and whole pages, all through LZ4."""
    texts = [f"value {i % 7} of many values" * (i % 3) for i in range(90)]
    columns = {
        "text": pa.array(texts),
        "maybe": pa.array([None if i % 5 == 1 else text for i, text in enumerate(texts)]),
        "number": pa.array([10**12 * (i % 4) + i for i in range(90)]),
        "fixed": pa.array([bytes([i % 4] * 12) for i in range(90)], pa.binary(12)),
    }
    encodings = {"text": "split_lengths", "maybe": "split_lengths", "number": "lz4"}
    options = {"codec": "lz4", "encodings": encodings}
    return Feature(pa.table(columns), options, filter="number > 1000000000000")


def blocks(profile: str) -> Callable[[], Feature]:
    """Columns of several blocks: lanes, patches, restarts, frames, pages of zstd."""

    def build() -> Feature:
        rng = np.random.default_rng(7)
        count = 2_500
        words = np.array(["carefully", "final", "deposits", "sleep", "above", "the", "ironic"])
        outliers = np.where(rng.random(count) < 0.01, 2**31 - 1, rng.integers(0, 50, count))
        columns = {
            "walk": np.cumsum(rng.integers(-3, 9, count)),
            "narrow": rng.integers(-100, 100, count).astype(np.int8),
            "short": rng.integers(0, 1_000, count).astype(np.uint16),
            "outliers": outliers.astype(np.int32),
            "wide": rng.integers(0, 2**63, count).astype(np.uint64),
            "squares": np.arange(count) ** 2,
            "money": rng.integers(0, 10**6, count) / 100,
            "real": rng.random(count).astype(np.float32),
            "runs": np.repeat(rng.integers(0, 9, count // 50), 50),
            "text": [" ".join(rng.choice(words, 4)) for _ in range(count)],
            "word": rng.choice(words, count),
            "sparse": pa.array([i if i % 5 == 0 else None for i in range(count)]),
            "decimal": pa.array([decimal.Decimal(i * i) for i in range(count)], _DECIMAL),
            "list": pa.array([[i] * (i % 4) for i in range(count)]),
        }
        return Feature(pa.table(columns), {"profile": profile, "page_rows_max": 2_048})

    return build


def ordered_dictionary() -> Feature:
    """Names sorted within groups: their dictionary is in the order of its bytes."""
    rng = np.random.default_rng(11)
    words = np.array([f"name {n}" for n in rng.permutation(1_500)])
    groups = [np.sort(rng.choice(words, 750, replace=False)) for _ in range(16)]
    options = {"page_bytes": 65_536, "page_rows_max": 4_096}
    return Feature(pa.table({"name": np.concatenate(groups)}), options, filter="name = 'name 7'")


_DECIMAL = pa.decimal128(20, 0)
